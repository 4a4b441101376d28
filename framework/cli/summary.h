/* SPDX-License-Identifier: Apache-2.0 */
/* cli/summary.h - what several commands print of a model. */
#ifndef ST_CLI_SUMMARY_H
#define ST_CLI_SUMMARY_H
#include "model/model.h"

const char *cli_grouped(double n, char *text, size_t size); /* a whole number as 1,234,567 */
typedef struct st_part_count { const char *part; int64_t all, trained; } st_part_count; /* elements of weights */
/* Part `i` of the model, in order of first appearance; false: there are no more. */
bool cli_part(const st_model *, int i, st_part_count *);
void cli_print_parts(const st_model *, FILE *);
const char *cli_dtype(int32_t dtype); /* "f32" */
#endif
