/* The tiers that this build has; NW_HAVE_X86_KERNELS and NW_HAVE_NEON_KERNELS come from CMake.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_TIERS_H
#define NW_KERNELS_TIERS_H

#include "kernels/kernels.h"

extern const nw_kernels nw_kernels_ref;
#if NW_HAVE_X86_KERNELS
extern const nw_kernels nw_kernels_avx512;
extern const nw_kernels nw_kernels_avx512vnni;
extern const nw_kernels nw_kernels_avxvnni;
extern const nw_kernels nw_kernels_avx2;
#endif
#if NW_HAVE_NEON_KERNELS
extern const nw_kernels nw_kernels_neon_i8mm;
extern const nw_kernels nw_kernels_neon_dotprod;
extern const nw_kernels nw_kernels_neon;
#endif

#endif
