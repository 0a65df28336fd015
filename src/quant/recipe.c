/* Recipes: the table of built-in ones, the YAML reader, and the resolution against a checkpoint.
 * Resolution looks at names and shapes only, and reports everything it finds wrong at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/recipe.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/yaml.h"
#include "quant/block_method.h"
#include "quant/recipe_parts.h"

/* The linear layers of every decoder narrow reads, by leaf name. */
#define LINEARS "model\\.layers\\.\\d+\\.(self_attn|mlp)\\.\\w+_proj"

#define BF16                  \
    {                         \
        .kind = NW_PANEL_BF16 \
    }
#define INT4(g)                             \
    {                                       \
        .kind = NW_PANEL_INT4, .group = (g) \
    }
#define INT4Z(g)                                                \
    {                                                           \
        .kind = NW_PANEL_INT4, .group = (g), .zero_point = true \
    }

#define INT4M(g)                                         \
    {                                                    \
        .kind = NW_PANEL_INT4, .group = (g), .min = true \
    }

const char *const nw_scale_rules[NW_SCALE_RULES] = {"search", "absmax", "tensor"};

const char *const nw_transform_words[NW_TRANSFORM_WORDS] = {"rotate", "rotate-heads", "rotate-down",
                                                            "awq", "smoothquant"};

static const struct builtin {
    const char *name;
    nw_panel_type type;
    nw_act_rule act;
    const char *help;
} builtins[] = {
    {"bf16", BF16, NW_ACT_RULE_A16, "BF16 weights: the baseline"},
    {"bf16-12",
     {.kind = NW_PANEL_BF16_12},
     NW_ACT_RULE_A16,
     "BF16 weights bit for bit in 12 bits: an exponent code of 4"},
    {"bf16-packed",
     {.kind = NW_PANEL_BF16_12, .packed = true},
     NW_ACT_RULE_A16,
     "BF16 weights bit for bit, some 10.6 bits on the disk; bf16-12 in memory"},
    {"int8-w8a8",
     {.kind = NW_PANEL_INT8},
     NW_ACT_RULE_A8,
     "INT8 weights, one scale a row; INT8 activations, one scale a token"},
    {"int8-w8a16",
     {.kind = NW_PANEL_INT8},
     NW_ACT_RULE_A16,
     "INT8 weights, one scale a row; BF16 activations"},
    {"int4-g32", INT4(32), NW_ACT_RULE_A16, "INT4 weights in groups of 32, symmetric"},
    {"int4-g64", INT4(64), NW_ACT_RULE_A16, "INT4 weights in groups of 64, symmetric"},
    {"int4-g128", INT4(128), NW_ACT_RULE_A16, "INT4 weights in groups of 128, symmetric"},
    {"int4-g32-zp", INT4Z(32), NW_ACT_RULE_A16, "INT4 weights in groups of 32 with zero points"},
    {"int4-g64-zp", INT4Z(64), NW_ACT_RULE_A16, "INT4 weights in groups of 64 with zero points"},
    {"int4-g128-zp", INT4Z(128), NW_ACT_RULE_A16, "INT4 weights in groups of 128 with zero points"},
    {"int4-g32-min", INT4M(32), NW_ACT_RULE_A16, "INT4 weights in groups of 32 with minima"},
    {"int4-g64-min", INT4M(64), NW_ACT_RULE_A16, "INT4 weights in groups of 64 with minima"},
    {"int8-g32",
     {.kind = NW_PANEL_INT8, .group = 32},
     NW_ACT_RULE_A16,
     "INT8 weights in groups of 32"},
    {"fp8-e4m3",
     {.kind = NW_PANEL_FP8_E4M3},
     NW_ACT_RULE_A16,
     "FP8 (E4M3) weights, one scale a row"},
    {"fp8-w8a8",
     {.kind = NW_PANEL_FP8_E4M3},
     NW_ACT_RULE_FP8,
     "FP8 (E4M3) weights, one scale a row; FP8 activations, one scale a token"},
    {"nvfp4",
     {.kind = NW_PANEL_NVFP4, .group = 16},
     NW_ACT_RULE_A16,
     "FP4 weights, an E4M3 scale for each 16"},
    {"mxfp4",
     {.kind = NW_PANEL_MXFP4, .group = 32},
     NW_ACT_RULE_A16,
     "FP4 weights, a power of two for each 32"},
    {"q4_0", BF16, false, "GGUF's Q4_0 (block_method.h), and so on"},
    {"q4_1", BF16, false, "GGUF's Q4_1"},
    {"q5_0", BF16, false, "GGUF's Q5_0"},
    {"q5_1", BF16, false, "GGUF's Q5_1"},
    {"q8_0", BF16, false, "GGUF's Q8_0"},
    {"q4_k", BF16, false, "GGUF's Q4_K; Q5_0 where columns are no multiple of 256"},
    {"q5_k", BF16, false, "GGUF's Q5_K; Q5_1 where columns are no multiple of 256"},
    {"q6_k", BF16, false, "GGUF's Q6_K; Q8_0 where columns are no multiple of 256"},
};

const char *nw_recipe_builtin(size_t i, const char **help)
{
    if (i >= NW_COUNT(builtins)) {
        return NULL;
    }
    if (help != NULL) {
        *help = builtins[i].help;
    }
    return builtins[i].name;
}

nw_status nw_recipe_pattern_add(nw_recipe *r, nw_recipe_list *list, const char *where,
                                const char *text, nw_panel_type type, nw_error *err)
{
    nw_recipe_pattern *p = &list->items[list->n];
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR why[128];

    p->text = nw_arena_strndup(&r->arena, text, strlen(text));
    p->type = type;
    p->method = r->method;
    if (p->text == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a pattern", where);
    }
    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                            PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &code, &at, NULL);
    if (p->code == NULL) {
        (void)pcre2_get_error_message(code, why, sizeof why);
        return nw_fail(err, NW_E_FORMAT, "%s: pattern '%s': %s at character %zu", where, text,
                       (const char *)why, (size_t)at);
    }
    list->n++;
    return NW_OK;
}

static nw_status open_builtin(const struct builtin *b, nw_recipe *r, nw_error *err)
{
    r->name = nw_arena_strndup(&r->arena, b->name, strlen(b->name));
    r->targets.items = nw_arena_array(&r->arena, 1, sizeof *r->targets.items);
    if (r->name == NULL || r->targets.items == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for recipe '%s'", b->name);
    }
    r->act = b->act;
    r->scales.rule = NW_SCALE_SEARCH;
    r->keep = b->type.kind == NW_PANEL_BF16_12 ? b->type : (nw_panel_type)BF16;
    const nw_status st = nw_recipe_pattern_add(r, &r->targets, b->name, LINEARS, b->type, err);
    nw_recipe_pattern *p = &r->targets.items[0];
    if (st == NW_OK && !nw_block_parse(b->name, &p->block, &p->type)) {
        p->block = NW_FMT_F32;
    }
    return st;
}

static nw_status unknown_recipe(const char *spec, nw_error *err)
{
    char list[512] = "";
    size_t n = 0;

    for (size_t i = 0; i < NW_COUNT(builtins) && n < sizeof list; i++) {
        n +=
            (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? " " : "", builtins[i].name);
    }
    return nw_fail(err, NW_E_FORMAT, "recipe '%s' is neither a file nor one of: %s", spec, list);
}

nw_status nw_recipe_open(const char *spec, nw_recipe **out, nw_error *err)
{
    nw_recipe *r = calloc(1, sizeof *r);
    const struct builtin *b = NULL;
    nw_status st = NW_OK;

    *out = NULL;
    if (r == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for recipe '%s'", spec);
    }
    for (size_t i = 0; i < NW_COUNT(builtins); i++) {
        if (strcmp(builtins[i].name, spec) == 0) {
            b = &builtins[i];
        }
    }
    if (b != NULL) {
        st = open_builtin(b, r, err);
    } else if (nw_file_exists(spec)) {
        st = nw_recipe_load_yaml(spec, r, err);
    } else {
        st = unknown_recipe(spec, err);
    }
    if (st != NW_OK) {
        nw_recipe_close(r);
        return st;
    }
    *out = r;
    return NW_OK;
}

static void list_release(nw_recipe_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        pcre2_code_free(list->items[i].code);
    }
}

void nw_recipe_close(nw_recipe *r)
{
    if (r != NULL) {
        list_release(&r->targets);
        list_release(&r->ignored);
        nw_arena_release(&r->arena);
        free(r);
    }
}

const char *nw_recipe_name(const nw_recipe *r)
{
    return r->name;
}

nw_act_rule nw_recipe_act(const nw_recipe *r)
{
    return r->act;
}

nw_scales nw_recipe_scales(const nw_recipe *r)
{
    return r->scales;
}

unsigned nw_recipe_transforms(const nw_recipe *r)
{
    unsigned bits = r->transforms;

    for (size_t i = 0; i < r->targets.n; i++) {
        bits |= r->targets.items[i].method == NW_METHOD_AWQ ? NW_TRANSFORM_AWQ : 0;
    }
    return bits;
}

bool nw_recipe_needs_stats(const nw_recipe *r)
{
    return (nw_recipe_transforms(r) & (NW_TRANSFORM_AWQ | NW_TRANSFORM_SMOOTH)) != 0 ||
           r->outliers > 0 || r->static_scales;
}

float nw_recipe_outliers(const nw_recipe *r)
{
    return r->outliers;
}

bool nw_recipe_static_scales(const nw_recipe *r)
{
    return r->static_scales;
}

const char *nw_recipe_calibration(const nw_recipe *r)
{
    return r->calibration;
}

void nw_recipe_set_method(nw_recipe *r, nw_method m)
{
    r->method = m;
    for (size_t i = 0; i < r->targets.n; i++) {
        r->targets.items[i].method = m;
    }
}

void nw_recipe_set_bf16_scales(nw_recipe *r)
{
    r->scales.bf16 = true;
}

nw_status nw_recipe_set_calibration(nw_recipe *r, const char *dir, nw_error *err)
{
    if (dir == NULL) {
        return NW_OK;
    }
    r->calibration = nw_arena_strndup(&r->arena, dir, strlen(dir));
    return r->calibration != NULL ? NW_OK
                                  : nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", dir);
}

const char *nw_recipe_kv(const nw_recipe *r)
{
    return r->kv;
}

bool nw_recipe_kv_heads(const nw_recipe *r)
{
    return r->kv_heads;
}

const char *nw_recipe_kv_calibration(const nw_recipe *r)
{
    return r->kv_calibration;
}

nw_status nw_recipe_set_kv(nw_recipe *r, const char *kv, nw_error *err)
{
    if (kv == NULL) {
        return NW_OK;
    }
    r->kv = nw_arena_strndup(&r->arena, kv, strlen(kv));
    return r->kv != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", kv);
}
