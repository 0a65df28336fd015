/* lanes.h for AVX2.
 * SPDX-License-Identifier: Apache-2.0 */
#define NW_LANES_OPS nw_lanes_avx2
#include "quant/lanes_body.h"
