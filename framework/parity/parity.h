/* SPDX-License-Identifier: Apache-2.0 */
/* parity/parity.h - how far the model is from reference values on disk, tensor by tensor: in f64 and f32 on the cpu, in f32
 * and (whole models, and the merger) bf16 on other backends.
 *
 * A folder is told by its files: config.json + weights.safetensors (a model), or by the keys of io.safetensors (gated delta rule,
 * merger, optimizer), images, or tokenizer.json + cases.json. Everything compared is computed here, positions and packing
 * included; samples of a model share one packed row. A folder fails on any row over its gate, on a key of its io that nothing
 * compared, and when nothing was compared. A model's folder may also hold mtp_io.safetensors and mtp_weights.safetensors: the same
 * model with multi-token-prediction depths, compared in a table of its own. */
#ifndef ST_PARITY_H
#define ST_PARITY_H
#include "checkpoint/checkpoint.h"
#include "checkpoint/family.h"
#include <jansson.h>

enum { ST_PARITY_F64 = 0, ST_PARITY_F32, ST_PARITY_BF16, ST_PARITY_TYPES };
enum { ST_BY_NORM = 0, ST_BY_MAX }; /* |a-b| / |b| over the tensor, or the largest |a-b| */
#define ST_PARITY_PEER 1.25 /* bf16 may be so many times as far from the reference as another implementation */
/* gate INFINITY: measured only (bf16 without a peer's error for this value).
 * reach: how far rounding alone moves this value, measured in the same run; 0: not asked. An error over the gate but within reach
 * is marked ~ instead of BAD: the reference itself is not determined to the gate there (docs/DECISIONS.md, training curves). */
typedef struct st_parity_cell {
    double max, norm, gate, reach;
    int32_t how, done, failed;
} st_parity_cell;
typedef struct st_parity_row {
    const char *name;
    int64_t count;
    st_parity_cell cell[ST_PARITY_TYPES];
} st_parity_row;
typedef struct st_parity {
    st_base *base;
    st_registry *registry;
    const char *dir, *backend;
    json_t *peer; /* error by norm of another bf16 implementation, by name; NULL: none given */
    st_arena *arena;
    const char *io_name, *title; /* "io.safetensors"; what the table is headed by */
    st_tensors *io;
    int32_t n_io;
    const st_file_tensor *io_list;
    uint8_t *read; /* a flag per key of io */
    st_parity_row *rows;
    int32_t n, cap;
    int32_t type; /* precision of the run in progress */
    uint8_t ran[ST_PARITY_TYPES];
    int32_t failed;
    FILE *out;
} st_parity;

typedef struct st_parity_options {
    const char *backend; /* name of a backend plugin */
    const char *peer;    /* JSON file {"NAME": error, ...}: bf16 may be 1.25 times as far off; NULL: none */
} st_parity_options;
/* One folder. *failed counts rows over their gates, unread keys and empty comparisons. Errors stop it. */
int st_parity_folder(st_base *, st_registry *, const st_parity_options *, const char *dir, FILE *out, int *failed,
                     st_diags *);

/* ---- report.c ---- */
int st_parity_compare(st_parity *, const char *name, const double *want, const double *got, int64_t n, int how,
                      double gate, st_error *);
/* As above by norm, with the reach of rounding. */
int st_parity_compare_within(st_parity *, const char *name, double want, double got, double gate, double reach,
                             st_error *);
/* The key as double; NULL and no error when io does not have it. Marks it read. */
int st_parity_get(st_parity *, const char *key, double **values, int64_t *n, const st_file_tensor **, st_error *);
int st_parity_need(st_parity *, const char *key, double **values, int64_t *n, st_error *);
/* The same, of so many values: another number is refused with both. */
int st_parity_take(st_parity *, const char *key, int64_t count, double **values, st_error *);
bool st_parity_stored_f32(const st_parity *); /* reference values were rounded when stored */
void st_parity_print(st_parity *);
const char *st_parity_precision(const st_parity *); /* "f64" */

/* ---- a model from spec text, open, in the precision of the run (model_case.c) ---- */
typedef struct st_parity_model {
    st_spec *spec;
    st_model *model;
} st_parity_model;
int st_parity_model_open(st_parity *, const char *text, int train, st_parity_model *, st_diags *);
json_t *st_parity_json(st_parity *, const char *name, st_error *); /* a file of the folder; NULL and an error */
void st_parity_model_close(st_parity_model *);
struct st_parity_samples;
/* The spec of config.json for these samples; train: the object of meta.json, NULL: defaults. Layers with experts have
 * the line ST_PARITY_NO_BALANCE. Then an open model of it with the folder's weights. */
#define ST_PARITY_NO_BALANCE "aux = none\n"
int st_parity_model_spec(st_parity *, const struct st_parity_samples *, json_t *train, st_buf *text, st_error *);
int st_parity_open_loaded(st_parity *, const char *text, st_parity_model *, st_diags *);
/* Router logits, balance losses and their gradients, where io has them (experts_case.c); samples were packed. */
int st_parity_experts(st_parity *, const struct st_parity_samples *, st_diags *);
/* The model never makes logits as a whole, so they are made here from a final state h [rows, hidden], in the run's
 * precision. */
int st_parity_logits(st_parity *, st_model *, const double *h, int64_t rows, double *out, st_error *);
/* The gradient of one file tensor against key grad.NAME; needed 0: skipped when io lacks it. */
int st_parity_gradient(st_parity *, st_model *, const st_file_name *, int needed, st_error *);
/* What f64 must reach, and the gates of f32. */
double st_parity_gate(const st_parity *, double f32_gate);
#define ST_PARITY_LOGITS_F32 5e-5
#define ST_PARITY_LOSS_F32 5e-6
#define ST_PARITY_GRADIENT_F32 1e-3

/* ---- cases; each is called once per precision ---- */
int st_parity_model_case(st_parity *, st_diags *);
/* depths: the table of mtp_io.safetensors; the samples are those of the folder's io */
int st_parity_mtp_case(st_parity *folder, st_parity *depths, st_diags *);
int st_parity_rule_case(st_parity *, st_diags *);
int st_parity_merger_case(st_parity *, st_diags *);
int st_parity_images_case(st_parity *, st_diags *);
int st_parity_optimizer_case(st_parity *, st_diags *);
int st_parity_tokenizer_case(st_parity *, st_diags *); /* needs no precision: called once */
#endif
