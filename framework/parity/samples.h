/* SPDX-License-Identifier: Apache-2.0 */
/* parity/samples.h - reference samples of a model: ids, labels, patch values and grids from io, packed into one row by our
 * own rules. */
#ifndef ST_PARITY_SAMPLES_H
#define ST_PARITY_SAMPLES_H
#include "parity/parity.h"

typedef struct st_parity_samples { /* declared in parity.h */
    int32_t n, tokens, images, patches; /* samples; and in all of them together                     */
    st_prepared *at;                    /* [n]                                                      */
    int64_t *first;                     /* [n] place of each in the row                             */
    double **values;                    /* [n] patch values, NULL: none                             */
    int64_t width;                      /* values per patch                                         */
    int32_t (**grid)[3];
    st_packed_row *row;
} st_parity_samples;
int st_parity_samples_read(st_parity *, st_parity_samples *, st_error *);
/* Positions by the model's plugin (compared with io), pictures by its encoder; all in one packed row. */
int st_parity_samples_pack(st_parity *, st_parity_samples *, st_model *, st_error *);
/* Samples [first, first + n), which were packed before, into another row of the model. */
int st_parity_samples_fill(st_parity *, const st_parity_samples *, int32_t first, int32_t n, st_model *,
                           st_packed_row *, st_error *);
#endif
