/* The tiers that this build has; NW_HAVE_X86_KERNELS comes from CMake.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_TIERS_H
#define NW_KERNELS_TIERS_H

#include "kernels/kernels.h"

extern const nw_kernels nw_kernels_ref;
#if NW_HAVE_X86_KERNELS
extern const nw_kernels nw_kernels_avx512;
extern const nw_kernels nw_kernels_avx2;
#endif

#endif
