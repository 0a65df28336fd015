/* The tiers that this build has; NW_HAVE_X86_KERNELS and NW_HAVE_NEON_KERNELS come from CMake.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_TIERS_H
#define NW_KERNELS_TIERS_H

#include "kernels/kernels.h"

typedef void nw_linear_fn(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                          float *y, size_t ldy);

extern const nw_kernels nw_kernels_ref;
#if NW_HAVE_X86_KERNELS
extern const nw_kernels nw_kernels_amx;
extern const nw_kernels nw_kernels_avx512;
extern const nw_kernels nw_kernels_avx512vnni;
extern const nw_kernels nw_kernels_avxvnni;
extern const nw_kernels nw_kernels_avx2;
/* linear with F32 activations, of tiers that are compiled in several files. */
nw_linear_fn nw_avx512vnni_linear_f32, nw_avx2_linear_f32;
/* Integer and FP4 weights x INT8 or INT16 activations; of them 4-bit weights x INT8, more than 6 tokens. */
nw_linear_fn nw_avx2_linear_int, nw_avx2_linear_nibble;
#endif
#if NW_HAVE_NEON_KERNELS
extern const nw_kernels nw_kernels_neon_i8mm;
extern const nw_kernels nw_kernels_neon_dotprod;
extern const nw_kernels nw_kernels_neon;
nw_linear_fn nw_neon_linear_f32;
#endif

#endif
