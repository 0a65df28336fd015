/* A recipe of mixed layouts: the choice that a budget leaves (allocate.h), from losses that were measured
 * (sensitivity.h), as the text of a plain recipe that says in its first lines where it comes from.
 * Losses of groups are added up: that holds as long as they are small and their errors independent, and
 * what the mix really costs is for `narrow eval` to say.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_MIXED_H
#define NW_QUANT_MIXED_H

#include "quant/allocate.h"
#include "quant/sensitivity.h"

typedef enum {
    NW_BUDGET_BYTES, /* of model.safetensors */
    NW_BUDGET_BITS,  /* a weight of the whole model, as stored: norms and header too */
    NW_BUDGET_KL     /* sum of the groups' losses, nats a token */
} nw_budget_kind;

typedef struct {
    nw_budget_kind kind;
    double value;
} nw_budget;

/* "105.5MB" (10^6; kB, GB, or bytes), "4.85bits", "kl=0.03". False for any other text. */
NW_MUST_USE bool nw_budget_parse(const char *text, nw_budget *out);

typedef struct {
    nw_allocation chosen; /* bytes: of the groups alone */
    nw_panel_type *types; /* [n_groups] */
    bool *kept;           /* [n_groups]: no layout fits, BF16 */
    uint64_t file_bytes;  /* of model.safetensors */
    double bits;          /* file_bytes a weight */
    char *text;           /* the recipe */
} nw_mix;

/* calibration: as the recipe will name it. */
NW_MUST_USE nw_status nw_mix_make(const nw_sensitivity *s, nw_budget budget, const char *name,
                                  const char *calibration, nw_mix *out, nw_error *err);
void nw_mix_release(nw_mix *m); /* takes a zero object */

#endif
