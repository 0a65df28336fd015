/* Matrices of other artifacts in an open engine, to see what each of them costs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/state.h"

/* What stands in a shared page came from the weights of then. */
static void forget_pages(nw_engine *e)
{
    for (uint32_t page = 0; page < e->kv.n_pages; page++) {
        nw_prefix_forget(&e->kv.names, page);
    }
}

nw_status nw_engine_swap(nw_engine *e, const nw_artifact *from, int role, int32_t layer,
                         nw_error *err)
{
    const nw_artifact *source = from != NULL ? from : e->artifact;

    if (!e->opt.swaps) {
        return nw_fail(err, NW_E_USAGE, "this engine was opened for its own weights alone");
    }
    if (role != NW_ROLE_EMBED || e->config->tied) {
        if (nw_weights_swap(source, (nw_role)role, layer, &e->weights, err) != NW_OK) {
            return err->code;
        }
    }
    if (role == NW_ROLE_EMBED) {
        e->embed = source;
    }
    forget_pages(e);
    return NW_OK;
}
