/* SPDX-License-Identifier: Apache-2.0 */
/* cli/inspect_print.c - a plugin as text, Markdown and JSON, all from its descriptor. */
#include "config.h"
#include "base/json.h"
#include "cli/inspect.h"
#include <string.h>

static const struct {
    uint64_t bit;
    const char *name;
} caps[] = {{ST_CAP_TRAIN, "train"},   {ST_CAP_TENSOR, "tensor"},       {ST_CAP_CONTEXT, "context"},
            {ST_CAP_EXPERT, "expert"}, {ST_CAP_SHIFTABLE, "shiftable"}, {ST_CAP_LINEAR_X, "linear_x"},
            {ST_CAP_STREAM, "stream"}};
static const char *const types[] = {"",     "yes/no", "integer",  "number", "size",
                                    "text", "choice", "integers", "path",   "numbers"};
static const struct {
    uint32_t bit;
    const char *name;
} flags[] = {{ST_PF_REQUIRED, "required"},     {ST_PF_FIXED, "fixed"},       {ST_PF_SHARED, "shared"},
             {ST_PF_DEPRECATED, "deprecated"}, {ST_PF_OBSOLETE, "obsolete"}, {ST_PF_EXPERT, "expert"},
             {ST_PF_LOCAL, "local"},           {ST_PF_TIMING, "timing"}};

static void cap_names(uint64_t set, st_buf *out)
{
    for (size_t i = 0; i < ST_COUNT(caps); i++)
        if (set & caps[i].bit) st_buf_printf(out, "%s%s", out->n ? ", " : "", caps[i].name);
    if (!out->n) st_buf_puts(out, "none");
}

/* What a value may be: "1 to 64 columns", "soft or hard", "from 0". Whole numbers up to 2^53 are shown in full. */
static void range_text(const st_param *p, st_buf *out)
{
    if (p->type == ST_P_ENUM) {
        for (const char *c = p->choices; *c; c++)
            if (*c == '|') st_buf_puts(out, ", ");
            else st_buf_add(out, c, 1);
    } else if (p->type != ST_P_BOOL && (p->min != 0 || p->max != 0)) {
        char least[32], most[32];
        st_format_float(p->min, least);
        st_format_float(p->max, most);
        st_buf_printf(out, "%s to %s", least, most);
    }
    if (p->unit && *p->unit) st_buf_printf(out, "%s%s", out->n ? " " : "", p->unit);
}

/* required, or the default and where the value comes from otherwise */
static void default_text(const st_param *p, st_buf *out)
{
    if (p->flags & ST_PF_OBSOLETE) st_buf_puts(out, "obsolete");
    else if (p->flags & ST_PF_REQUIRED) st_buf_puts(out, "required");
    else if (p->def) st_buf_puts(out, *p->def ? p->def : "\"\"");
    else st_buf_puts(out, "not set");
    if (p->flags & ST_PF_SHARED) st_buf_puts(out, ", else [stack]'s");
    if (p->flags & ST_PF_DEPRECATED) st_buf_puts(out, ", deprecated");
}

static const char *shown(const st_buf *b) { return b->n ? b->data : ""; }

/* ---- text ---- */

void inspect_wrapped(const char *text, int indent, FILE *to) /* lines of at most 100 columns */
{
    int column = indent;

    fprintf(to, "%*s", indent, "");
    while (*text) {
        int n = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + n > 100) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, (size_t)n, to);
        column += n;
        text += n;
        text += strspn(text, " \n");
    }
    fputc('\n', to);
}

void inspect_param_text(const st_param *p, FILE *to)
{
    st_buf range = {0}, def = {0};

    range_text(p, &range);
    default_text(p, &def);
    fprintf(to, "  %-18s %s; %s%s%s%s\n", p->key, types[p->type], shown(&def), range.n ? "; " : "", shown(&range),
            p->flags & ST_PF_FIXED ? "; fixed by a checkpoint" : "");
    inspect_wrapped(p->help, 21, to);
    if (p->alias) fprintf(to, "%21sformerly %s\n", "", p->alias);
    st_buf_free(&range);
    st_buf_free(&def);
}

static void text_kernels(const st_inspected *i, FILE *to)
{
    for (int32_t k = 0; i->manifest && k < i->manifest->n_kernels; k++)
        fprintf(to, "  kernels       %s: %s%s\n", i->manifest->kernels[k].backend, i->manifest->kernels[k].module,
                strchr(i->manifest->kernels[k].module, '/') ? "" : " (nowhere)");
}

void inspect_text(const st_inspected *i, FILE *to)
{
    const st_plugin *p = i->plugin;
    st_buf have = {0}, need = {0};

    cap_names(p->caps, &have);
    cap_names(p->needs, &need);
    fprintf(to, "%s: %s\n", p->name, p->summary);
    fprintf(to, "  kind          %s", st_kind_name((int)p->kind));
    if (i->manifest && i->manifest->symbol) fprintf(to, ", symbol %c", i->manifest->symbol);
    fprintf(to, "\n  version       %s, built for plugin ABI %u.%u\n", p->version, p->abi_major, p->abi_minor);
    if (p->author[0]) fprintf(to, "  author        %s\n", p->author);
    fprintf(to, "  license       %s\n", p->license);
    fprintf(to, "  module        %s\n", i->module);
    if (i->manifest) fprintf(to, "  manifest      %s\n", i->manifest->file);
    text_kernels(i, to);
    fprintf(to, "  capabilities  %s\n", have.data);
    if (p->needs) fprintf(to, "  needs         %s, of the position plugin\n", need.data);
    if (*p->description) {
        fputc('\n', to);
        inspect_wrapped(p->description, 2, to);
    }
    fprintf(to, "\n%s\n", p->n_params ? "parameters:" : "no parameters");
    for (uint32_t k = 0; k < p->n_params; k++) inspect_param_text(&p->params[k], to);
    st_buf_free(&have);
    st_buf_free(&need);
}

/* ---- Markdown ---- */

static void cell(const char *text, FILE *to) /* a bar would end the cell */
{
    fputs(" ", to);
    for (; *text; text++) {
        if (*text == '|') fputc('\\', to);
        fputc(*text == '\n' ? ' ' : *text, to);
    }
    fputs(" |", to);
}

/* A value in the letters that a spec would have; words about values are plain. */
static void default_cell(const st_param *p, FILE *to)
{
    st_buf def = {0}, code = {0};

    default_text(p, &def);
    if (p->def && !(p->flags & (ST_PF_OBSOLETE | ST_PF_REQUIRED))) {
        size_t value = *p->def ? strlen(p->def) : 2;
        st_buf_printf(&code, "`%.*s`%s", (int)value, def.data, def.data + value);
    }
    cell(code.n ? code.data : shown(&def), to);
    st_buf_free(&def);
    st_buf_free(&code);
}

void inspect_markdown_head(FILE *to)
{
    fputs("\n| key | type | default | range, unit | meaning |\n|---|---|---|---|---|\n", to);
}

void inspect_param_markdown(const st_param *p, FILE *to)
{
    st_buf range = {0}, meaning = {0};

    range_text(p, &range);
    st_buf_printf(&meaning, "%s%s", p->help, p->flags & ST_PF_FIXED ? " (fixed by a checkpoint)" : "");
    fprintf(to, "| `%s` |", p->key);
    cell(types[p->type], to);
    default_cell(p, to);
    cell(shown(&range), to);
    cell(shown(&meaning), to);
    fputc('\n', to);
    st_buf_free(&range);
    st_buf_free(&meaning);
}

void inspect_markdown(const st_inspected *i, FILE *to)
{
    const st_plugin *p = i->plugin;
    st_buf have = {0};

    cap_names(p->caps, &have);
    fprintf(to, "# %s\n\n%s %s: %s.\n", p->name, st_kind_name((int)p->kind), p->version, p->summary);
    if (i->manifest && i->manifest->symbol) fprintf(to, "Pattern symbol `%c`.\n", i->manifest->symbol);
    if (*p->description) fprintf(to, "\n%s\n", p->description);
    fprintf(to, "\nCapabilities: %s.\n", have.data);
    if (p->n_params) inspect_markdown_head(to);
    for (uint32_t k = 0; k < p->n_params; k++) inspect_param_markdown(&p->params[k], to);
    st_buf_free(&have);
}

/* ---- JSON ---- */

static json_t *json_caps(uint64_t set)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ST_COUNT(caps); i++)
        if (set & caps[i].bit) json_array_append_new(list, json_string(caps[i].name));
    return list;
}

static json_t *json_choices(const char *choices)
{
    json_t *list = json_array();
    while (*choices) {
        size_t n = strcspn(choices, "|");
        json_array_append_new(list, json_stringn(choices, n));
        choices += n + (choices[n] == '|');
    }
    return list;
}

json_t *inspect_param_json(const st_param *p)
{
    json_t *o = json_pack("{s:s, s:s, s:s?, s:s, s:s}", "key", p->key, "type", types[p->type], "default", p->def,
                          "unit", p->unit ? p->unit : "", "help", p->help);

    if (p->type == ST_P_ENUM) json_object_set_new(o, "choices", json_choices(p->choices));
    else if (p->min != 0 || p->max != 0) {
        json_object_set_new(o, "min", json_real(p->min));
        json_object_set_new(o, "max", json_real(p->max));
    }
    for (size_t i = 0; i < ST_COUNT(flags); i++)
        if (p->flags & flags[i].bit) json_object_set_new(o, flags[i].name, json_true());
    if (p->alias) json_object_set_new(o, "alias", json_string(p->alias));
    if (p->since) json_object_set_new(o, "since", json_string(p->since));
    return o;
}

static void json_manifest(json_t *o, const st_manifest *m)
{
    char symbol[2] = {m->symbol, 0};
    json_t *kernels = json_object();

    if (m->symbol) json_object_set_new(o, "symbol", json_string(symbol));
    json_object_set_new(o, "manifest", st_json_text(m->file));
    for (int32_t k = 0; k < m->n_kernels; k++)
        json_object_set_new(kernels, m->kernels[k].backend, st_json_text(m->kernels[k].module));
    json_object_set_new(o, "kernels", kernels);
}

int inspect_json(const st_inspected *i, FILE *to)
{
    const st_plugin *p = i->plugin;
    json_t *o = json_pack("{s:s, s:s, s:s, s:[i,i], s:s, s:s, s:s, s:s, s:o}", "name", p->name, "kind",
                          st_kind_name((int)p->kind), "version", p->version, "abi", (int)p->abi_major,
                          (int)p->abi_minor, "license", p->license, "author", p->author, "summary", p->summary,
                          "description", p->description, "module", st_json_text(i->module));
    json_t *params = json_array();

    if (i->manifest) json_manifest(o, i->manifest);
    json_object_set_new(o, "capabilities", json_caps(p->caps));
    json_object_set_new(o, "needs", json_caps(p->needs));
    for (uint32_t k = 0; k < p->n_params; k++) json_array_append_new(params, inspect_param_json(&p->params[k]));
    json_object_set_new(o, "parameters", params);
    return st_json_print(o, JSON_INDENT(2), to);
}
