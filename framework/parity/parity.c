/* SPDX-License-Identifier: Apache-2.0 */
/* parity/parity.c - tells what a folder holds and runs its comparison in every precision that fits. */
#include "config.h"
#include "parity/parity.h"
#include <stdlib.h>
#include <string.h>

typedef int (*case_fn)(st_parity *, st_diags *);

static bool has_file(st_parity *p, const char *name)
{
    char *path = st_path_join(p->arena, p->dir, name);

    return path && st_path_exists(path);
}

static case_fn choose(st_parity *p)
{
    if (has_file(p, "tokenizer.json") && has_file(p, "cases.json")) return st_parity_tokenizer_case;
    if (!p->io) return NULL;
    if (has_file(p, "config.json") && has_file(p, "weights.safetensors")) return st_parity_model_case;
    if (has_file(p, "img0.png")) return st_parity_images_case;
    if (st_tensors_find(p->io, "0.q")) return st_parity_rule_case;
    if (st_tensors_find(p->io, "0.p0")) return st_parity_optimizer_case;
    if (st_tensors_find(p->io, "out_f64")) return st_parity_merger_case;
    return NULL;
}

static int open_io(st_parity *p, const char *name, st_error *e)
{
    char *path = st_path_join(p->arena, p->dir, name);

    p->io_name = name;
    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    if (!st_path_exists(path)) return ST_OK;
    ST_TRY(st_tensors_open(path, &p->io, e));
    p->n_io = st_tensors_list(p->io, &p->io_list);
    p->read = ST_NEW_N(p->arena, uint8_t, p->n_io + 1);
    return p->read ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for %d keys", p->n_io);
}

/* The cpu computes in f64 and f32; others in f32, and what has a measure for it in bf16. Nothing of a tokenizer depends on it. */
static int run_types(st_parity *p, st_parity *main, case_fn run, bool rounded, st_diags *d)
{
    bool cpu = strcmp(p->backend, "cpu") == 0;
    int rc = ST_OK, from = cpu || run == st_parity_tokenizer_case ? ST_PARITY_F64 : ST_PARITY_F32;
    int to = run == st_parity_tokenizer_case ? from : cpu || !rounded ? ST_PARITY_F32 : ST_PARITY_BF16;

    for (p->type = from; p->type <= to && rc == ST_OK; p->type++) {
        p->ran[p->type] = 1;
        rc = main ? st_parity_mtp_case(main, p, d) : run(p, d);
    }
    return rc;
}

/* config.json describes no multi-token-prediction depths, so the same model is run again with them. */
static int run_depths(st_parity *p, st_diags *d)
{
    st_parity q = {.base = p->base,
                   .registry = p->registry,
                   .dir = p->dir,
                   .backend = p->backend,
                   .peer = p->peer,
                   .arena = p->arena,
                   .out = p->out};
    st_error e = {0};
    int rc = open_io(&q, "mtp_io.safetensors", &e);

    q.title = st_path_join(p->arena, p->dir, q.io_name);
    if (rc == ST_OK && !q.title) rc = st_fail(&e, ST_E_NOMEM, "no memory for a path");
    if (rc != ST_OK) st_diags_add(d, &e, NULL, false);
    if (rc == ST_OK) rc = run_types(&q, p, NULL, true, d);
    if (rc == ST_OK) st_parity_print(&q);
    p->failed += q.failed;
    if (q.io) st_tensors_close(q.io);
    return rc;
}

static int run_folder(st_parity *p, st_diags *d)
{
    st_error e = {0};
    case_fn run;
    int rc = open_io(p, "io.safetensors", &e);

    if (rc != ST_OK) return st_diags_add(d, &e, NULL, false);
    run = choose(p);
    if (!run) {
        st_fail(&e, ST_E_NOTFOUND, "%s: no reference values of a known kind", p->dir);
        st_error_hint(&e, "a folder holds config.json + weights.safetensors + io.safetensors, or io.safetensors of one "
                          "part, or tokenizer.json + cases.json");
        return st_diags_add(d, &e, NULL, false);
    }
    rc = run_types(p, NULL, run, run == st_parity_model_case || run == st_parity_merger_case, d);
    if (rc == ST_OK) st_parity_print(p);
    return rc == ST_OK && run == st_parity_model_case && has_file(p, "mtp_io.safetensors") ? run_depths(p, d) : rc;
}

static int read_peer(st_parity *p, const char *path, st_error *e)
{
    json_error_t why;
    char *text;
    size_t n;

    if (!path) return ST_OK;
    ST_TRY(st_file_read(path, p->arena, &text, &n, e));
    p->peer = json_loadb(text, n, JSON_ALLOW_NUL, &why);
    if (!p->peer) return st_fail_at(e, ST_E_DATA, path, why.line, why.column, "%s", why.text);
    return json_is_object(p->peer) ? ST_OK : st_fail(e, ST_E_DATA, "%s: not an object of errors by name", path);
}

int st_parity_folder(st_base *base, st_registry *registry, const st_parity_options *o, const char *dir, FILE *out,
                     int *failed, st_diags *d)
{
    st_parity p = {.base = base,
                   .registry = registry,
                   .dir = dir,
                   .backend = o->backend,
                   .title = dir,
                   .out = out,
                   .arena = st_arena_create(0)};
    st_error e = {0};
    int rc;

    if (!p.arena)
        return st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for a comparison"}, NULL, false);
    rc = read_peer(&p, o->peer, &e);
    rc = rc == ST_OK ? run_folder(&p, d) : st_diags_add(d, &e, NULL, false);
    *failed += p.failed;
    if (p.io) st_tensors_close(p.io);
    json_decref(p.peer);
    st_arena_destroy(p.arena);
    return rc;
}
