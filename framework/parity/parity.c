/* SPDX-License-Identifier: Apache-2.0 */
/* parity/parity.c - tells what a folder holds and runs its comparison in f64 and f32. */
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

static case_fn choose(st_parity *p, int *types)
{
    *types = ST_PARITY_TYPES;
    if (has_file(p, "tokenizer.json") && has_file(p, "cases.json")) {
        *types = 1;
        return st_parity_tokenizer_case;
    }
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

/* config.json describes no multi-token-prediction depths, so the same model is run again with them. */
static int run_depths(st_parity *p, st_diags *d)
{
    st_parity q = {.base = p->base, .registry = p->registry, .dir = p->dir, .arena = p->arena, .out = p->out};
    st_error e = {0};
    int rc = open_io(&q, "mtp_io.safetensors", &e);

    q.title = st_path_join(p->arena, p->dir, q.io_name);
    if (rc == ST_OK && !q.title) rc = st_fail(&e, ST_E_NOMEM, "no memory for a path");
    if (rc != ST_OK) st_diags_add(d, &e, NULL, false);
    for (q.type = 0; q.type < ST_PARITY_TYPES && rc == ST_OK; q.type++) rc = st_parity_mtp_case(p, &q, d);
    if (rc == ST_OK) st_parity_print(&q);
    p->failed += q.failed;
    if (q.io) st_tensors_close(q.io);
    return rc;
}

static int run_folder(st_parity *p, st_diags *d)
{
    st_error e = {0};
    case_fn run;
    int types, rc = open_io(p, "io.safetensors", &e);

    if (rc != ST_OK) return st_diags_add(d, &e, NULL, false);
    run = choose(p, &types);
    if (!run) {
        st_fail(&e, ST_E_NOTFOUND, "%s: no reference values of a known kind", p->dir);
        st_error_hint(&e, "a folder holds config.json + weights.safetensors + io.safetensors, or io.safetensors of one "
                          "part, or tokenizer.json + cases.json");
        return st_diags_add(d, &e, NULL, false);
    }
    for (p->type = 0; p->type < types && rc == ST_OK; p->type++) rc = run(p, d);
    if (rc == ST_OK) st_parity_print(p);
    return rc == ST_OK && run == st_parity_model_case && has_file(p, "mtp_io.safetensors") ? run_depths(p, d) : rc;
}

int st_parity_folder(st_base *base, st_registry *registry, const char *dir, FILE *out, int *failed, st_diags *d)
{
    st_parity p = {
        .base = base, .registry = registry, .dir = dir, .title = dir, .out = out, .arena = st_arena_create(0)};
    int rc;

    if (!p.arena)
        return st_diags_add(d, &(st_error){.code = ST_E_NOMEM, .message = "no memory for a comparison"}, NULL, false);
    rc = run_folder(&p, d);
    *failed += p.failed;
    if (p.io) st_tensors_close(p.io);
    st_arena_destroy(p.arena);
    return rc;
}
