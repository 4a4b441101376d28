/* SPDX-License-Identifier: Apache-2.0 */
/* parity/selftest.h - checks that need no reference values: every layer of a spec against itself. */
#ifndef ST_SELFTEST_H
#define ST_SELFTEST_H
#include "parity/parity.h"

/* For each layer of the trunk and of its depths, in f64, on a row of segments of many lengths (one token too): the gradient
 * of its input and of each of its weights against central differences along random directions; and that segments do not see
 * each other. The spec must say precision = f64. *failed counts what is over its gate. */
int st_selftest(st_base *, st_spec *, st_registry *, FILE *out, int *failed, st_diags *);
#endif
