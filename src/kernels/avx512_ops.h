/* All of the AVX-512 tier but its linear, for its table (avx512.c) and the AMX tier's (amx.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_OPS_H
#define NW_KERNELS_AVX512_OPS_H

#include "base/cpu.h"
#include "kernels/avx512.h"

/* Contracts: kernels.h. */
void nw_avx512_rmsnorm(const float *x, const float *gain, uint32_t n, float eps, float *y);
void nw_avx512_rope(float *x, uint32_t n_heads, uint32_t d_head, const float *cos,
                    const float *sin);
void nw_avx512_silu_mul(const float *gate, const float *up, size_t n, float *y);
void nw_avx512_gelu_tanh_mul(const float *gate, const float *up, size_t n, float *y);
void nw_avx512_add(const float *x, size_t n, float *y);
void nw_avx512_softcap(float *x, size_t n, float cap);
void nw_avx512_act_pack(nw_act_kind kind, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                        uint32_t n_cols, void *dst);
nw_act_kind nw_avx512_act_kind(nw_panel_type type, bool a8);
void nw_avx512_attend(const nw_attn *a);

#define NW_AVX512_NEED (NW_CPU_AVX512 | NW_CPU_AVX512VNNI | NW_CPU_AVX512VBMI | NW_CPU_AVX512BF16)
#define NW_AVX512_OPS                                                                             \
    .act_kind = nw_avx512_act_kind, .act_pack = nw_avx512_act_pack, .rmsnorm = nw_avx512_rmsnorm, \
    .rope = nw_avx512_rope, .silu_mul = nw_avx512_silu_mul,                                       \
    .gelu_tanh_mul = nw_avx512_gelu_tanh_mul, .add = nw_avx512_add, .softcap = nw_avx512_softcap, \
    .kv_put = nw_avx512_kv_put

#endif
