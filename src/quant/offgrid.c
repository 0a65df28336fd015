/* Channel rescaling that keeps the function: see offgrid.h. All factors are drawn when the object
 * is made; applying them is a product of a row factor and a column factor in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/offgrid.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/rng.h"

/* ln 1.25: factors are exp(uniform(-, +)) */
#define LOG_RANGE 0.22314355131420976

typedef struct {
    double *attn; /* s of the norm before attention  [d_model] */
    double *ffn;  /* s of the norm before the FFN    [d_model] */
    double *up;   /* t                               [d_ff] */
    double *v;    /* u                               [n_kv_heads * d_head] */
} layer_factors;

struct nw_offgrid {
    nw_arena arena;
    const nw_model_config *config; /* copy in the arena */
    layer_factors *layers;
    double *out; /* s of the last norm [d_model]; NULL when the head is tied */
};

/* Place of a factor list inside a layer: part of the stream's key, so that no list depends on
 * which other lists a model has. */
enum { PLACE_ATTN, PLACE_FFN, PLACE_UP, PLACE_V, PLACE_OUT, N_PLACES };

static double *draw(nw_offgrid *g, uint64_t seed, uint64_t layer, unsigned place, size_t n)
{
    double *f = nw_arena_array(&g->arena, n, sizeof *f);
    nw_rng rng = nw_rng_stream(seed, layer * N_PLACES + place);

    for (size_t i = 0; f != NULL && i < n; i++) {
        f[i] = exp(LOG_RANGE * (2 * nw_rng_unit(&rng) - 1));
    }
    return f;
}

nw_status nw_offgrid_new(const nw_model_config *config, uint64_t seed, nw_offgrid **out,
                         nw_error *err)
{
    nw_offgrid *g = calloc(1, sizeof *g);
    nw_model_config *copy = NULL;
    bool ok = g != NULL;

    *out = g;
    if (ok) {
        copy = nw_arena_alloc(&g->arena, sizeof *copy);
        g->layers = nw_arena_array(&g->arena, config->n_layers, sizeof *g->layers);
        ok = copy != NULL && g->layers != NULL;
    }
    for (uint32_t l = 0; ok && l < config->n_layers; l++) {
        layer_factors *f = &g->layers[l];
        f->attn = draw(g, seed, l, PLACE_ATTN, config->d_model);
        f->ffn = draw(g, seed, l, PLACE_FFN, config->d_model);
        f->up = draw(g, seed, l, PLACE_UP, config->d_ff);
        f->v = draw(g, seed, l, PLACE_V, (size_t)config->n_kv_heads * config->d_head);
        ok = f->attn != NULL && f->ffn != NULL && f->up != NULL && f->v != NULL;
    }
    if (ok && !config->tied) {
        g->out = draw(g, seed, config->n_layers, PLACE_OUT, config->d_model);
        ok = g->out != NULL;
    }
    if (!ok) {
        nw_offgrid_free(g);
        *out = NULL;
        return nw_fail(err, NW_E_NOMEM, "no memory for the factors of %u layers",
                       (unsigned)config->n_layers);
    }
    *copy = *config;
    g->config = copy;
    return NW_OK;
}

void nw_offgrid_free(nw_offgrid *g)
{
    if (g != NULL) {
        nw_arena_release(&g->arena);
        free(g);
    }
}

/* What multiplies (or divides) rows and columns of a tensor; NULL: nothing does. */
typedef struct {
    const double *gain_div; /* norm gains, by column */
    const double *row_mul;
    const double *col_mul;
    const double *col_div;
    bool o_heads; /* col_div is indexed through the query head's key-value head */
} factors;

static factors factors_of(const nw_offgrid *g, const nw_ckpt_tensor *t)
{
    const layer_factors *f = t->layer >= 0 ? &g->layers[t->layer] : NULL;

    switch (t->role) {
    case NW_ROLE_OUT_NORM:
        return (factors){.gain_div = g->out};
    case NW_ROLE_HEAD:
        return (factors){.col_mul = g->out};
    case NW_ROLE_ATTN_NORM:
        return (factors){.gain_div = f->attn};
    case NW_ROLE_Q:
    case NW_ROLE_K:
        return (factors){.col_mul = f->attn};
    case NW_ROLE_V:
        return (factors){.row_mul = f->v, .col_mul = f->attn};
    case NW_ROLE_O:
        return (factors){.col_div = f->v, .o_heads = true};
    case NW_ROLE_FFN_NORM:
        return (factors){.gain_div = f->ffn};
    case NW_ROLE_GATE:
        return (factors){.col_mul = f->ffn};
    case NW_ROLE_UP:
        return (factors){.row_mul = f->up, .col_mul = f->ffn};
    case NW_ROLE_DOWN:
        return (factors){.col_div = f->up};
    case NW_ROLE_EMBED:
    case NW_ROLE_Q_NORM:
    case NW_ROLE_K_NORM:
    case NW_ROLE_POST_ATTN_NORM:
    case NW_ROLE_POST_FFN_NORM:
    case NW_ROLE_COUNT:
        break;
    }
    return (factors){0};
}

/* Channel of v that column `col` of o reads: query head h shares key-value head h / (heads per
 * key-value head). */
static size_t v_channel(const nw_model_config *c, size_t col)
{
    const size_t head = col / c->d_head;
    const size_t per_kv = c->n_heads / c->n_kv_heads;

    return head / per_kv * c->d_head + col % c->d_head;
}

void nw_offgrid_apply(const nw_offgrid *g, const nw_ckpt_tensor *t, uint32_t row0, uint32_t n_rows,
                      float *rows)
{
    const factors f = factors_of(g, t);
    const double one = g->config->norm_plus_one ? 1 : 0;

    for (uint32_t r = 0; r < n_rows; r++) {
        float *w = rows + (size_t)r * t->n_cols;
        const double row = f.row_mul != NULL ? f.row_mul[row0 + r] : 1;
        for (uint32_t k = 0; k < t->n_cols; k++) {
            double x = (double)w[k] * row;
            if (f.gain_div != NULL) {
                x = (x + one) / f.gain_div[k] - one;
            } else if (f.col_mul != NULL) {
                x *= f.col_mul[k];
            } else if (f.col_div != NULL) {
                x /= f.col_div[f.o_heads ? v_channel(g->config, k) : k];
            }
            w[k] = (float)x;
        }
    }
}
