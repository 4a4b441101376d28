/* SPDX-License-Identifier: Apache-2.0 */
/* What every layer must stand, over the mock host. `set` gives a newly opened layer its weights. */
#ifndef LAYER_CHECKS_H
#define LAYER_CHECKS_H
#include "mock_host.h"

typedef struct layer_case {
    const char *plugin;
    const char *const *settings;
    int64_t hidden;
    void (*set)(mock *, uint64_t *state);
    int32_t built_backend; /* with the built cpu backend's operations */
} layer_case;

void check_gradients(const layer_case *, int n,
                     const int32_t *lengths);               /* against central differences, in f64            */
void check_dropped(const layer_case *, uint32_t droppable); /* every subset: the same bits                    */
void check_packed(const layer_case *);                      /* packed = each segment alone, to 1e-12          */
void check_threads(const layer_case *);                     /* 1, 2, 5 threads: the same bits, f64 and f32    */
void check_precision(const layer_case *, double tolerance); /* f32 against f64 by norm                        */
void check_planned(const layer_case *);                     /* planned memory = used memory, all slots named  */
void check_frozen(const layer_case *);                      /* no gradients wanted: dx the same               */
void check_all(const layer_case *, uint32_t droppable, double f32_tolerance); /* with both sets of operations */
#endif
