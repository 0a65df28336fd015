/* Where the groups of a panel stand, the same for every layout of formats/panel.h that has groups of
 * columns with scales of their own. A kernel sees codes in 64-byte steps, one or two f32 scales a
 * row and group, and perhaps a minimum: w = scale * value(code) [+ min]. Stored zero points and the
 * two levels of the -k layouts are made into these when a chunk of scales is decoded.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_GROUP_H
#define NW_KERNELS_GROUP_H

#include "formats/panel.h"

/* How a step of codes reads: 64 codes of 8 bits, or 128 of 4 bits, whose high nibbles stand for the
 * columns of the group's second half. SPLIT: that half has a scale of its own (nvfp4). */
typedef enum { NW_CODES_BYTE, NW_CODES_NIBBLE, NW_CODES_SPLIT } nw_codes;

typedef struct {
    nw_codes codes;
    uint32_t n_groups, cols; /* of a row; columns of a group */
    uint32_t steps;          /* 64-byte steps of a group's codes */
    uint32_t n_scales;       /* a row and group: 1, or 2 (SPLIT: low nibbles, high nibbles) */
    uint32_t per_block;      /* groups that stand together: 1, or those of a -k block */
    size_t first;            /* bytes of a panel before its first block */
    size_t block_bytes;
    size_t codes_at; /* of a block: its first group's codes; those of the next groups follow */
    bool min;        /* stored, or made of stored zero points */
    bool fp4;        /* codes are E2M1; else integers, less `zero` */
    int32_t zero;    /* of all rows: 8 (int4 without minima), 128 (bytes are code + 128), or 0 */
} nw_groups;

/* type has groups: int4, int8 with a group, nvfp4, mxfp4. */
nw_groups nw_groups_of(nw_panel_type type, uint32_t n_cols);
/* The same, and rows of INT8 without groups in groups of NW_ACT_COLS columns without scales, the
 * last of which may be short: those of INT16 activations. */
nw_groups nw_groups_or_row(nw_panel_type type, uint32_t n_cols);

static inline bool nw_has_groups(nw_panel_type type)
{
    return type.kind == NW_PANEL_INT4 || type.kind == NW_PANEL_NVFP4 ||
           type.kind == NW_PANEL_MXFP4 || (type.kind == NW_PANEL_INT8 && type.group > 0);
}

/* The decoded scales of NW_CHUNK groups of one panel. */
#define NW_CHUNK 8u
typedef struct {
    _Alignas(64) float scale[NW_CHUNK * 2][NW_PANEL_ROWS]; /* [group * n_scales + i] */
    _Alignas(64) float min[NW_CHUNK][NW_PANEL_ROWS];       /* where nw_groups.min */
} nw_chunk;

#endif
