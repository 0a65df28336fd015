/* Sources: transformers' modeling_llama, modeling_gemma3, modeling_qwen2, modeling_qwen3 and
 * modeling_mistral, read as formulas.
 * SPDX-License-Identifier: Apache-2.0 */
#include "naive_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"

typedef struct {
    nw_checkpoint *ck;
    const nw_model_config *c;
    size_t n;
} naive;

static double *doubles(size_t n)
{
    double *x = calloc(n, sizeof *x);
    if (x == NULL) {
        abort();
    }
    return x;
}

static double *tensor(const naive *m, nw_role role, int32_t layer)
{
    const nw_ckpt_tensor *t = nw_checkpoint_find(m->ck, role, layer);
    nw_error err = {0};
    if (t == NULL) {
        return NULL;
    }
    const size_t n = (size_t)t->n_rows * t->n_cols;
    float *f = calloc(n, sizeof *f);
    double *d = doubles(n);
    if (f == NULL || nw_checkpoint_read_f32(m->ck, t, 0, t->n_rows, f, &err) != NW_OK) {
        (void)fprintf(stderr, "naive model: %s\n", err.message);
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        d[i] = (double)f[i];
    }
    free(f);
    return d;
}

/* y[t][r] = sum over c of w[r][c] x[t][c]; a new array. */
static double *matmul(const naive *m, nw_role role, int32_t layer, const double *x)
{
    uint32_t rows = 0;
    uint32_t cols = 0;
    nw_role_shape(m->c, role, &rows, &cols);
    double *w = tensor(m, role, layer);
    double *y = doubles(m->n * rows);
    for (size_t t = 0; t < m->n; t++) {
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t k = 0; k < cols; k++) {
                y[t * rows + r] += w[(size_t)r * cols + k] * x[t * cols + k];
            }
        }
    }
    free(w);
    return y;
}

/* In place over groups of n values. */
static void norm(const naive *m, nw_role role, int32_t layer, double *x, size_t groups, uint32_t n)
{
    double *g = tensor(m, role, layer);
    for (size_t i = 0; i < groups; i++, x += n) {
        double ss = 0;
        for (uint32_t k = 0; k < n; k++) {
            ss += x[k] * x[k];
        }
        const double inv = 1 / sqrt(ss / n + (double)m->c->norm_eps);
        for (uint32_t k = 0; k < n; k++) {
            x[k] *= inv * (g[k] + (m->c->norm_plus_one ? 1 : 0));
        }
    }
    free(g);
}

/* To the product of every token, where the checkpoint has one. */
static void add_bias(const naive *m, nw_role role, int32_t layer, double *y)
{
    uint32_t rows = 0;
    uint32_t cols = 0;
    double *b = tensor(m, role, layer);
    nw_role_shape(m->c, role, &rows, &cols);
    for (size_t i = 0; b != NULL && i < m->n * cols; i++) {
        y[i] += b[i % cols];
    }
    free(b);
}

static void rope(const naive *m, bool global, double *x, uint32_t n_heads)
{
    const uint32_t d = m->c->d_head;
    const double base = (double)(global ? m->c->rope_base : m->c->rope_base_local);
    for (size_t t = 0; t < m->n; t++) {
        for (uint32_t h = 0; h < n_heads; h++, x += d) {
            for (uint32_t i = 0; i < d / 2; i++) {
                const double a = (double)t * pow(base, -2.0 * i / d);
                const double lo = x[i];
                const double hi = x[i + d / 2];
                x[i] = lo * cos(a) - hi * sin(a);
                x[i + d / 2] = hi * cos(a) + lo * sin(a);
            }
        }
    }
}

static void attend_head(const naive *m, bool global, const double *q, const double *k,
                        const double *v, uint32_t h, size_t t, double *out)
{
    const nw_model_config *c = m->c;
    const size_t d = c->d_head;
    const size_t kv = h / (c->n_heads / c->n_kv_heads);
    const size_t window = global || c->sliding_window == 0 ? t + 1 : c->sliding_window;
    const size_t first = t + 1 > window ? t + 1 - window : 0;
    double *p = doubles(t + 1);
    double max = -HUGE_VAL;
    double sum = 0;

    for (size_t j = first; j <= t; j++) {
        for (size_t i = 0; i < d; i++) {
            p[j] += q[(t * c->n_heads + h) * d + i] * k[(j * c->n_kv_heads + kv) * d + i];
        }
        p[j] *= (double)c->attn_scale;
        max = fmax(max, p[j]);
    }
    for (size_t j = first; j <= t; j++) {
        p[j] = exp(p[j] - max);
        sum += p[j];
    }
    for (size_t j = first; j <= t; j++) {
        for (size_t i = 0; i < d; i++) {
            out[(t * c->n_heads + h) * d + i] += p[j] / sum * v[(j * c->n_kv_heads + kv) * d + i];
        }
    }
    free(p);
}

static double *attention(const naive *m, int32_t layer, const double *x)
{
    const nw_model_config *c = m->c;
    const bool global = nw_config_layer_is_global(c, (uint32_t)layer);
    double *q = matmul(m, NW_ROLE_Q, layer, x);
    double *k = matmul(m, NW_ROLE_K, layer, x);
    double *v = matmul(m, NW_ROLE_V, layer, x);
    double *out = doubles(m->n * c->n_heads * c->d_head);

    add_bias(m, NW_ROLE_Q_BIAS, layer, q);
    add_bias(m, NW_ROLE_K_BIAS, layer, k);
    add_bias(m, NW_ROLE_V_BIAS, layer, v);
    if (c->qk_norm) {
        norm(m, NW_ROLE_Q_NORM, layer, q, m->n * c->n_heads, c->d_head);
        norm(m, NW_ROLE_K_NORM, layer, k, m->n * c->n_kv_heads, c->d_head);
    }
    rope(m, global, q, c->n_heads);
    rope(m, global, k, c->n_kv_heads);
    for (size_t t = 0; t < m->n; t++) {
        for (uint32_t h = 0; h < c->n_heads; h++) {
            attend_head(m, global, q, k, v, h, t, out);
        }
    }
    double *y = matmul(m, NW_ROLE_O, layer, out);
    free(q);
    free(k);
    free(v);
    free(out);
    return y;
}

static double *ffn(const naive *m, int32_t layer, const double *x)
{
    double *g = matmul(m, NW_ROLE_GATE, layer, x);
    double *u = matmul(m, NW_ROLE_UP, layer, x);
    for (size_t i = 0; i < m->n * m->c->d_ff; i++) {
        const double z = g[i];
        const double gelu = 0.5 * z * (1 + tanh(sqrt(2 / acos(-1.0)) * (z + 0.044715 * z * z * z)));
        g[i] = (m->c->act_gelu ? gelu : z / (1 + exp(-z))) * u[i];
    }
    double *y = matmul(m, NW_ROLE_DOWN, layer, g);
    free(g);
    free(u);
    return y;
}

/* x += post(f(norm(x))), the shape of both halves of a layer. */
static void half(const naive *m, int32_t layer, double *x, nw_role pre, nw_role post,
                 double *(*f)(const naive *, int32_t, const double *))
{
    const size_t n = m->n * m->c->d_model;
    double *h = doubles(n);
    memcpy(h, x, n * sizeof *h);
    norm(m, pre, layer, h, m->n, m->c->d_model);
    double *y = f(m, layer, h);
    if (m->c->post_norms) {
        norm(m, post, layer, y, m->n, m->c->d_model);
    }
    for (size_t i = 0; i < n; i++) {
        x[i] += y[i];
    }
    free(h);
    free(y);
}

double *nw_naive_logits(const char *path, const int32_t *ids, size_t n)
{
    naive m = {.n = n};
    nw_error err = {0};
    if (nw_checkpoint_open(path, &m.ck, &err) != NW_OK) {
        (void)fprintf(stderr, "naive model: %s\n", err.message);
        abort();
    }
    m.c = nw_checkpoint_config(m.ck);
    const uint32_t d = m.c->d_model;
    double *embed = tensor(&m, NW_ROLE_EMBED, -1);
    double *x = doubles(n * d);
    for (size_t i = 0; i < n * d; i++) {
        x[i] = (double)m.c->embed_scale * embed[(size_t)ids[i / d] * d + i % d];
    }
    for (int32_t l = 0; l < (int32_t)m.c->n_layers; l++) {
        half(&m, l, x, NW_ROLE_ATTN_NORM, NW_ROLE_POST_ATTN_NORM, attention);
        half(&m, l, x, NW_ROLE_FFN_NORM, NW_ROLE_POST_FFN_NORM, ffn);
    }
    norm(&m, NW_ROLE_OUT_NORM, -1, x, n, d);
    double *y = matmul(&m, m.c->tied ? NW_ROLE_EMBED : NW_ROLE_HEAD, -1, x);
    free(embed);
    free(x);
    nw_checkpoint_close(m.ck);
    return y;
}
