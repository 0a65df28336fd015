/* Runs each layer alone on the input another program gave it: F32 rows [n_ids][d_model] a layer on stdin,
 * what the layer makes of them on stdout, layer after layer. SPEC (spec.h) names the tier
 * and other roundings than the model's. usage: write_layers MODEL SPEC ID...
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "model/config.h"
#include "model_args.h"

static nw_status run_layers(nw_engine *e, const int32_t *ids, uint32_t n, nw_error *err)
{
    const nw_model_config *c = nw_engine_config(e);
    const size_t n_values = (size_t)n * c->d_model;
    float *x = calloc(n_values, sizeof *x);
    nw_status st = x != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for %u tokens", n);

    for (uint32_t layer = 0; st == NW_OK && layer < c->n_layers; layer++) {
        if (fread(x, sizeof *x, n_values, stdin) != n_values) {
            st = nw_fail(err, NW_E_IO, "stdin ends in layer %u", layer);
        } else {
            st = nw_engine_layer(e, layer, ids, n, x, NULL, NULL, err);
        }
        if (st == NW_OK && fwrite(x, sizeof *x, n_values, stdout) != n_values) {
            st = nw_fail(err, NW_E_IO, "stdout takes no more");
        }
    }
    free(x);
    return st;
}

int main(int argc, char **argv)
{
    static int32_t ids[MAX_IDS];
    nw_engine *e = NULL;
    nw_error err = {0};
    size_t n = 0;
    nw_status st = model_args(argc, argv, ids, &n, &e, &err);

    if (st == NW_OK) {
        st = run_layers(e, ids, (uint32_t)n, &err);
    }
    nw_engine_close(e);
    if (st != NW_OK) {
        (void)fprintf(stderr, "write_layers: %s\n", err.message);
    }
    return nw_status_exit_code(st);
}
