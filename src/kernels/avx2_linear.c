/* linear with F32 activations for every panel type. A column of a panel is decoded to two vectors of
 * 8 rows (exact: BF16, codes, and fp16 scale x code fit an f32; the int8 row scale is applied at
 * the end), and multiplied into one accumulator a row and token, columns in the stored order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2.h"

typedef enum { F32, BF16, INT8, INT4, INT4_ZP } format;

/* Scale and zero point of 8 rows of the current group. */
typedef struct {
    __m256 scale;
    __m256i zero;
} group_half;

NW_INLINE group_half load_group(const uint8_t *group, const format k, unsigned half)
{
    group_half g = {_mm256_setzero_ps(), _mm256_set1_epi32(8)};
    if (k == INT4 || k == INT4_ZP) {
        const uint8_t *s = group + (size_t)half * 16;
        g.scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)s));
    }
    if (k == INT4_ZP) {
        const uint8_t *z = group + 32 + (size_t)half * 8;
        g.zero = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)z));
    }
    return g;
}

/* Column `c` of the 64-byte step at p for 8 rows: f32 1 column a step, bf16 2, int8 4, int4 4 low
 * nibbles and then 4 high ones. */
NW_INLINE __m256 decode(const uint8_t *p, const format k, unsigned half, unsigned c,
                        const group_half *g)
{
    const __m256i v = nw_load256(p + (size_t)half * 32);

    switch (k) {
    case F32:
        return _mm256_castsi256_ps(v);
    case BF16:
        return _mm256_castsi256_ps(c == 0
                                       ? _mm256_slli_epi32(v, 16)
                                       : _mm256_and_si256(v, _mm256_set1_epi32((int)0xFFFF0000U)));
    case INT8:
        return _mm256_cvtepi32_ps(_mm256_sub_epi32(
            _mm256_and_si256(_mm256_srli_epi32(v, (int)(8 * c)), _mm256_set1_epi32(255)),
            _mm256_set1_epi32(128)));
    case INT4:
    case INT4_ZP:
        break;
    }
    const __m256i code = _mm256_and_si256(
        _mm256_srli_epi32(v, (int)(c < 4 ? 8 * c : 8 * (c - 4) + 4)), _mm256_set1_epi32(15));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(code, g->zero)), g->scale);
}

typedef struct {
    uint32_t n_groups, steps; /* 64-byte steps of a group */
    size_t head;              /* bytes of a group before its steps */
    size_t first;             /* bytes of a panel before its groups */
} shape;

NW_INLINE shape shape_of(const nw_tile *t, const format k)
{
    const uint32_t group = t->type.group;

    switch (k) {
    case F32:
        return (shape){1, t->n_cols, 0, 0};
    case BF16:
        return (shape){1, (t->n_cols + 1) / 2, 0, 0};
    case INT8:
        return (shape){1, (t->n_cols + 3) / 4, 0, 64};
    case INT4:
    case INT4_ZP:
        break;
    }
    return (shape){(t->n_cols + group - 1) / group, group / 8, k == INT4_ZP ? 48 : 32, 0};
}

/* The column that `c` of step j is, from the start of the group. */
NW_INLINE size_t column_of(const format k, const shape *s, size_t j, unsigned c)
{
    switch (k) {
    case F32:
        return j;
    case BF16:
        return 2 * j + c;
    case INT8:
        return 4 * j + c;
    case INT4:
    case INT4_ZP:
        break;
    }
    return 4 * (c < 4 ? j : j + s->steps) + c % 4;
}

NW_INLINE void add_group(const uint8_t *const *w, const float *const *a, __m256 *acc,
                         const shape *s, const format k, const unsigned nv, const unsigned mr)
{
    const unsigned columns = k == F32 ? 1 : k == BF16 ? 2 : k == INT8 ? 4 : 8;
    group_half g[8];

    NW_EACH(i, nv * 2) {
        g[i] = load_group(w[i / 2], k, i % 2);
    }
    for (size_t j = 0; j < s->steps; j++) {
        NW_EACH(c, columns) {
            const size_t at = column_of(k, s, j, c);
            __m256 x[8];
            NW_EACH(i, nv * 2) {
                x[i] = decode(w[i / 2] + s->head + j * 64, k, i % 2, c, &g[i]);
            }
            NW_EACH(m, mr) {
                const __m256 b = _mm256_broadcast_ss(a[m] + at);
                NW_EACH(i, nv * 2) {
                    acc[m * nv * 2 + i] = _mm256_fmadd_ps(x[i], b, acc[m * nv * 2 + i]);
                }
            }
        }
    }
}

NW_INLINE void tile(const nw_tile *t, const format k, const unsigned nv, const unsigned mr)
{
    const shape s = shape_of(t, k);
    const uint8_t *w[4];
    const float *a[NW_TILE_TOKENS];
    __m256 acc[12];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride + s.first;
    }
    NW_EACH(m, mr) {
        a[m] = (const float *)(const void *)(t->a + m * t->a_stride);
        NW_EACH(i, nv * 2) {
            acc[m * nv * 2 + i] = _mm256_setzero_ps();
        }
    }
    for (uint32_t g = 0; g < s.n_groups; g++) {
        add_group(w, a, acc, &s, k, nv, mr);
        NW_EACH(v, nv) {
            w[v] += s.head + (size_t)s.steps * 64;
        }
        NW_EACH(m, mr) {
            a[m] += t->type.group;
        }
    }
    NW_EACH(i, nv * 2) {
        const uint8_t *scales = t->w + (i / 2) * t->w_stride + (size_t)(i % 2) * 32;
        const __m256 scale =
            k == INT8 ? _mm256_castsi256_ps(nw_load256(scales)) : _mm256_set1_ps(1);
        NW_EACH(m, mr) {
            nw_store_half(t->y + m * t->ldy + (i / 2) * 16, nw_left_of(t, i / 2), i % 2,
                          k == INT8 ? _mm256_mul_ps(acc[m * nv * 2 + i], scale)
                                    : acc[m * nv * 2 + i]);
        }
    }
}

NW_INLINE void tiles(const nw_tile *t, const format k, unsigned mr)
{
    switch (mr) {
    case 1:
        tile(t, k, 1, 1);
        return;
    case 2:
        tile(t, k, 1, 2);
        return;
    case 3:
        tile(t, k, 1, 3);
        return;
    case 4:
        tile(t, k, 1, 4);
        return;
    case 5:
        tile(t, k, 1, 5);
        return;
    default:
        tile(t, k, 1, 6);
        return;
    }
}

static void f32_1(const nw_tile *t, unsigned mr)
{
    tiles(t, F32, mr);
}

static void bf16_1(const nw_tile *t, unsigned mr)
{
    tiles(t, BF16, mr);
}

static void int8_1(const nw_tile *t, unsigned mr)
{
    tiles(t, INT8, mr);
}

static void int4_1(const nw_tile *t, unsigned mr)
{
    tiles(t, INT4, mr);
}

static void int4_zp_1(const nw_tile *t, unsigned mr)
{
    tiles(t, INT4_ZP, mr);
}

/* One token against 4 panels: 8 accumulators cover the latency of an FMA. */
static void f32_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, F32, 4, 1);
}

static void bf16_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, BF16, 4, 1);
}

static void int8_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, INT8, 4, 1);
}

static void int4_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, INT4, 4, 1);
}

static void int4_zp_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, INT4_ZP, 4, 1);
}

void nw_avx2_linear_f32(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                        float *y, size_t ldy)
{
    static const nw_tile_width widths[][2] = {[NW_PANEL_F32] = {{4, 1, f32_4}, {1, 6, f32_1}},
                                              [NW_PANEL_BF16] = {{4, 1, bf16_4}, {1, 4, bf16_1}},
                                              [NW_PANEL_INT8] = {{4, 1, int8_4}, {1, 4, int8_1}},
                                              [NW_PANEL_INT4] = {{4, 1, int4_4}, {1, 4, int4_1}}};
    static const nw_tile_width zp[] = {{4, 1, int4_zp_4}, {1, 4, int4_zp_1}};
    const nw_tile_width *k = w->type.zero_point ? zp : widths[w->type.kind];

    nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k + 1);
}
