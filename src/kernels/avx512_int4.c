/* linear for INT4 panels, groups of 32, 64 or 128, zero point implicit (8) or stored: x BF16
 * activations (codes less zero point widened to BF16, exact) and x INT8 activations (exact int32
 * sums). In a group columns are taken in the stored order, then the group's sum is scaled and
 * added in float: f = sum * scale + f, the same for every tile shape.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512.h"

/* What does not change along a row. */
typedef struct {
    uint32_t n_groups, quads; /* 64-byte steps of a group */
    size_t group_bytes;
    size_t codes_at; /* from the start of a group */
    uint32_t ahead;  /* of nw_tile */
} shape;

NW_INLINE shape shape_of(const nw_tile *t, const bool zp)
{
    const uint32_t group = t->type.group;
    const size_t codes_at = zp ? 48 : 32;
    return (shape){.n_groups = (t->n_cols + group - 1) / group,
                   .quads = group / 8,
                   .group_bytes = codes_at + group * 8U,
                   .codes_at = codes_at,
                   .ahead = t->ahead};
}

NW_INLINE __m512 group_scale(const uint8_t *group)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)group));
}

NW_INLINE __m512i group_zeros(const uint8_t *group)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(group + 32)));
}

/* f += c * the scales of this group, for a tile. The large tiles have more accumulators than
 * registers: f, used once a group, is kept in memory, so that no c is spilled in the inner loop. */
NW_INLINE void add_group(const uint8_t *const *w, __m512 *f, const __m512 *c, const unsigned nv,
                         const unsigned mr)
{
    NW_EACH(v, nv) {
        const __m512 s = group_scale(w[v]);
        NW_EACH(m, mr) {
            f[m * nv + v] = _mm512_fmadd_ps(c[m * nv + v], s, f[m * nv + v]);
            if (nv * mr > 8) {
                __asm__("" : "+m"(f[m * nv + v])); /* see above */
            }
        }
    }
}

/* ---- BF16 activations ---- */

/* BF16 of a code as tables of high and low bytes. vpermb looks at 6 bits. With the implicit zero
 * point the table is code - 8, four times over, so that a nibble needs no mask; with a stored one
 * the byte is (code - zero) mod 64 and the table spans -16..15. */
typedef struct {
    __m512i high, low, order, spread_zeros;
} nibble_tables;

NW_INLINE __m512i quarters(__m128i first, __m128i last)
{
    const __m512i x = _mm512_broadcast_i32x4(first);
    return _mm512_inserti32x4(x, last, 3);
}

NW_INLINE nibble_tables make_tables(const bool zp)
{
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i high[2];
    __m128i low[2];

    nw_bf16_bytes(zp ? count : _mm512_sub_epi32(count, _mm512_set1_epi32(8)), &high[0], &low[0]);
    high[1] = high[0];
    low[1] = low[0];
    if (zp) {
        nw_bf16_bytes(_mm512_sub_epi32(count, _mm512_set1_epi32(16)), &high[1], &low[1]);
    }
    return (nibble_tables){.high = quarters(high[0], high[1]),
                           .low = quarters(low[0], low[1]),
                           .order = nw_pair_order(),
                           .spread_zeros = _mm512_broadcast_i32x4(
                               _mm_setr_epi8(0, 0, 4, 4, 8, 8, 12, 12, 0, 0, 4, 4, 8, 8, 12, 12))};
}

/* 64 nibbles -> BF16 pairs of columns (0, 1) and (2, 3) of each row's quad. */
NW_INLINE void widen(const nibble_tables *b, __m512i x, __m512i zeros, const bool zp, __m512i *p01,
                     __m512i *p23)
{
    if (zp) {
        x = _mm512_sub_epi8(_mm512_and_si512(x, _mm512_set1_epi8(15)), zeros);
    }
    const __m512i high = _mm512_permutexvar_epi8(x, b->high);
    const __m512i low = _mm512_permutexvar_epi8(x, b->low);
    *p01 = _mm512_unpacklo_epi8(low, high);
    *p23 = _mm512_unpackhi_epi8(low, high);
}

/* Adds 4 columns: the two pairs at a[m] + at of each token. */
NW_INLINE void a16_quad(__m512 *c, const __m512i *p01, const __m512i *p23, const uint8_t *const *a,
                        size_t at, const unsigned nv, const unsigned mr)
{
    NW_EACH(m, mr) {
        const __m512i b01 = nw_spread(a[m] + at);
        NW_EACH(v, nv) {
            c[m * nv + v] = nw_dpbf16(c[m * nv + v], p01[v], b01);
        }
        const __m512i b23 = nw_spread(a[m] + at + 4);
        NW_EACH(v, nv) {
            c[m * nv + v] = nw_dpbf16(c[m * nv + v], p23[v], b23);
        }
    }
}

NW_INLINE void a16_group(const nibble_tables *b, const shape *s, const uint8_t *const *w,
                         const uint8_t *const *a, const uint8_t **next, __m512 *c, const bool zp,
                         const unsigned nv, const unsigned mr)
{
    const size_t high_at = (size_t)s->quads * 8;
    __m512i zeros[8];

    NW_EACH(i, nv * mr) {
        c[i] = _mm512_setzero_ps();
    }
    NW_EACH(v, nv) {
        zeros[v] =
            zp ? _mm512_shuffle_epi8(group_zeros(w[v]), b->spread_zeros) : _mm512_setzero_si512();
    }
    for (size_t j = 0; j < s->quads; j++) {
        __m512i x[8];
        *next = nw_prefetch(*next, s->ahead);
        __m512i p01[8];
        __m512i p23[8];
        NW_EACH(v, nv) {
            x[v] = _mm512_shuffle_epi8(_mm512_loadu_si512(w[v] + s->codes_at + j * 64), b->order);
            widen(b, x[v], zeros[v], zp, &p01[v], &p23[v]);
        }
        a16_quad(c, p01, p23, a, j * 8, nv, mr);
        NW_EACH(v, nv) {
            widen(b, _mm512_srli_epi16(x[v], 4), zeros[v], zp, &p01[v], &p23[v]);
        }
        a16_quad(c, p01, p23, a, high_at + j * 8, nv, mr);
    }
}

NW_INLINE void a16_tile(const nw_tile *t, const bool zp, const unsigned nv, const unsigned mr)
{
    const shape s = shape_of(t, zp);
    const nibble_tables tables = make_tables(zp);
    const uint8_t *w[8];
    const uint8_t *a[NW_TILE_TOKENS];
    __m512 f[12];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride;
    }
    NW_EACH(m, mr) {
        a[m] = t->a + m * t->a_stride;
        NW_EACH(v, nv) {
            f[m * nv + v] = _mm512_setzero_ps();
        }
    }
    const uint8_t *next = t->next;
    for (uint32_t g = 0; g < s.n_groups; g++) {
        __m512 c[12];
        a16_group(&tables, &s, w, a, &next, c, zp, nv, mr);
        add_group(w, f, c, nv, mr);
        NW_EACH(v, nv) {
            w[v] += s.group_bytes;
        }
        NW_EACH(m, mr) {
            a[m] += t->type.group * 2U;
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        NW_EACH(m, mr) {
            nw_store_rows(t->y + m * t->ldy + v * 16, left, f[m * nv + v]);
        }
    }
}

/* ---- INT8 activations ---- */

/* The sum of a token's codes over group g. Fixed loads: a call here would spill every accumulator. */
NW_INLINE int32_t group_sum(const uint8_t *row, uint32_t group, uint32_t g)
{
    const uint32_t parts = group / NW_ACT_SUM_COLS;
    const uint8_t *p = row + NW_ACT_SUMS_AT + (size_t)g * parts * sizeof(int32_t);
    int32_t sum = 0;

    for (uint32_t i = 0; i < parts; i++, p += sizeof sum) {
        int32_t part;
        memcpy(&part, p, sizeof part);
        sum += part;
    }
    return sum;
}

NW_INLINE void a8_dots(const uint8_t *const *w, const uint8_t *const *a, const shape *s,
                       const uint8_t **next, __m512i *c, const unsigned nv, const unsigned mr)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const size_t high_at = (size_t)s->quads * 4;

    for (size_t j = 0; j < s->quads; j++) {
        *next = nw_prefetch(*next, s->ahead);
        __m512i low[8];
        __m512i high[8];
        NW_EACH(v, nv) {
            const __m512i x = _mm512_loadu_si512(w[v] + s->codes_at + j * 64);
            low[v] = _mm512_and_si512(x, nibble);
            high[v] = _mm512_and_si512(_mm512_srli_epi16(x, 4), nibble);
        }
        NW_EACH(m, mr) {
            const __m512i b = nw_spread(a[m] + j * 4);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbusd(c[m * nv + v], low[v], b);
            }
            const __m512i d = nw_spread(a[m] + high_at + j * 4);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbusd(c[m * nv + v], high[v], d);
            }
        }
    }
}

/* One group: dots less zero point times sum, times scale, into f. */
NW_INLINE void a8_group(const uint8_t *const *w, const uint8_t *const *a, const int32_t *sums,
                        const shape *s, const uint8_t **next, __m512 *f, const bool zp,
                        const unsigned nv, const unsigned mr)
{
    __m512i c[12];
    __m512 x[12];

    NW_EACH(m, mr) {
        NW_EACH(v, nv) {
            c[m * nv + v] = zp ? _mm512_setzero_si512() : _mm512_set1_epi32(-8 * sums[m]);
        }
    }
    a8_dots(w, a, s, next, c, nv, mr);
    NW_EACH(v, nv) {
        const __m512i zeros = zp ? group_zeros(w[v]) : _mm512_setzero_si512();
        NW_EACH(m, mr) {
            const unsigned i = m * nv + v;
            if (zp) {
                c[i] =
                    _mm512_sub_epi32(c[i], _mm512_mullo_epi32(zeros, _mm512_set1_epi32(sums[m])));
            }
            x[i] = _mm512_cvtepi32_ps(c[i]);
        }
    }
    add_group(w, f, x, nv, mr);
}

NW_INLINE void a8_tile(const nw_tile *t, const bool zp, const unsigned nv, const unsigned mr)
{
    const shape s = shape_of(t, zp);
    const size_t codes_at = nw_act_codes_at(t->n_cols);
    const uint8_t *w[8];
    const uint8_t *a[NW_TILE_TOKENS];
    __m512 f[12];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride;
    }
    NW_EACH(m, mr) {
        a[m] = t->a + m * t->a_stride + codes_at;
        NW_EACH(v, nv) {
            f[m * nv + v] = _mm512_setzero_ps();
        }
    }
    const uint8_t *next = t->next;
    for (uint32_t g = 0; g < s.n_groups; g++) {
        int32_t sums[NW_TILE_TOKENS];
        NW_EACH(m, mr) {
            sums[m] = group_sum(t->a + m * t->a_stride, t->type.group, g);
        }
        a8_group(w, a, sums, &s, &next, f, zp, nv, mr);
        NW_EACH(v, nv) {
            w[v] += s.group_bytes;
        }
        NW_EACH(m, mr) {
            a[m] += t->type.group;
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        NW_EACH(m, mr) {
            nw_act_head head;
            memcpy(&head, t->a + m * t->a_stride, sizeof head);
            nw_store_rows(t->y + m * t->ldy + v * 16, left,
                          _mm512_mul_ps(f[m * nv + v], _mm512_set1_ps(head.scale)));
        }
    }
}

/* ---- tiles ---- */

typedef enum { A16, A16_ZP, A8, A8_ZP } variant;

NW_INLINE void tile(const nw_tile *t, const variant k, const unsigned nv, const unsigned mr)
{
    if (k == A16 || k == A16_ZP) {
        a16_tile(t, k == A16_ZP, nv, mr);
    } else {
        a8_tile(t, k == A8_ZP, nv, mr);
    }
}

NW_INLINE void tiles(const nw_tile *t, const variant k, const unsigned nv, unsigned mr)
{
    switch (mr) {
    case 1:
        tile(t, k, nv, 1);
        return;
    case 2:
        tile(t, k, nv, 2);
        return;
    case 3:
        tile(t, k, nv, 3);
        return;
    case 4:
        tile(t, k, nv, 4);
        return;
    case 5:
        tile(t, k, nv, 5);
        return;
    default:
        tile(t, k, nv, 6);
        return;
    }
}

static void a16_1(const nw_tile *t, unsigned mr)
{
    tiles(t, A16, 1, mr);
}

static void a16_2(const nw_tile *t, unsigned mr)
{
    tiles(t, A16, 2, mr);
}

static void a16_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, A16, 4, 1);
}

static void a16_zp_1(const nw_tile *t, unsigned mr)
{
    tiles(t, A16_ZP, 1, mr);
}

static void a16_zp_2(const nw_tile *t, unsigned mr)
{
    tiles(t, A16_ZP, 2, mr);
}

static void a16_zp_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, A16_ZP, 4, 1);
}

static void a8_1(const nw_tile *t, unsigned mr)
{
    tiles(t, A8, 1, mr);
}

static void a8_2(const nw_tile *t, unsigned mr)
{
    tiles(t, A8, 2, mr);
}

static void a8_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, A8, 4, 1);
}

static void a8_zp_1(const nw_tile *t, unsigned mr)
{
    tiles(t, A8_ZP, 1, mr);
}

static void a8_zp_2(const nw_tile *t, unsigned mr)
{
    tiles(t, A8_ZP, 2, mr);
}

static void a8_zp_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, A8_ZP, 4, 1);
}

void nw_avx512_linear_int4_a16(const nw_weight *w, const nw_act *a, uint32_t panel0,
                               uint32_t panel1, float *y, size_t ldy)
{
    static const nw_tile_width widths[2][3] = {
        {{4, 1, a16_4}, {2, 6, a16_2}, {1, 6, a16_1}},
        {{4, 1, a16_zp_4}, {2, 6, a16_zp_2}, {1, 6, a16_zp_1}}};
    const nw_tile_width *k = widths[w->type.zero_point];
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k + 1);
}

void nw_avx512_linear_int4_a8(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y, size_t ldy)
{
    static const nw_tile_width widths[2][3] = {{{4, 1, a8_4}, {2, 4, a8_2}, {1, 4, a8_1}},
                                               {{4, 1, a8_zp_4}, {2, 4, a8_zp_2}, {1, 4, a8_zp_1}}};
    const nw_tile_width *k = widths[w->type.zero_point];
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k + 1);
}
