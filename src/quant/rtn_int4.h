/* Round to nearest of one group of INT4 columns: 16 rows to the bytes of a panel, by the rules in rtn.h.
 * The work is written once (rtn_int4_body.h) and compiled for each instruction set; bytes are the
 * same for all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_RTN_INT4_H
#define NW_QUANT_RTN_INT4_H

#include "quant/rtn.h"

#define NW_RTN_ALL_FIT NW_PANEL_ROWS

/* n columns of n_rows <= 16 rows, row r at rows + r * ld, n <= type.group, to the bytes of a group of
 * the panel; tile: [type.group][16]. Returns the first row whose scale does not fit FP16, or
 * NW_RTN_ALL_FIT. */
typedef struct {
    nw_panel_type type; /* INT4 without minima */
    const nw_scales *scales;
    const float *rows;
    size_t ld;
    uint32_t n_rows, n;
    float *tile;
} nw_rtn_group;
typedef uint32_t (*nw_rtn_int4_fn)(const nw_rtn_group *g, uint8_t *dst);

/* Of a group of the panel: scales, zero points, codes. */
static inline uint32_t nw_rtn_int4_bytes(nw_panel_type type)
{
    return 2 * NW_PANEL_ROWS + (type.zero_point ? NW_PANEL_ROWS : 0) + type.group * 8U;
}

uint32_t nw_rtn_int4_plain(const nw_rtn_group *g, uint8_t *dst);
#if NW_HAVE_X86_KERNELS
uint32_t nw_rtn_int4_avx2(const nw_rtn_group *g, uint8_t *dst);
uint32_t nw_rtn_int4_avx512(const nw_rtn_group *g, uint8_t *dst);
#endif
/* The fastest that these features (base/cpu.h) allow. */
nw_rtn_int4_fn nw_rtn_int4_pick(uint32_t features);

#endif
