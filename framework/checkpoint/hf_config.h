/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/hf_config.h - a model's config.json, as HuggingFace writes it for the Qwen3.5-VL family, to the sections
 * of a spec. */
#ifndef ST_HF_CONFIG_H
#define ST_HF_CONFIG_H
#include "base/base.h"

/* Writes [stack] [layer.*] [position] [encoder] as INI text: everything that decides what the weights mean, depths of
 * multi-token prediction included. Both spellings of the rotary keys are read; what is missing or contradicts itself is
 * refused, never guessed. */
int st_hf_config_spec(const char *path, st_buf *out, st_error *);
#endif
