/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - what any backend asks of the ops around attention: head norms with rotation, and the output gate. */
#ifndef CHECK_ATTENTION_H
#define CHECK_ATTENTION_H
#include "check.h"

/* q.x is there, of a type the backend computes in and of three dimensions. acc: type of statistics, gradients and tables. */
int check_qk_norm(const st_queue *, const char *op, const st_qk_norm *, int32_t acc, bool backward);
/* of.out was checked. */
int check_gate(const st_queue *, const char *op, const st_attn_gated *);
#endif
