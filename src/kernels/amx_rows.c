/* linear in tiles of what has no groups: INT8 with a scale a row x INT8 activations, and floats x BF16. Columns are
 * taken in order, 64 bytes of a row at a time, and BLOCK such tiles of the weights pass all tokens of a run before
 * the next, so that they come from the nearest cache; sums stand in memory between.
 *
 * INT8: sums are exact in int32, then (sum - 128 * the activations' sum) * (the row's scale) * (the token's).
 * BF16: of 32 columns even and odd ones are summed apart, then both are added to the row's sum (TDPBF16PS).
 * BF16-12 becomes BF16 as it is read, so that its results are the same bits; so does FP8, times the row's scale.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/amx.h"
#include "kernels/avx512_bf16_12.h"
#include "kernels/avx512_bytes.h"

#define BLOCK 8u /* tiles of weights: of both panels 16 KiB */

typedef enum { INT8, BF16, BF16_12, E4M3, E5M2 } codes;

typedef struct {
    _Alignas(64) nw_amx_sums sums[NW_AMX_TILES];
    _Alignas(64)
        uint8_t made[2][BLOCK * NW_AMX_BYTES]; /* weights that do not stand as they are wanted */
} scratch;

/* Tiles of weights that pass the tokens together. */
typedef struct {
    const uint8_t *w[2];
    uint32_t first, n;
} block;

/* Sums of tiles of tokens i and, of two, the next += the block's products. */
NW_INLINE void multiply(const nw_amx_run *r, const block *b, uint32_t i, nw_amx_sums *sums,
                        const codes k, const unsigned n_tiles, const unsigned n_panels)
{
    const size_t codes_at = k == INT8 ? nw_act_codes_at(NW_ACT_INT8, r->t.n_cols) : 0;
    const uint8_t *a[2];
    const uint8_t *w[2] = {b->w[0], b->w[1]};

    NW_EACH(s, n_tiles) {
        a[s] = r->t.a + nw_amx_first(r, i + s) * r->t.a_stride + codes_at + (size_t)b->first * 64;
    }
    if (b->first == 0) {
        nw_amx_zero(n_tiles, n_panels);
    } else {
        nw_amx_load(&sums[i], n_tiles, n_panels);
    }
    for (uint32_t j = 0; j < b->n; j++) {
        if (k == BF16 && n_panels == 1) { /* far: of one token */
            nw_ask_far(w[0], r->t.far, NW_AMX_ROWS);
        }
        nw_amx_operands(a, r->t.a_stride, w, n_tiles, n_panels);
        if (k == INT8) {
            nw_amx_add_ints(n_tiles, n_panels);
        } else {
            nw_amx_add_bf16(n_tiles, n_panels);
        }
        NW_EACH(s, 2) {
            w[s] += s < n_panels ? NW_AMX_BYTES : 0;
            a[s] += s < n_tiles ? 64 : 0;
        }
    }
    nw_amx_store(&sums[i], n_tiles, n_panels);
}

NW_INLINE void pass_tokens(const nw_amx_run *r, const block *b, nw_amx_sums *sums, const codes k)
{
    for (uint32_t i = 0; i < r->n_tiles; i += 2) {
        const bool two = i + 1 < r->n_tiles;
        if (r->t.n_panels == 2 && two) {
            multiply(r, b, i, sums, k, 2, 2);
        } else if (r->t.n_panels == 2) {
            multiply(r, b, i, sums, k, 1, 2);
        } else if (two) {
            multiply(r, b, i, sums, k, 2, 1);
        } else {
            multiply(r, b, i, sums, k, 1, 1);
        }
    }
}

/* Steps of 64 bytes of a panel's row of columns. */
NW_INLINE uint32_t steps_of(const nw_tile *t, const codes k)
{
    return k == INT8 ? (t->n_cols + 3) / 4 : (t->n_cols + 1) / 2;
}

NW_INLINE bool has_row_scale(const codes k)
{
    return k == INT8 || k == E4M3 || k == E5M2;
}

/* `quads` quads of columns of a panel from quad0 on, as BF16. */
NW_INLINE void make_bf16(const nw_tile *t, unsigned v, uint32_t quad0, uint32_t quads, uint8_t *to,
                         nw_rare *rare, const codes k)
{
    const uint8_t *panel = t->w + v * t->w_stride;
    const size_t bytes = k == BF16_12 ? NW_BF16_12_QUAD : 64; /* of a quad */
    const uint8_t *from = panel + 64 + quad0 * bytes;
    const __m512i exponents = k == BF16_12 ? nw_exponents_of(panel) : _mm512_setzero_si512();
    const nw_byte_tables tables = nw_byte_tables_of(k == E5M2 ? NW_BYTES_E5M2 : NW_BYTES_E4M3);
    const uint32_t far = t->far;

    for (uint32_t j = 0; j < quads; j++, from += bytes, to += 128) {
        __m512i p01;
        __m512i p23;
        nw_ask_far(from, far, 1);
        if (k == BF16_12) {
            nw_expand_quad(from, exponents, rare, quad0 + j, &p01, &p23);
        } else {
            nw_widen_bytes(&tables, _mm512_loadu_si512(from), &p01, &p23);
        }
        _mm512_store_si512(to, p01);
        _mm512_store_si512(to + 64, p23);
    }
}

/* The block's weights of panel v. A last tile that is not whole is filled up with zeros: the panel may be the
 * last of what is mapped. */
NW_INLINE const uint8_t *weights(const nw_tile *t, unsigned v, const block *b, scratch *x,
                                 nw_rare *rare, const codes k)
{
    const uint32_t step = b->first * NW_AMX_ROWS;
    const uint32_t left = steps_of(t, k) - step;
    const uint32_t n = left < b->n * NW_AMX_ROWS ? left : b->n * NW_AMX_ROWS;
    const uint8_t *as_is = t->w + v * t->w_stride + (k == INT8 ? 64 : 0) + (size_t)step * 64;
    uint8_t *made = x->made[v];
    size_t bytes = (size_t)n * 64;

    if (k != INT8 && k != BF16) {
        const uint32_t quads = (n + 1) / 2;
        make_bf16(t, v, step / 2, quads, made, rare, k);
        bytes = (size_t)quads * 128;
    } else if (n == b->n * NW_AMX_ROWS) {
        return as_is;
    } else {
        memcpy(made, as_is, bytes);
    }
    memset(made + bytes, 0, b->n * NW_AMX_BYTES - bytes);
    return made;
}

/* y of tile i with panel v. */
NW_INLINE void finish(const nw_amx_run *r, uint32_t i, unsigned v, const float *sums, const codes k)
{
    const nw_tile *t = &r->t;
    const uint32_t left = nw_rows_left(t, v);
    const __m512 s = has_row_scale(k) ? _mm512_loadu_ps(t->w + v * t->w_stride) : _mm512_set1_ps(1);

    for (uint32_t m = 0; m < r->rows; m++) {
        const uint32_t token = nw_amx_first(r, i) + m;
        __m512 x = _mm512_load_ps(sums + (size_t)m * 16);
        if (k == INT8) {
            nw_act_head head;
            memcpy(&head, t->a + token * t->a_stride, sizeof head);
            const __m512i sum =
                _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(-128 * head.sum));
            x = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), s),
                              _mm512_set1_ps(head.scale));
        } else if (has_row_scale(k)) {
            x = _mm512_mul_ps(x, s);
        }
        nw_store_rows(t->y + token * t->ldy + v * 16, left, x);
    }
}

NW_INLINE void run(const nw_amx_run *r, const codes k)
{
    const nw_tile *t = &r->t;
    const uint32_t steps = steps_of(t, k);
    const uint32_t whole = steps / NW_AMX_ROWS;
    const uint32_t n_tiles = (steps + NW_AMX_ROWS - 1) / NW_AMX_ROWS;
    /* where nothing is read twice, all that stands as it is wanted is one block */
    const uint32_t most = (k == INT8 || k == BF16) && r->n_tiles <= 2 && whole > 0 ? whole : BLOCK;
    nw_rare rare[2];
    scratch x;
    block b = {.w = {NULL, NULL}};

    for (unsigned v = 0; k == BF16_12 && v < t->n_panels; v++) {
        rare[v] = nw_rare_of(t, t->w + v * t->w_stride);
    }
    for (; b.first < n_tiles; b.first += b.n) {
        const uint32_t left = b.first < whole ? whole - b.first : 1;
        b.n = left < most ? left : most;
        for (unsigned v = 0; v < t->n_panels; v++) {
            b.w[v] = weights(t, v, &b, &x, &rare[v], k);
        }
        pass_tokens(r, &b, x.sums, k);
    }
    for (uint32_t i = 0; i < r->n_tiles; i++) {
        for (unsigned v = 0; v < t->n_panels; v++) {
            finish(r, i, v, x.sums[i][v], k);
        }
    }
}

static void run_int8(const nw_amx_run *r)
{
    run(r, INT8);
}

static void run_bf16(const nw_amx_run *r)
{
    run(r, BF16);
}

static void run_bf16_12(const nw_amx_run *r)
{
    run(r, BF16_12);
}

static void run_e4m3(const nw_amx_run *r)
{
    run(r, E4M3);
}

static void run_e5m2(const nw_amx_run *r)
{
    run(r, E5M2);
}

void nw_amx_linear_row_a8(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                          float *y, size_t ldy)
{
    nw_amx_linear(w, a, panel0, panel1, y, ldy, NW_AMX_ROWS, run_int8);
}

void nw_amx_linear_a16(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                       float *y, size_t ldy)
{
    static nw_amx_run_fn *const runs[NW_PANEL_KINDS] = {[NW_PANEL_BF16] = run_bf16,
                                                        [NW_PANEL_BF16_12] = run_bf16_12,
                                                        [NW_PANEL_FP8_E4M3] = run_e4m3,
                                                        [NW_PANEL_FP8_E5M2] = run_e5m2};
    nw_amx_linear(w, a, panel0, panel1, y, ldy, NW_AMX_ROWS, runs[w->type.kind]);
}
