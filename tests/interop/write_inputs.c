/* What the quantized matrices of a model read, as the engine's rule rounds it: for each layer the inputs of
 * q (k, v), o, gate (up) and down, F32 rows [n_ids][n_cols], one after the other on stdout. Another program
 * that is given these has every rounding decided for it, so that nothing but its arithmetic is compared.
 * SPEC (spec.h) names the tier and other roundings than the model's. usage: write_inputs MODEL SPEC ID...
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/inputs.h"
#include "base/status.h"
#include "engine/engine.h"
#include "kernels/act.h"
#include "model/config.h"
#include "spec.h"

#define MAX_IDS 4096

typedef struct {
    const nw_engine *e;
    float *row;
    bool failed;
} writer;

/* One token's input as the kernel or the rule rounds it. */
static void round_row(const writer *w, const nw_artifact_input *in, int role, uint32_t n_cols)
{
    const nw_act_rule act = nw_engine_get_facts(w->e)->act;
    const nw_act_fixed *fixed = in != NULL && in->fixed.scale > 0 ? &in->fixed : NULL;
    /* what a norm gives was rounded where it stands */
    const bool done = role == NW_ROLE_Q || role == NW_ROLE_GATE;

    if (act == NW_ACT_RULE_A8) {
        float inv = 0;
        float scale = nw_int8_scale(w->row, n_cols, &inv);
        scale = fixed != NULL ? fixed->scale : scale;
        inv = fixed != NULL ? 1 / scale : inv;
        for (uint32_t c = 0; c < n_cols; c++) {
            const float code = nw_int8_code(w->row[c], inv);
            w->row[c] = scale * (code > 127 ? 127 : code < -127 ? -127 : code);
        }
    } else if (nw_act_rule_rounds(act) && !done) {
        nw_act_rule_round(act, fixed, w->row, n_cols);
    }
}

static void on_input(void *ctx, int role, uint32_t layer, const float *x, uint32_t n_tokens,
                     uint32_t n_cols)
{
    writer *w = ctx;
    const bool read = role == NW_ROLE_Q || role == NW_ROLE_O || role == NW_ROLE_GATE ||
                      role == NW_ROLE_DOWN; /* others are keys and values */
    const nw_artifact_input *in =
        nw_artifact_get_input(nw_engine_artifact(w->e), (nw_role)role, (int32_t)layer);

    for (uint32_t t = 0; read && t < n_tokens; t++) {
        memcpy(w->row, x + (size_t)t * n_cols, n_cols * sizeof *x);
        round_row(w, in, role, n_cols);
        w->failed = fwrite(w->row, sizeof *x, n_cols, stdout) != n_cols || w->failed;
    }
}

static nw_status run(nw_engine *e, const int32_t *ids, uint32_t n, nw_error *err)
{
    const nw_model_config *c = nw_engine_config(e);
    const size_t widest = c->d_ff > c->d_model ? c->d_ff : c->d_model;
    const size_t heads = (size_t)c->n_heads * c->d_head;
    float *x = calloc(n, c->d_model * sizeof *x);
    writer w = {.e = e, .row = calloc(widest > heads ? widest : heads, sizeof *w.row)};
    nw_status st =
        x != NULL && w.row != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for %u tokens", n);

    for (uint32_t t = 0; st == NW_OK && t < n; t++) {
        float *to = x + (size_t)t * c->d_model;
        nw_artifact_embed_row(nw_engine_artifact(e), (uint32_t)ids[t], to);
        for (uint32_t i = 0; i < c->d_model; i++) {
            to[i] *= c->embed_scale;
        }
    }
    for (uint32_t layer = 0; st == NW_OK && layer < c->n_layers; layer++) {
        st = nw_engine_layer(e, layer, ids, n, x, on_input, &w, err);
    }
    if (st == NW_OK && w.failed) {
        st = nw_fail(err, NW_E_IO, "stdout takes no more");
    }
    free(w.row);
    free(x);
    return st;
}

int main(int argc, char **argv)
{
    static int32_t ids[MAX_IDS];
    nw_engine_options o = nw_engine_options_default();
    nw_engine *e = NULL;
    nw_error err = {0};

    if (argc < 4 || argc - 3 > MAX_IDS) {
        return 2;
    }
    const size_t n = (size_t)argc - 3;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)strtol(argv[i + 3], NULL, 10);
    }
    o.no_tokenizer = true;
    nw_engine_kv_plain(&o); /* as transformers in float32 */
    nw_status st = take_spec(argv[2], &o, &err);
    if (st == NW_OK) {
        st = nw_engine_open(argv[1], &o, &e, &err);
    }
    if (st == NW_OK) {
        st = run(e, ids, (uint32_t)n, &err);
    }
    nw_engine_close(e);
    if (st != NW_OK) {
        (void)fprintf(stderr, "write_inputs: %s\n", err.message);
    }
    return nw_status_exit_code(st);
}
