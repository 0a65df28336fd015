/* Binds an artifact's tensors to the layer table, by role.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights.h"

#include <stddef.h>

/* int8 codes times int8 activations must not pass 2^31 when a row is summed (kernels.h). */
#define NW_MAX_COLS 65536u

static const struct {
    nw_role role;
    size_t offset, wide; /* of nw_weights in nw_layer */
    size_t coded;        /* of a bool there */
} matrices[] = {
    {NW_ROLE_Q, offsetof(nw_layer, q), offsetof(nw_layer, q_wide), offsetof(nw_layer, q_coded)},
    {NW_ROLE_K, offsetof(nw_layer, k), offsetof(nw_layer, k_wide), offsetof(nw_layer, k_coded)},
    {NW_ROLE_V, offsetof(nw_layer, v), offsetof(nw_layer, v_wide), offsetof(nw_layer, v_coded)},
    {NW_ROLE_O, offsetof(nw_layer, o), offsetof(nw_layer, o_wide), offsetof(nw_layer, o_coded)},
    {NW_ROLE_GATE, offsetof(nw_layer, gate), offsetof(nw_layer, gate_wide),
     offsetof(nw_layer, gate_coded)},
    {NW_ROLE_UP, offsetof(nw_layer, up), offsetof(nw_layer, up_wide), offsetof(nw_layer, up_coded)},
    {NW_ROLE_DOWN, offsetof(nw_layer, down), offsetof(nw_layer, down_wide),
     offsetof(nw_layer, down_coded)},
};

static const struct {
    nw_role role;
    size_t offset; /* of a const float * in nw_layer */
} vectors[] = {
    {NW_ROLE_ATTN_NORM, offsetof(nw_layer, attn_norm)},
    {NW_ROLE_FFN_NORM, offsetof(nw_layer, ffn_norm)},
    {NW_ROLE_POST_ATTN_NORM, offsetof(nw_layer, post_attn_norm)},
    {NW_ROLE_POST_FFN_NORM, offsetof(nw_layer, post_ffn_norm)},
    {NW_ROLE_Q_BIAS, offsetof(nw_layer, q_bias)},
    {NW_ROLE_K_BIAS, offsetof(nw_layer, k_bias)},
    {NW_ROLE_V_BIAS, offsetof(nw_layer, v_bias)},
    {NW_ROLE_Q_NORM, offsetof(nw_layer, q_norm)},
    {NW_ROLE_K_NORM, offsetof(nw_layer, k_norm)},
};

static nw_status bind_matrix(const nw_artifact *a, nw_role role, int32_t layer, nw_weights *w,
                             nw_weight *out, bool *coded, nw_error *err)
{
    const nw_artifact_matrix *m = nw_artifact_get_matrix(a, role, layer);
    uint32_t rows = 0;
    uint32_t cols = 0;

    nw_role_shape(nw_artifact_config(a), role, &rows, &cols);
    if (m == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: no matrix '%s' in layer %d", nw_artifact_path(a),
                       nw_role_name(role), (int)layer);
    }
    if (m->n_rows != rows || m->n_cols != cols || cols > NW_MAX_COLS) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: %s is %u x %u, the config says %u x %u (at most %u columns)",
                       nw_artifact_path(a), m->name, m->n_rows, m->n_cols, rows, cols, NW_MAX_COLS);
    }
    *out = (nw_weight){.type = m->type, .data = m->data, .n_rows = rows, .n_cols = cols};
    *coded = m->coded || nw_panel_code_bits(m->type) <= 8;
    w->step_bytes += m->n_bytes;
    w->max_cols = cols > w->max_cols ? cols : w->max_cols;
    return NW_OK;
}

/* NULL in *out where the architecture has no such vector. */
static nw_status bind_vector(const nw_artifact *a, nw_role role, int32_t layer, const float **out,
                             nw_error *err)
{
    const nw_model_config *c = nw_artifact_config(a);
    uint32_t rows = 0;
    uint32_t cols = 0;
    uint32_t n = 0;
    char name[128];

    *out = NULL;
    if (!nw_role_hf_name(c, role, layer, name, sizeof name)) {
        return NW_OK;
    }
    nw_role_shape(c, role, &rows, &cols);
    *out = nw_artifact_get_vector(a, role, layer, &n);
    if (*out == NULL || n != cols) {
        return nw_fail(err, NW_E_FORMAT, "%s: %s has %u values, the config says %u",
                       nw_artifact_path(a), name, n, cols);
    }
    return NW_OK;
}

/* Rows of the matrix and columns of the list were checked when the artifact was opened. */
static void bind_wide(const nw_artifact *a, nw_role role, int32_t layer, nw_weights *w,
                      nw_weight *out)
{
    const nw_artifact_matrix *m = nw_artifact_get_wide(a, role, layer);

    if (m != NULL) {
        *out =
            (nw_weight){.type = m->type, .data = m->data, .n_rows = m->n_rows, .n_cols = m->n_cols};
        w->step_bytes += m->n_bytes;
        w->max_wide = m->n_cols > w->max_wide ? m->n_cols : w->max_wide;
    }
}

static nw_status bind_layer(const nw_artifact *a, int32_t layer, nw_weights *w, nw_error *err)
{
    nw_layer *l = &w->layers[layer];
    char *const base = (char *)l;

    for (size_t i = 0; i < NW_COUNT(matrices); i++) {
        nw_weight *out = (nw_weight *)(void *)(base + matrices[i].offset);
        if (bind_matrix(a, matrices[i].role, layer, w, out, (bool *)(base + matrices[i].coded),
                        err) != NW_OK) {
            return err->code;
        }
        bind_wide(a, matrices[i].role, layer, w, (nw_weight *)(void *)(base + matrices[i].wide));
    }
    for (size_t i = 0; i < NW_COUNT(vectors); i++) {
        const float **out = (const float **)(void *)(base + vectors[i].offset);
        if (bind_vector(a, vectors[i].role, layer, out, err) != NW_OK) {
            return err->code;
        }
    }
    l->q_in = nw_artifact_get_input(a, NW_ROLE_Q, layer);
    l->o_in = nw_artifact_get_input(a, NW_ROLE_O, layer);
    l->gate_in = nw_artifact_get_input(a, NW_ROLE_GATE, layer);
    l->down_in = nw_artifact_get_input(a, NW_ROLE_DOWN, layer);
    return NW_OK;
}

nw_status nw_weights_bind(const nw_artifact *a, nw_arena *arena, nw_weights *out, nw_error *err)
{
    const nw_model_config *c = nw_artifact_config(a);
    nw_weights w = {.layers = nw_arena_array(arena, c->n_layers, sizeof *w.layers)};

    if (w.layers == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a table of %u layers", c->n_layers);
    }
    for (uint32_t i = 0; i < c->n_layers; i++) {
        if (bind_layer(a, (int32_t)i, &w, err) != NW_OK) {
            return err->code;
        }
    }
    const nw_role head = c->tied ? NW_ROLE_EMBED : NW_ROLE_HEAD;
    if (bind_matrix(a, head, -1, &w, &w.head, &w.head_coded, err) != NW_OK ||
        bind_vector(a, NW_ROLE_OUT_NORM, -1, &w.out_norm, err) != NW_OK) {
        return err->code;
    }
    const nw_artifact_matrix *embed = nw_artifact_get_matrix(a, NW_ROLE_EMBED, -1);
    w.embed_bytes = !c->tied && embed != NULL ? embed->n_bytes : 0;
    *out = w;
    return NW_OK;
}

nw_status nw_weights_swap(const nw_artifact *a, nw_role role, int32_t layer, nw_weights *w,
                          nw_error *err)
{
    nw_weights seen = {0}; /* bytes of a step and widest input stay those of the model itself */

    if (role == NW_ROLE_HEAD || role == NW_ROLE_EMBED) {
        return bind_matrix(a, role, -1, &seen, &w->head, &w->head_coded, err);
    }
    for (size_t i = 0; i < NW_COUNT(matrices); i++) {
        if (matrices[i].role == role && layer >= 0 &&
            layer < (int32_t)nw_artifact_config(a)->n_layers) {
            char *const base = (char *)&w->layers[layer];
            return bind_matrix(a, role, layer, &seen,
                               (nw_weight *)(void *)(base + matrices[i].offset),
                               (bool *)(base + matrices[i].coded), err);
        }
    }
    return nw_fail(err, NW_E_RANGE, "%s: no matrix of role %d in layer %d", nw_artifact_path(a),
                   (int)role, (int)layer);
}
