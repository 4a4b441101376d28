/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/view.h - which runs of a weight's values a tensor in a file holds. */
#ifndef ST_CHECKPOINT_VIEW_H
#define ST_CHECKPOINT_VIEW_H
#include "model/model.h"

/* What a file tensor can hold of a weight, the whole or one entry of dimension 0, seen as [outer, rows, inner] around
 * its section dimension. */
typedef struct view {
    int64_t at, outer, rows, inner;
    bool leads;
} view; /* leads: nothing stands before the rows */

view view_of(const st_model_weight *, const st_file_name *);
/* Runs of a weight that one after the other, `outer` of them, are what the tensor holds. */
static inline int64_t run_length(const view *v, const st_file_name *f) { return f->n * v->inner; }
static inline int64_t run_at(const view *v, const st_file_name *f, int64_t o)
{
    return v->at + (o * v->rows + f->first) * v->inner;
}
#endif
