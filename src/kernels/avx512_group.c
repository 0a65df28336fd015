/* linear for int8 with groups and int4 with two levels of scales or groups of 16, x INT8 or INT16 activations, and for
 * int8 rows x INT16 ones. In a group sums are exact int32: of 8-bit activations one, of 16-bit ones
 * two, of high and of low bytes. Then f = sum * scale + f, and f = minimum * (sum of the activations)
 * + f. The same for every tile shape. Other nibbles: avx512_nibble.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512.h"
#include "kernels/x86.h"

/* Codes of 8 bits or of 4; ROW is int8 with a scale a row, which 16-bit activations take in groups of
 * their own 128 columns. */
typedef enum { BYTE, INT, ROW } codes;

/* What is constant in a tile: codes, panels, tokens, bytes of an activation. */
typedef struct {
    codes k;
    unsigned nv, mr, np;
} form;

/* What a tile reads. The facts of nw_groups are copied: its address is given away, and a struct whose
 * address is known is not kept in registers. */
typedef struct {
    uint32_t steps, cols;
    int32_t zero; /* to be taken from every code as it is multiplied */
    bool min;
    const uint8_t *w[4];                 /* codes of the current group */
    const uint8_t *a[NW_TILE_TOKENS];    /* codes; high bytes where there are two */
    const uint8_t *sums[NW_TILE_TOKENS]; /* of as many columns as share a scale */
    size_t at;                           /* columns before the current group */
    size_t low;                          /* bytes from a code to its low byte */
    size_t group;                        /* number of the current group */
    float scale[NW_TILE_TOKENS];         /* of 16-bit activations */
    const uint8_t *next;                 /* to be prefetched, `ahead` lines a step */
    uint32_t ahead;
} place;

NW_INLINE __m512i low_nibbles(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi32(0x0F0F0F0F));
}

NW_INLINE unsigned n_sums(const form f)
{
    return f.nv * f.mr;
}

NW_INLINE bool is_stream(const form f)
{
    return n_sums(f) == 1 && f.k == INT;
}

/* c is [np][mr][nv]. */
NW_INLINE void add_step(const place *p, __m512i *c, const __m512i *x, size_t at, const form f)
{
    NW_EACH(m, f.mr) {
        const __m512i b = nw_spread(p->a[m] + p->at + at);
        NW_EACH(v, f.nv) {
            c[m * f.nv + v] = nw_dpbusd(c[m * f.nv + v], x[v], b);
        }
        if (f.np == 2) {
            const __m512i d = nw_spread(p->a[m] + p->low + p->at + at);
            NW_EACH(v, f.nv) {
                const unsigned i = n_sums(f) + m * f.nv + v;
                c[i] = nw_dpbusd(c[i], x[v], d);
            }
        }
    }
}

/* One token reads panels of nibbles as one stream, and asks for what lies so far ahead. */
#define AHEAD_BYTES 16384

NW_INLINE void prefetch(place *p, size_t j, const form f)
{
    if (is_stream(f)) {
        _mm_prefetch((const char *)p->w[0] + j * 64 + AHEAD_BYTES, _MM_HINT_T1);
    } else {
        p->next = nw_prefetch(p->next, p->ahead);
    }
}

NW_INLINE void add_bytes(place *p, __m512i *c, const form f)
{
    for (size_t j = 0; j < p->steps; j++) {
        __m512i x[4];
        prefetch(p, j, f);
        NW_EACH(v, f.nv) {
            x[v] = _mm512_loadu_si512(p->w[v] + j * 64);
        }
        add_step(p, c, x, j * 4, f);
    }
}

/* Low nibbles into `low` and high ones into `high`. */
NW_INLINE void add_nibbles(place *p, __m512i *low, __m512i *high, const form f)
{
    const size_t high_at = (size_t)p->steps * 4;

    for (size_t j = 0; j < p->steps; j++) {
        __m512i x[4];
        prefetch(p, j, f);
        NW_EACH(v, f.nv) {
            x[v] = low_nibbles(_mm512_loadu_si512(p->w[v] + j * 64));
        }
        add_step(p, low, x, j * 4, f);
        NW_EACH(v, f.nv) {
            x[v] = low_nibbles(nw_load_shifted(p->w[v] + j * 64));
        }
        add_step(p, high, x, high_at + j * 4, f);
    }
}

/* Sums start at -zero times the token's sum; those of high bytes at 0. */
NW_INLINE void begin(const place *p, __m512i *c, const form f)
{
    const __m512i zero = _mm512_set1_epi32(-p->zero);

    NW_EACH(m, f.mr) {
        const __m512i sum = nw_spread(p->sums[m] + p->group * sizeof(int32_t));
        const __m512i start = _mm512_mullo_epi32(sum, zero);
        NW_EACH(v, f.nv) {
            c[(f.np - 1) * n_sums(f) + m * f.nv + v] = start;
            if (f.np == 2) {
                c[m * f.nv + v] = _mm512_setzero_si512();
            }
        }
    }
}

/* f += c * scale number i of the chunk. The large tiles have more sums than registers: f, used once a
 * group, is kept in memory, so that no c is spilled in the inner loop. */
NW_INLINE void scale_sums(const place *p, const nw_chunk *chunk, uint32_t i, const __m512i *c,
                          __m512 *y, const form f)
{
    NW_EACH(v, f.nv) {
        const __m512 s = f.k == ROW ? _mm512_set1_ps(1) : _mm512_load_ps(chunk[v].scale[i]);
        NW_EACH(m, f.mr) {
            const unsigned at = m * f.nv + v;
            const __m512i sum =
                f.np == 1 ? c[at]
                          : _mm512_add_epi32(_mm512_slli_epi32(c[at], 8), c[n_sums(f) + at]);
            __m512 x = _mm512_cvtepi32_ps(sum);
            x = f.np == 1 ? x : _mm512_mul_ps(x, _mm512_set1_ps(p->scale[m]));
            y[at] = f.k == ROW ? _mm512_add_ps(x, y[at]) : _mm512_fmadd_ps(x, s, y[at]);
            if (n_sums(f) > 4) {
                __asm__("" : "+m"(y[at])); /* see above */
            }
        }
    }
}

NW_INLINE void add_minima(const place *p, const nw_chunk *chunk, uint32_t i, __m512 *y,
                          const form f)
{
    NW_EACH(m, f.mr) {
        const __m512i sum = nw_spread(p->sums[m] + p->group * sizeof(int32_t));
        __m512 x = _mm512_cvtepi32_ps(sum);
        x = f.np == 1 ? x : _mm512_mul_ps(x, _mm512_set1_ps(p->scale[m]));
        NW_EACH(v, f.nv) {
            const unsigned at = m * f.nv + v;
            y[at] = _mm512_fmadd_ps(_mm512_load_ps(chunk[v].min[i]), x, y[at]);
        }
    }
}

/* Group i of the chunk. */
NW_INLINE void add_group(place *p, const nw_chunk *chunk, uint32_t i, __m512 *y, const form f)
{
    __m512i c[24];
    __m512i d[2];

    begin(p, c, f);
    if (f.k != INT) {
        add_bytes(p, c, f);
    } else if (n_sums(f) == 1) { /* chains of their own: half the latency */
        d[0] = d[1] = _mm512_setzero_si512();
        add_nibbles(p, c, d, f);
        c[0] = _mm512_add_epi32(c[0], d[0]);
        c[1] = f.np == 2 ? _mm512_add_epi32(c[1], d[1]) : c[1];
    } else {
        add_nibbles(p, c, c, f);
    }
    scale_sums(p, chunk, i, c, y, f);
    if (f.k != ROW && p->min) {
        add_minima(p, chunk, i, y, f);
    }
}

/* To the next group, past `scales` bytes that stand before its codes. */
NW_INLINE void advance(place *p, size_t scales, const form f)
{
    NW_EACH(v, f.nv) {
        p->w[v] += (size_t)p->steps * 64 + scales;
    }
    p->at += p->cols;
    p->group++;
    if (is_stream(f)) { /* the scales' share of it */
        for (size_t i = 0; i < scales; i += 64) {
            _mm_prefetch((const char *)p->w[0] + AHEAD_BYTES - scales + i, _MM_HINT_T1);
        }
    } else if (p->ahead > 0 && f.k != ROW) {
        p->next = nw_prefetch(p->next, 1);
    }
}

/* y = f * (the token's scale, of 8-bit activations) * (the row's). */
NW_INLINE void finish(const nw_tile *t, const __m512 *y, const form f)
{
    NW_EACH(v, f.nv) {
        const uint8_t *panel = t->w + v * t->w_stride;
        const uint32_t left = nw_rows_left(t, v);
        const __m512 s = f.k == ROW ? _mm512_loadu_ps(panel) : _mm512_set1_ps(1);
        NW_EACH(m, f.mr) {
            nw_act_head head = {.scale = 1};
            if (f.np == 1) {
                memcpy(&head, t->a + m * t->a_stride, sizeof head);
            }
            const __m512 x = _mm512_mul_ps(y[m * f.nv + v], s);
            nw_store_rows(t->y + m * t->ldy + v * 16, left,
                          _mm512_mul_ps(x, _mm512_set1_ps(head.scale)));
        }
    }
}

/* Groups of a row with one scale are those of the activations. */
NW_INLINE nw_groups groups_of(const nw_tile *t, const codes k)
{
    if (k != ROW) {
        return nw_groups_of(t->type, t->n_cols);
    }
    return (nw_groups){.n_groups = nw_act_cols(t->n_cols) / NW_ACT_COLS,
                       .cols = NW_ACT_COLS,
                       .steps = NW_ACT_COLS / 4,
                       .per_block = 1,
                       .first = 64,
                       .zero = 128};
}

NW_INLINE void open_tile(const nw_tile *t, const nw_groups *g, place *p, __m512 *y, const form f)
{
    const nw_act_kind kind = f.np == 1 ? NW_ACT_INT8 : NW_ACT_INT16;

    *p = (place){.steps = g->steps,
                 .cols = g->cols,
                 .zero = g->zero,
                 .min = g->min,
                 .low = nw_act_cols(t->n_cols),
                 .next = t->next,
                 .ahead = t->ahead};
    NW_EACH(v, f.nv) {
        p->w[v] = t->w + v * t->w_stride + g->first + g->codes_at;
    }
    NW_EACH(m, f.mr) {
        p->a[m] = t->a + m * t->a_stride + nw_act_codes_at(kind, t->n_cols);
        p->sums[m] = t->a + m * t->a_stride + nw_act_sums_at(kind, t->n_cols) +
                     nw_act_level_at(t->n_cols, g->cols);
    }
    NW_EACH(i, n_sums(f)) {
        y[i] = _mm512_setzero_ps();
    }
}

/* Before group i, at column `col`: the scales of the next chunk, those of 16-bit activations, and the
 * steps that are left of a row that ends within a group. */
NW_INLINE void load_scales(const nw_tile *t, const nw_groups *g, uint32_t i, uint32_t col,
                           nw_chunk *chunk, place *p, const form f)
{
    if (i % NW_CHUNK == 0 && f.k != ROW) {
        const uint32_t n = g->n_groups - i < NW_CHUNK ? g->n_groups - i : NW_CHUNK;
        NW_EACH(v, f.nv) {
            nw_x86_scales(t->type, g, t->w + v * t->w_stride, i, n, &chunk[v]);
        }
    }
    if (f.np == 2) {
        NW_EACH(m, f.mr) {
            memcpy(&p->scale[m], t->a + m * t->a_stride + col / NW_ACT_COLS * sizeof(float),
                   sizeof(float));
        }
    }
    if (f.k == ROW && t->n_cols - col < NW_ACT_COLS) {
        p->steps = (t->n_cols - col + 3) / 4;
    }
}

NW_INLINE void tile(const nw_tile *t, const form f)
{
    const nw_groups g = groups_of(t, f.k);
    const uint32_t n_groups = g.n_groups;
    const uint32_t per_block = g.per_block;
    const size_t scales = g.codes_at;
    nw_chunk chunk[4];
    __m512 y[24];
    place p;

    open_tile(t, &g, &p, y, f);
    for (uint32_t i = 0; i < n_groups; i++) {
        load_scales(t, &g, i, i * p.cols, chunk, &p, f);
        add_group(&p, chunk, i % NW_CHUNK, y, f);
        advance(&p, (i + 1) % per_block == 0 ? scales : 0, f);
    }
    finish(t, y, f);
}

/* ---- tiles ---- */

NW_INLINE void tokens(const nw_tile *t, const codes k, const unsigned np, const unsigned nv,
                      unsigned mr)
{
    switch (mr) {
    case 1:
        tile(t, (form){k, nv, 1, np});
        return;
    case 2:
        tile(t, (form){k, nv, 2, np});
        return;
    case 3:
        tile(t, (form){k, nv, 3, np});
        return;
    case 4:
        tile(t, (form){k, nv, 4, np});
        return;
    case 5:
        tile(t, (form){k, nv, 5, np});
        return;
    default:
        tile(t, (form){k, nv, 6, np});
        return;
    }
}

/* 24 sums at most: 4 panels x 6 tokens x 1 byte, or 2 x 6 x 2. */
NW_INLINE void panels(const nw_tile *t, const codes k, const unsigned np, unsigned mr)
{
    if (t->n_panels == 4 && np == 1) {
        tokens(t, k, np, 4, mr);
    } else if (t->n_panels == 4) {
        tile(t, (form){k, 4, 1, np}); /* bytes */
    } else if (t->n_panels == 2) {
        tokens(t, k, np, 2, mr);
    } else if (mr == 1) {
        tile(t, (form){k, 1, 1, np});
    } else if (mr == 2) {
        tile(t, (form){k, 1, 2, np});
    } else {
        tile(t, (form){k, 1, 3, np});
    }
}

static void bytes_a8(const nw_tile *t, unsigned mr)
{
    panels(t, BYTE, 1, mr);
}

static void bytes_a16(const nw_tile *t, unsigned mr)
{
    panels(t, BYTE, 2, mr);
}

static void int4_a8(const nw_tile *t, unsigned mr)
{
    panels(t, INT, 1, mr);
}

static void int4_a16(const nw_tile *t, unsigned mr)
{
    panels(t, INT, 2, mr);
}

static void rows_a16(const nw_tile *t, unsigned mr)
{
    panels(t, ROW, 2, mr);
}

/* One token, one panel of int8 rows x INT16: one stream (docs/speed.md). */
void nw_avx512_row_a16_one(const nw_tile *t, unsigned mr)
{
    const size_t low = nw_act_cols(t->n_cols);
    const uint8_t *a = t->a + nw_act_codes_at(NW_ACT_INT16, t->n_cols);
    const uint8_t *sums =
        t->a + nw_act_sums_at(NW_ACT_INT16, t->n_cols) + nw_act_level_at(t->n_cols, NW_ACT_COLS);
    const uint8_t *w = t->w + 64;
    __m512 y = _mm512_setzero_ps();

    (void)mr;
    for (uint32_t col = 0; col < t->n_cols; col += NW_ACT_COLS) {
        const uint32_t left = t->n_cols - col;
        const uint32_t n = left < NW_ACT_COLS ? (left + 3) / 4 : NW_ACT_COLS / 4;
        const __m512 scale =
            _mm512_castsi512_ps(nw_spread(t->a + col / NW_ACT_COLS * sizeof(float)));
        const __m512i sum = nw_spread(sums + col / NW_ACT_COLS * sizeof(int32_t));
        __m512i c = _mm512_setzero_si512();
        __m512i d = _mm512_mullo_epi32(sum, _mm512_set1_epi32(-128));
        nw_ask_far(w, t->far, NW_ACT_COLS / 4);
        for (uint32_t j = 0; j < n; j++, w += 64, a += 4) {
            const __m512i x = _mm512_loadu_si512(w);
            c = nw_dpbusd_at(c, x, a);
            d = nw_dpbusd_at(d, x, a + low);
        }
        const __m512 x = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(c, 8), d));
        y = _mm512_add_ps(_mm512_mul_ps(x, scale), y);
    }
    nw_store_rows(t->y, nw_rows_left(t, 0), _mm512_mul_ps(y, _mm512_loadu_ps(t->w)));
}

void nw_avx512_linear_group_a8(const nw_weight *w, const nw_act *a, uint32_t panel0,
                               uint32_t panel1, float *y, size_t ldy)
{
    static const nw_tile_width widths[NW_PANEL_KINDS][3] = {
        [NW_PANEL_INT8] = {{4, 6, bytes_a8}, {2, 6, bytes_a8}, {1, 3, bytes_a8}},
        [NW_PANEL_INT4] = {{4, 6, int4_a8}, {2, 6, int4_a8}, {1, 3, int4_a8}}};
    const nw_tile_width *k = widths[w->type.kind];
    /* one token: see prefetch() */
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, w->type.kind == NW_PANEL_INT8 ? k : k + 2, k);
}

void nw_avx512_linear_int_a16(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y, size_t ldy)
{
    static const nw_tile_width widths[NW_PANEL_KINDS][3] = {
        [NW_PANEL_INT8] = {{4, 1, bytes_a16}, {2, 6, bytes_a16}, {1, 3, bytes_a16}},
        [NW_PANEL_INT4] = {{1, 1, int4_a16}, {2, 6, int4_a16}, {1, 3, int4_a16}}};
    static const nw_tile_width rows[4] = {
        {4, 1, rows_a16}, {2, 6, rows_a16}, {1, 3, rows_a16}, {1, 1, nw_avx512_row_a16_one}};
    const nw_tile_width *k = nw_has_groups(w->type) ? widths[w->type.kind] : rows;
    const bool alone = k == rows && nw_one_stream(a);
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, alone ? k + 3 : k, k + 1);
}
