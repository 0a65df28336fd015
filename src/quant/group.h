/* Matrices that get one layout: engines that fuse q with k and v, and gate with up, need one scheme for
 * each of the two. With `fused` false every matrix is a group of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_GROUP_H
#define NW_QUANT_GROUP_H

#include "formats/panel.h"
#include "model/checkpoint.h"

#define NW_GROUP_ROLES 3

typedef struct {
    char name[40];    /* "layers.3.qkv" "layers.3.o" "embed" */
    const char *part; /* "qkv": what groups of other layers share */
    int32_t layer;    /* -1: of no layer */
    nw_role roles[NW_GROUP_ROLES];
    unsigned n_roles;
} nw_group;

/* Layer by layer, then the embedding, and the head where it is not tied; *out is the caller's. */
NW_MUST_USE nw_status nw_groups_make(const nw_model_config *c, bool fused, nw_group **out,
                                     size_t *n, nw_error *err);
/* Does this layout's group divide the columns of all its matrices? */
bool nw_group_fits(const nw_group *g, const nw_model_config *c, nw_panel_type type);

/* A pattern of recipe.h that matches the group's matrices in these layers [n] (n 0: in all); the
 * caller frees it. */
char *nw_group_pattern(const nw_group *g, const int32_t *layers, size_t n);

#endif
