/* SPDX-License-Identifier: Apache-2.0 */
/* heads/depths.h - the small models of tests/model with depths behind their pattern, and what their heads add up to. */
#ifndef HEADS_DEPTHS_H
#define HEADS_DEPTHS_H
#include "fixture.h"

/* `run` and `stack` are further lines of those sections. */
#define DEPTH_MODEL(pattern, run, stack) \
    "[run]\nprecision = f64\npoison = yes\n" run "[stack]\npattern = " pattern \
    "\nhidden = 16\nvocab = 23\n" stack \
    "[init]\nstd = 0.3\n[layer.G]\nkey_heads = 2\nvalue_heads = 4\nkey_dim = 4\nvalue_dim = 4\n" \
    "[layer.*]\nheads = 4\nkv_heads = 2\nhead_dim = 8\n" \
    "[layer.-]\nwidth = 24\n" \
    "[optimizer]\nplugin = adamw\nweight_decay = 0.1\n"
#define TWO_DEPTHS "G-*-/*-/G-*" /* unequal, and the second ends in a mixer */
#define TEXT_DEPTHS DEPTH_MODEL(TWO_DEPTHS, "", "") ROPE TEXT_BATCH
#define IMAGE_DEPTHS DEPTH_MODEL(TWO_DEPTHS, "", "") MROPE IMAGE_PARTS IMAGE_BATCH
#define HEAVY "[head.mtp]\nloss_weight = 0.7\n[head.lm]\nweight = 0.6\n"

/* Sum and count of a depth's token losses over rows, as its metric has them after a forward of each row. */
void depth_sums(fixture *, st_packed_row *const *rows, int32_t micros, int32_t depth, double sum[2]);
/* weight of lm * its loss + loss_weight of mtp * mean over depths of theirs: what gradients are of. */
double weighed_losses(fixture *, st_packed_row *const *rows, int32_t micros);

st_step_result step_gradients(fixture *, st_packed_row *const *rows, int32_t micros);
double metric_of(const st_step_result *, const char *name); /* fails when it has none; NAN: not valid */
int32_t weight_index(const fixture *, const char *path);
double *weight_values(fixture *, const char *path, int what);
#endif
