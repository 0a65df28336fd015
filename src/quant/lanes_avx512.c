/* lanes.h for AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#define NW_LANES_OPS nw_lanes_avx512
#include "quant/lanes_body.h"
