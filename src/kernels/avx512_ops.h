/* The element-wise half of the AVX-512 tier, for its table (avx512.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_OPS_H
#define NW_KERNELS_AVX512_OPS_H

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

#endif
