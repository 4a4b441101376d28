/* SPDX-License-Identifier: Apache-2.0 */
/* data/sequence.h - sequences that the program itself makes (checks, greedy text) into rows, by the plugins a model is
 * bound to. What comes from a data set goes through the loader, which holds the plugins' tables open. */
#ifndef ST_SEQUENCE_H
#define ST_SEQUENCE_H
#include "model/row.h"
#include "plugin/registry.h"

/* n tokens of id 0 at position 0 without pictures, of which token `trained` is a target (-1: none). Arrays in w's arena. */
int st_sequence_blank(const st_worker *, int64_t n, int32_t axes, int64_t trained, st_prepared *);
/* Position ids of p's tokens into pos [axes][n]. position NULL or axes 0: nothing to write. */
int st_sequence_place(const st_instance *position, int32_t axes, const st_worker *, const st_prepared *p, int32_t *pos);
/* Measures and prepares one picture; its payload lies in w's arena. */
int st_sequence_picture(const st_instance *encoder, const st_worker *, const st_media *, st_item *);
/* st_row_finish with the encoder of a model; NULL: text only. */
int st_sequence_finish(st_packed_row *, const st_instance *encoder, const st_worker *);
#endif
