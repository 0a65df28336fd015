/* linear in tiles for INT4 and INT8 with scales of groups, and for INT8 with a scale a row x INT16 activations, which
 * have scales of their own for each 128 columns. A group's products are exact int32 sums in tile registers, which
 * pass through memory to be scaled in the order of avx512_nibble.h and avx512_group.c: the same bits. Nibbles
 * become bytes once for all tokens of a run. Of 16-bit activations the two bytes are tiles of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/amx.h"
#include "kernels/group.h"
#include "kernels/x86.h"

#define STARTS 16u /* groups whose sums of activations are looked at together */

typedef struct {
    _Alignas(64) uint8_t bytes[2][32 * 64]; /* a group that does not stand as it is wanted */
    _Alignas(64) nw_amx_sums sums[2][2];    /* [in turn][two tiles of tokens, or low, high bytes] */
    /* by place in the tiles: a token may be in two of them */
    _Alignas(64) float y[NW_AMX_TOKENS][2][NW_PANEL_ROWS];
    _Alignas(64) float part[NW_AMX_TOKENS][2][NW_PANEL_ROWS]; /* of 128 columns: `folds` */
    /* by token: what a sum starts at, -zero * the activations' sum, and that sum, for minima */
    _Alignas(64) int32_t start[NW_AMX_TOKENS][STARTS];
    _Alignas(64) float act_sum[NW_AMX_TOKENS][STARTS];
    nw_chunk chunk[2]; /* scales and minima of some groups of each panel */
} scratch;

/* Where a run stands, and what is the same in all of it. */
typedef struct {
    const nw_amx_run *r;
    nw_groups g;
    bool row;            /* one scale a row: groups are those of the activations */
    bool folds;          /* 16-bit activations' scales are applied once for their 128 columns */
    uint32_t steps;      /* of a tile of weights */
    uint32_t n_parts;    /* tiles of a group */
    size_t codes;        /* of a token's row: its codes (high bytes where there are two) */
    size_t low;          /* from there to the low bytes */
    const uint8_t *w[2]; /* the group as bytes, 64 a step */
    uint32_t i;          /* number of the group */
} place;

/* What is constant in a function: bytes of an activation, panels, whether there are minima. */
typedef struct {
    unsigned np, n_panels;
    bool min;
} form;

NW_INLINE __m512i low_nibbles(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi32(0x0F0F0F0F));
}

/* The group's columns in order, 4 a step. */
static void find_weights(place *p, scratch *x, unsigned v)
{
    const nw_groups *g = &p->g;
    const nw_tile *t = &p->r->t;
    const uint8_t *from = t->w + v * t->w_stride + g->first + p->i / g->per_block * g->block_bytes +
                          g->codes_at + (size_t)(p->i % g->per_block) * g->steps * 64;
    const uint32_t left = (t->n_cols - p->i * g->cols + 3) / 4;

    p->w[v] = from;
    if (g->codes != NW_CODES_BYTE) {
        p->w[v] = x->bytes[v];
        for (size_t j = 0; j < g->steps; j++) {
            uint8_t *to = x->bytes[v] + j * 64;
            _mm512_store_si512(to, low_nibbles(_mm512_loadu_si512(from + j * 64)));
            _mm512_store_si512(to + (size_t)g->steps * 64,
                               low_nibbles(nw_load_shifted(from + j * 64)));
        }
    } else if (p->row && left < g->steps) { /* nothing more may be mapped */
        p->w[v] = x->bytes[v];
        memcpy(x->bytes[v], from, (size_t)left * 64);
        memset(x->bytes[v] + (size_t)left * 64, 0, (size_t)(g->steps - left) * 64);
    }
}

/* Sums of the group for tile `tile` of tokens and, of 8-bit activations, the next. */
NW_INLINE void multiply(const place *p, nw_amx_sums *to, uint32_t tile, const form f,
                        const unsigned n_tiles)
{
    const nw_amx_run *r = p->r;

    nw_amx_zero(n_tiles, f.n_panels);
    for (uint32_t j = 0; j < p->n_parts; j++) {
        const size_t step = (size_t)j * p->steps;
        const uint8_t *const w[2] = {p->w[0] + step * 64, p->w[f.n_panels - 1] + step * 64};
        const uint8_t *a[2];
        NW_EACH(s, n_tiles) {
            const uint32_t token = nw_amx_first(r, f.np == 1 ? tile + s : tile);
            a[s] = r->t.a + token * r->t.a_stride + p->codes + (size_t)p->i * p->g.cols + step * 4 +
                   (f.np == 2 && s == 0 ? p->low : 0);
        }
        nw_amx_operands(a, r->t.a_stride, w, n_tiles, f.n_panels);
        nw_amx_add_ints(n_tiles, f.n_panels);
    }
    nw_amx_store(to, n_tiles, f.n_panels);
}

/* The scale of 16-bit activations at the group. */
NW_INLINE __m512 act_scale(const place *p, uint32_t token)
{
    const uint8_t *row = p->r->t.a + token * p->r->t.a_stride;
    return _mm512_castsi512_ps(nw_spread(row + p->i * p->g.cols / NW_ACT_COLS * sizeof(float)));
}

/* The results of tile `tile` of tokens, or their part of 128 columns, += sums (and their high bytes'). */
NW_INLINE void scale_sums(const place *p, scratch *x, float (*sums)[NW_AMX_SUMS],
                          float (*high)[NW_AMX_SUMS], uint32_t tile, const form f, const bool folds)
{
    const uint32_t token0 = nw_amx_first(p->r, tile);
    const uint32_t rows = p->r->rows;
    const uint32_t in_chunk = p->i % NW_CHUNK;
    int32_t(*start)[STARTS] = x->start + token0;
    const uint32_t at = p->i % STARTS;
    float(*to)[2][NW_PANEL_ROWS] = (folds ? x->part : x->y) + (size_t)tile * NW_AMX_ROWS;
    __m512 scale[2];
    __m512 min[2];

    NW_EACH(v, f.n_panels) {
        scale[v] = _mm512_load_ps(x->chunk[v].scale[in_chunk]);
        min[v] = f.min ? _mm512_load_ps(x->chunk[v].min[in_chunk]) : scale[v];
    }
    for (uint32_t m = 0; m < rows; m++) {
        const __m512i from = _mm512_set1_epi32(start[m][at]);
        const __m512 act =
            f.np == 2 && !folds ? act_scale(p, token0 + m) : _mm512_set1_ps(1); /* of each group */
        NW_EACH(v, f.n_panels) {
            __m512i sum = _mm512_add_epi32(_mm512_load_si512(sums[v] + (size_t)m * 16), from);
            if (f.np == 2) {
                const __m512i left = _mm512_load_si512(high[v] + (size_t)m * 16);
                sum = _mm512_add_epi32(sum, _mm512_slli_epi32(left, 8));
            }
            __m512 c = _mm512_cvtepi32_ps(sum);
            c = f.np == 2 && !folds ? _mm512_mul_ps(c, act) : c;
            __m512 y = _mm512_fmadd_ps(c, scale[v], _mm512_load_ps(to[m][v]));
            if (f.min) {
                const __m512 b = _mm512_set1_ps(x->act_sum[token0 + m][at]);
                y = _mm512_fmadd_ps(min[v], f.np == 2 && !folds ? _mm512_mul_ps(b, act) : b, y);
            }
            _mm512_store_ps(to[m][v], y);
        }
    }
}

/* Tiles of tokens that are multiplied together, or one whose two bytes are. */
NW_INLINE void multiply_some(const place *p, nw_amx_sums *to, uint32_t tile, const form f)
{
    if (f.np == 2 || tile + 1 < p->r->n_tiles) {
        multiply(p, to, tile, f, 2);
    } else {
        multiply(p, to, tile, f, 1);
    }
}

/* The group for all tokens. The next tiles are multiplied before the last ones are scaled: one takes the time that
 * the other leaves. */
NW_INLINE void pass_tokens(const place *p, scratch *x, const form f)
{
    const uint32_t n = p->r->n_tiles;
    const uint32_t step = f.np == 1 ? 2 : 1;
    unsigned turn = 0;

    multiply_some(p, x->sums[0], 0, f);
    for (uint32_t i = 0; i < n; i += step, turn ^= 1) {
        nw_amx_sums *sums = x->sums[turn];
        if (i + step < n) {
            multiply_some(p, x->sums[turn ^ 1], i + step, f);
        }
        if (f.np == 2 && p->folds) {
            scale_sums(p, x, sums[0], sums[1], i, f, true);
        } else {
            scale_sums(p, x, sums[0], sums[1], i, f, false);
        }
        if (f.np == 1 && i + 1 < n) {
            scale_sums(p, x, sums[1], NULL, i + 1, f, false);
        }
    }
}

NW_INLINE void pass_panels(const place *p, scratch *x, const unsigned np)
{
    const bool two = p->r->t.n_panels == 2;

    if (two && p->g.min) {
        pass_tokens(p, x, (form){np, 2, true});
    } else if (two) {
        pass_tokens(p, x, (form){np, 2, false});
    } else if (p->g.min) {
        pass_tokens(p, x, (form){np, 1, true});
    } else {
        pass_tokens(p, x, (form){np, 1, false});
    }
}

/* Results += those of the last 128 columns * the activations' scales. */
static void fold(const place *p, scratch *x)
{
    for (uint32_t i = 0; i < p->r->n_tiles; i++) {
        for (uint32_t m = 0; m < p->r->rows; m++) {
            const uint32_t at = i * NW_AMX_ROWS + m;
            const __m512 act = act_scale(p, nw_amx_first(p->r, i) + m);
            NW_EACH(v, 2) {
                const __m512 part = _mm512_load_ps(x->part[at][v]);
                _mm512_store_ps(x->y[at][v],
                                _mm512_fmadd_ps(part, act, _mm512_load_ps(x->y[at][v])));
                _mm512_store_ps(x->part[at][v], _mm512_setzero_ps());
            }
        }
    }
}

/* What the group needs that is made for some groups at once. */
static void look_ahead(const place *p, scratch *x, nw_act_kind kind)
{
    const nw_tile *t = &p->r->t;
    const uint32_t left = p->g.n_groups - p->i;
    const size_t sums = nw_act_sums_at(kind, t->n_cols) + nw_act_level_at(t->n_cols, p->g.cols) +
                        p->i * sizeof(int32_t);

    for (unsigned v = 0; !p->row && p->i % NW_CHUNK == 0 && v < t->n_panels; v++) {
        nw_x86_scales(t->type, &p->g, t->w + v * t->w_stride, p->i,
                      left < NW_CHUNK ? left : NW_CHUNK, &x->chunk[v]);
    }
    for (uint32_t m = 0; p->i % STARTS == 0 && m < p->r->n_tokens; m++) {
        /* past the last sum there are codes */
        const __m512i sum = _mm512_loadu_si512(t->a + m * t->a_stride + sums);
        _mm512_store_si512(x->start[m], _mm512_mullo_epi32(sum, _mm512_set1_epi32(-p->g.zero)));
        _mm512_store_ps(x->act_sum[m], _mm512_cvtepi32_ps(sum));
    }
}

/* y = results * (the row's scale) * (the token's, of 8-bit activations). */
static void finish(const place *p, const scratch *x, nw_act_kind kind)
{
    const nw_tile *t = &p->r->t;

    for (unsigned v = 0; v < t->n_panels; v++) {
        const __m512 s = p->row ? _mm512_loadu_ps(t->w + v * t->w_stride) : _mm512_set1_ps(1);
        for (uint32_t i = 0; i < p->r->n_tiles * p->r->rows; i++) {
            const uint32_t tile = i / p->r->rows;
            const uint32_t m = i % p->r->rows;
            const uint32_t token = nw_amx_first(p->r, tile) + m;
            nw_act_head head = {.scale = 1};
            if (kind == NW_ACT_INT8) {
                memcpy(&head, t->a + token * t->a_stride, sizeof head);
            }
            const __m512 y = _mm512_mul_ps(_mm512_load_ps(x->y[tile * NW_AMX_ROWS + m][v]), s);
            nw_store_rows(t->y + token * t->ldy + v * 16, nw_rows_left(t, v),
                          _mm512_mul_ps(y, _mm512_set1_ps(head.scale)));
        }
    }
}

static uint32_t tile_steps(const nw_groups *g)
{
    return g->cols / 4 < NW_AMX_ROWS ? g->cols / 4 : NW_AMX_ROWS;
}

NW_INLINE void run(const nw_amx_run *r, nw_act_kind kind)
{
    const nw_tile *t = &r->t;
    const bool two = kind == NW_ACT_INT16;
    scratch x;
    place p = {.r = r,
               .g = nw_groups_or_row(t->type, t->n_cols),
               .row = !nw_has_groups(t->type),
               .folds = two && nw_is_plain_nibble(t->type),
               .codes = nw_act_codes_at(kind, t->n_cols),
               .low = nw_act_cols(t->n_cols)};

    p.steps = tile_steps(&p.g);
    p.n_parts = p.g.cols / 4 / p.steps;
    memset(x.y, 0, r->n_tiles * NW_AMX_ROWS * sizeof x.y[0]);
    memset(x.part, 0, p.folds ? r->n_tiles * NW_AMX_ROWS * sizeof x.part[0] : 0);
    for (unsigned v = 0; p.row && v < t->n_panels; v++) {
        for (uint32_t i = 0; i < NW_CHUNK; i++) {
            _mm512_store_ps(x.chunk[v].scale[i], _mm512_set1_ps(1));
        }
    }
    for (; p.i < p.g.n_groups; p.i++) {
        look_ahead(&p, &x, kind);
        for (unsigned v = 0; v < t->n_panels; v++) {
            find_weights(&p, &x, v);
        }
        pass_panels(&p, &x, two ? 2 : 1);
        if (p.folds && ((p.i + 1) * p.g.cols % NW_ACT_COLS == 0 || p.i + 1 == p.g.n_groups)) {
            fold(&p, &x);
        }
    }
    finish(&p, &x, kind);
}

static void run_a8(const nw_amx_run *r)
{
    run(r, NW_ACT_INT8);
}

static void run_a16(const nw_amx_run *r)
{
    run(r, NW_ACT_INT16);
}

void nw_amx_linear_group(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                         float *y, size_t ldy)
{
    const nw_groups g = nw_groups_or_row(w->type, w->n_cols);
    nw_amx_linear(w, a, panel0, panel1, y, ldy, tile_steps(&g),
                  a->kind == NW_ACT_INT8 ? run_a8 : run_a16);
}
