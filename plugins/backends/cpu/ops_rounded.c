/* SPDX-License-Identifier: Apache-2.0 */
/* ops_rounded.c - adamw_rounded: the reference for backends that train in bf16. */
#include "../check/adamw.h"
#include "cpu.h"

enum { PIECE = 16384 };
typedef struct rounded_job {
    const st_adamw *of;
    adamw_rates rates;
    uint64_t key[ADAMW_KINDS];
    int64_t n, first;
    bool apart;
} rounded_job;

static float get(const st_tensor *t, int64_t i)
{
    return t->dtype == ST_BF16 ? st_bf16_value(((const uint16_t *)t->data)[i]) : ((const float *)t->data)[i];
}

static void put(const st_tensor *t, int64_t i, float x, uint32_t bits)
{
    if (t->dtype == ST_BF16) ((uint16_t *)t->data)[i] = st_round_bf16(x, bits);
    else ((float *)t->data)[i] = x;
}

/* To the nearest, ties to even. */
static uint32_t nearest_bits(float x)
{
    uint32_t own;
    memcpy(&own, &x, sizeof own);
    return 0x7fff + (own >> 16 & 1);
}

static void update_piece(void *arg, int64_t piece)
{
    const rounded_job *job = arg;
    const st_adamw *a = job->of;
    int64_t begin = piece * PIECE, end = cpu_min(begin + PIECE, job->n);

    for (int64_t i = begin; i < end; i++) {
        uint64_t at = (uint64_t)(job->first + i);
        float master = get(a->master, i), m = get(a->m, i), v = get(a->v, i);
        adamw_element(&job->rates, ((const float *)a->grad->data)[i], &master, &m, &v);
        put(a->master, i, master, st_round_bits(job->key[ADAMW_MASTER], at));
        put(a->m, i, m, st_round_bits(job->key[ADAMW_M], at));
        put(a->v, i, v, st_round_bits(job->key[ADAMW_V], at));
        if (job->apart) put(a->weight, i, master, nearest_bits(master));
    }
}

int cpu_adamw_rounded(const st_queue *q, const st_adamw_rounded *r)
{
    const st_adamw *a = &r->of;
    rounded_job job = {.of = a, .first = r->first};

    ST_TRY(check_adamw_rounded(q, r, &job.n, &job.apart));
    if (q->planning || (check_given(a->skip) && *(const float *)a->skip->data != 0)) return ST_OK;
    job.rates = adamw_rates_of(a->hyper->data, check_given(a->clip) ? a->clip->data : NULL);
    for (uint32_t kind = 0; kind < ADAMW_KINDS; kind++)
        job.key[kind] = st_round_key(r->seed, (uint64_t)*(const float *)r->step->data, kind);
    st_cpu_run(q, cpu_div_up(job.n, PIECE), update_piece, &job);
    return ST_OK;
}
