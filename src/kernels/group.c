/* The geometry of each layout with groups; the layouts are drawn in formats/panel.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/group.h"

#include <assert.h>

#include "kernels/act.h"

static nw_groups fp4_groups(nw_panel_type type, uint32_t n_cols)
{
    const bool split = type.kind == NW_PANEL_NVFP4;

    return (nw_groups){.codes = split ? NW_CODES_SPLIT : NW_CODES_NIBBLE,
                       .n_groups = n_cols / 32 + (n_cols % 32 != 0),
                       .cols = 32,
                       .steps = 4,
                       .n_scales = split ? 2 : 1,
                       .per_block = 1,
                       .first = split ? 64 : 0,
                       .block_bytes = split ? 32 + 256 : 16 + 256,
                       .codes_at = split ? 32 : 16,
                       .fp4 = true};
}

nw_groups nw_groups_of(nw_panel_type type, uint32_t n_cols)
{
    const bool bytes = type.kind == NW_PANEL_INT8;
    nw_groups g = {.codes = bytes ? NW_CODES_BYTE : NW_CODES_NIBBLE,
                   .cols = type.group,
                   .steps = type.group / (bytes ? 4U : 8U),
                   .n_scales = 1,
                   .per_block = 1,
                   .codes_at = 32U + (type.zero_point ? 16U : 0U) + (type.min ? 32U : 0U),
                   .min = type.min || type.zero_point};

    assert(nw_has_groups(type));
    if (type.kind == NW_PANEL_NVFP4 || type.kind == NW_PANEL_MXFP4) {
        return fp4_groups(type, n_cols);
    }
    if (type.two_level) {
        g.per_block = NW_PANEL_K_COLS / type.group;
        g.codes_at = 64U + (size_t)g.per_block * (type.min ? 32U : 16U);
    }
    g.n_groups = n_cols / g.cols + (n_cols % g.cols != 0);
    g.zero = bytes ? 128 : g.min ? 0 : 8;
    g.block_bytes = g.codes_at + (size_t)g.per_block * g.steps * 64;
    return g;
}

nw_groups nw_groups_or_row(nw_panel_type type, uint32_t n_cols)
{
    if (nw_has_groups(type)) {
        return nw_groups_of(type, n_cols);
    }
    return (nw_groups){.codes = NW_CODES_BYTE,
                       .n_groups = nw_act_cols(n_cols) / NW_ACT_COLS,
                       .cols = NW_ACT_COLS,
                       .steps = NW_ACT_COLS / 4,
                       .n_scales = 1,
                       .per_block = 1,
                       .first = NW_PANEL_ROWS * sizeof(float),
                       .block_bytes = NW_ACT_COLS * (size_t)NW_PANEL_ROWS,
                       .zero = 128};
}
