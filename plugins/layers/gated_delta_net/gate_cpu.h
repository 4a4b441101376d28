/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/gate_cpu.h - template: write strength and decay from their logits, one task per block of GDN_CHUNK
 * tokens. */

static void gate_block(void *arg, int64_t block_index)
{
    const gdn_gate *a = arg;
    const REAL *logit_b = a->b, *logit_a = a->a, *a_log = a->a_log, *dt_bias = a->dt_bias;
    REAL *beta = a->beta, *g = a->g;
    int64_t heads = a->heads, begin = block_index * GDN_CHUNK;
    int64_t n = (a->tokens - begin < GDN_CHUNK ? a->tokens - begin : GDN_CHUNK) * heads;
    for (int64_t i = 0; i < n; i += W) { /* W (token, head) pairs, taken in order */
        vec vb = {0}, va = {0}, rate = {0};
        int64_t count = n - i < W ? n - i : W;
        for (int64_t j = 0; j < count; j++) {
            int64_t t = begin + (i + j) / heads, h = (i + j) % heads;
            vb[j] = logit_b[t * a->stride + h];
            va[j] = logit_a[t * a->stride + h] + dt_bias[h];
            rate[j] = ((const REAL *)a_log)[h];
        }
        for (int64_t j = 0; j < count; j++) rate[j] = EXP(rate[j]);
        store(beta + begin * heads + i, sigmoid(vb, NULL), count);
        store(g + begin * heads + i, -rate * softplus(va), count);
    }
}
static int gate(const st_queue *q, const gdn_gate *a)
{
    st_cpu_run(q, gdn_blocks(a->tokens), gate_block, (void *)a);
    return ST_OK;
}
/* db = dbeta beta (1 - beta); with u = a + dt_bias: da = -dg exp(a_log) sigmoid(u), d dt_bias = sum da, d a_log = sum
 * dg g. */
static void gate_bwd_block(void *arg, int64_t block_index)
{
    const gdn_gate *a = arg;
    const REAL *logit_a = a->a, *a_log = a->a_log, *dt_bias = a->dt_bias, *beta = a->beta, *g = a->g;
    const REAL *dbeta = a->dbeta, *dg = a->dg;
    REAL *db = a->db, *da = a->da, *sums = (REAL *)a->work + block_index * 2 * a->heads;
    int64_t heads = a->heads, begin = block_index * GDN_CHUNK;
    int64_t end = begin + GDN_CHUNK < a->tokens ? begin + GDN_CHUNK : a->tokens, n = (end - begin) * heads;
    for (int64_t h = 0; h < 2 * heads; h++) sums[h] = 0;
    for (int64_t i = 0; i < n; i += W) {
        vec u = {0};
        int64_t count = n - i < W ? n - i : W;
        for (int64_t j = 0; j < count; j++)
            u[j] = logit_a[(begin + (i + j) / heads) * a->stride + (i + j) % heads] + dt_bias[(i + j) % heads];
        vec s = sigmoid(u, NULL);
        for (int64_t j = 0; j < count; j++) {
            int64_t t = begin + (i + j) / heads, h = (i + j) % heads, at = t * heads + h;
            REAL d = -dg[at] * EXP(a_log[h]) * s[j];
            da[t * a->dstride + h] = d;
            db[t * a->dstride + h] = dbeta[at] * beta[at] * (1 - beta[at]);
            sums[h] += dg[at] * g[at];
            sums[heads + h] += d;
        }
    }
}
static int gate_bwd(const st_queue *q, const gdn_gate *a)
{
    const REAL *sums = a->work;
    REAL *da_log = a->da_log, *ddt_bias = a->ddt_bias;
    int64_t blocks = gdn_blocks(a->tokens);
    st_cpu_run(q, blocks, gate_bwd_block, (void *)a);
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t k = 0; k < blocks; k++) {
            if (da_log) da_log[h] += sums[k * 2 * a->heads + h];
            if (ddt_bias) ddt_bias[h] += sums[(k * 2 + 1) * a->heads + h];
        }
    return ST_OK;
}
