/* SPDX-License-Identifier: Apache-2.0 */
/* cli/summary.c - see the header. */
#include "config.h"
#include "cli/summary.h"
#include <string.h>

const char *cli_grouped(double n, char *text, size_t size)
{
    char plain[48];
    int digits = snprintf(plain, sizeof plain, "%.0f", n), at = 0;

    for (int i = 0; i < digits && at + 2 < (int)size; i++) {
        if (i && (digits - i) % 3 == 0) text[at++] = ',';
        text[at++] = plain[i];
    }
    text[at] = 0;
    return text;
}

static st_part_count count_part(const st_model *m, const char *part) /* NULL: all */
{
    const st_model_weight *const *w;
    int n = st_model_weights(m, &w);
    st_part_count c = {part, 0, st_model_parameters(m, part)};

    for (int i = 0; i < n; i++)
        if ((!part || !strcmp(w[i]->part, part)) && !(w[i]->flags & (ST_W_STATE | ST_W_CONST))) c.all += w[i]->count;
    return c;
}

bool cli_part(const st_model *m, int which, st_part_count *out)
{
    const st_model_weight *const *w;
    int n = st_model_weights(m, &w);

    for (int i = 0; i < n; i++) {
        bool first = true;
        for (int j = 0; j < i && first; j++) first = strcmp(w[i]->part, w[j]->part) != 0;
        if (!first || which-- > 0) continue;
        *out = count_part(m, w[i]->part);
        return true;
    }
    return false;
}

static void print_part(st_part_count c, FILE *out)
{
    char count[48];

    fprintf(out, "  %-24s %s", c.part ? c.part : "all", cli_grouped((double)c.all, count, sizeof count));
    if (c.trained != c.all)
        fprintf(out, ", of which trained %s", cli_grouped((double)c.trained, count, sizeof count));
    fputc('\n', out);
}

void cli_print_parts(const st_model *m, FILE *out)
{
    st_part_count c;

    fputs("\nparameters by part\n", out);
    for (int i = 0; cli_part(m, i, &c); i++) print_part(c, out);
    print_part(count_part(m, NULL), out);
}

const char *cli_dtype(int32_t dtype)
{
    static const char *const names[ST_DTYPES] = {
        [ST_F64] = "f64", [ST_F32] = "f32", [ST_BF16] = "bf16", [ST_F16] = "f16"};

    return dtype >= 0 && dtype < ST_DTYPES && names[dtype] ? names[dtype] : "?";
}
