/* The body of panel_rows.h for the instruction set that the including file is compiled for; that file
 * defines NW_ROWS, the table's name.
 *
 * A panel is decoded in chunks of columns, rows in lanes as they lie there, into a tile [column][16]
 * that is then turned into rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/panel_parts.h"
#include "formats/panel_rows.h"
#include "formats/vec.h"

#define LANES       16u
#define MOST_COLS   128u              /* of a chunk: the largest group */
#define MOST_VALUES ((size_t)1 << 24) /* that are added up between two looks at 32-bit counts */

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
    const nw_panel_int_parts parts = nw_panel_int_parts_of(p->type, p->panel, g);

    k->codes = parts.codes;
    if (parts.scale == NULL) { /* one float a row */
        memcpy(k->scale, p->panel, sizeof k->scale);
        return;
    }
    for (uint32_t r0 = 0; r0 < LANES; r0 += NW_VEC) {
        nw_vec_store(k->scale + r0, nw_vec_from_f16(parts.scale + r0 * sizeof(uint16_t)));
        if (parts.min != NULL) {
            nw_vec_store(k->min + r0, nw_vec_from_f16(parts.min + r0 * sizeof(uint16_t)));
        }
    }
    for (uint32_t r = 0; r < LANES; r++) {
        k->zero[r] = (float)nw_panel_int_zero(p->type, &parts, r);
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
typedef double wide_vec __attribute__((vector_size(4 * NW_VEC)));
typedef int64_t wide_mask __attribute__((vector_size(4 * NW_VEC)));
#define WIDE   (NW_VEC / 2)
#define STRIPS (LANES / NW_VEC)

/* Of NW_VEC neighbouring sums of the sixteen; those of a strip stay in registers over all its values. */
typedef struct {
    wide_vec sq[2], out_sq[2], err_sq[2], most[2];
    uint64_t n_nonzero;
} strip;

/* The first half of the lanes, or the second. */
NW_VEC_INLINE wide_vec widened(nw_vec v, unsigned half)
{
#if defined(__AVX512F__)
    return _mm512_cvtps_pd(half == 0 ? _mm512_castps512_ps256(v) : _mm512_extractf32x8_ps(v, 1));
#elif defined(__AVX2__)
    return _mm256_cvtps_pd(half == 0 ? _mm256_castps256_ps128(v) : _mm256_extractf128_ps(v, 1));
#else
    return (wide_vec){v[2 * half], v[2 * half + 1]};
#endif
}

/* a > b ? a : b */
NW_VEC_INLINE wide_vec greater(wide_vec a, wide_vec b)
{
#if defined(__AVX512F__)
    return _mm512_max_pd(a, b);
#elif defined(__AVX2__)
    return _mm256_max_pd(a, b);
#else
    const wide_mask more = a > b;
    return (wide_vec)(((wide_mask)a & more) | ((wide_mask)b & ~more));
#endif
}

/* sum + x * x for x that was a float: its square has 48 bits, so that rounding once or twice is the
 * same. */
NW_VEC_INLINE wide_vec add_square(wide_vec sum, wide_vec x)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_pd(x, x, sum);
#elif defined(__AVX2__)
    return _mm256_fmadd_pd(x, x, sum);
#else
    return sum + x * x;
#endif
}

/* Not NaN, and not zero: a count a lane goes down. */
NW_VEC_INLINE void count_nonzero(nw_vec_i *less, nw_vec q)
{
    *less += (q > 0) | (q < 0);
}

NW_VEC_INLINE void add_values(strip *s, nw_vec_i *less, nw_vec w, nw_vec q)
{
    count_nonzero(less, q);
    for (unsigned i = 0; i < 2; i++) {
        const wide_vec from = widened(w, i);
        const wide_vec to = widened(q, i);
        const wide_vec d = from - to;
        s->sq[i] = add_square(s->sq[i], from);
        s->out_sq[i] = add_square(s->out_sq[i], to);
        s->err_sq[i] += d * d;
        s->most[i] = greater((wide_vec)((wide_mask)d & INT64_MAX), s->most[i]);
    }
}

static uint64_t sum_of(nw_vec_i less)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < NW_VEC; i++) {
        n += (uint64_t) - (int64_t)less[i];
    }
    return n;
}

/* Values and what they became, rows of n; rows before the first of a piece were multiples of 16. */
typedef struct {
    const float *w, *decoded;
    size_t w_ld, decoded_ld, n;
    uint32_t n_rows;
    float last[2][LANES]
              [LANES]; /* the last, fewer than 16 values of each row, and zeros: they add nothing */
} piece;

static void fill_last(piece *p)
{
    const size_t whole = p->n / LANES * LANES;
    const size_t n_bytes = (p->n - whole) * sizeof(float);

    for (uint32_t r = 0; n_bytes > 0 && r < p->n_rows; r++) {
        memset(p->last[0][r], 0, sizeof p->last[0][r]);
        memset(p->last[1][r], 0, sizeof p->last[1][r]);
        memcpy(p->last[0][r], p->w + r * p->w_ld + whole, n_bytes);
        memcpy(p->last[1][r], p->decoded + r * p->decoded_ld + whole, n_bytes);
    }
}

/* One strip of a piece, which has fewer than 2^31 values. */
static void add_strip(strip *sums, const piece *p, uint32_t lane0)
{
    strip s = *sums;
    nw_vec_i less = {0};
    const size_t whole = p->n / LANES * LANES;

    for (uint32_t r = 0; r < p->n_rows; r++) {
        const float *w = p->w + r * p->w_ld + lane0;
        const float *q = p->decoded + r * p->decoded_ld + lane0;
        for (size_t at = 0; at < whole; at += LANES) {
            add_values(&s, &less, nw_vec_load(w + at), nw_vec_load(q + at));
        }
        if (whole < p->n) {
            add_values(&s, &less, nw_vec_load(p->last[0][r] + lane0),
                       nw_vec_load(p->last[1][r] + lane0));
        }
    }
    s.n_nonzero += sum_of(less);
    *sums = s;
}

static void add_piece(strip s[STRIPS], piece *p)
{
    fill_last(p);
    for (uint32_t i = 0; i < STRIPS; i++) {
        add_strip(&s[i], p, i * NW_VEC);
    }
}

static nw_row_error total(const strip s[STRIPS])
{
    nw_row_error e = {0};

    for (unsigned i = 0; i < LANES; i++) {
        const strip *p = &s[i / NW_VEC];
        const unsigned half = i % NW_VEC / WIDE;
        const unsigned at = i % WIDE;
        e.sum_sq += p->sq[half][at];
        e.sum_out_sq += p->out_sq[half][at];
        e.sum_err_sq += p->err_sq[half][at];
        e.max_abs_err = p->most[half][at] > e.max_abs_err ? p->most[half][at] : e.max_abs_err;
    }
    for (unsigned i = 0; i < STRIPS; i++) {
        e.n_nonzero += s[i].n_nonzero;
    }
    return e;
}

static nw_row_error error_of(const float *w, const float *decoded, size_t n)
{
    strip s[STRIPS] = {0};
    piece p = {.n_rows = 1};

    for (size_t at = 0; at < n; at += p.n) {
        p.w = w + at;
        p.decoded = decoded + at;
        p.n = n - at < MOST_VALUES ? n - at : MOST_VALUES;
        add_piece(s, &p);
    }
    return total(s);
}

/* The values of a tile, of which rows past n_rows do not count. */
static void add_tile(strip sums[STRIPS], float *tile, uint32_t n, uint32_t n_rows)
{
    for (uint32_t c = 0; n_rows < LANES && c < n; c++) {
        memset(tile + (size_t)c * LANES + n_rows, 0, (LANES - n_rows) * sizeof *tile);
    }
    for (unsigned i = 0; i < STRIPS; i++) {
        strip s = sums[i];
        nw_vec_i less = {0};
        for (uint32_t c = 0; c < n; c++) {
            const nw_vec q = nw_vec_load(tile + (size_t)c * LANES + (size_t)i * NW_VEC);
            count_nonzero(&less, q);
            s.out_sq[0] = add_square(s.out_sq[0], widened(q, 0));
            s.out_sq[1] = add_square(s.out_sq[1], widened(q, 1));
        }
        s.n_nonzero += sum_of(less);
        sums[i] = s;
    }
}

static nw_row_error panel_error(const nw_panel_rows *p, const float *w)
{
    _Alignas(64) float tile[MOST_COLS * LANES];
    _Alignas(64) float rows[MOST_COLS * LANES];
    const uint32_t step = step_of(p->type);
    piece part = {.decoded = rows, .w_ld = p->ld, .decoded_ld = MOST_COLS, .n_rows = p->n_rows};
    strip s[STRIPS] = {0};
    chunk k = {0};

    for (uint32_t c0 = 0; c0 < p->n_cols; c0 += step) {
        const uint32_t n = decode_chunk(p, c0, &k, tile);
        if (w == NULL) {
            add_tile(s, tile, n, p->n_rows);
            continue;
        }
        put_rows(p->n_rows, tile, n, rows, MOST_COLS);
        part.w = w + c0;
        part.n = n;
        add_piece(s, &part);
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
