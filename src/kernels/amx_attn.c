/* Products of attention in tiles: a group of up to 16 rows against a page. Panels of keys and values are AMX's own
 * order of weights (kv_page.h), `steps` vectors of 64 bytes to a tile, and packed rows of queries and of probabilities
 * (avx512_attn.h) its activations.
 *
 * INT8 and INT4: sums are exact and are put together as vectors do it: the bits of the AVX-512 tier. BF16 and FP8:
 * of a tile's columns even and odd ones are summed apart, then both are added to the sum (TDPBF16PS), for one row as
 * for many, so that a query's bits do not depend on its batch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/amx.h"
#include "kernels/avx512_attn.h"
#include "kernels/avx512_ops.h"

#define GROUP 16u
#define ROWS \
    64u /* that read a page together: tiles of keys and values come from the nearest cache for most of them */
#define SUMS 4u /* tiles of them */

/* What is constant in a function: BF16 both, signed rows x unsigned keys, unsigned rows x signed values; planes of a row,
 * of which each has a tile, and panels: n_planes * n_panels <= SUMS. */
typedef enum { FLOATS, KEYS, VALUES } operands;
typedef struct {
    operands kind;
    unsigned n_planes, n_panels;
} form;

/* Rows and panels of a product, and its sums [plane][panel][row][16]; of two planes the second begins at tile 2. */
typedef struct {
    const uint8_t *a;
    size_t a_stride, a_plane;
    const uint8_t *w;
    size_t panel;
    ptrdiff_t ahead;
    uint32_t n_vectors, steps;
} sides;
typedef float sums[SUMS][NW_AMX_SUMS];

NW_INLINE unsigned sum_at(unsigned plane, unsigned v)
{
    return plane * 2 + v;
}

#define ADD(c, a, w)                 \
    do {                             \
        if (f.kind == FLOATS) {      \
            NW_AMX_BF16(c, a, w);    \
        } else if (f.kind == KEYS) { \
            NW_AMX_S8U8(c, a, w);    \
        } else {                     \
            NW_AMX_U8S8(c, a, w);    \
        }                            \
    } while (0)

/* Panel v at w into tile `at`, times plane 0 and, of two, 1. */
#define ADD_PANEL(v, at, c0, c1)                         \
    do {                                                 \
        if (f.n_panels > (v)) {                          \
            NW_AMX_LOAD(at, w + (v)*panel, NW_AMX_STEP); \
            ADD(c0, 4, at);                              \
        }                                                \
        if (f.n_panels > (v) && f.n_planes == 2) {       \
            ADD(c1, 5, at);                              \
        }                                                \
    } while (0)

/* Sums += a tile of each plane x one of each panel. */
NW_INLINE void add_tiles(const uint8_t *a, const sides *x, const uint8_t *w, size_t panel,
                         const form f)
{
    NW_AMX_LOAD(4, a, x->a_stride);
    if (f.n_planes == 2) {
        NW_AMX_LOAD(5, a + x->a_plane, x->a_stride);
        ADD_PANEL(0U, 6, 0, 2);
        ADD_PANEL(1U, 7, 1, 3);
    } else {
        ADD_PANEL(0U, 6, 0, 0);
        ADD_PANEL(1U, 7, 1, 1);
        ADD_PANEL(2U, 6, 2, 2);
        ADD_PANEL(3U, 7, 3, 3);
    }
}

/* The last tile of a page's values, where not all of its tokens are seen: what stands behind them is of no sequence, and
 * no number perhaps. */
NW_INLINE void copy_seen(const sides *x, const uint8_t *w, uint32_t n, const unsigned n_panels,
                         uint8_t (*to)[NW_AMX_BYTES])
{
    NW_EACH(v, n_panels) {
        memcpy(to[v], w + v * x->panel, (size_t)n * 64);
        memset(to[v] + (size_t)n * 64, 0, (size_t)(x->steps - n) * 64);
    }
}

NW_INLINE void product(const sides *x, uint32_t first, sums out, const form f)
{
    const uint8_t *w = x->w + first * x->panel;
    const uint8_t *a = x->a;
    uint32_t left = x->n_vectors;

    NW_AMX_ZERO(0);
    NW_AMX_ZERO(1);
    NW_AMX_ZERO(2);
    NW_AMX_ZERO(3);
    for (; left >= x->steps; left -= x->steps) {
        for (uint32_t j = 0; x->ahead != 0 && j < x->steps; j++) {
            NW_EACH(v, f.n_panels) {
                nw_ask(w + v * x->panel + j * (size_t)64, x->ahead);
            }
        }
        add_tiles(a, x, w, x->panel, f);
        a += x->steps * (size_t)4;
        w += x->steps * (size_t)64;
    }
    if (left > 0) {
        _Alignas(64) uint8_t seen[SUMS][NW_AMX_BYTES];
        copy_seen(x, w, left, f.n_panels, seen);
        add_tiles(a, x, seen[0], NW_AMX_BYTES, f);
    }
    NW_AMX_STORE(0, out[0]);
    NW_AMX_STORE(1, out[1]);
    NW_AMX_STORE(2, out[2]);
    NW_AMX_STORE(3, out[3]);
}

/* The number that row r's sums with panel v stand for; zero [plane]: what integers are stored with more. */
NW_INLINE __m512 joined(float (*s)[NW_AMX_SUMS], unsigned v, unsigned r, const int32_t *zero,
                        const form f)
{
    const __m512 high = _mm512_load_ps(s[v] + r * (size_t)16);
    if (f.kind == FLOATS) {
        return high;
    }
    const __m512 x =
        _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_castps_si512(high), _mm512_set1_epi32(zero[0])));
    if (f.n_planes == 1) {
        return x;
    }
    const __m512i low = _mm512_load_si512(s[sum_at(1, v)] + r * (size_t)16);
    return _mm512_fmadd_ps(x, _mm512_set1_ps(f.kind == VALUES ? 256 : 128),
                           _mm512_cvtepi32_ps(_mm512_sub_epi32(low, _mm512_set1_epi32(zero[1]))));
}

/* ---- keys ---- */

NW_INLINE void key_panels(const nw_keys *w, const sides *x, uint32_t first, unsigned n_rows,
                          int32_t zero, const form f)
{
    _Alignas(64) sums s;

    product(x, first, s, f);
    for (unsigned r = 0; r < n_rows; r++) {
        nw_q_head head = {0};
        if (f.kind == KEYS) {
            memcpy(&head, w->q + r * (size_t)NW_ATTN_STRIDE, sizeof head);
        }
        const int32_t zeros[2] = {zero * head.high_sum, zero * head.low_sum};
        NW_EACH(v, f.n_panels) {
            __m512 y = joined(s, v, r, zeros, f);
            if (w->scales != NULL) {
                y = _mm512_mul_ps(y, _mm512_loadu_ps(w->scales + (first + v) * w->scale_panel));
            }
            _mm512_storeu_ps(w->s + r * NW_KV_PAGE + (first + v) * 16, y);
        }
    }
}

/* Panels that no row sees may be among the last: the page has them. */
NW_INLINE void keys(const nw_keys *w, unsigned n_rows, int32_t zero, const form f)
{
    const sides x = {.a = w->q + NW_Q_AT,
                     .a_stride = NW_ATTN_STRIDE,
                     .a_plane = NW_Q_PLANE,
                     .w = w->k,
                     .panel = w->panel,
                     .ahead = w->ahead,
                     .n_vectors = w->n_vectors,
                     .steps = w->steps};

    for (uint32_t first = 0; first < w->n_panels; first += f.n_panels) {
        for (unsigned v = 0; w->ahead != 0 && w->scales != NULL && v < f.n_panels; v++) {
            nw_ask(w->scales + (first + v) * w->scale_panel, w->ahead);
        }
        key_panels(w, &x, first, n_rows, zero, f);
    }
}

static void keys_float(const nw_keys *w, unsigned n_rows)
{
    keys(w, n_rows, 0, (form){FLOATS, 1, 4});
}

static void keys_int(const nw_keys *w, unsigned n_rows, int32_t zero)
{
    if (w->planes == 1) {
        keys(w, n_rows, zero, (form){KEYS, 1, 4});
    } else {
        keys(w, n_rows, zero, (form){KEYS, 2, 2});
    }
}

static void keys_int8(const nw_keys *w, unsigned n_rows)
{
    keys_int(w, n_rows, 128);
}

static void keys_int4(const nw_keys *w, unsigned n_rows)
{
    keys_int(w, n_rows, 8);
}

/* ---- values ---- */

NW_INLINE void value_panels(const nw_values *w, const sides *x, uint32_t first, unsigned n_rows,
                            const form f)
{
    const int32_t none[2] = {0, 0};
    _Alignas(64) sums s;

    product(x, first, s, f);
    for (unsigned r = 0; r < n_rows; r++) {
        float *o = w->o + r * (NW_ATTN_STRIDE / sizeof *o) + first * (size_t)NW_KV_LANES;
        const __m512 shrink = _mm512_set1_ps(w->shrink[r]);
        const __m512 share = _mm512_set1_ps(w->share[r]);
        NW_EACH(v, f.n_panels) {
            const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(o + v * 16), shrink);
            _mm512_storeu_ps(o + v * 16, _mm512_fmadd_ps(joined(s, v, r, none, f), share, old));
        }
    }
}

NW_INLINE void values(const nw_values *w, unsigned n_rows, const operands kind,
                      const unsigned n_planes)
{
    const unsigned together = SUMS / n_planes;
    const sides x = {.a = w->p,
                     .a_stride = NW_P_STRIDE,
                     .a_plane = NW_KV_PAGE,
                     .w = w->v,
                     .panel = w->panel,
                     .ahead = w->ahead,
                     .n_vectors = w->n_vectors,
                     .steps = w->steps};
    uint32_t i = 0;

    for (; i + together <= w->n_panels; i += together) {
        value_panels(w, &x, i, n_rows, (form){kind, n_planes, together});
    }
    for (; i < w->n_panels; i++) {
        value_panels(w, &x, i, n_rows, (form){kind, n_planes, 1});
    }
}

static void values_float(const nw_values *w, unsigned n_rows)
{
    values(w, n_rows, FLOATS, 1);
}

static void values_int(const nw_values *w, unsigned n_rows)
{
    if (w->planes == 1) {
        values(w, n_rows, VALUES, 1);
    } else {
        values(w, n_rows, VALUES, 2);
    }
}

/* ---- pages ---- */

/* Rows from which tiles are faster than vectors where both give the same bits. */
#define FROM_ROWS 16u

/* Vectors of a page's panel as the products see it. */
static uint32_t vectors_of(nw_kv_kind kind, uint32_t n_cols)
{
    const uint32_t per = kind == NW_KV_BF16 || kind == NW_KV_FP8 ? 2 : 4;
    const uint32_t stored = nw_kv_vector_cols(kind); /* INT4 and FP8 are widened by whole vectors */
    return (n_cols + stored - 1) / stored * (stored > per ? stored / per : 1);
}

static void page(const nw_attn_tile *t, const nw_attn_page *p)
{
    const bool exact = nw_kv_is_int(p->kv.k) && nw_kv_is_int(p->kv.v);
    const bool plain = p->kv.k == NW_KV_F32 || p->kv.v == NW_KV_F32;

    if (plain || (exact && p->n_rows < FROM_ROWS)) {
        nw_avx512_attn_page(t, p);
        return;
    }
    const uint32_t n =
        vectors_of(p->kv.k, p->kv.d_head) | vectors_of(p->kv.v, NW_KV_PAGE) | NW_AMX_ROWS;
    const uint32_t n_groups = (p->n_rows + GROUP - 1) / GROUP;
    const nw_attn_products products = {
        .n_rows = GROUP,
        .n_groups = 1,
        .steps = n & (~n + 1), /* the largest power of two that divides both */
        .nibbles_as_bytes = true,
        .keys = {NULL, keys_float, keys_float, keys_int8, keys_int4},
        .values = {NULL, values_float, values_float, values_int, values_int}};

    nw_amx_begin((p->n_rows + n_groups - 1) / n_groups, products.steps);
    nw_avx512_attn_page_by(t, p, &products);
    nw_amx_end();
}

void nw_amx_attend(const nw_attn *a)
{
    static const nw_attn_ops ops = {.tier = &nw_kernels_amx,
                                    .n_rows = ROWS,
                                    .scale = nw_avx512_scale,
                                    .load = nw_avx512_attn_load,
                                    .page = page,
                                    .join = nw_avx512_attn_join,
                                    .rotate = nw_avx512_rotate};
    nw_attend_tiled(a, &ops);
}
