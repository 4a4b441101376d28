/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/family.h - how files of the Qwen3.5-VL family name what is the host's own. All other names come from the
 * plugins' own tables. */
#ifndef ST_FAMILY_H
#define ST_FAMILY_H
#include "model/model.h"

const st_host_maps *st_family_maps(void);
/* Names of all weights in a layout; -> how many, or a negative code. */
int st_family_names(const st_model *, const char *layout, const st_file_name **);
#endif
