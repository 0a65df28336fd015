/* Packing BF16 tensors for the disk, and transcoding them to panels: see bf16_packed.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/bf16_packed.h"

#include <assert.h>

#include "formats/block_parts.h"
#include "formats/panel_parts.h"

#define SIZES     16u /* bytes before the streams */
#define QUAD      64u /* values of a quad */
#define HIGH_BITS UINT64_C(0xF0F0F0F0F0F0F0F0)

_Static_assert(sizeof(nw_bf16_packed_head) == 160, "head of a packed tensor");

void nw_bf16_packed_head_make(const nw_exponent_counts *counts, uint32_t escapes,
                              nw_bf16_packed_head *out)
{
    nw_exponent_counts with_padding = *counts;
    uint8_t lengths[256];

    memset(out, 0, sizeof *out);
    nw_bf16_12_table(counts, out->exponents);
    with_padding.n[0] += with_padding.n[0] == 0 ? 1 : 0;
    nw_code_lengths(with_padding.n, lengths);
    for (size_t i = 0; i < sizeof out->lengths; i++) {
        out->lengths[i] = (uint8_t)(lengths[2 * i] | (unsigned)lengths[2 * i + 1] << 4);
    }
    out->escapes = escapes;
}

static void lengths_of(const nw_bf16_packed_head *head, uint8_t lengths[256])
{
    for (size_t i = 0; i < sizeof head->lengths; i++) {
        lengths[2 * i] = head->lengths[i] & 15U;
        lengths[2 * i + 1] = head->lengths[i] >> 4;
    }
}

static size_t n_values(uint32_t n_cols)
{
    return ((size_t)n_cols + 3) / 4 * QUAD;
}

bool nw_bf16_packed_bound(uint32_t n_cols, size_t *out)
{
    /* 11 bits of exponent and 8 of the rest a value: less than 3 bytes */
    return nw_size_mul(n_values(n_cols), 3, out) &&
           nw_size_add(*out, SIZES + 16 * NW_CODE_STREAMS, out);
}

size_t nw_bf16_packed_scratch(uint32_t n_cols)
{
    return n_values(n_cols);
}

void nw_bf16_packer_init(nw_bf16_packer *p, const nw_bf16_packed_head *head)
{
    uint8_t lengths[256];

    lengths_of(head, lengths);
    nw_code_writer_init(&p->code, lengths);
}

/* Row and column of value w of quad j. */
static uint32_t row_at(uint32_t w)
{
    return w % 32 / 2;
}

static uint32_t col_at(uint32_t j, uint32_t w)
{
    return 4 * j + w / 32 * 2 + w % 2;
}

size_t nw_bf16_pack(const nw_bf16_packer *p, const uint16_t *w, size_t ld, uint32_t n_rows,
                    uint32_t n_cols, uint8_t *out, void *scratch)
{
    const size_t n = n_values(n_cols);
    uint8_t *symbols = scratch;
    size_t at = SIZES;

    assert(n_rows <= NW_PANEL_ROWS);
    for (size_t i = 0; i < n; i++) {
        const uint32_t r = row_at(i % QUAD);
        const uint32_t c = col_at((uint32_t)(i / QUAD), i % QUAD);
        const uint16_t bits = r < n_rows && c < n_cols ? w[r * ld + c] : 0;
        symbols[i] = (uint8_t)(bits >> 7 & 0xFFU);
    }
    for (unsigned i = 0; i < NW_CODE_STREAMS; i++) {
        const size_t from = nw_code_part(n, i);
        const size_t size =
            nw_code_write(&p->code, symbols + from, nw_code_part(n, i + 1) - from, out + at);
        nw_put32(out + (size_t)4 * i, (uint32_t)size);
        at += size;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t r = row_at(i % QUAD);
        const uint32_t c = col_at((uint32_t)(i / QUAD), i % QUAD);
        const uint16_t bits = r < n_rows && c < n_cols ? w[r * ld + c] : 0;
        out[at + i] = (uint8_t)((bits >> 8 & 0x80U) | (bits & 0x7FU));
    }
    return at + n;
}

/* Symbols as the decoder gives them out: 0 to 15 as the codes of the 12-bit panels, then the other
 * exponents that have a code. False for a table that names an exponent twice, or too many others. */
static bool name_symbols(nw_bf16_unpacker *u, const uint8_t lengths[256], uint8_t names[256])
{
    bool named[256] = {true};
    unsigned next = 16;

    memset(names, 0, 256);
    names[0] = NW_BF16_12_ESCAPE;
    for (unsigned i = 0; i < NW_BF16_12_ESCAPE; i++) {
        const uint8_t e = u->exponents[i];
        if (e == 0) {
            continue;
        }
        if (named[e]) {
            return false;
        }
        named[e] = true;
        names[e] = (uint8_t)i;
        u->exponent_of[i] = e;
    }
    for (unsigned e = 1; e < 256; e++) {
        if (named[e] || lengths[e] == 0) {
            continue;
        }
        if (next > 255) {
            return false;
        }
        u->exponent_of[next] = (uint8_t)e;
        names[e] = (uint8_t)next++;
    }
    return true;
}

bool nw_bf16_unpacker_init(nw_bf16_unpacker *u, const nw_bf16_packed_head *head)
{
    uint8_t lengths[256];
    uint8_t names[256];

    if (head->escapes != NW_BF16_12_END && head->escapes > UINT16_MAX) {
        return false;
    }
    memset(u, 0, sizeof *u);
    memcpy(u->exponents, head->exponents, sizeof u->exponents);
    u->exponents[NW_BF16_12_ESCAPE] = 0;
    u->type = head->escapes == NW_BF16_12_END
                  ? (nw_panel_type){.kind = NW_PANEL_BF16}
                  : (nw_panel_type){.kind = NW_PANEL_BF16_12, .escapes = (uint16_t)head->escapes};
    lengths_of(head, lengths);
    return name_symbols(u, lengths, names) && nw_code_reader_init(&u->code, lengths, names);
}

nw_panel_type nw_bf16_unpacked_type(const nw_bf16_unpacker *u)
{
    return u->type;
}

/* What is written of a 12-bit panel. */
typedef struct {
    uint8_t *list;
    uint32_t n_escapes, room;
} out12;

/* The values of a quad that have an exponent of their own, by column, then row. */
static bool put_escapes(const nw_bf16_unpacker *u, uint32_t j, uint8_t *sym, uint8_t *quad,
                        out12 *out)
{
    for (uint32_t i = 0; i < QUAD; i++) {
        const uint32_t t = i / 16;
        const uint32_t r = i % 16;
        const uint32_t w = t / 2 * 32 + 2 * r + t % 2;
        if (sym[w] <= NW_BF16_12_ESCAPE) {
            continue;
        }
        const unsigned bits =
            (quad[w] & 0x80U) << 8 | (unsigned)u->exponent_of[sym[w]] << 7 | (quad[w] & 0x7FU);
        const nw_bf16_escape e = {.col = 4 * j + t, .row = (uint16_t)r, .bits = (uint16_t)bits};
        if (out->n_escapes == out->room) {
            return false;
        }
        memcpy(out->list + out->n_escapes++ * sizeof e, &e, sizeof e);
        sym[w] = NW_BF16_12_ESCAPE;
        quad[w] = 0;
    }
    return true;
}

static bool to_bf16_12(const nw_bf16_unpacker *u, uint8_t *sym, const uint8_t *sm, uint32_t n_cols,
                       uint8_t *panel)
{
    const uint32_t n_quads = (n_cols + 3) / 4;
    const nw_bf16_escape end = {.col = NW_BF16_12_END};
    out12 out = {.list = panel + nw_bf16_12_list_at(u->type, n_cols), .room = u->type.escapes};
    nw_bf16_12_head head = {.n_escapes = 0};
    const size_t quads_end = NW_BF16_12_HEAD + (size_t)n_quads * NW_BF16_12_QUAD;
    const size_t size = nw_panel_size(u->type, n_cols);

    memset(panel, 0, NW_BF16_12_HEAD);
    memset(panel + quads_end, 0, size - quads_end);
    for (uint32_t j = 0; j < n_quads; j++, sym += QUAD, sm += QUAD) {
        uint8_t *quad = panel + NW_BF16_12_HEAD + (size_t)j * NW_BF16_12_QUAD;
        uint64_t low[4];
        uint64_t high[4];
        memcpy(quad, sm, QUAD);
        memcpy(low, sym, sizeof low);
        memcpy(high, sym + 32, sizeof high);
        if (((low[0] | low[1] | low[2] | low[3] | high[0] | high[1] | high[2] | high[3]) &
             HIGH_BITS) != 0) {
            if (!put_escapes(u, j, sym, quad, &out)) {
                return false;
            }
            memcpy(low, sym, sizeof low);
            memcpy(high, sym + 32, sizeof high);
        }
        for (int i = 0; i < 4; i++) {
            low[i] |= high[i] << 4;
        }
        memcpy(quad + QUAD, low, sizeof low);
    }
    memcpy(head.exponents, u->exponents, sizeof head.exponents);
    head.n_escapes = out.n_escapes;
    memcpy(panel, &head, offsetof(nw_bf16_12_head, few)); /* the list may follow */
    for (uint32_t i = out.n_escapes; i <= out.room; i++) {
        memcpy(out.list + i * sizeof end, &end, sizeof end);
    }
    return true;
}

static void to_bf16(const nw_bf16_unpacker *u, const uint8_t *sym, const uint8_t *sm,
                    uint32_t n_cols, uint8_t *panel)
{
    const size_t n_pairs = ((size_t)n_cols + 1) / 2;

    /* half a quad is a pair of columns, in the panel's own order */
    for (size_t i = 0; i < n_pairs * 32; i++) {
        const unsigned bits =
            (sm[i] & 0x80U) << 8 | (unsigned)u->exponent_of[sym[i]] << 7 | (sm[i] & 0x7FU);
        const uint16_t h = (uint16_t)bits;
        memcpy(panel + 2 * i, &h, sizeof h);
    }
}

bool nw_bf16_unpack(const nw_bf16_unpacker *u, const uint8_t *in, size_t n_bytes, uint32_t n_cols,
                    uint8_t *panel, void *scratch)
{
    const size_t n = n_values(n_cols);
    uint32_t sizes[NW_CODE_STREAMS];
    uint64_t streams = 0;

    if (n_bytes < SIZES) {
        return false;
    }
    for (unsigned i = 0; i < NW_CODE_STREAMS; i++) {
        sizes[i] = nw_le32(in + (size_t)4 * i);
        streams += sizes[i];
    }
    if (n_bytes - SIZES < n || n_bytes - SIZES - n != streams ||
        !nw_code_read(&u->code, in + SIZES, sizes, scratch, n)) {
        return false;
    }
    if (u->type.kind == NW_PANEL_BF16) {
        to_bf16(u, scratch, in + SIZES + streams, n_cols, panel);
        return true;
    }
    return to_bf16_12(u, scratch, in + SIZES + streams, n_cols, panel);
}
