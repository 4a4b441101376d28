/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_trade.c - memory against time: what each choice of [recompute] keeps and what it makes a step do again. */
#include "cli/plan_trade.h"
#include "cli/commands.h"
#include "cli/summary.h"
#include "config.h"
#include <string.h>

/* The long list of all slots is told by its length. */
static void setting(const st_trade *t, char *out, size_t n)
{
    int words = 1;

    for (const char *at = t->drop; at && *at; at++) words += *at == ',';
    if (!t->drop || !*t->drop) snprintf(out, n, "full = %s", t->full);
    else if (strcmp(t->full, "none") != 0) snprintf(out, n, "full = %s, and drop", t->full);
    else if (words > 1) snprintf(out, n, "drop = %d slots", words);
    else snprintf(out, n, "drop = %s", t->drop);
}

/* The first choice computes nothing again. */
static void print_row(const st_trade *t, const st_trade *none, FILE *out)
{
    char words[64], kept[48], both[48], flops[48];

    setting(t, words, sizeof words);
    fprintf(out, "%s %-24s %18s %18s %22s %5.1f%% %6lld\n", t->own ? ">" : " ", words,
            cli_grouped((double)t->kept, kept, sizeof kept),
            cli_grouped((double)(t->kept + t->scratch), both, sizeof both),
            cli_grouped(t->flops - none->flops, flops, sizeof flops),
            none->flops > 0 ? 100 * (t->flops / none->flops - 1) : 0, (long long)(t->launches - none->launches));
}

void cli_print_trade(const st_trade *t, int n, FILE *out)
{
    fprintf(out,
            "\n[recompute] trades memory for time: bytes of a rank kept for backward, and with scratch; what a row adds\n"
            "  %-24s %18s %18s %22s %6s %6s\n",
            "(> is the spec's own)", "kept", "with scratch", "FLOPs", "", "calls");
    for (int i = 0; i < n; i++) print_row(&t[i], &t[0], out);
}

json_t *cli_json_trade(const st_trade *t, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:I, s:I, s:f, s:I}", "full", t[i].full, "drop",
                                              t[i].drop ? t[i].drop : "", "own", t[i].own, "kept",
                                              (json_int_t)t[i].kept, "scratch", (json_int_t)t[i].scratch, "added_flops",
                                              t[i].flops - t[0].flops, "added_launches",
                                              (json_int_t)(t[i].launches - t[0].launches)));
    return list;
}
