/* Random factors of channels: see offgrid.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/offgrid.h"

#include <math.h>

#include "base/rng.h"

/* ln 1.25: factors are exp(uniform(-, +)) */
#define LOG_RANGE 0.22314355131420976

/* A place's part of the stream's key, so that no list depends on which other lists a model has. */
static const uint64_t keys[NW_PLACE_COUNT] = {[NW_PLACE_ATTN] = 0,
                                              [NW_PLACE_FFN] = 1,
                                              [NW_PLACE_UP] = 2,
                                              [NW_PLACE_V] = 3,
                                              [NW_PLACE_OUT] = 4};

static bool draw(nw_transform *t, const nw_model_config *config, uint64_t seed, uint64_t layer,
                 nw_place place)
{
    double *f = nw_transform_factors(t, place == NW_PLACE_OUT ? -1 : (int32_t)layer, place);
    nw_rng rng = nw_rng_stream(seed, layer * NW_PLACE_COUNT + keys[place]);

    for (size_t i = 0; f != NULL && i < nw_place_width(config, place); i++) {
        f[i] = exp(LOG_RANGE * (2 * nw_rng_unit(&rng) - 1));
    }
    return f != NULL;
}

nw_status nw_offgrid_new(const nw_model_config *config, uint64_t seed, nw_transform **out,
                         nw_error *err)
{
    bool ok = true;

    if (nw_transform_new(config, NULL, out, err) != NW_OK) {
        return err->code;
    }
    for (uint32_t l = 0; l < config->n_layers; l++) {
        ok = ok && draw(*out, config, seed, l, NW_PLACE_ATTN) &&
             draw(*out, config, seed, l, NW_PLACE_FFN) &&
             draw(*out, config, seed, l, NW_PLACE_UP) && draw(*out, config, seed, l, NW_PLACE_V);
    }
    if (!ok || (!config->tied && !draw(*out, config, seed, config->n_layers, NW_PLACE_OUT))) {
        nw_transform_free(*out);
        *out = NULL;
        return nw_fail(err, NW_E_NOMEM, "no memory for the factors of %u layers",
                       (unsigned)config->n_layers);
    }
    return NW_OK;
}
