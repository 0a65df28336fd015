/* Writing recipes: see recipe_write.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/recipe_write.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static bool alike(const nw_recipe_plan *p, size_t a, size_t b)
{
    return p->groups[a].part == p->groups[b].part && !p->kept[a] && !p->kept[b] &&
           nw_panel_same(p->types[a], p->types[b]);
}

/* A target for group `first` and all that are alike behind it; nothing where one before it is. */
static bool add_target(const nw_recipe_plan *p, size_t first, int32_t *layers, nw_buf *b)
{
    const nw_group *g = &p->groups[first];
    size_t n = 0;
    size_t n_part = 0;
    char type[32];

    for (size_t i = 0; i < p->n_groups; i++) {
        n_part += p->groups[i].part == g->part;
        if (alike(p, first, i)) {
            if (i < first) {
                return true; /* told already */
            }
            layers[n++] = p->groups[i].layer;
        }
    }
    if (n == 0) {
        return true; /* kept */
    }
    char *pattern = nw_group_pattern(g, layers, n == n_part ? 0 : n);
    bool ok = pattern != NULL && nw_buf_printf(b, "  - {match: '%s', weights: %s", pattern,
                                               nw_panel_name(p->types[first], type));
    if (ok && g->roles[0] == NW_ROLE_EMBED && p->embed_method != p->method) {
        ok = nw_buf_printf(b, ", method: %s", nw_method_name(p->embed_method));
    }
    free(pattern);
    return ok && nw_buf_puts(b, "}\n");
}

/* A scalar in single quotes, which are doubled inside. */
static bool add_quoted(nw_buf *b, const char *text)
{
    bool ok = nw_buf_puts(b, "'");

    for (; ok && *text != '\0'; text++) {
        ok = nw_buf_add(b, text, 1) && (*text != '\'' || nw_buf_puts(b, "'"));
    }
    return ok && nw_buf_puts(b, "'");
}

char *nw_recipe_text(const nw_recipe_plan *p)
{
    int32_t *layers = calloc(p->n_groups + 1, sizeof *layers);
    nw_buf b;
    char *out = NULL;

    nw_buf_init(&b, (size_t)16 << 20);
    bool ok = layers != NULL && nw_buf_puts(&b, p->comment != NULL ? p->comment : "") &&
              nw_buf_puts(&b, "name: ") && add_quoted(&b, p->name) &&
              nw_buf_printf(&b, "\nactivations: a16\nmethod: %s\n", nw_method_name(p->method));
    if (ok && p->calibration != NULL) {
        ok = nw_buf_puts(&b, "calibration: ") && add_quoted(&b, p->calibration) &&
             nw_buf_puts(&b, "\n");
    }
    ok = ok && nw_buf_puts(&b, "targets:\n");
    for (size_t g = 0; ok && g < p->n_groups; g++) {
        ok = add_target(p, g, layers, &b);
    }
    out = ok ? nw_buf_take(&b) : NULL;
    nw_buf_release(&b);
    free(layers);
    return out;
}
