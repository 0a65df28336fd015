/* A recipe's YAML text (recipe.h) from a layout for each group: one target for each layout and kind of
 * matrix, with the layers that get it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_RECIPE_WRITE_H
#define NW_QUANT_RECIPE_WRITE_H

#include "quant/group.h"
#include "quant/method.h"

typedef struct {
    const char *name;        /* of the recipe */
    const char *comment;     /* lines that begin with #, each with its newline; or NULL */
    const char *calibration; /* folder of statistics; NULL: none */
    nw_method method, embed_method;
    const nw_group *groups;
    size_t n_groups;
    const nw_panel_type *types; /* [n_groups]; those that are `kept` stay BF16 */
    const bool *kept;           /* [n_groups] */
} nw_recipe_plan;

/* The caller frees it; NULL without memory. */
char *nw_recipe_text(const nw_recipe_plan *p);

#endif
