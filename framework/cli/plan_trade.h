/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_trade.h - the part of a plan that is about [recompute]. */
#ifndef ST_PLAN_TRADE_H
#define ST_PLAN_TRADE_H
#include "model/model.h"
#include <jansson.h>
#include <stdio.h>

void cli_print_trade(const st_trade *, int n, FILE *);
json_t *cli_json_trade(const st_trade *, int n);
#endif
