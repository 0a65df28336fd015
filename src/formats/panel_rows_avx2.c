/* panel_rows.h for AVX2.
 * SPDX-License-Identifier: Apache-2.0 */
#define NW_ROWS nw_rows_avx2
#include "formats/panel_rows_body.h"
