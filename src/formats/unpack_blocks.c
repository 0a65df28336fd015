/* See unpack_blocks.h; block layouts are in block.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/unpack_blocks.h"

#include "formats/block.h"
#include "formats/encode_parts.h"
#include "formats/panel_parts.h"

#define K_SUBS(n) (NW_SUPER / (n))

static bool is_integer(nw_panel_type t)
{
    return t.kind == NW_PANEL_INT8 || t.kind == NW_PANEL_INT4;
}

bool nw_unpack_needs_codes(nw_panel_type type)
{
    return type.kind == NW_PANEL_INT8 || type.zero_point;
}

/* Codes less their zero points; false where eight bits do not hold one. */
static bool row_codes(const nw_panel_row *p, int8_t *codes)
{
    const uint32_t group = p->type.group > 0 ? p->type.group : UINT32_MAX;
    bool fit = true;

    for (uint32_t c = 0; c < p->n_cols; c++) {
        const int zero = p->type.two_level ? 0 : nw_panel_int_group(p, c / group).zero;
        const int code = nw_panel_int_code(p, c) - zero;
        fit = fit && code >= INT8_MIN && code <= INT8_MAX;
        codes[c] = (int8_t)(code & 0xFF);
    }
    return fit;
}

void nw_code_set_add_row(nw_code_set *set, nw_panel_type type, const uint8_t *tensor,
                         uint32_t n_cols, uint32_t row, int8_t *codes)
{
    const nw_panel_row p = nw_panel_row_of(type, tensor, n_cols, row);

    set->wider = !row_codes(&p, codes) || set->wider;
    for (uint32_t c = 0; c < n_cols; c++) {
        const uint8_t byte = (uint8_t)codes[c];
        set->used[byte / 64] |= UINT64_C(1) << (byte % 64);
    }
}

void nw_code_set_join(nw_code_set *set, const nw_code_set *other)
{
    for (size_t i = 0; i < NW_COUNT(set->used); i++) {
        set->used[i] |= other->used[i];
    }
    set->wider = set->wider || other->wider;
}

static bool uses(const nw_code_set *set, int code)
{
    const uint8_t byte = (uint8_t)code;
    return (set->used[byte / 64] >> (byte % 64) & 1U) != 0;
}

static bool within(const nw_code_set *set, int lo, int hi)
{
    bool all = true;

    for (int code = -128; code < 128; code++) {
        all = all && (!uses(set, code) || (code >= lo && code <= hi));
    }
    return all;
}

static int iq4_code(int level)
{
    int code = -1;

    for (int i = 0; i < 16; i++) {
        code = nw_iq4_nl_levels[i] == level ? i : code;
    }
    return code;
}

static bool is_iq4(const nw_code_set *set)
{
    bool all = true;

    for (int code = -128; code < 128; code++) {
        all = all && (!uses(set, code) || iq4_code(code) >= 0);
    }
    return all;
}

/* Block types for integer codes; false: none. */
static bool integer_format(nw_panel_type t, const nw_code_set *set, nw_format_id *out)
{
    if (t.two_level) {
        const bool five = within(set, 0, 31);
        const bool six = within(set, -32, 31);
        *out = t.kind == NW_PANEL_INT4 ? NW_FMT_Q4_K : t.min ? NW_FMT_Q5_K : NW_FMT_Q6_K;
        return t.kind == NW_PANEL_INT4 || (t.min ? five : six);
    }
    if (t.min) {
        const bool four = t.kind == NW_PANEL_INT4 || within(set, 0, 15);
        *out = four ? NW_FMT_Q4_1 : NW_FMT_Q5_1;
        return four || within(set, 0, 31);
    }
    if ((t.kind == NW_PANEL_INT4 && !t.zero_point) || within(set, -8, 7)) {
        *out = NW_FMT_Q4_0;
    } else if (is_iq4(set)) {
        *out = NW_FMT_IQ4_NL;
    } else {
        *out = within(set, -16, 15) ? NW_FMT_Q5_0 : NW_FMT_Q8_0;
    }
    return !set->wider;
}

bool nw_unpack_format(nw_panel_type type, uint32_t n_cols, const nw_code_set *set,
                      nw_format_id *out)
{
    nw_format_id f = NW_FMT_F32;
    bool ok = true;

    if (is_integer(type)) {
        ok = integer_format(type, set, &f) && (type.group % NW_BLOCK == 0 || type.two_level);
    } else if (type.kind == NW_PANEL_BF16 || type.kind == NW_PANEL_BF16_12) {
        f = NW_FMT_BF16;
    } else if (type.kind == NW_PANEL_NVFP4 || type.kind == NW_PANEL_MXFP4) {
        f = type.kind == NW_PANEL_NVFP4 ? NW_FMT_NVFP4 : NW_FMT_MXFP4;
    } else {
        ok = type.kind == NW_PANEL_F32;
    }
    if (!ok || n_cols % nw_format_get(f)->block_elems != 0) {
        return false;
    }
    *out = f;
    return true;
}

/* Codes of a block of 32, counted from `zero` on. */
static void block_codes(const int8_t *codes, int zero, uint8_t q[NW_BLOCK])
{
    for (int j = 0; j < NW_BLOCK; j++) {
        q[j] = (uint8_t)(codes[j] + zero);
    }
}

static void put_block32(nw_format_id f, const nw_panel_group *g, const int8_t *codes, uint8_t *dst)
{
    uint8_t q[NW_BLOCK];
    const bool has_min = f == NW_FMT_Q4_1 || f == NW_FMT_Q5_1;
    uint8_t *rest = dst + (has_min ? 4 : 2);

    nw_put_scale(dst, g->scale);
    if (has_min) {
        nw_put_scale(dst + 2, g->min);
    }
    block_codes(codes, f == NW_FMT_Q4_0 ? 8 : f == NW_FMT_Q5_0 ? 16 : 0, q);
    for (int j = 0; f == NW_FMT_IQ4_NL && j < NW_BLOCK; j++) {
        q[j] = (uint8_t)iq4_code(codes[j]);
    }
    if (f == NW_FMT_Q8_0) {
        memcpy(rest, q, NW_BLOCK);
    } else if (f == NW_FMT_Q5_0 || f == NW_FMT_Q5_1) {
        nw_put_codes5(q, rest);
    } else {
        nw_put_nibbles(q, rest);
    }
}

static void put_blocks32(const nw_panel_row *p, nw_format_id f, const int8_t *codes, uint8_t *dst)
{
    const uint32_t group = p->type.group > 0 ? p->type.group : UINT32_MAX;

    for (uint32_t c = 0; c < p->n_cols; c += NW_BLOCK, dst += nw_format_get(f)->block_bytes) {
        const nw_panel_group g = nw_panel_int_group(p, c / group);
        put_block32(f, &g, codes + c, dst);
    }
}

static void put_super(const nw_panel_row *p, nw_format_id f, const int8_t *codes, uint8_t *dst)
{
    const uint32_t n_subs = K_SUBS(p->type.group);

    for (uint32_t b = 0; b < p->n_cols / NW_SUPER; b++, codes += NW_SUPER) {
        int8_t sc[16];
        int8_t m[16];
        nw_panel_k_scales k = {0};
        for (uint32_t s = 0; s < n_subs; s++) {
            k = nw_panel_k_scales_of(p, b * n_subs + s);
            sc[s] = k.scale;
            m[s] = (int8_t)k.min;
        }
        if (f == NW_FMT_Q6_K) {
            nw_put_k6_codes(codes, dst, dst + 128);
            memcpy(dst + 192, sc, 16);
            nw_put16(dst + 208, k.d);
        } else {
            nw_put16(dst, k.d);
            nw_put16(dst + 2, k.dmin);
            nw_put_k_scales(sc, m, dst + 4);
            nw_put_k45_codes(codes, f == NW_FMT_Q5_K ? dst + 16 : NULL,
                             dst + (f == NW_FMT_Q5_K ? 48 : 16));
        }
        dst += nw_format_get(f)->block_bytes;
    }
}

/* GGUF has no negative zero. */
static uint8_t fp4_code(const nw_panel_row *p, uint32_t c)
{
    const uint8_t code = nw_panel_fp_code(p, c);
    return code == 8 ? 0 : code;
}

static void put_mxfp4(const nw_panel_row *p, uint8_t *dst)
{
    for (uint32_t c = 0; c < p->n_cols; c += NW_BLOCK, dst += 17) {
        uint8_t q[NW_BLOCK];
        for (uint32_t j = 0; j < NW_BLOCK; j++) {
            q[j] = fp4_code(p, c + j);
        }
        dst[0] = nw_panel_fp_scale_code(p, c / NW_BLOCK);
        nw_put_nibbles(q, dst + 1);
    }
}

static void put_nvfp4(const nw_panel_row *p, uint8_t *dst)
{
    for (uint32_t c = 0; c < p->n_cols; c += NW_NVFP4_BLOCK, dst += 36) {
        for (uint32_t s = 0; s < NW_NVFP4_BLOCK / NW_NVFP4_GROUP; s++) {
            const uint32_t at = c + s * NW_NVFP4_GROUP;
            dst[s] = nw_panel_fp_scale_code(p, at / NW_NVFP4_GROUP);
            for (uint32_t j = 0; j < 8; j++) {
                dst[4 + 8 * s + j] =
                    (uint8_t)(fp4_code(p, at + j) | (unsigned)fp4_code(p, at + j + 8) << 4);
            }
        }
    }
}

static void put_wide(const nw_panel_row *p, const uint8_t *tensor, uint32_t row, uint8_t *dst)
{
    float v[NW_SUPER];

    for (uint32_t c = 0; c < p->n_cols; c += NW_SUPER) {
        const uint32_t n = p->n_cols - c < NW_SUPER ? p->n_cols - c : NW_SUPER;
        nw_panel_unpack_span(p->type, tensor, p->n_cols, row, c, n, v);
        if (p->type.kind == NW_PANEL_F32) {
            nw_encode_f32(v, dst + (size_t)c * 4, n);
        } else {
            nw_encode_bf16(v, dst + (size_t)c * 2, n);
        }
    }
}

void nw_unpack_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                   nw_format_id format, int8_t *codes, uint8_t *dst)
{
    const nw_panel_row p = nw_panel_row_of(type, tensor, n_cols, row);

    if (is_integer(type)) {
        (void)row_codes(&p, codes); /* they fit: the format was chosen by them */
        if (type.two_level) {
            put_super(&p, format, codes, dst);
        } else {
            put_blocks32(&p, format, codes, dst);
        }
    } else if (format == NW_FMT_MXFP4) {
        put_mxfp4(&p, dst);
    } else if (format == NW_FMT_NVFP4) {
        put_nvfp4(&p, dst);
    } else {
        put_wide(&p, tensor, row, dst);
    }
}
