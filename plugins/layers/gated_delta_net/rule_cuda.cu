/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/rule_cuda.cu - the rule's two entries: their steps in order. */
#include "rule_cuda.h"
#include "kernels_cuda.h"

static int fits(const gdn_rule *a)
{
    return (a->dtype == ST_F32 || a->dtype == ST_BF16) && a->key_dim <= GDN_CUDA_KEY_DIM;
}

int gdn_cuda_rule(const st_queue *q, const gdn_rule *a)
{
    if (!fits(a)) return ST_E_UNSUPPORTED;
    const rule_launch l = a->dtype == ST_BF16 ? rule_launch_of<bf16>(a) : rule_launch_of<float>(a);
    ST_TRY(gdn_rule_prepare(q, &l));
    return gdn_rule_chain(q, &l);
}

template <typename T> static rule_launch backward_of(const gdn_rule_bwd *b)
{
    rule_launch l = rule_launch_of<T>(&b->f);
    l.b = *b;
    l.backward = 1;
    l.fast.dout = aligned<T>(b->dout, b->f.out_stride, b->f.value_dim);
    l.fast.dqk = aligned<T>(b->dq, b->dstride, b->f.key_dim) && aligned<T>(b->dk, b->dstride, b->f.key_dim);
    l.fast.dv = aligned<T>(b->dv, b->dstride, b->f.value_dim);
    l.fast.dfinal = aligned<T>(b->dfinal, b->f.final_stride, b->f.value_dim);
    l.fast.dinitial = aligned<T>(b->dinitial, b->f.initial_stride, b->f.value_dim);
    /* Heads of at most 64 values stay with the other kernels: the local step writes a head's gates while the next one's are
     * loaded, which takes two parts of values for each head. */
    l.fast.wgmma = b->f.dtype == ST_BF16 && b->f.key_dim > 64 && b->f.value_dim > 64 && l.fast.qk && l.fast.v &&
                   l.fast.states && l.fast.dout && l.fast.dqk && l.fast.dv && (!b->f.initial || l.fast.initial) &&
                   (!b->dfinal || l.fast.dfinal) && (!b->dinitial || l.fast.dinitial) && st_cuda_has_wgmma();
    return l;
}
int gdn_cuda_rule_bwd(const st_queue *q, const gdn_rule_bwd *b)
{
    if (!fits(&b->f)) return ST_E_UNSUPPORTED;
    const rule_launch l = b->f.dtype == ST_BF16 ? backward_of<bf16>(b) : backward_of<float>(b);
    ST_TRY(gdn_rule_prepare(q, &l));
    ST_TRY(gdn_rule_values(q, &l));
    ST_TRY(gdn_rule_chain_bwd(q, &l));
    return gdn_rule_local(q, &l);
}
