/* SPDX-License-Identifier: Apache-2.0 */
/* strata/optimizer.h - update rules. The host decides where state lives, reduces gradients, clips and gathers weights.
 *
 * hyper() computes on the host all that changes from step to step; it is uploaded. update() only enqueues and reads it on the
 * device, so it sits in the captured step. Gradients are complete sums, not yet clipped: multiply by ST_S_CLIP; when ST_S_SKIP is
 * not 0 write nothing. */
#ifndef STRATA_OPTIMIZER_H
#define STRATA_OPTIMIZER_H
#include <strata/ops.h>

typedef struct st_weight_info {     /* one weight, or one section of it                                                       */
    uint32_t size, flags;           /* ST_W_*                                                                                 */
    const char *path, *section;     /* "layers.3.in", "q" or ""                                                               */
    int32_t nd, pad;
    int64_t dim[ST_DIMS], unit;     /* full shape; unit of the section (rows of one head)                                     */
    double decay, lr_scale;         /* resolved from the spec's path rules                                                    */
} st_weight_info;
enum { ST_PLACE_FLAT = 1,           /* any cut of the elements: equal flat ranges, cheapest                                   */
       ST_PLACE_MATRIX };           /* each matrix (section, expert) whole on one owner; its parts are brought there and back */
/* classify() is asked about the whole weight (section ""). For MATRIX it is then asked about each section, and must say the same
 * of all; each becomes a unit of its own, a view whose rows may lie apart. A weight of three dimensions is one matrix per entry of
 * the first: its unit is [entries, rows, columns]. */
enum { ST_LIKE_WEIGHT = 1, ST_LIKE_ROWS, ST_LIKE_COLS, ST_LIKE_ONE };
typedef struct st_opt_state { const char *name; int32_t dtype, like; } st_opt_state; /* never grows */
typedef struct st_opt_class {
    uint32_t size, place;
    int32_t rule, n_state;          /* rule: the plugin's number (0 adam, 1 muon); a unit has one rule                        */
    st_opt_state state[4];
    int32_t no_master, pad;         /* 1: a weight narrower than acc has no copy in acc, it is updated as it is stored        */
} st_opt_class;
typedef struct st_opt_unit {        /* one launch worth; fixed addresses                                                      */
    uint32_t size;
    int32_t rule;
    st_tensor master, grad, weight; /* acc; acc; run type, written with the update (f64 and f32 runs: weight is the master,
                                     * and so it is, in its own type, of a class without masters)                             */
    st_tensor state[4];
    st_tensor hyper;                /* device acc [n_hyper] of the unit's group                                               */
    const st_weight_info *info;     /* MATRIX only                                                                            */
    uint64_t seed;                  /* of random bits (strata/rounding.h), by the run's seed and the unit's weights           */
    int64_t first;                  /* FLAT: this share's first element among those of all ranks                              */
} st_opt_unit;
/* step from 1; lr after schedule */
typedef struct st_schedule { uint32_t size, pad; int64_t step; double lr, decay, lr_scale; } st_schedule;

typedef struct st_optimizer_ops {
    uint32_t size;
    int32_t n_hyper;
    int (*configure)(void *self, st_env *);
    int (*classify)(const void *self, const st_weight_info *, st_opt_class *out);
    int (*hyper)(const void *self, int32_t rule, const st_schedule *, double *out); /* host; per step, rule and group          */
    int (*update)(const void *self, st_step *, const st_opt_unit *const *, int32_t n); /* a bucket, so gathers overlap        */
} st_optimizer_ops;
#endif
