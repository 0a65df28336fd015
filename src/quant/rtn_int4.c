/* rtn_int4.h in the instructions that every processor of its kind has, and the choice among what there
 * is.
 * SPDX-License-Identifier: Apache-2.0 */
#define NW_RTN_INT4 nw_rtn_int4_plain
#include "base/cpu.h"
#include "quant/rtn_int4_body.h"

nw_rtn_int4_fn nw_rtn_int4_pick(uint32_t features)
{
#if NW_HAVE_X86_KERNELS
    if ((features & NW_CPU_AVX512) != 0) {
        return nw_rtn_int4_avx512;
    }
    if ((features & NW_CPU_AVX2) != 0) {
        return nw_rtn_int4_avx2;
    }
#endif
    (void)features;
    return nw_rtn_int4_plain;
}
