/* SPDX-License-Identifier: Apache-2.0 */
/* cli/inspect_spec.c - `strata inspect --spec`: every section that the host reads, from the tables that read them.
 * Keys of plugins stand with the plugins. */
#include "config.h"
#include "base/json.h"
#include "cli/inspect.h"
#include "data/chat.h"
#include "data/loader.h"
#include "model/model.h"
#include "train/train.h"
#include <string.h>

enum { TABLES = 64 };
typedef struct tables {
    const st_key_table *table[TABLES];
    int n;
} tables;

static void add(tables *t, int (*list)(const st_key_table **))
{
    const st_key_table *k;
    int n = list(&k);

    for (int i = 0; i < n && t->n < TABLES; i++) t->table[t->n++] = &k[i];
}

static tables of_spec(void)
{
    tables t = {.n = 0};

    add(&t, st_model_key_tables);
    add(&t, st_data_key_tables);
    add(&t, st_chat_key_tables);
    add(&t, st_train_key_tables);
    add(&t, st_plugin_key_tables);
    return t;
}

static tables of_manifests(void)
{
    tables t = {.n = 0};

    add(&t, st_manifest_key_tables);
    return t;
}

/* Rooms share sections: each is shown once, where it comes first, with the keys of all rooms. */
static bool is_first(const tables *t, int i)
{
    for (int k = 0; k < i; k++)
        if (!strcmp(t->table[k]->section, t->table[i]->section)) return false;
    return true;
}

typedef void (*show_fn)(const st_param *, void *to);
static void each_param(const tables *t, int first, show_fn show, void *to)
{
    for (int i = first; i < t->n; i++)
        for (uint32_t k = 0; !strcmp(t->table[i]->section, t->table[first]->section) && k < t->table[i]->n; k++)
            show(&t->table[i]->params[k], to);
}

static bool any_param(const tables *t, int first)
{
    for (int i = first; i < t->n; i++)
        if (!strcmp(t->table[i]->section, t->table[first]->section) && t->table[i]->n) return true;
    return false;
}

/* The key that chooses a plugin, in the words of a parameter. */
static void plugin_words(const st_key_table *k, char def[128], char help[128])
{
    snprintf(def, 128, "%s", *k->plugin ? k->plugin : "required");
    snprintf(help, 128, "name of the %s plugin, whose keys stand here as well", st_kind_name(k->kind));
}

static const char *title(const st_key_table *k, char out[256]) /* what [run] tells of its plugin */
{
    if (k->kind && !k->plugin)
        snprintf(out, 256, "%s The keys of the %s plugin stand here as well.", k->purpose, st_kind_name(k->kind));
    else snprintf(out, 256, "%s", k->purpose);
    return out;
}

/* ---- text ---- */

static void show_text(const st_param *p, void *to) { inspect_param_text(p, to); }

static void text(const tables *t, FILE *to)
{
    char words[256], def[128], help[128];

    for (int i = 0; i < t->n; i++) {
        if (!is_first(t, i)) continue;
        fprintf(to, "[%s]\n", t->table[i]->section);
        inspect_wrapped(title(t->table[i], words), 2, to);
        if (t->table[i]->plugin) {
            plugin_words(t->table[i], def, help);
            fprintf(to, "  %-18s text; %s\n", "plugin", def);
            inspect_wrapped(help, 21, to);
        }
        each_param(t, i, show_text, to);
        fputc('\n', to);
    }
}

void inspect_spec_text(FILE *to)
{
    const tables spec = of_spec(), manifests = of_manifests();

    text(&spec, to);
    fputs("Manifests of plugins hold:\n\n", to);
    text(&manifests, to);
}

/* ---- Markdown ---- */

static void show_markdown(const st_param *p, void *to) { inspect_param_markdown(p, to); }

static void markdown(const tables *t, FILE *to)
{
    char words[256], def[128], help[128];

    for (int i = 0; i < t->n; i++) {
        if (!is_first(t, i)) continue;
        fprintf(to, "\n## [%s]\n\n%s\n", t->table[i]->section, title(t->table[i], words));
        if (t->table[i]->plugin || any_param(t, i)) inspect_markdown_head(to);
        if (t->table[i]->plugin) {
            plugin_words(t->table[i], def, help);
            fprintf(to, "| `plugin` | text | %s |  | %s |\n", def, help);
        }
        each_param(t, i, show_markdown, to);
    }
}

void inspect_spec_markdown(FILE *to)
{
    const tables spec = of_spec(), manifests = of_manifests();

    fputs("# Sections of a spec\n", to);
    markdown(&spec, to);
    fputs("\n# Sections of a manifest\n", to);
    markdown(&manifests, to);
}

/* ---- JSON ---- */

static void show_json(const st_param *p, void *to) { json_array_append_new(to, inspect_param_json(p)); }

static json_t *json(const tables *t)
{
    json_t *list = json_array();
    char words[256];

    for (int i = 0; i < t->n; i++) {
        const st_key_table *k = t->table[i];
        json_t *params, *o;
        if (!is_first(t, i)) continue;
        params = json_array();
        each_param(t, i, show_json, params);
        o = json_pack("{s:s, s:s, s:o}", "section", k->section, "purpose", title(k, words), "parameters", params);
        if (k->kind) json_object_set_new(o, "plugin_kind", json_string(st_kind_name(k->kind)));
        if (k->plugin) json_object_set_new(o, "plugin", *k->plugin ? json_string(k->plugin) : json_null());
        json_array_append_new(list, o);
    }
    return list;
}

int inspect_spec_json(FILE *to)
{
    const tables spec = of_spec(), manifests = of_manifests();

    return st_json_print(json_pack("{s:o, s:o}", "spec", json(&spec), "manifest", json(&manifests)), JSON_INDENT(2), to);
}
