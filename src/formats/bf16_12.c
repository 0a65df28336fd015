/* The 12-bit form of bfloat16: see bf16_12.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/bf16_12.h"

#include <assert.h>

#include "formats/panel_parts.h"

#define TABLE      15u  /* exponents with a code of their own */
#define MOST_SHARE 128u /* escapes of at most one in so many values */

_Static_assert(sizeof(nw_bf16_12_head) == NW_BF16_12_HEAD, "head of a bf16-12 panel");
_Static_assert(sizeof(nw_bf16_escape) == 8, "escape of a bf16-12 panel");

static uint8_t exponent_of(uint16_t bits)
{
    return (uint8_t)(bits >> 7 & 0xFFU);
}

static uint8_t sign_mantissa(uint16_t bits)
{
    return (uint8_t)((bits >> 8 & 0x80U) | (bits & 0x7FU));
}

void nw_exponent_count(nw_exponent_counts *counts, const uint16_t *bits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        counts->n[exponent_of(bits[i])]++;
    }
}

void nw_bf16_12_table(const nw_exponent_counts *counts, uint8_t exponents[16])
{
    bool used[256] = {true}; /* exponent 0 has code 15 */

    memset(exponents, 0, 16);
    for (uint32_t i = 0; i < TABLE; i++) {
        uint32_t best = 0;
        uint64_t most = 0;
        for (uint32_t e = 1; e < 256; e++) {
            if (!used[e] && counts->n[e] > most) {
                best = e;
                most = counts->n[e];
            }
        }
        if (most == 0) {
            break; /* codes left over stand for exponent 0 as well */
        }
        used[best] = true;
        exponents[i] = (uint8_t)best;
    }
}

/* The code of each exponent; NW_BF16_12_ESCAPE where it has none. */
static void code_table(const uint8_t exponents[16], uint8_t codes[256])
{
    memset(codes, NW_BF16_12_ESCAPE, 256);
    for (uint32_t i = TABLE; i-- > 0;) {
        if (exponents[i] != 0) {
            codes[exponents[i]] = (uint8_t)i;
        }
    }
}

static bool is_escape(const uint8_t codes[256], uint16_t bits)
{
    const uint8_t e = exponent_of(bits);
    return e != 0 && codes[e] == NW_BF16_12_ESCAPE;
}

uint32_t nw_bf16_12_count(const uint8_t exponents[16], const uint16_t *w, size_t ld,
                          uint32_t n_rows, uint32_t n_cols)
{
    uint8_t codes[256];
    uint32_t n = 0;

    code_table(exponents, codes);
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t c = 0; c < n_cols; c++) {
            n += is_escape(codes, w[r * ld + c]) ? 1U : 0U;
        }
    }
    return n;
}

/* Escapes that fill up the last 64 bytes, beside their count. */
static uint64_t filled_up(uint64_t escapes)
{
    const uint64_t slots = 64U / sizeof(nw_bf16_escape);

    return (escapes + slots) / slots * slots - 1;
}

uint32_t nw_bf16_12_most(uint32_t n_cols)
{
    const uint64_t room = filled_up((uint64_t)n_cols * NW_PANEL_ROWS / MOST_SHARE);

    return room > UINT16_MAX ? UINT16_MAX : (uint32_t)room;
}

bool nw_bf16_12_type(uint32_t max_escapes, uint32_t n_cols, nw_panel_type *out)
{
    const uint64_t most = (uint64_t)n_cols * NW_PANEL_ROWS / MOST_SHARE;
    const uint64_t room = filled_up(max_escapes);

    if ((max_escapes > 0 && max_escapes > most) || room > UINT16_MAX) {
        return false;
    }
    *out = (nw_panel_type){.kind = NW_PANEL_BF16_12,
                           .escapes =
                               (uint16_t)(max_escapes <= NW_BF16_12_FEW ? NW_BF16_12_FEW : room)};
    return true;
}

/* Index of the value in row r, column c within its quad. */
static uint32_t word_of(uint32_t c, uint32_t r)
{
    const uint32_t t = c % 4;
    return t / 2 * 32 + 2 * r + t % 2;
}

static void put_value(uint8_t *quad, uint32_t w, uint8_t sm, uint8_t code)
{
    uint8_t *b = &quad[64 + w % 32];
    const unsigned shift = w < 32 ? 0 : 4;

    quad[w] = sm;
    *b = (uint8_t)((*b & ~(15U << shift)) | (unsigned)code << shift);
}

bool nw_panel_pack_bf16_12(nw_panel_type type, const uint8_t exponents[16], const uint16_t *w,
                           size_t ld, uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    uint8_t codes[256];
    nw_bf16_12_head head = {.n_escapes = 0};
    nw_bf16_escape end = {.col = NW_BF16_12_END};
    uint8_t *list = panel + nw_bf16_12_list_at(type, n_cols);

    assert(type.kind == NW_PANEL_BF16_12 && n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, nw_panel_size(type, n_cols));
    memcpy(head.exponents, exponents, sizeof head.exponents);
    head.exponents[NW_BF16_12_ESCAPE] = 0;
    code_table(exponents, codes);
    for (uint32_t c = 0; c < (n_cols + 3) / 4 * 4; c++) {
        uint8_t *quad = panel + NW_BF16_12_HEAD + (size_t)(c / 4) * NW_BF16_12_QUAD;
        for (uint32_t r = 0; r < NW_PANEL_ROWS; r++) {
            const uint16_t bits = r < n_rows && c < n_cols ? w[r * ld + c] : 0;
            const nw_bf16_escape e = {.col = c, .row = (uint16_t)r, .bits = bits};
            if (!is_escape(codes, bits)) {
                put_value(quad, word_of(c, r), sign_mantissa(bits), codes[exponent_of(bits)]);
                continue;
            }
            if (head.n_escapes == type.escapes) {
                return false;
            }
            put_value(quad, word_of(c, r), 0, NW_BF16_12_ESCAPE);
            memcpy(list + head.n_escapes * sizeof e, &e, sizeof e);
            head.n_escapes++;
        }
    }
    for (uint32_t i = head.n_escapes; i <= type.escapes; i++) {
        memcpy(list + i * sizeof end, &end, sizeof end);
    }
    memcpy(panel, &head, offsetof(nw_bf16_12_head, few)); /* the list may follow */
    return true;
}

const nw_bf16_escape *nw_bf16_12_escapes(nw_panel_type type, const uint8_t *panel, uint32_t n_cols,
                                         uint32_t *n)
{
    nw_bf16_12_head head;

    memcpy(&head, panel, sizeof head);
    *n = head.n_escapes < type.escapes ? head.n_escapes : type.escapes;
    return (const nw_bf16_escape *)(const void *)(panel + nw_bf16_12_list_at(type, n_cols));
}

void nw_panel_span_bf16_12(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out)
{
    uint32_t n_escapes = 0;
    const nw_bf16_escape *e = nw_bf16_12_escapes(p->type, p->panel, p->n_cols, &n_escapes);

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t c = c0 + i;
        const uint8_t *quad = p->panel + NW_BF16_12_HEAD + (size_t)(c / 4) * NW_BF16_12_QUAD;
        const uint32_t w = word_of(c, p->r);
        const unsigned code = (unsigned)quad[64 + w % 32] >> (w < 32 ? 0 : 4) & 15U;
        const unsigned bits =
            (quad[w] & 0x80U) << 8 | (unsigned)p->panel[code] << 7 | (quad[w] & 0x7FU);
        out[i] = nw_bf16_to_f32((uint16_t)bits);
    }
    for (uint32_t i = 0; i < n_escapes; i++) {
        if (e[i].row == p->r && e[i].col >= c0 && e[i].col - c0 < n) {
            out[e[i].col - c0] = nw_bf16_to_f32(e[i].bits);
        }
    }
}
