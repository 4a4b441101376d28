/* SPDX-License-Identifier: Apache-2.0 */
/* spec/param.h - one parameter: text to the field of an instance. Private to spec/. */
#ifndef ST_SPEC_PARAM_H
#define ST_SPEC_PARAM_H
#include "base/base.h"

/* Entry i of a table whose entries may be shorter (an older plugin) or longer (a newer one) than ours. */
st_param st_param_at(const st_param *, uint32_t i, uint32_t param_size);
const char *st_param_misfit(const st_param *); /* why the entry itself is wrong (a bug of its owner), or NULL */
void st_param_unset(const st_param *, void *instance);
/* Strings are used as they are. On refusal: a phrase that follows `key = text: `, and perhaps a hint. */
bool st_param_set(const st_param *, const char *text, void *instance, char why[256], char hint[256]);
#endif
