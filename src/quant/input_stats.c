/* Sums over activations: see input_stats.h. The products are OpenBLAS's, one thread a tile; a tile's
 * bits depend on its shape and the tokens alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/input_stats.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "formats/half.h"

#define TILE 192u /* channels of a tile of x x^T: two of 512 tokens fit a cache of 1 MiB */

static const struct {
    const char *name;
    nw_role first; /* whose columns it has */
} inputs[NW_INPUT_COUNT] = {
    [NW_INPUT_ATTN] = {"attn_in", NW_ROLE_Q},    [NW_INPUT_O] = {"o_in", NW_ROLE_O},
    [NW_INPUT_FFN] = {"ffn_in", NW_ROLE_GATE},   [NW_INPUT_DOWN] = {"down_in", NW_ROLE_DOWN},
    [NW_INPUT_HEAD] = {"head_in", NW_ROLE_HEAD},
};

const char *nw_input_name(nw_input input)
{
    return inputs[input].name;
}

uint32_t nw_input_cols(const nw_model_config *c, nw_input input)
{
    uint32_t rows = 0;
    uint32_t cols = 0;

    nw_role_shape(c, inputs[input].first, &rows, &cols);
    return cols;
}

bool nw_input_of_role(nw_role role, bool tied, nw_input *out)
{
    static const struct {
        nw_role role;
        nw_input input;
    } readers[] = {{NW_ROLE_Q, NW_INPUT_ATTN},    {NW_ROLE_K, NW_INPUT_ATTN},
                   {NW_ROLE_V, NW_INPUT_ATTN},    {NW_ROLE_O, NW_INPUT_O},
                   {NW_ROLE_GATE, NW_INPUT_FFN},  {NW_ROLE_UP, NW_INPUT_FFN},
                   {NW_ROLE_DOWN, NW_INPUT_DOWN}, {NW_ROLE_HEAD, NW_INPUT_HEAD}};

    if (role == NW_ROLE_EMBED && tied) {
        *out = NW_INPUT_HEAD;
        return true;
    }
    for (size_t i = 0; i < NW_COUNT(readers); i++) {
        if (readers[i].role == role) {
            *out = readers[i].input;
            return true;
        }
    }
    return false;
}

nw_status nw_input_stats_init(nw_input_stats *s, uint32_t n_cols, nw_error *err)
{
    *s = (nw_input_stats){.n_cols = n_cols};
    s->absmax = calloc(n_cols, sizeof *s->absmax);
    s->mean_abs = calloc(n_cols, sizeof *s->mean_abs);
    s->mean_sq = calloc(n_cols, sizeof *s->mean_sq);
    s->moments = calloc(n_cols, n_cols * sizeof *s->moments);
    if (s->absmax == NULL || s->mean_abs == NULL || s->mean_sq == NULL || s->moments == NULL) {
        nw_input_stats_release(s);
        return nw_fail(err, NW_E_NOMEM, "no memory for the statistics of %u channels", n_cols);
    }
    return NW_OK;
}

void nw_input_stats_release(nw_input_stats *s)
{
    free(s->absmax);
    free(s->mean_abs);
    free(s->mean_sq);
    free(s->moments);
    *s = (nw_input_stats){0};
}

typedef struct {
    nw_input_stats *s;
    const float *x;
    uint32_t n_tokens, n_tiles;
} add_job;

static uint32_t tile_end(const nw_input_stats *s, uint32_t tile)
{
    const uint32_t end = (tile + 1) * TILE;
    return end < s->n_cols ? end : s->n_cols;
}

static void add_channels(const add_job *j, uint32_t c0, uint32_t c1)
{
    nw_input_stats *s = j->s;

    for (uint32_t t = 0; t < j->n_tokens; t++) {
        const float *x = j->x + (size_t)t * s->n_cols;
        for (uint32_t c = c0; c < c1; c++) {
            const float a = fabsf(x[c]);
            s->absmax[c] = a > s->absmax[c] ? a : s->absmax[c];
            s->mean_abs[c] += a;
        }
    }
}

/* Item: a pair of tiles (i, k >= i), in the order (0,0) (0,1) (1,1) (0,2) ... */
static void add_tile(void *ctx, size_t item, unsigned worker)
{
    const add_job *j = ctx;
    nw_input_stats *s = j->s;
    uint32_t k = 0;
    (void)worker;

    while (item > k) {
        item -= k + 1;
        k++;
    }
    const uint32_t c0 = (uint32_t)item * TILE;
    const uint32_t c1 = tile_end(s, (uint32_t)item);
    const uint32_t d0 = k * TILE;
    const uint32_t d1 = tile_end(s, k);
    if (item == k) {
        add_channels(j, c0, c1);
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(c1 - c0), (int)(d1 - d0),
                (int)j->n_tokens, 1.0F, j->x + c0, (int)s->n_cols, j->x + d0, (int)s->n_cols, 1.0F,
                s->moments + (size_t)c0 * s->n_cols + d0, (int)s->n_cols);
}

static nw_status check_finite(const float *x, uint32_t n_tokens, uint32_t n_cols, nw_error *err)
{
    for (size_t i = 0; i < (size_t)n_tokens * n_cols; i++) {
        if (!isfinite(x[i])) {
            return nw_fail(err, NW_E_FORMAT,
                           "an activation is not finite: channel %zu of token %zu of the sample",
                           i % n_cols, i / n_cols);
        }
    }
    return NW_OK;
}

nw_status nw_input_stats_add(nw_input_stats *s, nw_pool *pool, const float *x, uint32_t n_tokens,
                             nw_error *err)
{
    const uint32_t n_tiles = (s->n_cols + TILE - 1) / TILE;
    add_job j = {.s = s, .x = x, .n_tokens = n_tokens, .n_tiles = n_tiles};

    if (check_finite(x, n_tokens, s->n_cols, err) != NW_OK) {
        return err->code;
    }
    openblas_set_num_threads(1);
    nw_pool_run(pool, (size_t)n_tiles * (n_tiles + 1) / 2, add_tile, &j);
    s->n_tokens += n_tokens;
    return NW_OK;
}

void nw_input_stats_finish(nw_input_stats *s)
{
    const size_t n = s->n_cols;
    const double scale = 1 / (double)(s->n_tokens > 0 ? s->n_tokens : 1);

    for (size_t i = 0; i < n; i++) {
        s->mean_abs[i] = (float)((double)s->mean_abs[i] * scale);
        for (size_t k = i; k < n; k++) {
            const float v = (float)((double)s->moments[i * n + k] * scale);
            s->moments[i * n + k] = s->moments[k * n + i] = v;
        }
        s->mean_sq[i] = s->moments[i * n + i];
    }
}

static nw_status check_channel(const nw_input_stats *s, uint32_t c, const char *name, nw_error *err)
{
    const float sq = s->mean_sq[c];
    const float max = s->absmax[c];

    if (!isfinite(sq) || !isfinite(max) || !isfinite(s->mean_abs[c])) {
        return nw_fail(err, NW_E_FORMAT, "statistics of %s: channel %u is not finite", name, c);
    }
    /* a mean cannot exceed the largest; rounding of the sums stays far below 1 % */
    if (sq < 0 || max < 0 || s->mean_abs[c] < 0 || sq > 1.01F * max * max ||
        nw_f32_bits(sq) != nw_f32_bits(s->moments[(size_t)c * s->n_cols + c])) {
        return nw_fail(err, NW_E_FORMAT,
                       "statistics of %s: channel %u has mean square %g and largest %g", name, c,
                       (double)sq, (double)max);
    }
    return NW_OK;
}

nw_status nw_input_stats_check(const nw_input_stats *s, const char *name, nw_error *err)
{
    const size_t n = s->n_cols;

    if (s->n_tokens == 0) {
        return nw_fail(err, NW_E_FORMAT, "statistics of %s: no token was seen", name);
    }
    for (uint32_t c = 0; c < s->n_cols; c++) {
        if (check_channel(s, c, name, err) != NW_OK) {
            return err->code;
        }
    }
    for (size_t i = 0; i < n * n; i++) {
        if (!isfinite(s->moments[i])) {
            return nw_fail(err, NW_E_FORMAT,
                           "statistics of %s: the moment of channels %zu and %zu is not finite",
                           name, i / n, i % n);
        }
    }
    return NW_OK;
}

uint32_t nw_input_stats_live(const nw_input_stats *s)
{
    uint32_t live = 0;

    for (uint32_t c = 0; c < s->n_cols; c++) {
        live += s->absmax[c] > 0;
    }
    return live;
}
