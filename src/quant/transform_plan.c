/* Which places are searched, and with which readers: see transform_plan.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/transform_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/signal.h"
#include "quant/channel_scales.h"

/* Rotations are drawn from one stream: a model of a shape always gets the same. */
#define ROTATION_SEED 1u

static unsigned rotated_parts(unsigned transforms)
{
    return ((transforms & NW_TRANSFORM_ROTATE) != 0 ? NW_ROTATE_RESIDUAL : 0) |
           ((transforms & NW_TRANSFORM_ROTATE_HEADS) != 0 ? NW_ROTATE_HEADS : 0) |
           ((transforms & NW_TRANSFORM_ROTATE_DOWN) != 0 ? NW_ROTATE_DOWN : 0);
}

nw_status nw_transform_open(const nw_recipe *r, nw_checkpoint *c, nw_transform **out, nw_error *err)
{
    const unsigned transforms = nw_recipe_transforms(r);
    const unsigned parts = rotated_parts(transforms);
    nw_rotation *rotation = NULL;
    nw_status st = NW_OK;

    *out = NULL;
    if (transforms == 0) {
        return NW_OK;
    }
    if ((parts & NW_ROTATE_RESIDUAL) != 0 &&
        nw_rotation_refusal(nw_checkpoint_config(c), parts) == NULL) {
        nw_checkpoint_untie(c);
    }
    if (parts != 0) {
        st = nw_rotation_new(c, parts, ROTATION_SEED, &rotation, err);
    }
    if (st == NW_OK) {
        st = nw_transform_new(nw_checkpoint_config(c), rotation, out, err);
    }
    if (st == NW_OK) {
        nw_checkpoint_set_edit(c, (nw_ckpt_edit){nw_transform_edit, *out});
    }
    return st;
}

/* Whether quantizing the matrix loses anything. */
static bool loses(const nw_recipe_choice *ch)
{
    return ch->type.kind != NW_PANEL_F32 && ch->type.kind != NW_PANEL_BF16 &&
           ch->type.kind != NW_PANEL_BF16_12;
}

static size_t find_readers(const nw_recipe_choice *choices, size_t n, int32_t layer, nw_place place,
                           const nw_recipe_choice *readers[3])
{
    size_t found = 0;

    for (size_t i = 0; i < n && found < 3; i++) {
        const nw_ckpt_tensor *t = choices[i].tensor;
        nw_input input = NW_INPUT_COUNT;
        if (!choices[i].is_vector && t->layer == layer && loses(&choices[i]) &&
            nw_input_of_role(t->role, false, &input) && input == nw_place_input(place)) {
            readers[found++] = &choices[i];
        }
    }
    return found;
}

/* Factors multiply the columns of norms' readers, and divide those of the others. */
static void set_factors(nw_place place, uint32_t n, double *f)
{
    for (uint32_t i = 0; nw_place_multiplies_maker(place) && i < n; i++) {
        f[i] = 1 / f[i];
    }
}

static nw_status search_place(nw_search_place *p, const nw_stats *stats, int32_t layer,
                              nw_pool *pool, nw_transform *t, json_t *report, nw_error *err)
{
    const uint32_t width = nw_place_width(nw_checkpoint_config(p->ckpt), p->place);
    const nw_input input = nw_place_input(p->place);
    double *factors = nw_transform_factors(t, layer, p->place);
    nw_input_stats s = {0};
    nw_search_result found = {0};
    nw_status st = factors != NULL ? nw_stats_load(stats, layer, input, &s, err)
                                   : nw_fail(err, NW_E_NOMEM, "no memory for channel scales");

    st = st == NW_OK ? nw_transform_stats(t, layer, input, &s, err) : st;
    p->stats = &s;
    /* while the factors are read as 1: what is searched lies beside them until it is whole */
    double *best = calloc(width, sizeof *best);
    if (st == NW_OK && best == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for channel scales");
    }
    st = st == NW_OK ? nw_search_channel_scales(p, pool, best, &found, err) : st;
    if (st == NW_OK) {
        set_factors(p->place, width, best);
        memcpy(factors, best, width * sizeof *factors);
        (void)json_array_append_new(report, json_pack("{s:i, s:s, s:f, s:f, s:f}", "layer",
                                                      (int)layer, "place", nw_place_name(p->place),
                                                      "exponent", found.exponent, "loss",
                                                      found.after, "loss_before", found.before));
    }
    free(best);
    nw_input_stats_release(&s);
    return st;
}

/* The two places that a run-time rotation of down's input stands behind cannot take factors. */
static bool can_scale(unsigned transforms, const nw_model_config *c, nw_place place)
{
    return !(place == NW_PLACE_UP && (transforms & NW_TRANSFORM_ROTATE_DOWN) != 0) &&
           !(place == NW_PLACE_OUT && c->tied);
}

nw_status nw_transform_search(const nw_recipe *r, const nw_checkpoint *c,
                              const nw_recipe_choice *choices, size_t n, const nw_stats *stats,
                              nw_pool *pool, nw_transform *t, json_t *report, nw_error *err)
{
    const unsigned transforms = nw_recipe_transforms(r);
    const nw_model_config *config = nw_checkpoint_config(c);
    nw_status st = NW_OK;

    if ((transforms & (NW_TRANSFORM_AWQ | NW_TRANSFORM_SMOOTH)) == 0) {
        return NW_OK;
    }
    for (int32_t layer = -1; st == NW_OK && layer < (int32_t)config->n_layers; layer++) {
        for (int place = 0; st == NW_OK && place < NW_PLACE_COUNT; place++) {
            nw_search_place p = {.ckpt = c,
                                 .scales = nw_recipe_scales(r),
                                 .place = (nw_place)place,
                                 .rule = (transforms & NW_TRANSFORM_AWQ) != 0 ? NW_SEARCH_AWQ
                                                                              : NW_SEARCH_SMOOTH};
            p.n_readers = (place == NW_PLACE_OUT) == (layer < 0)
                              ? find_readers(choices, n, layer, p.place, p.readers)
                              : 0;
            if (p.n_readers > 0 && can_scale(transforms, config, p.place)) {
                st = search_place(&p, stats, layer, pool, t, report, err);
            }
            if (st == NW_OK && nw_stop_requested()) {
                st = nw_fail(err, NW_E_CANCELLED, "stopped at layer %d", (int)layer);
            }
        }
    }
    return st;
}
