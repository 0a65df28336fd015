/* linear for bf16-12 panels x BF16 activations: 12 bits become BF16 in
 * registers (formats/bf16_12.h), and the products are those of the bf16 kernel in the same order, so
 * that the results are the same bits. Escapes are put in place as the row passes their column.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/bf16_12.h"
#include "kernels/avx512.h"

/* How far ahead a single panel is asked for; 4 side by side are left to the hardware (docs/speed.md). */
#define AHEAD_BYTES 4096

/* The escapes of a panel that are still to come; `quad` is that of the first. */
typedef struct {
    const nw_bf16_escape *at, *end;
    uint32_t quad;
} escapes;

NW_INLINE uint32_t next_quad(const escapes *e)
{
    return e->at < e->end ? e->at->col / 4 : UINT32_MAX;
}

NW_INLINE escapes escapes_of(const nw_tile *t, const uint8_t *panel)
{
    uint32_t n = 0;
    escapes e = {.at = nw_bf16_12_escapes(t->type, panel, t->n_cols, &n)};

    e.end = e.at + n;
    e.quad = next_quad(&e);
    return e;
}

/* A code is its exponent's place; 32 words, as vpermw looks at 5 bits of which the codes are 4. */
NW_INLINE __m512i exponents_of(const uint8_t *panel)
{
    const __m256i e = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)panel));
    return _mm512_broadcast_i64x4(_mm256_slli_epi16(e, 7));
}

/* Sign and mantissa of 32 values, joined to the exponents of the codes in the low 4 bits of words. */
NW_INLINE __m512i join(const uint8_t *sm, __m512i codes, __m512i exponents)
{
    const __m512i wide =
        _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)sm));
    const __m512i high = _mm512_permutexvar_epi16(codes, exponents);
    /* (wide & 0x807F) | high */
    return _mm512_ternarylogic_epi32(wide, _mm512_set1_epi16((short)0x807F), high, 0xEA);
}

/* Puts the escapes of quad j in place. Out of the hot loop's way: one quad in some hundred has one. */
static __attribute__((noinline)) void put_escapes(escapes *e, uint32_t j, uint16_t words[64])
{
    for (; e->at < e->end && e->at->col / 4 <= j; e->at++) {
        const uint32_t t = e->at->col % 4;
        if (e->at->col / 4 == j) {
            words[t / 2 * 32 + (e->at->row % NW_PANEL_ROWS) * 2 + t % 2] = e->at->bits;
        }
    }
    e->quad = next_quad(e);
}

/* Quad j of a panel as the two pairs of columns of each row. */
NW_INLINE void expand(const uint8_t *quad, __m512i exponents, escapes *e, uint32_t j, __m512i *p01,
                      __m512i *p23)
{
    const __m512i codes =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(quad + 64)));

    *p01 = join(quad, codes, exponents);
    *p23 = join(quad + 32, _mm512_srli_epi16(codes, 4), exponents);
    if (__builtin_expect(j >= e->quad, 0)) {
        _Alignas(64) uint16_t words[64];
        _mm512_store_si512(words, *p01);
        _mm512_store_si512(words + 32, *p23);
        put_escapes(e, j, words);
        *p01 = _mm512_load_si512(words);
        *p23 = _mm512_load_si512(words + 32);
    }
}

NW_INLINE void tile(const nw_tile *t, const unsigned nv, const unsigned mr)
{
    const uint32_t pairs = (t->n_cols + 1) / 2;
    const uint8_t *w[4];
    __m512i exponents[4];
    escapes rare[4];
    __m512 c[12];

    NW_EACH(v, nv) {
        const uint8_t *panel = t->w + v * t->w_stride;
        w[v] = panel + NW_BF16_12_HEAD;
        exponents[v] = exponents_of(panel);
        rare[v] = escapes_of(t, panel);
        NW_EACH(m, mr) {
            c[m * nv + v] = _mm512_setzero_ps();
        }
    }
    for (uint32_t j = 0; 2 * j < pairs; j++) {
        const bool second = 2 * j + 1 < pairs; /* bf16 has no pair there either */
        __m512i p01[4];
        __m512i p23[4];
        NW_EACH(v, nv) {
            const uint8_t *quad = w[v] + (size_t)j * NW_BF16_12_QUAD;
            if (nv == 1) {
                _mm_prefetch((const char *)quad + AHEAD_BYTES, _MM_HINT_T0);
                _mm_prefetch((const char *)quad + AHEAD_BYTES + 64, _MM_HINT_T0);
            }
            expand(quad, exponents[v], &rare[v], j, &p01[v], &p23[v]);
        }
        NW_EACH(m, mr) {
            const uint8_t *a = t->a + m * t->a_stride + (size_t)j * 8;
            const __m512i b01 = nw_spread(a);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbf16(c[m * nv + v], p01[v], b01);
            }
            const __m512i b23 = nw_spread(a + 4);
            if (second) {
                NW_EACH(v, nv) {
                    c[m * nv + v] = nw_dpbf16(c[m * nv + v], p23[v], b23);
                }
            }
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        NW_EACH(m, mr) {
            nw_store_rows(t->y + m * t->ldy + v * 16, left, c[m * nv + v]);
        }
    }
}

#define TILE(mr)                            \
    static void tile_##mr(const nw_tile *t) \
    {                                       \
        tile(t, 1, mr);                     \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)

/* A panel is widened once for all tokens of a tile: the more, the better, as long as their sums are in
 * registers. */
#define MOST_TOKENS 12u

static void run(const nw_tile *t, unsigned mr)
{
    static void (*const tiles[])(const nw_tile *) = {tile_1, tile_2,  tile_3,  tile_4,
                                                     tile_5, tile_6,  tile_7,  tile_8,
                                                     tile_9, tile_10, tile_11, tile_12};
    if (t->n_panels == 4) {
        tile(t, 4, 1);
    } else {
        tiles[mr - 1](t);
    }
}

void nw_avx512_linear_bf16_12(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y, size_t ldy)
{
    static const nw_tile_width widths[] = {{4, 1, run}, {1, MOST_TOKENS, run}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, widths, widths + 1);
}
