/* One layer of the forward pass alone, for whoever walks a model layer by layer (calibration).
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "engine/forward.h"

/* The residual after the layer: in the whole pass the next layer's norm adds it. */
static void add_output(const nw_engine *e, const nw_layer *l, uint32_t n)
{
    const nw_model_config *c = e->config;

    for (uint32_t t = 0; t < n; t++) {
        float *y = e->work.y + (size_t)t * c->d_model;
        if (l->post_ffn_norm != NULL) {
            e->kernels->rmsnorm(y, l->post_ffn_norm, c->d_model, c->norm_eps, y);
        }
        e->kernels->add(y, c->d_model, e->work.x + (size_t)t * c->d_model);
    }
}

nw_status nw_engine_layer(nw_engine *e, uint32_t layer, const int32_t *ids, uint32_t n, float *x,
                          nw_input_fn on_input, void *ctx, nw_error *err)
{
    nw_session *s = &e->sessions[e->facts.max_seqs];
    const size_t bytes = (size_t)n * e->config->d_model * sizeof *x;
    const nw_step_item it = {.session = s, .tokens = ids, .n_tokens = n};

    if (layer >= e->config->n_layers) {
        return nw_fail(err, NW_E_RANGE, "layer %u of a model of %u", layer, e->config->n_layers);
    }
    if (nw_step_plan(e, &it, 1, err) != NW_OK) {
        return err->code;
    }
    memcpy(e->work.x, x, bytes);
    memset(e->work.y, 0, bytes); /* adding nothing, and its norm is nothing too */
    e->on_input = on_input;
    e->on_input_ctx = ctx;
    nw_forward_attention(e, layer);
    nw_forward_ffn(e, layer);
    e->on_input = NULL;
    add_output(e, &e->weights.layers[layer], n);
    memcpy(x, e->work.x, bytes);
    (void)nw_session_truncate(s, 0);
    return NW_OK;
}
