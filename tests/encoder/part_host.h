/* SPDX-License-Identifier: Apache-2.0 */
/* A host in small for one part (encoder, position, head, optimizer) in double on the CPU: opens the built modules,
 * binds parameters by the plugin's table, holds weights and gradients, and runs plain loops behind the step. Scratch
 * is filled with NaN. Pieces of a kernel run in reverse order, which must not matter. */
#ifndef PART_HOST_H
#define PART_HOST_H
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <strata/encoder.h>
#include <strata/head.h>
#include <strata/optimizer.h>

enum { PART_WEIGHTS = 16, PART_SLOTS = 32 };
typedef struct part_weight { st_weight def; char name[64]; int64_t n; double *value, *grad; } part_weight;

typedef struct part_host {
    st_step step;                  /* first two: callbacks get back to the host from them       */
    st_env env;
    st_host host;
    st_worker worker;
    st_error error;
    st_queue queue;
    st_cpu_pool pool;
    st_media_caps caps;
    const st_plugin *plugin;
    void *self;
    int n_weights;
    part_weight weight[PART_WEIGHTS];
    st_tensor slot[PART_SLOTS];
    uint32_t drop;                 /* bit per slot that is not kept                             */
    double scalar[32];
    st_stack_def stack;            /* the one nested stack that was asked for                   */
    char stack_pattern[64];
    int32_t stack_rotary_dim;      /* what its layers would ask for                             */
    char failed_key[32];           /* where the mistake is shown                                */
    st_metric metric;
    int lm_losses, adamw_calls;
    st_adamw adamw_seen;
    void **blocks;
    int n_blocks;
} part_host;

/* settings: key, value, ..., NULL in text form, over the table's defaults */
part_host *part_open(const char *module, const char *const *settings);
void part_close(part_host *);
void *part_alloc(part_host *, size_t bytes); /* zeroed, freed by part_close */
/* The table of the plugin's kernel module for the cpu. */
const void *part_kernels(part_host *);
part_weight *part_weight_of(part_host *, const char *name);
double part_random(uint64_t *state);         /* -1 .. 1 */
st_tensor part_tensor(part_host *, int32_t dtype, int64_t rows, int64_t cols);

#define assert_near(got, want, tolerance)                                                                              \
    do {                                                                                                               \
        double got_ = (got), want_ = (want), by_ = got_ > want_ ? got_ - want_ : want_ - got_;                         \
        if (!(by_ <= (tolerance)))                                                                                     \
            fail_msg("%s = %.17g, expected %.17g within %g", #got, got_, want_, (double)(tolerance));                  \
    } while (0)
#define assert_words(text, words) \
    do { if (!strstr((text), (words))) fail_msg("\"%s\" does not say \"%s\"", (text), (words)); } while (0)
#endif
