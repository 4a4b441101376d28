/* SPDX-License-Identifier: Apache-2.0 */
/* parity/tokenizer_case.c - ids and decoded text of every case, all equal. */
#include "config.h"
#include "data/tokenizer.h"
#include "parity/parity.h"
#include <stdlib.h>
#include <string.h>

static int compare_text(st_parity *p, const st_tokenizer *t, json_t *c, size_t index, int *wrong, st_error *e)
{
    json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids"),
           *decoded = json_object_get(c, "decoded");
    st_tokens tokens;
    st_buf back = {0};
    bool same;

    if (!json_is_string(text) || !json_is_array(ids) || !json_is_string(decoded))
        return st_fail(e, ST_E_DATA, "%s: case %zu lacks text, ids or decoded", p->dir, index);
    ST_TRY(st_tokenizer_encode(t, json_string_value(text), json_string_length(text), 1, p->arena, &tokens, e));
    same = (size_t)tokens.n == json_array_size(ids);
    for (int32_t i = 0; same && i < tokens.n; i++)
        same = tokens.ids[i] == json_integer_value(json_array_get(ids, (size_t)i));
    if (!same)
        fprintf(p->out, "%s: case %zu: %d ids, not the %zu expected\n", p->dir, index, tokens.n, json_array_size(ids));
    *wrong += !same;
    ST_TRY(st_tokenizer_decode(t, tokens.ids, tokens.n, 0, &back, e));
    same = back.n == json_string_length(decoded) &&
           memcmp(back.data ? back.data : "", json_string_value(decoded), back.n) == 0;
    if (!same) fprintf(p->out, "%s: case %zu: decoded text differs\n", p->dir, index);
    *wrong += !same;
    st_buf_free(&back);
    return ST_OK;
}

int st_parity_tokenizer_case(st_parity *p, st_diags *d)
{
    st_error e = {0};
    st_tokenizer *t = NULL;
    json_t *cases = st_parity_json(p, "cases.json", &e);
    int wrong = 0, rc = cases ? st_tokenizer_open(st_path_join(p->arena, p->dir, "tokenizer.json"), &t, &e) : e.code;
    double want = 0, got;

    for (size_t i = 0; rc == ST_OK && i < json_array_size(cases); i++)
        rc = compare_text(p, t, json_array_get(cases, i), i, &wrong, &e);
    got = wrong;
    if (rc == ST_OK && json_array_size(cases) > 0) {
        char *name = st_arena_printf(p->arena, "texts and decodings that differ, of %zu", 2 * json_array_size(cases));
        rc = st_parity_compare(p, name ? name : "texts that differ", &want, &got, 1, ST_BY_MAX, 0, &e);
    }
    if (t) st_tokenizer_close(t);
    json_decref(cases);
    return rc == ST_OK ? ST_OK : st_diags_add(d, &e, NULL, false);
}
