/* Which tier runs: a search over rows, best first. A new instruction set is one row here and its
 * own files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <string.h>

#include "kernels/tiers.h"

/* `need` is in each row; the reference needs nothing, so the search always ends. */
static const nw_kernels *const tiers[] = {
#if NW_HAVE_X86_KERNELS
    &nw_kernels_amx,       &nw_kernels_avx512,       &nw_kernels_avx512vnni,
    &nw_kernels_avxvnni,   &nw_kernels_avx2,
#endif
#if NW_HAVE_NEON_KERNELS
    &nw_kernels_neon_i8mm, &nw_kernels_neon_dotprod, &nw_kernels_neon,
#endif
    &nw_kernels_ref,
};

unsigned nw_kernels_dots(const nw_kernels *k, nw_panel_type type, nw_act_kind act)
{
    const bool words = strcmp(k->tier, "avx2") == 0 && type.kind == NW_PANEL_INT8;
    return act == NW_ACT_INT16 || (act == NW_ACT_INT8 && words) ? 2 : 1;
}

const nw_kernels *const *nw_kernels_list(size_t *n)
{
    *n = NW_COUNT(tiers);
    return tiers;
}

const nw_kernels *nw_kernels_pick(uint32_t cpu_features)
{
    const nw_kernels *const *tier = tiers;

    while (((*tier)->need & cpu_features) != (*tier)->need) {
        tier++;
    }
    return *tier;
}

const nw_kernels *nw_kernels_by_name(const char *tier)
{
    for (size_t i = 0; i < NW_COUNT(tiers); i++) {
        if (strcmp(tiers[i]->tier, tier) == 0) {
            return tiers[i];
        }
    }
    return NULL;
}
