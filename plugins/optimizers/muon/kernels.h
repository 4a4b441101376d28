/* SPDX-License-Identifier: Apache-2.0 */
/* muon/kernels.h - the kernel table: what the backend's operations do not have. All tensors are of the type acc. */
#ifndef MUON_KERNELS_H
#define MUON_KERNELS_H
#include <strata/optimizer.h>

#define MUON_IFACE 1u
enum { HYPER_LR, HYPER_DECAY, HYPER_MOMENTUM, MUON_HYPERS };

/* One matrix of `rows` x `cols`; rows of grad, state, master and weight lie `stride` apart, those of x `cols`.
 *
 * momentum: g = clip grad, state = momentum state + g, x = (g + momentum state, or state) / (its norm + eps).
 * row_sum [rows]: scratch. With skip the state stays and x is 0.
 * apply: master -= lr (decay master + scale x); weight (of type weight_dtype) is written from it. With skip nothing is. */
struct muon_matrix {
    int64_t rows, cols, stride;
    void *grad, *state, *master, *weight, *x, *row_sum;
    const void *hyper, *clip, *skip;
    double eps, scale;
    int32_t nesterov, dtype, weight_dtype;
};
struct muon_kernels {
    int (*momentum)(const st_queue *, const struct muon_matrix *);
    int (*apply)(const st_queue *, const struct muon_matrix *);
};
#endif
