/* rtn_int4.h for AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#define NW_RTN_INT4 nw_rtn_int4_avx512
#include "quant/rtn_int4_body.h"
