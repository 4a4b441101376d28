/* SPDX-License-Identifier: Apache-2.0 */
/* gated_delta_net/template_cpu.h - all templates for one type. Every name they define gets the type's suffix, here, so
 * that their text stays free of it; the type's macros are taken back at the end. No include guard: kernels_cpu.c
 * includes it once per type. */
#define F(name) JOIN(name, SUFFIX)
#define load F(load)
#define store F(store)
#define splat F(splat)
#define pick F(pick)
#define sum F(sum)
#define exp_neg F(exp_neg)
#define sigmoid F(sigmoid)
#define softplus F(softplus)
#define block F(block)
#define strip F(strip)
#define lower_columns F(lower_columns)
#define multiply F(multiply)
#define solve_lower F(solve_lower)
#define solve_upper F(solve_upper)
#define transpose F(transpose)
#define vec F(vec)
#define uvec F(uvec)
#define ivec F(ivec)
#define conv_transpose F(conv_transpose)
#define conv_columns F(conv_columns)
#define conv_tile F(conv_tile)
#define conv F(conv)
#define conv_bwd_columns F(conv_bwd_columns)
#define conv_bwd_tile F(conv_bwd_tile)
#define conv_bwd_reduce F(conv_bwd_reduce)
#define conv_bwd F(conv_bwd)
#define gate_block F(gate_block)
#define gate F(gate)
#define gate_bwd_block F(gate_bwd_block)
#define gate_bwd F(gate_bwd)
#define norm_rstd F(norm_rstd)
#define norm_columns F(norm_columns)
#define norm_block F(norm_block)
#define norm F(norm)
#define norm_bwd_columns F(norm_bwd_columns)
#define norm_bwd_head F(norm_bwd_head)
#define norm_bwd_block F(norm_bwd_block)
#define norm_bwd F(norm_bwd)
#define take F(take)
#define lane_init F(lane_init)
#define copy_in F(copy_in)
#define copy_out F(copy_out)
#define dot F(dot)
#define scale_add F(scale_add)
#define scale_row F(scale_row)
#define normalise F(normalise)
#define chunk_length F(chunk_length)
#define chunk_begin F(chunk_begin)
#define block_rows F(block_rows)
#define chunk_keys F(chunk_keys)
#define chunk_gates F(chunk_gates)
#define chunk_matrices F(chunk_matrices)
#define chunk_delta F(chunk_delta)
#define chunk_out F(chunk_out)
#define chunk_state F(chunk_state)
#define walk_init F(walk_init)
#define stored_state F(stored_state)
#define initial_state F(initial_state)
#define rule_segment F(rule_segment)
#define rule_lane F(rule_lane)
#define rule F(rule)
#define lane F(lane)
#define walk F(walk)
#define lanes F(lanes)
#define lane_bwd_init F(lane_bwd_init)
#define bwd_solve F(bwd_solve)
#define bwd_matrices F(bwd_matrices)
#define bwd_first_state F(bwd_first_state)
#define bwd_last_state F(bwd_last_state)
#define bwd_state F(bwd_state)
#define bwd_head_out F(bwd_head_out)
#define bwd_normalise F(bwd_normalise)
#define bwd_keys F(bwd_keys)
#define bwd_head F(bwd_head)
#define rule_bwd_segment F(rule_bwd_segment)
#define rule_bwd_lane F(rule_bwd_lane)
#define rule_bwd F(rule_bwd)
#define lane_bwd F(lane_bwd)

#include "math_cpu.h"

#include "conv_cpu.h"
#include "gate_cpu.h"
#include "norm_cpu.h"
#include "rule_cpu.h"

#include "rule_bwd_cpu.h"

#undef load
#undef store
#undef splat
#undef pick
#undef sum
#undef exp_neg
#undef sigmoid
#undef softplus
#undef block
#undef strip
#undef lower_columns
#undef multiply
#undef solve_lower
#undef solve_upper
#undef transpose
#undef vec
#undef uvec
#undef ivec
#undef conv_transpose
#undef conv_columns
#undef conv_tile
#undef conv
#undef conv_bwd_columns
#undef conv_bwd_tile
#undef conv_bwd_reduce
#undef conv_bwd
#undef gate_block
#undef gate
#undef gate_bwd_block
#undef gate_bwd
#undef norm_rstd
#undef norm_columns
#undef norm_block
#undef norm
#undef norm_bwd_columns
#undef norm_bwd_head
#undef norm_bwd_block
#undef norm_bwd
#undef take
#undef lane_init
#undef copy_in
#undef copy_out
#undef dot
#undef scale_add
#undef scale_row
#undef normalise
#undef chunk_length
#undef chunk_begin
#undef block_rows
#undef chunk_keys
#undef chunk_gates
#undef chunk_matrices
#undef chunk_delta
#undef chunk_out
#undef chunk_state
#undef walk_init
#undef stored_state
#undef initial_state
#undef rule_segment
#undef rule_lane
#undef rule
#undef lane
#undef walk
#undef lanes
#undef lane_bwd_init
#undef bwd_solve
#undef bwd_matrices
#undef bwd_first_state
#undef bwd_last_state
#undef bwd_state
#undef bwd_head_out
#undef bwd_normalise
#undef bwd_keys
#undef bwd_head
#undef rule_bwd_segment
#undef rule_bwd_lane
#undef rule_bwd
#undef lane_bwd
#undef F
#undef REAL
#undef INT
#undef SUFFIX
#undef EXP
#undef SQRT
#undef TINY
#undef MANTISSA
#undef EXPONENT_BIAS
#undef ROUND_MAGIC
#undef EXP_LOWEST
#undef LN2_HIGH
#undef LN2_LOW
#undef EXP_TAYLOR
#undef ATANH_TERMS
