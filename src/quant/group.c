/* Groups of matrices that share a layout: see group.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/group.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"

static const struct part {
    const char *name;
    bool fused, single; /* in which of the two ways of grouping */
    nw_role roles[NW_GROUP_ROLES];
    unsigned n_roles;
    const char *pattern; /* below "model.layers.N." */
} parts[] = {
    {"qkv", true, false, {NW_ROLE_Q, NW_ROLE_K, NW_ROLE_V}, 3, "self_attn\\.(q|k|v)_proj"},
    {"q", false, true, {NW_ROLE_Q}, 1, "self_attn\\.q_proj"},
    {"k", false, true, {NW_ROLE_K}, 1, "self_attn\\.k_proj"},
    {"v", false, true, {NW_ROLE_V}, 1, "self_attn\\.v_proj"},
    {"o", true, true, {NW_ROLE_O}, 1, "self_attn\\.o_proj"},
    {"gate_up", true, false, {NW_ROLE_GATE, NW_ROLE_UP}, 2, "mlp\\.(gate|up)_proj"},
    {"gate", false, true, {NW_ROLE_GATE}, 1, "mlp\\.gate_proj"},
    {"up", false, true, {NW_ROLE_UP}, 1, "mlp\\.up_proj"},
    {"down", true, true, {NW_ROLE_DOWN}, 1, "mlp\\.down_proj"},
};

static const struct part embed = {"embed", true, true, {NW_ROLE_EMBED}, 1, "model\\.embed_tokens"};
static const struct part head = {"head", true, true, {NW_ROLE_HEAD}, 1, "lm_head"};

static nw_group make_group(const struct part *p, int32_t layer)
{
    nw_group g = {.part = p->name, .layer = layer, .n_roles = p->n_roles};

    for (unsigned i = 0; i < p->n_roles; i++) {
        g.roles[i] = p->roles[i];
    }
    if (layer >= 0) {
        (void)snprintf(g.name, sizeof g.name, "layers.%d.%s", (int)layer, p->name);
    } else {
        (void)snprintf(g.name, sizeof g.name, "%s", p->name);
    }
    return g;
}

nw_status nw_groups_make(const nw_model_config *c, bool fused, nw_group **out, size_t *n,
                         nw_error *err)
{
    nw_group *groups = calloc((size_t)c->n_layers * NW_COUNT(parts) + 2, sizeof *groups);
    size_t k = 0;

    if (groups == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the groups of %u layers", c->n_layers);
    }
    for (uint32_t l = 0; l < c->n_layers; l++) {
        for (size_t i = 0; i < NW_COUNT(parts); i++) {
            if (fused ? parts[i].fused : parts[i].single) {
                groups[k++] = make_group(&parts[i], (int32_t)l);
            }
        }
    }
    groups[k++] = make_group(&embed, -1);
    if (!c->tied) {
        groups[k++] = make_group(&head, -1);
    }
    *out = groups;
    *n = k;
    return NW_OK;
}

bool nw_group_fits(const nw_group *g, const nw_model_config *c, nw_panel_type type)
{
    for (unsigned i = 0; i < g->n_roles; i++) {
        uint32_t rows = 0;
        uint32_t cols = 0;
        nw_role_shape(c, g->roles[i], &rows, &cols);
        if (type.group > 0 && cols % nw_panel_scale_cols(type, cols) != 0) {
            return false;
        }
    }
    return true;
}

static const struct part *part_of(const nw_group *g)
{
    if (g->layer < 0) {
        return g->roles[0] == NW_ROLE_EMBED ? &embed : &head;
    }
    size_t i = 0;
    while (parts[i].name != g->part) {
        i++;
    }
    return &parts[i];
}

char *nw_group_pattern(const nw_group *g, const int32_t *layers, size_t n)
{
    const struct part *p = part_of(g);
    nw_buf b;
    char *out = NULL;

    nw_buf_init(&b, (size_t)1 << 20);
    if (g->layer >= 0) {
        (void)nw_buf_puts(&b, n > 0 ? "model\\.layers\\.(" : "model\\.layers\\.\\d+\\.");
        for (size_t i = 0; i < n; i++) {
            (void)nw_buf_printf(&b, "%s%d", i > 0 ? "|" : "", (int)layers[i]);
        }
        if (n > 0) {
            (void)nw_buf_puts(&b, ")\\.");
        }
    }
    (void)nw_buf_puts(&b, p->pattern);
    out = b.failed ? NULL : nw_buf_take(&b);
    nw_buf_release(&b);
    return out;
}
