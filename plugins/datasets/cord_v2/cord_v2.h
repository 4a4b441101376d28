/* SPDX-License-Identifier: Apache-2.0 */
/* datasets/cord_v2/cord_v2.h - shared by the files of this plugin. */
#ifndef CORD_V2_H
#define CORD_V2_H
#include <strata/dataset.h>

enum { CORD_ORDER_SORTED = 0, CORD_ORDER_FILE };

/* The label text of one record and where its content stands. */
typedef struct cord_label {
    char *text;
    size_t n;
    st_text_mark *marks;
    int32_t n_marks;
} cord_label;

/* ground_truth (JSON, its gt_parse or the first of gt_parses) to label text, memory from the worker's arena.
 * ST_E_DATA with the words "ground_truth ..." when it is damaged. */
int cord_label_of(const st_worker *, const char *json, size_t n, int32_t order, cord_label *out);
#endif
