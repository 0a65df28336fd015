/* Turning rows and columns of each role: see rotate.h. All products are taken in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/rotate.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "quant/orthogonal.h"

#define LANES 16u /* columns whose rows are turned side by side */

enum { KEY_RESIDUAL = 1, KEY_HEADS };

struct nw_rotation {
    const nw_checkpoint *ckpt;
    const nw_model_config *config;
    unsigned parts;
    nw_orthogonal residual, heads, down;
    nw_arena arena;
    double **gains; /* [2 n_layers + 1]: attention and FFN norms by layer, the last norm */
    pthread_mutex_t lock;
    const nw_ckpt_tensor *whole; /* whose rows `values` has; NULL: none */
    float *values;
};

const char *nw_rotation_refusal(const nw_model_config *c, unsigned parts)
{
    if ((parts & NW_ROTATE_RESIDUAL) != 0 && c->post_norms) {
        return "norms stand between its blocks and the residual stream, which can then not be "
               "rotated (rotate-heads and rotate-down can)";
    }
    return NULL;
}

static bool has(const nw_rotation *r, unsigned part)
{
    return (r->parts & part) != 0;
}

static double *gain_at(const nw_rotation *r, nw_role norm, int32_t layer)
{
    if (norm == NW_ROLE_OUT_NORM) {
        return r->gains[2 * (size_t)r->config->n_layers];
    }
    return r->gains[2 * (size_t)layer + (norm == NW_ROLE_FFN_NORM)];
}

static nw_status read_gain(nw_rotation *r, nw_role norm, int32_t layer, double **out, nw_error *err)
{
    const nw_ckpt_tensor *t = nw_checkpoint_find(r->ckpt, norm, layer);
    const uint32_t n = r->config->d_model;
    float *w = calloc(n, sizeof *w);
    nw_status st = NW_OK;

    *out = nw_arena_array(&r->arena, n, sizeof **out);
    if (w == NULL || *out == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for the gains of layer %d", (int)layer);
    } else {
        st = nw_checkpoint_read_plain_f32(r->ckpt, t, 0, 1, w, err);
    }
    for (uint32_t i = 0; st == NW_OK && i < n; i++) {
        (*out)[i] = (double)w[i] + (r->config->norm_plus_one ? 1 : 0);
    }
    free(w);
    return st;
}

static nw_status read_gains(nw_rotation *r, nw_error *err)
{
    const size_t n = r->config->n_layers;
    nw_status st = NW_OK;

    r->gains = nw_arena_array(&r->arena, 2 * n + 1, sizeof *r->gains);
    if (r->gains == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the gains of %zu layers", n);
    }
    for (size_t l = 0; st == NW_OK && l < n; l++) {
        st = read_gain(r, NW_ROLE_ATTN_NORM, (int32_t)l, &r->gains[2 * l], err);
        if (st == NW_OK) {
            st = read_gain(r, NW_ROLE_FFN_NORM, (int32_t)l, &r->gains[2 * l + 1], err);
        }
    }
    return st == NW_OK ? read_gain(r, NW_ROLE_OUT_NORM, -1, &r->gains[2 * n], err) : st;
}

nw_status nw_rotation_new(const nw_checkpoint *c, unsigned parts, uint64_t seed, nw_rotation **out,
                          nw_error *err)
{
    const nw_model_config *config = nw_checkpoint_config(c);
    const char *refusal = nw_rotation_refusal(config, parts);
    nw_rotation *r = calloc(1, sizeof *r);
    nw_status st = NW_OK;

    *out = NULL;
    if (r == NULL || refusal != NULL) {
        free(r);
        return refusal != NULL
                   ? nw_fail(err, NW_E_UNSUPPORTED, "%s: %s", nw_checkpoint_path(c), refusal)
                   : nw_fail(err, NW_E_NOMEM, "no memory for a rotation");
    }
    r->ckpt = c;
    r->config = config;
    r->parts = parts;
    (void)pthread_mutex_init(&r->lock, NULL);
    r->down = nw_orthogonal_blocks(config->d_ff);
    st = nw_orthogonal_new(config->d_model, seed, KEY_RESIDUAL, &r->residual, err);
    st = st == NW_OK ? nw_orthogonal_new(config->d_head, seed, KEY_HEADS, &r->heads, err) : st;
    st = st == NW_OK && has(r, NW_ROTATE_RESIDUAL) ? read_gains(r, err) : st;
    if (st != NW_OK) {
        nw_rotation_free(r);
        return st;
    }
    *out = r;
    return NW_OK;
}

void nw_rotation_free(nw_rotation *r)
{
    if (r != NULL) {
        nw_orthogonal_release(&r->residual);
        nw_orthogonal_release(&r->heads);
        (void)pthread_mutex_destroy(&r->lock);
        nw_arena_release(&r->arena);
        free(r->values);
        free(r);
    }
}

/* What happens to the columns of a role: gains, then segments of q's width; and to its rows. */
typedef struct {
    const double *gain;        /* by column; NULL: none */
    const nw_orthogonal *cols; /* NULL: none */
    const nw_orthogonal *rows; /* of segments of its width; NULL: none */
} turn;

static turn turn_of(const nw_rotation *r, nw_role role, int32_t layer)
{
    const nw_orthogonal *residual = has(r, NW_ROTATE_RESIDUAL) ? &r->residual : NULL;
    const nw_orthogonal *heads = has(r, NW_ROTATE_HEADS) ? &r->heads : NULL;
    turn t = {0};

    switch ((unsigned)role) {
    case NW_ROLE_EMBED:
        t.cols = residual;
        break;
    case NW_ROLE_HEAD:
        t = (turn){.cols = residual,
                   .gain = residual != NULL ? gain_at(r, NW_ROLE_OUT_NORM, -1) : NULL};
        break;
    case NW_ROLE_Q:
    case NW_ROLE_K:
    case NW_ROLE_V:
        t = (turn){.cols = residual,
                   .gain = residual != NULL ? gain_at(r, NW_ROLE_ATTN_NORM, layer) : NULL,
                   .rows = role == NW_ROLE_V ? heads : NULL};
        break;
    case NW_ROLE_GATE:
    case NW_ROLE_UP:
        t = (turn){.cols = residual,
                   .gain = residual != NULL ? gain_at(r, NW_ROLE_FFN_NORM, layer) : NULL};
        break;
    case NW_ROLE_O:
        t = (turn){.cols = heads, .rows = residual};
        break;
    case NW_ROLE_DOWN:
        t = (turn){.cols = has(r, NW_ROTATE_DOWN) ? &r->down : NULL, .rows = residual};
        break;
    default:
        break;
    }
    return t;
}

/* One row: gains, then each segment of the rotation's width. */
static void turn_row(const turn *t, uint32_t n_cols, float *w, double *x, double *work)
{
    for (uint32_t k = 0; k < n_cols; k++) {
        x[k] = (double)w[k] * (t->gain != NULL ? t->gain[k] : 1);
    }
    for (uint32_t at = 0; t->cols != NULL && at < n_cols; at += t->cols->width) {
        nw_orthogonal_turn(t->cols, 1, x + at, work);
    }
    for (uint32_t k = 0; k < n_cols; k++) {
        w[k] = (float)x[k];
    }
}

static nw_status turn_cols(const turn *t, uint32_t n_cols, uint32_t n_rows, float *rows,
                           nw_error *err)
{
    double *x = calloc(n_cols, 2 * sizeof *x); /* the second half is working memory */

    if (x == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory to rotate rows of %u values", n_cols);
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        turn_row(t, n_cols, rows + (size_t)i * n_cols, x, x + n_cols);
    }
    free(x);
    return NW_OK;
}

/* Q^T W for every segment of rows. */
static nw_status turn_rows(const nw_orthogonal *q, uint32_t n_rows, uint32_t n_cols, float *w,
                           nw_error *err)
{
    double *x = calloc((size_t)2 * q->width, LANES * sizeof *x);

    if (x == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory to rotate %u rows", q->width);
    }
    for (size_t r0 = 0; r0 < n_rows; r0 += q->width) {
        for (uint32_t c0 = 0; c0 < n_cols; c0 += LANES) {
            const uint32_t lanes = n_cols - c0 < LANES ? n_cols - c0 : LANES;
            for (size_t i = 0; i < q->width; i++) {
                for (uint32_t l = 0; l < lanes; l++) {
                    x[i * lanes + l] = (double)w[(r0 + i) * n_cols + c0 + l];
                }
            }
            nw_orthogonal_turn(q, lanes, x, x + (size_t)q->width * LANES);
            for (size_t i = 0; i < q->width; i++) {
                for (uint32_t l = 0; l < lanes; l++) {
                    w[(r0 + i) * n_cols + c0 + l] = (float)x[i * lanes + l];
                }
            }
        }
    }
    free(x);
    return NW_OK;
}

/* Under the lock: the whole tensor, turned. */
static nw_status hold_whole(nw_rotation *r, const turn *t, const nw_ckpt_tensor *tensor,
                            nw_error *err)
{
    if (r->whole == tensor) {
        return NW_OK;
    }
    free(r->values);
    r->whole = NULL;
    r->values = calloc(tensor->n_rows, tensor->n_cols * sizeof *r->values);
    if (r->values == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory to rotate '%s'", tensor->name);
    }
    nw_status st = nw_checkpoint_read_plain_f32(r->ckpt, tensor, 0, tensor->n_rows, r->values, err);
    st = st == NW_OK ? turn_cols(t, tensor->n_cols, tensor->n_rows, r->values, err) : st;
    st = st == NW_OK ? turn_rows(t->rows, tensor->n_rows, tensor->n_cols, r->values, err) : st;
    if (st == NW_OK) {
        r->whole = tensor;
    }
    return st;
}

nw_status nw_rotation_edit(void *ctx, const nw_ckpt_tensor *t, uint32_t row0, uint32_t n_rows,
                           float *rows, nw_error *err)
{
    nw_rotation *r = ctx;
    const bool folded =
        t->role == NW_ROLE_OUT_NORM || t->role == NW_ROLE_ATTN_NORM || t->role == NW_ROLE_FFN_NORM;
    nw_status st = NW_OK;

    if (t->role == NW_ROLE_V_BIAS && has(r, NW_ROTATE_HEADS)) {
        return turn_rows(&r->heads, t->n_cols, 1, rows, err);
    }
    if (nw_role_is_vector(t->role)) {
        for (uint32_t k = 0; folded && has(r, NW_ROTATE_RESIDUAL) && k < t->n_cols; k++) {
            rows[k] = r->config->norm_plus_one ? 0 : 1;
        }
        return NW_OK;
    }
    const turn how = turn_of(r, t->role, t->layer);
    if (how.rows == NULL) {
        return how.cols != NULL || how.gain != NULL ? turn_cols(&how, t->n_cols, n_rows, rows, err)
                                                    : NW_OK;
    }
    (void)pthread_mutex_lock(&r->lock);
    st = hold_whole(r, &how, t, err);
    if (st == NW_OK) {
        memcpy(rows, r->values + (size_t)row0 * t->n_cols,
               (size_t)n_rows * t->n_cols * sizeof *rows);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return st;
}

static nw_role first_reader(nw_input input)
{
    static const nw_role readers[NW_INPUT_COUNT] = {[NW_INPUT_ATTN] = NW_ROLE_Q,
                                                    [NW_INPUT_O] = NW_ROLE_O,
                                                    [NW_INPUT_FFN] = NW_ROLE_GATE,
                                                    [NW_INPUT_DOWN] = NW_ROLE_DOWN,
                                                    [NW_INPUT_HEAD] = NW_ROLE_HEAD};
    return readers[input];
}

/* What the readers see is Q^T diag(1 / gain) of what they saw; a gain of 0 has let nothing through. */
nw_status nw_rotation_stats(const nw_rotation *r, int32_t layer, nw_input input, nw_input_stats *s,
                            nw_error *err)
{
    const turn t = turn_of(r, first_reader(input), layer);
    const turn turning = {.cols = t.cols};
    const size_t n = s->n_cols;

    if (t.cols == NULL) {
        return NW_OK;
    }
    for (size_t i = 0; t.gain != NULL && i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            const double g = t.gain[i] * t.gain[k];
            s->moments[i * n + k] = fabs(g) > 0 ? (float)((double)s->moments[i * n + k] / g) : 0;
        }
    }
    nw_status st = turn_cols(&turning, s->n_cols, s->n_cols, s->moments, err);
    st = st == NW_OK ? turn_rows(t.cols, s->n_cols, s->n_cols, s->moments, err) : st;
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        for (size_t k = 0; k < i; k++) { /* rounding must not leave the two halves apart */
            s->moments[i * n + k] = s->moments[k * n + i];
        }
        s->mean_sq[i] = s->moments[i * n + i] = fmaxf(0, s->moments[i * n + i]);
        s->mean_abs[i] = (float)sqrt((double)s->mean_sq[i] * 2 / acos(-1));
        s->absmax[i] = 0;
    }
    return st;
}
