/* Factors of channels on the rows, columns and gains of each role: see transform.h. Products are taken
 * in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/transform.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"

struct nw_transform {
    nw_arena arena;
    nw_model_config config;
    nw_rotation *rotation; /* NULL: none */
    double **factors;      /* [n_layers + 1][NW_PLACE_COUNT], layer -1 first; NULL: all 1 */
};

/* What a place does to the tensors of a role. */
typedef enum { SIDE_GAIN, SIDE_COLS, SIDE_ROWS, SIDE_BIAS } side;

static const struct {
    nw_role role;
    nw_place place;
    side side;
} folds[] = {
    {NW_ROLE_ATTN_NORM, NW_PLACE_ATTN, SIDE_GAIN},
    {NW_ROLE_Q, NW_PLACE_ATTN, SIDE_COLS},
    {NW_ROLE_K, NW_PLACE_ATTN, SIDE_COLS},
    {NW_ROLE_V, NW_PLACE_ATTN, SIDE_COLS},
    {NW_ROLE_V, NW_PLACE_V, SIDE_ROWS},
    {NW_ROLE_V_BIAS, NW_PLACE_V, SIDE_BIAS},
    {NW_ROLE_O, NW_PLACE_V, SIDE_COLS},
    {NW_ROLE_FFN_NORM, NW_PLACE_FFN, SIDE_GAIN},
    {NW_ROLE_GATE, NW_PLACE_FFN, SIDE_COLS},
    {NW_ROLE_UP, NW_PLACE_FFN, SIDE_COLS},
    {NW_ROLE_UP, NW_PLACE_UP, SIDE_ROWS},
    {NW_ROLE_DOWN, NW_PLACE_UP, SIDE_COLS},
    {NW_ROLE_OUT_NORM, NW_PLACE_OUT, SIDE_GAIN},
    {NW_ROLE_HEAD, NW_PLACE_OUT, SIDE_COLS},
};

static const struct {
    const char *name;
    nw_input input;
} places[NW_PLACE_COUNT] = {
    [NW_PLACE_ATTN] = {"attn", NW_INPUT_ATTN}, [NW_PLACE_V] = {"v", NW_INPUT_O},
    [NW_PLACE_FFN] = {"ffn", NW_INPUT_FFN},    [NW_PLACE_UP] = {"up", NW_INPUT_DOWN},
    [NW_PLACE_OUT] = {"out", NW_INPUT_HEAD},
};

const char *nw_place_name(nw_place place)
{
    return places[place].name;
}

nw_input nw_place_input(nw_place place)
{
    return places[place].input;
}

uint32_t nw_place_width(const nw_model_config *c, nw_place place)
{
    return place == NW_PLACE_V ? c->n_kv_heads * c->d_head
                               : nw_input_cols(c, nw_place_input(place));
}

/* Column k of o is of query head h, which shares key-value head h / (heads per key-value head). */
uint32_t nw_place_channel(const nw_model_config *c, nw_place place, uint32_t k)
{
    const uint32_t per_kv = c->n_heads / c->n_kv_heads;

    return place == NW_PLACE_V ? k / c->d_head / per_kv * c->d_head + k % c->d_head : k;
}

bool nw_place_multiplies_maker(nw_place place)
{
    return place == NW_PLACE_V || place == NW_PLACE_UP;
}

nw_status nw_transform_new(const nw_model_config *config, nw_rotation *rotation, nw_transform **out,
                           nw_error *err)
{
    nw_transform *t = calloc(1, sizeof *t);

    *out = NULL;
    if (t != NULL) {
        t->config = *config;
        t->rotation = rotation;
        t->factors = nw_arena_array(&t->arena, ((size_t)config->n_layers + 1) * NW_PLACE_COUNT,
                                    sizeof *t->factors);
    }
    if (t == NULL || t->factors == NULL) {
        free(t);
        nw_rotation_free(rotation);
        return nw_fail(err, NW_E_NOMEM, "no memory for the factors of %u layers",
                       (unsigned)config->n_layers);
    }
    *out = t;
    return NW_OK;
}

void nw_transform_free(nw_transform *t)
{
    if (t != NULL) {
        nw_rotation_free(t->rotation);
        nw_arena_release(&t->arena);
        free(t);
    }
}

static double **slot_of(const nw_transform *t, int32_t layer, nw_place place)
{
    const size_t row = place == NW_PLACE_OUT ? 0 : (size_t)(layer + 1);
    return &t->factors[row * NW_PLACE_COUNT + place];
}

double *nw_transform_factors(nw_transform *t, int32_t layer, nw_place place)
{
    double **slot = slot_of(t, layer, place);
    const size_t n = nw_place_width(&t->config, place);

    if (*slot == NULL) {
        *slot = nw_arena_array(&t->arena, n, sizeof **slot);
        for (size_t i = 0; *slot != NULL && i < n; i++) {
            (*slot)[i] = 1;
        }
    }
    return *slot;
}

/* What multiplies (or divides) rows and columns of a tensor; NULL: nothing does. */
typedef struct {
    const double *gain, *rows, *cols, *bias;
    nw_place col_place;
} factors;

static factors factors_of(const nw_transform *t, nw_role role, int32_t layer)
{
    factors f = {0};

    for (size_t i = 0; i < NW_COUNT(folds); i++) {
        if (folds[i].role == role) {
            const double *list = *slot_of(t, layer, folds[i].place);
            if (folds[i].side == SIDE_GAIN) {
                f.gain = list;
            } else if (folds[i].side == SIDE_ROWS) {
                f.rows = list;
            } else if (folds[i].side == SIDE_BIAS) {
                f.bias = list;
            } else {
                f.cols = list;
                f.col_place = folds[i].place;
            }
        }
    }
    return f;
}

static void scale_rows(const nw_transform *t, const factors *f, const nw_ckpt_tensor *tensor,
                       uint32_t row0, uint32_t n_rows, float *rows)
{
    const double one = t->config.norm_plus_one ? 1 : 0;
    const bool divide = nw_place_multiplies_maker(f->col_place);

    for (uint32_t r = 0; r < n_rows; r++) {
        float *w = rows + (size_t)r * tensor->n_cols;
        const double row = f->rows != NULL ? f->rows[row0 + r] : 1;
        for (uint32_t k = 0; k < tensor->n_cols; k++) {
            double x = (double)w[k] * row;
            if (f->bias != NULL) { /* a row of its own: each value goes with a row of the matrix */
                x *= f->bias[k];
            } else if (f->gain != NULL) {
                x = (x + one) / f->gain[k] - one;
            } else if (f->cols != NULL) {
                const double c = f->cols[nw_place_channel(&t->config, f->col_place, k)];
                x = divide ? x / c : x * c;
            }
            w[k] = (float)x;
        }
    }
}

nw_status nw_transform_edit(void *ctx, const nw_ckpt_tensor *tensor, uint32_t row0, uint32_t n_rows,
                            float *rows, nw_error *err)
{
    const nw_transform *t = ctx;
    const factors f = factors_of(t, tensor->role, tensor->layer);
    nw_status st = NW_OK;

    if (t->rotation != NULL) {
        st = nw_rotation_edit(t->rotation, tensor, row0, n_rows, rows, err);
    }
    if (st == NW_OK && (f.gain != NULL || f.rows != NULL || f.cols != NULL || f.bias != NULL)) {
        scale_rows(t, &f, tensor, row0, n_rows, rows);
    }
    return st;
}

nw_status nw_transform_stats(const nw_transform *t, int32_t layer, nw_input input,
                             nw_input_stats *s, nw_error *err)
{
    nw_place place = NW_PLACE_ATTN;
    nw_status st = NW_OK;

    while (nw_place_input(place) != input) {
        place++;
    }
    const double *f = *slot_of(t, layer, place);
    if (t->rotation != NULL) {
        st = nw_rotation_stats(t->rotation, layer, input, s, err);
    }
    for (uint32_t i = 0; st == NW_OK && f != NULL && i < s->n_cols; i++) {
        const double fi = f[nw_place_channel(&t->config, place, i)];
        const double a = nw_place_multiplies_maker(place) ? fi : 1 / fi;
        s->absmax[i] = (float)(fabs(a) * (double)s->absmax[i]);
        s->mean_abs[i] = (float)(fabs(a) * (double)s->mean_abs[i]);
        s->mean_sq[i] = (float)(a * a * (double)s->mean_sq[i]);
        for (uint32_t k = 0; k < s->n_cols; k++) {
            s->moments[(size_t)i * s->n_cols + k] *= (float)a;
            s->moments[(size_t)k * s->n_cols + i] *= (float)a;
        }
    }
    return st;
}
