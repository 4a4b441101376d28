/* SPDX-License-Identifier: Apache-2.0 */
/* model/fixture.h - a small model of the real plugins, packed rows for it, and its gradients as one vector. */
#ifndef MODEL_FIXTURE_H
#define MODEL_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "checkpoint/family.h"
#include "model/private.h"

typedef struct fixture {
    st_base *base;
    st_spec *spec;
    st_registry *registry;
    st_model *model;
    st_arena *arena;
    /* what check_differences differentiates; NULL: the trunk's loss */
    double (*objective)(struct fixture *, st_packed_row *const *rows, int32_t micros);
} fixture;

/* A text model; `run` and `stack` are further lines of those sections. */
#define TEXT_MODEL_WITH(run, stack) \
    "[run]\nprecision = f64\npoison = yes\n" run \
    "[stack]\npattern = G-*-\nhidden = 16\nvocab = 23\n" stack \
    "[layer.G]\nkey_heads = 2\nvalue_heads = 4\nkey_dim = 4\nvalue_dim = 4\n" \
    "[layer.*]\nheads = 4\nkv_heads = 2\nhead_dim = 8\n" \
    "[layer.-]\nwidth = 24\n[init]\nstd = 0.3\n" \
    "[optimizer]\nplugin = adamw\nweight_decay = 0.1\n"
#define ROPE "[position]\nplugin = rope\nrotary_percent = 0.5\nbase = 100\n"
#define MROPE "[position]\nplugin = mrope\nrotary_percent = 1\nbase = 100\nsection = 2,1,1\n"
#define TEXT_MODEL TEXT_MODEL_WITH("", "") ROPE
#define TEXT_BATCH "[batch]\ntokens = 96\nrows = 2\nsequences = 6\n"
/* An encoder of the given blocks; `encoder` and `attention` are further lines of those sections. */
#define IMAGE_PARTS_WITH(pattern, encoder, attention) \
    "[encoder]\nplugin = qwen35_vision\npattern = " pattern "\nhidden = 8\npatch = 4\nposition_side = 3\n" \
    "min_pixels = 64\nmax_pixels = 4096\nposition_init = 0.3\n" encoder \
    "[layer.V]\nplugin = attention\n" attention "gate = no\nqk_norm = no\nbias = yes\ncausal = no\nnames = vision\n" \
    "[layer.F]\nplugin = gelu_mlp\nwidth = 12\nbias = yes\n"
#define IMAGE_PARTS IMAGE_PARTS_WITH("VFVF", "", "heads = 2\n")
#define IMAGE_BATCH TEXT_BATCH "images = 3\npatches = 64\npatch_values = yes\n"

/* Builds; mistakes go to diags. NULL when it was refused. */
fixture *fixture_build(const char *spec, int train, st_diags *);
fixture *fixture_build_for(const char *spec, int train, int32_t ranks, st_diags *); /* st_model_build_for */
/* Builds, plans, opens, initialises; any failure fails the test. */
fixture *fixture_open(const char *spec, int train);
void fixture_close(fixture *);
void need_ok(int rc, const st_error *);

/* A row of sequences of the given lengths, ended by 0; ids and trained tokens follow from `salt` and the place in
 * its own sequence. from: number of the first sequence (as if it stood behind others). images 1: odd sequences hold
 * pictures. */
st_packed_row *make_row(fixture *, const int *lengths, int from, uint64_t salt, int images);

/* All gradients in order of weights; weights without one are left out. */
double *all_gradients(fixture *, int64_t *n);
double max_difference(const double *a, const double *b, int64_t n);
/* Worst error of gradients against central differences, relative to the largest gradient of the weight; `each`
 * elements of every weight are tried. worst_path: where. */
double check_differences(fixture *, st_packed_row *const *rows, int32_t micros, int each, const char **worst_path);
#endif
