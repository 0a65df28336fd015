/* One input's Hessian at a time: see input_cache.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/input_cache.h"

#include <assert.h>

nw_status nw_input_cache_open(nw_input_cache *c, const nw_recipe *r,
                              const nw_recipe_choice *choices, size_t n,
                              const nw_model_config *config, nw_error *err)
{
    bool needed = nw_recipe_needs_stats(r);

    *c = (nw_input_cache){0};
    for (size_t i = 0; i < n; i++) {
        needed |= nw_method_needs_stats(choices[i].method);
    }
    if (!needed) {
        return NW_OK;
    }
    if (nw_stats_open(nw_recipe_calibration(r), &c->stats, err) != NW_OK) {
        return err->code;
    }
    return nw_stats_fit(c->stats, config, err);
}

void nw_input_cache_close(nw_input_cache *c)
{
    nw_hessian_release(&c->h);
    nw_stats_close(c->stats);
    *c = (nw_input_cache){0};
}

/* A role that reads the input. */
static nw_role reader_of(nw_input input)
{
    nw_role role = NW_ROLE_Q;
    nw_input reads = NW_INPUT_COUNT;

    while (!nw_input_of_role(role, false, &reads) || reads != input) {
        role++;
    }
    return role;
}

static nw_status load(nw_input_cache *c, int32_t layer, nw_input input, bool factor, nw_error *err)
{
    nw_input_stats s = {0};

    c->loaded = false;
    nw_hessian_release(&c->h);
    if (nw_stats_load(c->stats, layer, input, &s, err) != NW_OK) {
        return err->code;
    }
    nw_status st =
        c->transform != NULL ? nw_transform_stats(c->transform, layer, input, &s, err) : NW_OK;
    if (st == NW_OK && c->plan != NULL && layer >= 0) {
        nw_input_plan_clear_stats(nw_input_plan_of(c->plan, reader_of(input), layer), &s);
    }
    st = st == NW_OK ? nw_hessian_make(&s, factor, &c->h, err) : st;
    nw_input_stats_release(&s);
    if (st == NW_OK) {
        c->layer = layer;
        c->input = input;
        c->with_factor = factor;
        c->loaded = true;
    }
    return st;
}

nw_status nw_input_cache_get(nw_input_cache *c, const nw_recipe_choice *choice, bool tied,
                             const nw_hessian **out, nw_error *err)
{
    const bool factor = nw_method_needs_factor(choice->method);
    nw_input input = NW_INPUT_COUNT;

    *out = NULL;
    if (!nw_method_needs_stats(choice->method)) {
        return NW_OK;
    }
    const bool known = nw_input_of_role(choice->tensor->role, tied, &input);
    assert(known); /* the recipe was resolved */
    (void)known;
    const int32_t layer = input == NW_INPUT_HEAD ? -1 : choice->tensor->layer;
    const bool same = c->loaded && c->layer == layer && c->input == input;
    if (!same || (factor && !c->with_factor)) {
        if (load(c, layer, input, factor, err) != NW_OK) {
            return nw_context(err, "statistics of '%s'", choice->tensor->name);
        }
    }
    *out = &c->h;
    return NW_OK;
}
