/* linear for INT8 panels: x INT8 activations (sums exact in int32, then scaled) and x BF16
 * activations (codes widened to BF16, exact: |code| <= 128 fits its 8 significant bits).
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512.h"

/* ---- INT8 activations ---- */

/* Stored bytes are code + 128, so each accumulator starts at -128 times the token's sum. */
NW_INLINE void a8_tile(const nw_tile *t, const unsigned nv, const unsigned mr, const uint32_t ahead)
{
    const uint32_t quads = (t->n_cols + 3) / 4;
    const size_t codes_at = nw_act_codes_at(t->n_cols);
    const uint8_t *w[8];
    const uint8_t *a[NW_TILE_TOKENS];
    float scale[NW_TILE_TOKENS];
    __m512i c[24];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride + 64;
    }
    NW_EACH(m, mr) {
        nw_act_head head;
        memcpy(&head, t->a + m * t->a_stride, sizeof head);
        a[m] = t->a + m * t->a_stride + codes_at;
        scale[m] = head.scale;
        NW_EACH(v, nv) {
            c[m * nv + v] = _mm512_set1_epi32(-128 * head.sum);
        }
    }
    const uint8_t *next = t->next;
    for (size_t j = 0; j < quads; j++) {
        __m512i x[8];
        next = nw_prefetch(next, ahead);
        NW_EACH(v, nv) {
            x[v] = _mm512_loadu_si512(w[v] + j * 64);
        }
        NW_EACH(m, mr) {
            const __m512i b = nw_spread(a[m] + j * 4);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbusd(c[m * nv + v], x[v], b);
            }
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        const __m512 s = _mm512_loadu_ps(t->w + v * t->w_stride);
        NW_EACH(m, mr) {
            const __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(c[m * nv + v]), s);
            nw_store_rows(t->y + m * t->ldy + v * 16, left,
                          _mm512_mul_ps(f, _mm512_set1_ps(scale[m])));
        }
    }
}

/* ---- BF16 activations ---- */

/* The bits of the BF16 of i - 128, the code behind stored byte i: its size has its top bit at TOP. */
#define SIZE(i) ((i) < 128 ? 128 - (i) : (i)-128)
#define TOP(i)  (31 - __builtin_clz(SIZE(i) | 1))
#define BITS(i)   \
    (SIZE(i) == 0 \
         ? 0      \
         : ((i) < 128 ? 0x8000 : 0) | (127 + TOP(i)) << 7 | (SIZE(i) << 7 >> TOP(i) & 0x7F))
#define HIGH(i)   (BITS(i) >> 8)
#define LOW(i)    (BITS(i) & 0xFF)
#define R4(f, i)  f(i), f((i) + 1), f((i) + 2), f((i) + 3)
#define R16(f, i) R4(f, i), R4(f, (i) + 4), R4(f, (i) + 8), R4(f, (i) + 12)
#define R64(f, i) R16(f, i), R16(f, (i) + 16), R16(f, (i) + 32), R16(f, (i) + 48)
#define R256(f)   R64(f, 0), R64(f, 64), R64(f, 128), R64(f, 192)

static const _Alignas(64) uint8_t high_bytes[256] = {R256(HIGH)};
static const _Alignas(64) uint8_t low_bytes[256] = {R256(LOW)};

/* vpermi2b looks up 7 bits, so bytes below and above 128 have a table each and the top bit selects. */
typedef struct {
    __m512i high[4], low[4]; /* [2 * top bit + half] */
    __m512i order;
} byte_tables;

NW_INLINE byte_tables load_tables(void)
{
    byte_tables b = {.order = nw_pair_order()};

    NW_EACH(i, 4) {
        b.high[i] = _mm512_load_si512(high_bytes + (size_t)i * 64);
        b.low[i] = _mm512_load_si512(low_bytes + (size_t)i * 64);
    }
    return b;
}

/* 64 stored bytes -> the BF16 pairs of columns (0, 1) and (2, 3) of each row's quad. */
NW_INLINE void widen(const byte_tables *b, __m512i bytes, __m512i *p01, __m512i *p23)
{
    const __m512i x = _mm512_shuffle_epi8(bytes, b->order);
    const __mmask64 top = _mm512_movepi8_mask(x);
    const __m512i high =
        _mm512_mask_blend_epi8(top, _mm512_permutex2var_epi8(b->high[0], x, b->high[1]),
                               _mm512_permutex2var_epi8(b->high[2], x, b->high[3]));
    const __m512i low =
        _mm512_mask_blend_epi8(top, _mm512_permutex2var_epi8(b->low[0], x, b->low[1]),
                               _mm512_permutex2var_epi8(b->low[2], x, b->low[3]));
    *p01 = _mm512_unpacklo_epi8(low, high);
    *p23 = _mm512_unpackhi_epi8(low, high);
}

NW_INLINE void a16_tile(const nw_tile *t, const unsigned nv, const unsigned mr,
                        const uint32_t ahead)
{
    const uint32_t quads = (t->n_cols + 3) / 4;
    const uint8_t *w[4];
    const uint8_t *a[NW_TILE_TOKENS];
    const byte_tables tables = load_tables();
    __m512 c[12];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride + 64;
    }
    NW_EACH(m, mr) {
        a[m] = t->a + m * t->a_stride;
        NW_EACH(v, nv) {
            c[m * nv + v] = _mm512_setzero_ps();
        }
    }
    const uint8_t *next = t->next;
    for (size_t j = 0; j < quads; j++) {
        __m512i p01[4];
        __m512i p23[4];
        next = nw_prefetch(next, ahead);
        NW_EACH(v, nv) {
            widen(&tables, _mm512_loadu_si512(w[v] + j * 64), &p01[v], &p23[v]);
        }
        NW_EACH(m, mr) {
            const __m512i b01 = nw_spread(a[m] + j * 8);
            const __m512i b23 = nw_spread(a[m] + j * 8 + 4);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbf16(c[m * nv + v], p01[v], b01);
                c[m * nv + v] = nw_dpbf16(c[m * nv + v], p23[v], b23);
            }
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        const __m512 s = _mm512_loadu_ps(t->w + v * t->w_stride);
        NW_EACH(m, mr) {
            nw_store_rows(t->y + m * t->ldy + v * 16, left, _mm512_mul_ps(c[m * nv + v], s));
        }
    }
}

/* ---- tiles ---- */

NW_INLINE void a8_tiles(const nw_tile *t, const unsigned nv, unsigned mr)
{
    switch (mr) {
    case 1:
        a8_tile(t, nv, 1, t->ahead);
        return;
    case 2:
        a8_tile(t, nv, 2, t->ahead);
        return;
    case 3:
        a8_tile(t, nv, 3, t->ahead);
        return;
    case 4:
        a8_tile(t, nv, 4, t->ahead);
        return;
    case 5:
        a8_tile(t, nv, 5, t->ahead);
        return;
    default:
        if (t->ahead > 0) {
            a8_tile(t, nv, 6, t->ahead);
        } else { /* most tiles of a prefill: the test is out of the loop */
            a8_tile(t, nv, 6, 0);
        }
        return;
    }
}

NW_INLINE void a16_tiles(const nw_tile *t, const unsigned nv, unsigned mr)
{
    switch (mr) {
    case 1:
        a16_tile(t, nv, 1, t->ahead);
        return;
    case 2:
        a16_tile(t, nv, 2, t->ahead);
        return;
    case 3:
        a16_tile(t, nv, 3, t->ahead);
        return;
    case 4:
        a16_tile(t, nv, 4, t->ahead);
        return;
    case 5:
        a16_tile(t, nv, 5, t->ahead);
        return;
    default:
        if (t->ahead > 0) {
            a16_tile(t, nv, 6, t->ahead);
        } else { /* most tiles of a prefill: the test is out of the loop */
            a16_tile(t, nv, 6, 0);
        }
        return;
    }
}

static void a8_1(const nw_tile *t, unsigned mr)
{
    a8_tiles(t, 1, mr);
}

static void a8_2(const nw_tile *t, unsigned mr)
{
    a8_tiles(t, 2, mr);
}

static void a8_4(const nw_tile *t, unsigned mr)
{
    a8_tiles(t, 4, mr);
}

static void a8_8(const nw_tile *t, unsigned mr)
{
    (void)mr;
    a8_tile(t, 8, 1, t->ahead);
}

static void a16_1(const nw_tile *t, unsigned mr)
{
    a16_tiles(t, 1, mr);
}

static void a16_2(const nw_tile *t, unsigned mr)
{
    a16_tiles(t, 2, mr);
}

static void a16_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    a16_tile(t, 4, 1, t->ahead);
}

void nw_avx512_linear_int8_a8(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y, size_t ldy)
{
    static const nw_tile_width widths[] = {{8, 1, a8_8}, {4, 6, a8_4}, {2, 6, a8_2}, {1, 6, a8_1}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, widths, widths + 1);
}

void nw_avx512_linear_int8_a16(const nw_weight *w, const nw_act *a, uint32_t panel0,
                               uint32_t panel1, float *y, size_t ldy)
{
    static const nw_tile_width widths[] = {{4, 1, a16_4}, {2, 6, a16_2}, {1, 6, a16_1}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, widths, widths + 1);
}
