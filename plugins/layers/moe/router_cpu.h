/* SPDX-License-Identifier: Apache-2.0 */
/* moe/router_cpu.h - template: the choice of experts, its gradient, and what is reported of it. Included once per type
 * by kernels_cpu.c. */

/* Softmax over all experts as p_e = e^(l_e - top) / sum. */
typedef struct F(softmax) { REAL top, sum; } F(softmax);

static F(softmax) F(softmax_of)(const REAL *l, int64_t experts)
{
    REAL top = l[0], sum = 0;
    for (int64_t e = 1; e < experts; e++) top = l[e] > top ? l[e] : top;
#pragma omp simd reduction(+ : sum)
    for (int64_t e = 0; e < experts; e++) sum += F(exp_of)(l[e] - top);
    return (F(softmax)){top, sum};
}
static inline REAL F(probability)(const F(softmax) *s, REAL l) { return F(exp_of)(l - s->top) / s->sum; }

/* The best expert behind the pick before, (-1: of all): by logit, the lower expert first on a tie, NaN last. Always one
 * that was not picked yet. */
static int32_t F(next_pick)(const REAL *l, int64_t experts, int32_t before)
{
    const REAL limit = before < 0 ? (REAL)INFINITY : isnan(l[before]) ? (REAL)-INFINITY : l[before];
    REAL best_value = 0;
    int32_t best = -1;
    for (int32_t e = 0; e < experts; e++) {
        const REAL v = isnan(l[e]) ? (REAL)-INFINITY : l[e];
        if (v > limit || (v == limit && e <= before)) continue;
        if (best >= 0 && v <= best_value) continue;
        best = e;
        best_value = v;
    }
    return best;
}

/* One token. Shares are p over the sum of the chosen p, so a NaN among the logits reaches every share. */
static void F(route_token)(const moe_route *a, int64_t t, REAL *sums)
{
    const REAL *l = (const REAL *)a->logits + t * a->experts;
    REAL *share = (REAL *)a->share + t * a->top_k, chosen = 0, along = 0;
    int32_t *choice = a->choice + t * a->top_k, before = -1;
    const F(softmax) s = F(softmax_of)(l, a->experts);
    for (int32_t k = 0; k < a->top_k; k++) {
        choice[k] = a->forced ? (int32_t)((t * a->top_k + k) % a->experts) : F(next_pick)(l, a->experts, before);
        before = choice[k];
        share[k] = F(probability)(&s, l[choice[k]]);
        chosen += share[k];
        sums[choice[k]] += 1;
    }
    for (int32_t k = 0; k < a->top_k; k++) share[k] /= chosen;
#pragma omp simd reduction(+ : along)
    for (int64_t e = 0; e < a->experts; e++) {
        const REAL p = F(probability)(&s, l[e]);
        sums[a->experts + e] += p;
        along += p * (l[e] - s.top);
    }
    sums[2 * a->experts] += 1;
    sums[2 * a->experts + 1] += (REAL)log(s.sum) - along; /* entropy: -sum p ln p */
}
static void F(route_block)(void *arg, int64_t b)
{
    const moe_route *a = arg;
    const int64_t cells = moe_cells(a->experts);
    REAL *sums = (REAL *)a->work + b * cells;
    memset(sums, 0, (size_t)cells * sizeof *sums);
    for (int64_t t = b * MOE_BLOCK; t < smaller((b + 1) * MOE_BLOCK, a->tokens); t++) {
        if (a->real[t]) {
            F(route_token)(a, t, sums);
            continue;
        }
        for (int64_t i = t * a->top_k; i < (t + 1) * a->top_k; i++) {
            a->choice[i] = -1;
            ((REAL *)a->share)[i] = 0;
        }
    }
}
static int F(route)(const st_queue *q, const moe_route *a)
{
    const int64_t cells = moe_cells(a->experts), blocks = moe_blocks(a->tokens);
    st_cpu_run(q, blocks, F(route_block), (void *)(uintptr_t)a);
    for (int64_t c = 0; c < cells; c++) {
        double sum = 0;
        for (int64_t b = 0; b < blocks; b++) sum += (double)((const REAL *)a->work)[b * cells + c];
        for (int i = 0; i < 2; i++)
            if (a->sums[i]) ((REAL *)a->sums[i])[c] = (REAL)((double)((REAL *)a->sums[i])[c] + sum);
    }
    return ST_OK;
}

/* ---- backward ---- */

/* Of the loss: only what was chosen has a gradient. */
static void F(share_bwd)(const moe_router_bwd *a, int64_t t, REAL *dl)
{
    const REAL *share = (const REAL *)a->share + t * a->top_k, *dweight = a->dweight;
    const int32_t *choice = a->choice + t * a->top_k, *place = a->place + t * a->top_k;
    REAL mean = 0;
    for (int32_t k = 0; k < a->top_k; k++)
        if (place[k] >= 0) mean += share[k] * dweight[place[k]];
    for (int32_t k = 0; k < a->top_k; k++)
        if (place[k] >= 0) dl[choice[k]] = share[k] * (dweight[place[k]] - mean);
}
/* Of the balance loss: factor sum_e f_e p_e per token with f, the share of picks, a constant. */
static void F(balance_bwd)(const moe_router_bwd *a, int64_t t, REAL factor, REAL *dl)
{
    const REAL *l = (const REAL *)a->logits + t * a->experts, *picks = a->total, rows = picks[2 * a->experts];
    const F(softmax) s = F(softmax_of)(l, a->experts);
    REAL mean = 0;
#pragma omp simd reduction(+ : mean)
    for (int64_t e = 0; e < a->experts; e++) mean += F(probability)(&s, l[e]) * (picks[e] / rows);
#pragma omp simd
    for (int64_t e = 0; e < a->experts; e++) dl[e] += factor * F(probability)(&s, l[e]) * (picks[e] / rows - mean);
}
static void F(router_bwd_block)(void *arg, int64_t b)
{
    const moe_router_bwd *a = arg;
    const bool balance = a->total && ((const REAL *)a->total)[2 * a->experts] > 0;
    const REAL factor = balance ? (REAL)(a->coef / (double)*(const REAL *)a->step_tokens * a->experts) : 0;
    for (int64_t t = b * MOE_BLOCK; t < smaller((b + 1) * MOE_BLOCK, a->tokens); t++) {
        REAL *dl = (REAL *)a->dlogits + t * a->experts;
        memset(dl, 0, (size_t)a->experts * sizeof *dl);
        if (a->choice[t * a->top_k] < 0) continue;
        F(share_bwd)(a, t, dl);
        if (balance) F(balance_bwd)(a, t, factor, dl);
    }
}
static int F(router_bwd)(const st_queue *q, const moe_router_bwd *a)
{
    st_cpu_run(q, moe_blocks(a->tokens), F(router_bwd_block), (void *)(uintptr_t)a);
    return ST_OK;
}

/* ---- report ---- */

static void F(show)(void *cell, REAL value, REAL count)
{
    if (!cell) return;
    ((REAL *)cell)[0] += value;
    ((REAL *)cell)[1] += count;
}
static int F(report)(const st_queue *q, const moe_report *a)
{
    const REAL *picks = a->total, *sums = picks + a->experts, rows = picks[2 * a->experts];
    REAL all = 0, most = picks[0], least = picks[0], off = 0, along = 0;
    if (!(rows > 0)) return ST_OK;
    for (int64_t e = 0; e < a->experts; e++) {
        all += picks[e];
        most = picks[e] > most ? picks[e] : most;
        least = picks[e] < least ? picks[e] : least;
        along += picks[e] / rows * (sums[e] / rows);
    }
    const REAL mean = all / (REAL)a->experts;
    for (int64_t e = 0; e < a->experts; e++) off += picks[e] > mean ? picks[e] - mean : mean - picks[e];
    F(show)(a->load_max, most / mean, 1);
    F(show)(a->load_min, least / mean, 1);
    F(show)(a->violation, off / all, 1);
    F(show)(a->entropy, picks[2 * a->experts + 1], rows);
    F(show)(a->balance, (REAL)(a->scale * a->experts) * along * rows, rows);
    return ST_OK;
}
