/* SPDX-License-Identifier: Apache-2.0 */
/* model/model.h - a model assembled from a spec: weights, stacks, step machinery, planning. The only door to this room.
 *
 * Life: build (no device is opened; for backend = auto it is asked whether there is one) -> plan (the real code with
 * counting arenas) -> open (device, arenas) -> init or load -> step / evaluate. All device memory is taken in open. */
#ifndef ST_MODEL_H
#define ST_MODEL_H
#include "model/row.h"
#include "parallel/groups.h"
#include "plugin/registry.h"
#include <strata/backend.h>
#include <strata/comm.h>
#include <strata/head.h>
#include <strata/optimizer.h>

typedef struct st_model st_model;

/* Binds [run] precision and backend, [stack], [layer.*], [position], [encoder], [head.*], [batch], [recompute],
 * [optimizer], [part.*]. Every mistake goes to diags. train 0: no gradients, no optimizer. */
int st_model_build(st_base *, st_spec *, st_registry *, int train, st_model **, st_diags *);
/* For a plan of so many ranks, seen by the first of them: more than one are not opened. */
int st_model_build_for(st_base *, st_spec *, st_registry *, int train, int32_t ranks, st_model **, st_diags *);
void st_model_destroy(st_model *);
int st_model_plan(st_model *, st_error *);
int st_model_find_device(st_model *, st_error *); /* is there one to open? It is only counted */
int st_model_open(st_model *, st_error *);
const st_mesh *st_model_mesh(const st_model *);
const char *st_model_backend(const st_model *);   /* "cpu" */
const char *st_model_choice(const st_model *);    /* "cpu (auto: not cuda, ...), f32 (auto)"            */
const char *st_model_device(const st_model *);    /* words for logs: "cpu, 2 threads, openblas ..." */
int32_t st_model_dtype(const st_model *);
const char *st_model_pattern(const st_model *);   /* expanded */
int64_t st_model_vocab(const st_model *);
int64_t st_model_hidden(const st_model *);

/* What the data path needs. */
const st_row_shape *st_model_shape(const st_model *);
int32_t st_model_micros(const st_model *);        /* rows per optimizer step of this rank: its share of [batch] rows */
const st_instance *st_model_position(const st_model *); /* NULL: none */
const st_instance *st_model_encoder(const st_model *);  /* NULL: text only */

/* ---- what it is made of, in order of configuration; for `strata check` ---- */
typedef struct st_model_layer {
    const char *path, *section;    /* "layers.3", "layer.G"; "encoder.blocks.0", "head.lm"; "" for the host   */
    int32_t kind, index, block;    /* ST_KIND_*, 0: the host; place in its stack and block, -1: no layer      */
    int32_t depth;                 /* layers of the pattern: 0 the trunk, k behind the k-th '/'; all others -1 */
    char symbol;                   /* 0: none                                                                 */
    const st_plugin *plugin;       /* NULL: the host                                                          */
    const void *self;              /* bound by plugin->params                                                 */
    int64_t parameters;            /* elements of its weights                                                 */
} st_model_layer;
int st_model_layers(const st_model *, const st_model_layer **);

/* ---- weights ---- */
typedef struct st_model_weight {
    const char *path;              /* "layers.3.in", "embed", "encoder.blocks.0.qkv"; unique                  */
    const char *part;              /* "language", "vision", "merger"                                          */
    int32_t block;                 /* block of the trunk (mixer + MLP pair), -1: none                         */
    int32_t nd; int64_t dim[ST_DIMS], count;
    uint32_t flags;                /* ST_W_*                                                                  */
    int32_t dtype, frozen;
    double lr_scale, decay;        /* resolved                                                                */
    int32_t n_sec; const st_section *sec; int32_t sec_dim;
} st_model_weight;
int st_model_weights(const st_model *, const st_model_weight *const **); /* -> how many; likewise below */
int32_t st_model_find_weight(const st_model *, const char *path); /* its index; -1: there is none */
int64_t st_model_parameters(const st_model *, const char *part); /* trained elements; part NULL: all */
/* Names in other layouts ("hf"): one per file tensor, which holds rows [first, first + n) of the weight's dimension
 * sec_dim (without sections 0). entry >= 0: it is that entry of dimension 0 alone (rows of dimension 1 or later). */
typedef struct st_file_name { const char *file_name; int32_t weight, entry; int64_t first, n; } st_file_name;
/* What no plugin names: "embed", "final_norm", "final_norm_bias", "lm_head"; of the trunk, as of any stack, the norms
 * and in a row without a weight the prefix of block {block}. A family's (checkpoint/family.h). */
typedef struct st_host_maps { const st_map *host, *trunk; int32_t n_host, n_trunk; } st_host_maps;
/* -> how many, or a negative code. Weights without a name in the layout have no entry. Of a weight's alternatives it is
 * the lowest of which `has` knows a tensor; has NULL, or if there is none: the lowest. */
typedef bool (*st_has_file_name)(void *ctx, const char *file_name);
int st_model_file_names(const st_model *, const char *layout, const st_host_maps *, st_has_file_name has, void *ctx,
                        const st_file_name **);
enum { ST_READ_WEIGHT = 1, ST_READ_GRAD };
int st_model_read(st_model *, int32_t weight, int what, double *out, st_error *);          /* count elements */
/* Elements [first, first + n) of its master. */
int st_model_read_at(st_model *, int32_t weight, int64_t first, double *out, int64_t n, st_error *);
int st_model_write(st_model *, int32_t weight, const double *in, st_error *);             /* master and run copy */
/* The same for elements [first, first + n) of it, so that a large weight need not be in memory twice. */
int st_model_write_at(st_model *, int32_t weight, int64_t first, const double *in, int64_t n, st_error *);
/* Bits as stored, for checkpoints: masters, optimizer state. Names: "WEIGHT_PATH" and "STATE_NAME:WEIGHT_PATH". */
typedef struct st_state_tensor {
    const char *name; int32_t dtype, nd; int64_t dim[ST_DIMS]; size_t bytes; int32_t optimizer;
} st_state_tensor;
int st_model_states(const st_model *, const st_state_tensor **);
int st_model_state_read(st_model *, int32_t i, size_t first, size_t n, void *out, st_error *); /* n of its bytes */
int st_model_state_write(st_model *, int32_t i, const void *in, st_error *);

/* Named rule ("hf", "fan_in", "megatron_scaled") from [init]; seeded per weight path. */
int st_model_init(st_model *, uint64_t seed, st_error *);
/* Of what the optimizer rounds at random; once the model is open. */
void st_model_seed(st_model *, uint64_t seed);

/* ---- work ---- */
typedef struct st_metric_value { const char *name, *unit; double value; int32_t valid; } st_metric_value;
typedef struct st_step_result {
    double loss;                   /* sum / trained tokens of depth 0                                         */
    double grad_norm;              /* before clipping                                                         */
    int64_t tokens, trained;       /* real tokens, trained tokens of depth 0                                  */
    int32_t skipped;               /* 1: nothing was changed                                                  */
    int32_t fault;                 /* 1: since a kernel reported a fault, which it would do again             */
    char bad[256];                 /* first tensor with NaN or Inf, the fault's words, or: no target          */
    int32_t n_metrics; const st_metric_value *metrics;
} st_step_result;
/* One optimizer step over rows[0 .. micros). schedule: step number from 1, learning rate already scheduled. clip 0:
 * none. */
int st_model_step(st_model *, const st_packed_row *const *rows, int32_t micros, const st_schedule *, double clip,
                  st_step_result *, st_error *);
/* Called once in every st_model_step when all of its passes are enqueued, on a device with memory of its own: returns the row
 * that the next step begins with (NULL: none), which is copied while this step computes. It stays as it is until then. */
typedef const st_packed_row *(*st_next_row_fn)(void *ctx);
void st_model_ahead(st_model *, st_next_row_fn, void *ctx); /* of a planned model */
bool st_model_goes_ahead(const st_model *);                 /* is it such a device */
/* As above without norm, clipping or update: gradients stay for st_model_read. */
int st_model_gradients(st_model *, const st_packed_row *const *rows, int32_t micros, st_step_result *, st_error *);
/* The two halves of a step by hand: gradients from outside (a weight not written keeps what it had), then norm,
 * clip, update. */
int st_model_write_grad(st_model *, int32_t weight, const double *in, st_error *);
int st_model_update(st_model *, const st_schedule *, double clip, st_step_result *, st_error *);
/* Loss of one row: sum and count of depth 0; nll, best [tokens] at trained slots, NULL: not wanted. */
int st_model_evaluate(st_model *, const st_packed_row *, double *loss_sum, int64_t *count, double *nll,
                      int32_t *best, st_error *);
/* Of the row evaluated last: what depth k (from 1) of the pattern lost, and the name its head logs that by. */
int st_model_depth_loss(st_model *, int32_t depth, double *loss_sum, int64_t *count, const char **name, st_error *);

/* One layer of the pattern alone, without norm or residual: y from x, then dx and weight gradients from dy (NULL:
 * forward only). All [shape tokens, hidden]; the row gives segments and positions. layer: its place among those that
 * st_model_layers gives a depth, so the trunk's come first. For checks of a layer against given values or
 * differences. */
int st_model_layer_run(st_model *, int32_t layer, const st_packed_row *, const double *x, double *y,
                       const double *dy, double *dx, st_error *);

/* Looks at tensors as they are made (parity, NaN guard). names: "features", "embed", "residual" (layer = index:
 * stream after it), "final", "depth.final" (layer = depth, from 1; normed); in training passes also what the encoder
 * and trunk layers keep: "slot.NAME" (layer -1: the encoder). values f64 [rows, cols], valid during the call. */
typedef void (*st_probe_fn)(void *ctx, const char *name, int32_t layer, const double *values, int64_t rows,
                            int64_t cols);
void st_model_probe(st_model *, st_probe_fn, void *ctx);

/* ---- planning and time ---- */
typedef struct st_plan_bytes {
    size_t weights, gradients, optimizer, kept, scratch, rows, staging, workspace, total;
} st_plan_bytes;
void st_model_plan_bytes(const st_model *, st_plan_bytes *);
int64_t st_model_device_bytes(const st_model *); /* taken of the open device since before its first allocation; -1: unknown */
double st_model_flops(const st_model *);          /* counted by planning: one row forward + backward */
double st_model_gemm_flops(const st_model *);     /* of these, matrix products                         */
/* FLOPs of one row, forward + backward, for each of st_model_layers. megatron and formula: three times what the
 * plugin's cost() says of such a row of text, megatron 0 for an encoder (Megatron counts no tower); formula takes an
 * encoder's blocks full, and of what is around them what was counted. counted: what launches said in planning, of a
 * row filled to its capacity by one picture and one text, what recomputation adds included; kernels of layer plugins
 * need not say theirs. */
typedef struct st_layer_cost { double megatron, formula, counted; } st_layer_cost;
int st_model_costs(st_model *, const st_row_stats *, st_layer_cost *out, st_error *);
/* What a choice of [recompute] keeps for backward, and all that it launches in a step of one row; found by planning again with
 * it, of a model that is planned and not open. In order: nothing computed again, all layers, those of each symbol, each
 * slot that can be dropped, all of these; then the spec's own choice, if it is another. */
typedef struct st_trade {
    const char *full, *drop;       /* as the keys take them; drop NULL: nothing                               */
    int32_t own;                   /* 1: the spec's own                                                       */
    size_t kept, scratch; double flops; int64_t launches;
} st_trade;
int st_model_trades(st_model *, const st_trade **, st_error *); /* -> how many, or a negative code */
/* What a rank sends in a step by collectives of one kind over one group of more than one rank, in bytes as a ring sends
 * them: (n - 1)/n of what is gathered or scattered, twice that for an all-reduce. Counted by planning where they are
 * called; an exchange counts its whole blocks. */
typedef struct st_traffic { const char *group, *call; int32_t ranks; double calls, bytes; } st_traffic;
bool st_model_traffic(const st_model *, int i, st_traffic *); /* i from 0; false: there are no more */
/* Names of launches, as planning met them in a step; i from 0, NULL: there are no more. */
const char *st_model_launch(const st_model *, int i);
/* A place that makes a launch: the k-th of this name that a part makes in a row's pass, summed over passes. */
typedef struct st_op_time {
    const char *name, *path;       /* of the launch; of its part, "": the host                                */
    char symbol;                   /* of a layer; 0: none                                                     */
    int32_t product;               /* 1: a matrix product or made of them, counted in st_model_gemm_flops     */
    double seconds, flops, bytes; int64_t calls;
} st_op_time;
/* FLOP/s of the backend's own product of two large matrices in the run's precision, best of `seconds`. */
int st_model_gemm_rate(st_model *, double seconds, double *rate, st_error *);
/* Bytes/s, read and written, of a copy within its memory that caches do not hold, best of `seconds`. */
int st_model_copy_rate(st_model *, double seconds, double *rate, st_error *);
void st_model_profile(st_model *, int on);        /* events around every launch                        */
int st_model_times(st_model *, const st_op_time **); /* waits for the device; places of no call are listed too */

/* ---- keys of the spec that this room reads ---- */
int st_model_key_tables(const st_key_table **); /* -> how many */
#endif
