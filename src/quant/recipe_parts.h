/* What a recipe is made of: shared by recipe.c (built-in ones), recipe_yaml.c (files) and
 * recipe_resolve.c (against a checkpoint), and by nothing else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_RECIPE_PARTS_H
#define NW_QUANT_RECIPE_PARTS_H

#include "base/arena.h"
#include "quant/recipe.h"

/* pcre2.h wants its code unit width defined before it is included; only the .c files need it */
struct pcre2_real_code_8;

typedef struct {
    const char *text;
    struct pcre2_real_code_8 *code; /* anchored at both ends */
    nw_panel_type type;             /* of targets */
    nw_format_id block;             /* of targets: GGUF's type; F32: none */
    nw_method method;               /* of targets */
} nw_recipe_pattern;

typedef struct {
    nw_recipe_pattern *items; /* in the recipe's arena, with room for all of the file */
    size_t n;
} nw_recipe_list;

/* Words of `scale`, by nw_scale_rule. */
extern const char *const nw_scale_rules[NW_SCALE_RULES];

/* Words of `transform`; bit i is word i. */
#define NW_TRANSFORM_WORDS 5
extern const char *const nw_transform_words[NW_TRANSFORM_WORDS];

struct nw_recipe {
    nw_arena arena;
    const char *name;
    nw_act_rule act;
    nw_scales scales;
    unsigned transforms;
    bool short_groups, static_scales;
    float outliers; /* 0: none are kept wide */
    nw_panel_type keep;
    nw_method method;        /* of targets that name none */
    const char *calibration; /* NULL: none */
    const char *kv, *kv_calibration;
    bool kv_heads;
    nw_recipe_list targets, ignored;
};

/* Compiles and appends; `where` stands in messages. */
NW_MUST_USE nw_status nw_recipe_pattern_add(nw_recipe *r, nw_recipe_list *list, const char *where,
                                            const char *text, nw_panel_type type, nw_error *err);
NW_MUST_USE nw_status nw_recipe_load_yaml(const char *path, nw_recipe *r, nw_error *err);

#endif
