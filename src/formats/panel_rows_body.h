/* The body of panel_rows.h for the instruction set that the including file is compiled for; that file
 * defines NW_ROWS, the table's name.
 *
 * A panel is decoded in chunks of columns, rows in lanes as they lie there, into a tile [column][16]
 * that is then turned into rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/panel_parts.h"
#include "formats/panel_rows.h"
#include "formats/vec.h"

#define LANES     16u
#define MOST_COLS 128u /* of a chunk: the largest group */

/* Some columns of a panel, from the first of a group on, n of them; scale, min and zero of the lanes. */
typedef struct {
    const uint8_t *codes;
    uint32_t n;
    float scale[LANES], min[LANES], zero[LANES];
} chunk;

static void put(float *tile, uint32_t c, uint32_t r0, nw_vec v)
{
    nw_vec_store(tile + (size_t)c * LANES + r0, v);
}

/* scale * (code - zero) [+ min], NW_VEC rows from r0 on. */
typedef struct {
    nw_vec scale, min, zero;
    bool has_min;
} lanes;

NW_VEC_INLINE nw_vec value_of(const lanes *l, nw_vec_u code)
{
    nw_vec w = l->scale * (nw_vec_from_whole(code) - l->zero);

    if (l->has_min) {
        w += l->min;
    }
    return w;
}

static void tile_int4(const chunk *k, const lanes *l, uint32_t r0, float *tile)
{
    const uint32_t quads = k->n / 8;

    for (uint32_t j = 0; j < quads; j++) {
        const nw_vec_u bytes = nw_vec_load_u(k->codes + (size_t)j * 64 + (size_t)r0 * 4);
        for (uint32_t t = 0; t < 4; t++) {
            put(tile, 4 * j + t, r0, value_of(l, bytes >> (8 * t) & 15U));
            put(tile, 4 * (j + quads) + t, r0, value_of(l, bytes >> (8 * t + 4) & 15U));
        }
    }
}

static void tile_int8(const chunk *k, const lanes *l, uint32_t r0, float *tile)
{
    for (uint32_t j = 0; 4 * j < k->n; j++) {
        const nw_vec_u bytes = nw_vec_load_u(k->codes + (size_t)j * 64 + (size_t)r0 * 4);
        for (uint32_t t = 0; t < 4; t++) {
            put(tile, 4 * j + t, r0, value_of(l, (bytes >> (8 * t) & 0xFFU) - 128U));
        }
    }
}

static void tile_bf16(const chunk *k, uint32_t r0, float *tile)
{
    for (uint32_t j = 0; 2 * j < k->n; j++) {
        const nw_vec_u pair = nw_vec_load_u(k->codes + (size_t)j * 64 + (size_t)r0 * 4);
        put(tile, 2 * j, r0, (nw_vec)(pair << 16));
        put(tile, 2 * j + 1, r0, (nw_vec)(pair & 0xFFFF0000U));
    }
}

/* Scale, minimum and zero point of group g of integers. */
static void read_group(const nw_panel_rows *p, uint32_t g, chunk *k)
{
    for (uint32_t r = 0; r < LANES; r++) {
        const nw_panel_row row = {.type = p->type, .panel = p->panel, .n_cols = p->n_cols, .r = r};
        const nw_panel_group group = nw_panel_int_group(&row, g);
        k->codes = group.codes;
        k->scale[r] = group.scale;
        k->min[r] = group.min;
        k->zero[r] = (float)group.zero;
    }
}

static void fill_tile(const nw_panel_rows *p, const chunk *k, float *tile)
{
    for (uint32_t r0 = 0; r0 < LANES; r0 += NW_VEC) {
        const lanes l = {.scale = nw_vec_load(k->scale + r0),
                         .min = nw_vec_load(k->min + r0),
                         .zero = nw_vec_load(k->zero + r0),
                         .has_min = p->type.min};
        if (p->type.kind == NW_PANEL_INT4) {
            tile_int4(k, &l, r0, tile);
        } else if (p->type.kind == NW_PANEL_INT8) {
            tile_int8(k, &l, r0, tile);
        } else {
            tile_bf16(k, r0, tile);
        }
    }
}

/* n columns of the tile to the rows at out, ld apart. */
static void put_rows(uint32_t all_rows, const float *tile, uint32_t n, float *out, size_t ld)
{
    const uint32_t whole = n / NW_VEC * NW_VEC;

    for (uint32_t r0 = 0; r0 < all_rows; r0 += NW_VEC) {
        const uint32_t n_rows = all_rows - r0 < NW_VEC ? all_rows - r0 : NW_VEC;
        for (uint32_t c = 0; c < whole; c += NW_VEC) {
            nw_vec v[NW_VEC];
            for (uint32_t i = 0; i < NW_VEC; i++) {
                v[i] = nw_vec_load(tile + (size_t)(c + i) * LANES + r0);
            }
            nw_vec_transpose(v);
            for (uint32_t i = 0; i < n_rows; i++) {
                nw_vec_store(out + (r0 + i) * ld + c, v[i]);
            }
        }
    }
    for (uint32_t r = 0; r < all_rows; r++) {
        for (uint32_t c = whole; c < n; c++) {
            out[r * ld + c] = tile[(size_t)c * LANES + r];
        }
    }
}

/* The codes of column c0 of a row-scaled or unscaled panel. */
static const uint8_t *codes_at(const nw_panel_rows *p, uint32_t c0)
{
    return p->type.kind == NW_PANEL_INT8 ? p->panel + 64 + (size_t)c0 * LANES
                                         : p->panel + (size_t)c0 * LANES * sizeof(uint16_t);
}

/* Columns of a chunk. */
static uint32_t step_of(nw_panel_type type)
{
    return type.group > 0 ? type.group : MOST_COLS;
}

/* Columns from c0 on, a multiple of the step, into the tile; k keeps a row's scales between chunks.
 * Returns how many there are. */
static uint32_t decode_chunk(const nw_panel_rows *p, uint32_t c0, chunk *k, float *tile)
{
    const uint32_t step = step_of(p->type);
    const uint32_t padded = nw_panel_cols(p->type, p->n_cols);

    k->n = padded - c0 < step ? padded - c0 : step;
    if (p->type.group > 0 || (c0 == 0 && p->type.kind == NW_PANEL_INT8)) {
        read_group(p, c0 / step, k);
    }
    if (p->type.group == 0) {
        k->codes = codes_at(p, c0);
    }
    fill_tile(p, k, tile);
    return p->n_cols - c0 < step ? p->n_cols - c0 : step;
}

static void unpack(const nw_panel_rows *p)
{
    _Alignas(64) float tile[MOST_COLS * LANES];
    const uint32_t step = step_of(p->type);
    chunk k = {0};

    for (uint32_t c0 = 0; c0 < p->n_cols; c0 += step) {
        const uint32_t n = decode_chunk(p, c0, &k, tile);
        put_rows(p->n_rows, tile, n, p->out + c0, p->ld);
    }
}

/* ---- errors ---- */

/* Half as many doubles as a vector has floats. */
typedef float half_vec __attribute__((vector_size(2 * NW_VEC)));
typedef double wide_vec __attribute__((vector_size(4 * NW_VEC)));
typedef int64_t wide_mask __attribute__((vector_size(4 * NW_VEC)));
#define WIDE  (NW_VEC / 2)
#define PARTS (LANES / WIDE)

typedef struct {
    wide_vec sq, out_sq, err_sq, most;
    wide_mask nonzero;
} sums;

NW_VEC_INLINE wide_vec widened(const float *p)
{
    half_vec v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, wide_vec);
}

NW_VEC_INLINE void add_values(sums *s, wide_vec w, wide_vec q)
{
    const wide_vec d = w - q;
    const wide_vec out_sq = q * q;
    const wide_vec size = (wide_vec)((wide_mask)d & INT64_MAX);
    const wide_mask more = size > s->most;

    s->sq += w * w;
    s->out_sq += out_sq;
    s->err_sq += d * d;
    s->most = (wide_vec)(((wide_mask)size & more) | ((wide_mask)s->most & ~more));
    s->nonzero -= (wide_mask)(out_sq > 0);
}

/* The last, fewer than 16 values: zeros beyond them add nothing. */
static void add_rest(sums *s, const float *w, const float *decoded, size_t n)
{
    float a[LANES] = {0};
    float b[LANES] = {0};

    memcpy(a, w, n * sizeof *w);
    memcpy(b, decoded, n * sizeof *decoded);
    for (unsigned i = 0; i < PARTS; i++) {
        add_values(&s[i], widened(a + (size_t)i * WIDE), widened(b + (size_t)i * WIDE));
    }
}

/* n values to the sums of a whole row, or of a part of one that begins at a multiple of 16. */
static void add_row(sums s[PARTS], const float *w, const float *decoded, size_t n)
{
    size_t at = 0;

    for (; at + LANES <= n; at += LANES) {
        for (unsigned i = 0; i < PARTS; i++) {
            add_values(&s[i], widened(w + at + (size_t)i * WIDE),
                       widened(decoded + at + (size_t)i * WIDE));
        }
    }
    if (at < n) {
        add_rest(s, w + at, decoded + at, n - at);
    }
}

static nw_row_error total(const sums s[PARTS])
{
    nw_row_error e = {0};

    for (unsigned i = 0; i < LANES; i++) {
        const sums *p = &s[i / WIDE];
        e.sum_sq += p->sq[i % WIDE];
        e.sum_out_sq += p->out_sq[i % WIDE];
        e.sum_err_sq += p->err_sq[i % WIDE];
        e.max_abs_err = p->most[i % WIDE] > e.max_abs_err ? p->most[i % WIDE] : e.max_abs_err;
        e.n_nonzero += (uint64_t)p->nonzero[i % WIDE];
    }
    return e;
}

static nw_row_error error_of(const float *w, const float *decoded, size_t n)
{
    sums s[PARTS] = {0};

    add_row(s, w, decoded, n);
    return total(s);
}

/* The values of a tile, of which rows past n_rows do not count. */
static void add_tile(sums s[PARTS], float *tile, uint32_t n, uint32_t n_rows)
{
    for (uint32_t c = 0; n_rows < LANES && c < n; c++) {
        memset(tile + (size_t)c * LANES + n_rows, 0, (LANES - n_rows) * sizeof *tile);
    }
    for (size_t at = 0; at < (size_t)n * LANES; at += LANES) {
        for (unsigned i = 0; i < PARTS; i++) {
            const wide_vec q = widened(tile + at + (size_t)i * WIDE);
            const wide_vec out_sq = q * q;
            s[i].out_sq += out_sq;
            s[i].nonzero -= (wide_mask)(out_sq > 0);
        }
    }
}

static nw_row_error panel_error(const nw_panel_rows *p, const float *w)
{
    _Alignas(64) float tile[MOST_COLS * LANES];
    _Alignas(64) float rows[MOST_COLS * LANES];
    const uint32_t step = step_of(p->type);
    sums s[PARTS] = {0};
    chunk k = {0};

    for (uint32_t c0 = 0; c0 < p->n_cols; c0 += step) {
        const uint32_t n = decode_chunk(p, c0, &k, tile);
        if (w == NULL) {
            add_tile(s, tile, n, p->n_rows);
            continue;
        }
        put_rows(p->n_rows, tile, n, rows, MOST_COLS);
        for (uint32_t r = 0; r < p->n_rows; r++) {
            add_row(s, w + r * p->ld + c0, rows + (size_t)r * MOST_COLS, n);
        }
    }
    return total(s);
}

static bool is_finite(const float *w, size_t n)
{
    nw_vec_i bad = {0};
    size_t at = 0;

    for (; at + NW_VEC <= n; at += NW_VEC) {
        bad |= ((nw_vec_i)nw_vec_load(w + at) & 0x7F800000) == 0x7F800000;
    }
    int32_t any = 0;
    for (unsigned i = 0; i < NW_VEC; i++) {
        any |= bad[i];
    }
    for (; at < n; at++) {
        any |= (nw_f32_bits(w[at]) & 0x7F800000U) == 0x7F800000U;
    }
    return any == 0;
}

const nw_rows_fns NW_ROWS = {
    .unpack = unpack, .error = error_of, .panel_error = panel_error, .is_finite = is_finite};
