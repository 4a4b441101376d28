/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_stack.h - a stack as `strata plan` draws it. */
#ifndef CLI_PLAN_STACK_H
#define CLI_PLAN_STACK_H
#include "model/model.h"
#include <stdio.h>

/* Layers in order of configuration, n of them, each with what it costs. */
void cli_print_stack(const st_model_layer *layers, const st_layer_cost *costs, int n, FILE *out);
#endif
