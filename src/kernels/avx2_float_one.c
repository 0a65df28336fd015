/* linear of one token for BF16, BF16-12, FP8 and F32 weights: read once, so bound by memory. Panels side
 * by side, as many as the chains of sums need; nothing is asked for ahead of the hardware's prefetchers.
 * Columns in order, one accumulator a row: the bits of avx2_float.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "kernels/avx2_float.h"
#include "kernels/x86.h"

#define MOST 4u /* panels side by side */

typedef struct {
    const uint8_t *w; /* first panel */
    size_t panel;
    nw_panel_type type;
    const float *a;
    uint32_t n_cols;
} stream;

typedef enum { PLAIN, PAIRS, E4M3, E5M2 } step_kind;

NW_INLINE unsigned columns_of(const step_kind k)
{
    return k == PLAIN ? 1 : k == PAIRS ? 2 : 4;
}

/* The line of a stream that is needed a little later. It may lie past the end, which does nothing. */
NW_INLINE void ahead(const uint8_t *w)
{
    _mm_prefetch((const char *)w + 1024, _MM_HINT_T0);
}

/* One step of 8 rows. */
NW_INLINE __m256 step(__m256 c, const uint8_t *w, const float *a, const step_kind k)
{
    __m256 x[4];

    if (k == E4M3 || k == E5M2) {
        nw_avx2_fp8_quad(w, k == E4M3, x);
    }
    NW_EACH(i, columns_of(k)) {
        const __m256 y = k >= E4M3 ? x[i] : nw_avx2_column(w, i, k == PAIRS);
        c = _mm256_fmadd_ps(y, _mm256_broadcast_ss(a + i), c);
    }
    return c;
}

/* Sums of np panels; FP8 has its rows' scales before its codes. */
NW_INLINE void sums(const stream *s, __m256 *c, const step_kind k, const unsigned np)
{
    const size_t first = k >= E4M3 ? 64 : 0;
    const uint32_t steps = (s->n_cols + columns_of(k) - 1) / columns_of(k);

    NW_EACH(v, 2 * np) {
        c[v] = _mm256_setzero_ps();
    }
    for (size_t j = 0; j < steps; j++) {
        const float *a = s->a + j * columns_of(k);
        for (unsigned i = 0; k >= E4M3 && i < np; i++) {
            ahead(s->w + first + i * s->panel + j * 64);
        }
        NW_EACH(v, 2 * np) {
            c[v] = step(c[v], s->w + first + v / 2 * s->panel + j * 64 + v % 2 * 32, a, k);
        }
    }
    NW_EACH(v, 2 * np) {
        if (k >= E4M3) {
            const uint8_t *at = s->w + v / 2 * s->panel + v % 2 * 32;
            const __m256 scale = _mm256_loadu_ps((const float *)(const void *)at);
            const float factor = k == E4M3 ? NW_AVX2_E4M3_FACTOR : 1;
            c[v] = _mm256_mul_ps(_mm256_mul_ps(c[v], _mm256_set1_ps(factor)), scale);
        }
    }
}

/* ---- BF16-12 ---- */

/* Halves of a bfloat16 by codes (x86_bf16_12.c), for one panel. */
typedef struct {
    nw_bf16_12_reader r;
    __m256i high, low;
} packed;

NW_INLINE packed open_packed(nw_panel_type type, const uint8_t *panel, uint32_t n_cols)
{
    packed p = {.r = nw_x86_bf16_12_read(type, panel, n_cols)};
    const __m256i e = nw_lanes_table(p.r.exponents);

    p.high = _mm256_and_si256(_mm256_srli_epi16(e, 1), _mm256_set1_epi8(0x7F));
    p.low = _mm256_and_si256(_mm256_slli_epi16(e, 7), _mm256_set1_epi8(INT8_MIN));
    return p;
}

/* Two columns of 16 rows as pairs of BF16: rows 0..3 and 8..11, then 4..7 and 12..15. */
NW_INLINE void pair_of(const packed *p, __m256i sm, __m256i codes, __m256i out[2])
{
    const __m256i sign = _mm256_set1_epi8(INT8_MIN);
    const __m256i high =
        _mm256_or_si256(_mm256_shuffle_epi8(p->high, codes), _mm256_and_si256(sm, sign));
    const __m256i low =
        _mm256_or_si256(_mm256_shuffle_epi8(p->low, codes), _mm256_andnot_si256(sign, sm));
    out[0] = _mm256_unpacklo_epi8(low, high);
    out[1] = _mm256_unpackhi_epi8(low, high);
}

NW_INLINE void add_pair(__m256 *c, const __m256i *x, const float *a)
{
    const __m256i odd = _mm256_set1_epi32((int)0xFFFF0000U);

    NW_EACH(v, 2) {
        const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(x[v], 16));
        c[v] = _mm256_fmadd_ps(even, _mm256_broadcast_ss(a), c[v]);
    }
    NW_EACH(v, 2) {
        const __m256 y = _mm256_castsi256_ps(_mm256_and_si256(x[v], odd));
        c[v] = _mm256_fmadd_ps(y, _mm256_broadcast_ss(a + 1), c[v]);
    }
}

NW_INLINE void add_quad(const packed *p, size_t j, const float *a, __m256 *c)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const uint8_t *at = p->r.quads + j * NW_BF16_12_QUAD;
    const __m256i codes = nw_lanes_bytes(at + 64);
    __m256i x[2];

    ahead(at);
    ahead(at + 64);
    pair_of(p, nw_lanes_bytes(at), _mm256_and_si256(codes, nibble), x);
    add_pair(c, x, a);
    pair_of(p, nw_lanes_bytes(at + 32), _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble), x);
    add_pair(c, x, a + 2);
}

NW_INLINE __m256i rows_of(const uint8_t *low, const uint8_t *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(nw_lanes_16_bytes(low)),
                                   nw_lanes_16_bytes(high), 1);
}

/* Quad j of a panel that has escapes in it, by way of memory. */
static void add_escaped(const packed *p, uint32_t j, const float *a, __m256 *c)
{
    _Alignas(64) uint8_t plain[128];
    nw_bf16_12_reader r = p->r;

    r.quads += j * (size_t)NW_BF16_12_QUAD;
    nw_x86_bf16_12_expand(&r, j, 1, r.quads, plain);
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *at = plain + (size_t)i * 64;
        const __m256i x[2] = {rows_of(at, at + 32), rows_of(at + 16, at + 48)};
        add_pair(c, x, a + (size_t)i * 2);
    }
}

/* The first quad from j on in which a panel has an escape, `end` where none has. */
NW_INLINE uint32_t next_escape(packed *p, uint32_t j, uint32_t end, const unsigned np)
{
    for (unsigned i = 0; i < np; i++) {
        nw_bf16_12_reader *r = &p[i].r;
        while (r->escape < r->end && r->escape->col / 4 < j) {
            r->escape++;
        }
        if (r->escape < r->end && r->escape->col / 4 < end) {
            end = r->escape->col / 4;
        }
    }
    return end;
}

NW_INLINE void packed_sums(const stream *s, __m256 *c, const unsigned np)
{
    const uint32_t quads = (s->n_cols + 3) / 4;
    packed p[2];

    NW_EACH(i, np) {
        p[i] = open_packed(s->type, s->w + i * s->panel, s->n_cols);
        c[2 * i] = c[2 * i + 1] = _mm256_setzero_ps();
    }
    for (uint32_t j = 0; j < quads; j++) {
        const uint32_t end = next_escape(p, j, quads, np);
        for (; j < end; j++) {
            NW_EACH(i, np) {
                add_quad(&p[i], j, s->a + (size_t)j * 4, c + 2 * i);
            }
        }
        for (unsigned i = 0; j < quads && i < np; i++) {
            add_escaped(&p[i], j, s->a + (size_t)j * 4, c + (size_t)2 * i);
        }
    }
    NW_EACH(i, np) { /* rows in order again */
        const __m256 a = c[2 * i];
        c[2 * i] = _mm256_permute2f128_ps(a, c[2 * i + 1], 0x20);
        c[2 * i + 1] = _mm256_permute2f128_ps(a, c[2 * i + 1], 0x31);
    }
}

/* ---- */

#define SUMS(k)                  \
    do {                         \
        if (np == MOST) {        \
            sums(s, c, k, MOST); \
        } else {                 \
            sums(s, c, k, 1);    \
        }                        \
    } while (0)

/* np is 1, or what the kind has at most: MOST, or 2 of BF16-12. */
static void sums_of(const stream *s, __m256 *c, uint32_t np)
{
    const nw_panel_kind kind = s->type.kind;

    if (kind == NW_PANEL_F32) {
        SUMS(PLAIN);
    } else if (kind == NW_PANEL_BF16) {
        SUMS(PAIRS);
    } else if (kind == NW_PANEL_FP8_E4M3) {
        SUMS(E4M3);
    } else if (kind == NW_PANEL_FP8_E5M2) {
        SUMS(E5M2);
    } else if (np == 2) {
        packed_sums(s, c, 2);
    } else {
        packed_sums(s, c, 1);
    }
}

void nw_avx2_linear_float_one(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y)
{
    const uint32_t wide = w->type.kind == NW_PANEL_BF16_12 ? 2 : MOST;
    stream s = {.type = w->type, .a = a->data, .n_cols = w->n_cols};
    const bool fits = nw_panel_bytes(w->type, w->n_cols, &s.panel);
    uint32_t np = 0;

    assert(fits && a->n_tokens == 1 && a->n_cols == w->n_cols);
    (void)fits;
    for (uint32_t p = panel0; p < panel1; p += np) {
        __m256 c[2 * MOST];
        np = panel1 - p >= wide ? wide : 1;
        s.w = w->data + p * s.panel;
        sums_of(&s, c, np);
        for (uint32_t v = 0; v < 2 * np; v++) {
            const uint32_t row = p * NW_PANEL_ROWS + v * 8;
            if (w->n_rows >= row + 8) {
                _mm256_storeu_ps(y + row, c[v]);
            } else if (w->n_rows > row) {
                nw_lanes_store_n(y + row, w->n_rows - row, c[v]);
            }
        }
    }
}
