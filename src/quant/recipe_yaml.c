/* A recipe from a YAML file. Every mistake is collected with its line and column; the message
 * carries as many as fit.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/yaml.h"
#include "quant/block_method.h"
#include "quant/recipe_parts.h"

#define MAX_MISTAKE_BYTES 900 /* of nw_error's message */

typedef struct {
    const nw_yaml *yaml;
    nw_recipe *recipe;
    nw_buf mistakes;
} reader;

static void mistake(reader *rd, const char *pointer, const char *fmt, ...) NW_PRINTF(3, 4);

static void mistake(reader *rd, const char *pointer, const char *fmt, ...)
{
    char where[256];
    char what[256];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    (void)nw_buf_printf(&rd->mistakes, "%s%s: %s", rd->mistakes.len > 0 ? "\n" : "",
                        nw_yaml_where(rd->yaml, pointer, where, sizeof where), what);
}

static void read_keys(reader *rd, const json_t *root)
{
    static const char *const known[] = {
        "name",        "activations",      "scale",  "scale_dtype", "method",        "transform",
        "calibration", "targets",          "ignore", "keep",        "last_group",    "outliers",
        "code_bits",   "activation_scale", "kv",     "kv_scales",   "kv_calibration"};
    const char *key = NULL;
    json_t *value = NULL;
    char pointer[128];

    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        size_t i = 0;
        while (i < NW_COUNT(known) && strcmp(known[i], key) != 0) {
            i++;
        }
        if (i == NW_COUNT(known)) {
            (void)snprintf(pointer, sizeof pointer, "/%.100s", key);
            mistake(rd, pointer,
                    "unknown key '%.60s' (known: name activations scale scale_dtype method "
                    "transform calibration targets ignore keep last_group outliers code_bits "
                    "activation_scale kv kv_scales kv_calibration)",
                    key);
        }
    }
}

/* One of the words, by its place; 0 where the key is absent. */
static size_t read_word(reader *rd, const json_t *root, const char *key, const char *const *words,
                        size_t n)
{
    const json_t *v = json_object_get(root, key);
    const char *s = json_string_value(v);
    char pointer[64];
    char known[128] = "";
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        if (v == NULL || (s != NULL && strcmp(s, words[i]) == 0)) {
            return i;
        }
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i > 0 ? " or " : "",
                                words[i]);
    }
    (void)snprintf(pointer, sizeof pointer, "/%s", key);
    mistake(rd, pointer, "'%s' is '%.60s', must be %s", key, s != NULL ? s : "not a word", known);
    return 0;
}

/* One of two words; whether it is the second. */
static bool read_choice(reader *rd, const json_t *root, const char *key, const char *first,
                        const char *second)
{
    return read_word(rd, root, key, (const char *const[]){first, second}, 2) == 1;
}

static nw_act_rule read_act(reader *rd, const json_t *root)
{
    static const char *const words[] = {"a16", "a8",       "a8-ct",
                                        "fp8", "fp8-g128", "nvfp4"}; /* in the enum's order */

    return (nw_act_rule)read_word(rd, root, "activations", words, NW_COUNT(words));
}

static void add_pattern(reader *rd, nw_recipe_list *list, const char *pointer, const char *text,
                        nw_panel_type type)
{
    nw_error err = {0};
    char where[256];

    (void)nw_yaml_where(rd->yaml, pointer, where, sizeof where);
    if (nw_recipe_pattern_add(rd->recipe, list, where, text, type, &err) != NW_OK) {
        (void)nw_buf_printf(&rd->mistakes, "%s%s", rd->mistakes.len > 0 ? "\n" : "", err.message);
    }
}

/* The method at `key` of obj, or `fallback` where there is none. */
static nw_method read_method(reader *rd, const json_t *obj, const char *pointer, nw_method fallback)
{
    const json_t *v = json_object_get(obj, "method");
    const char *name = json_string_value(v);
    nw_method m = fallback;

    if (v != NULL && (name == NULL || !nw_method_parse(name, &m))) {
        char known[128] = "";
        size_t n = 0;
        for (int i = 0; i < NW_METHOD_COUNT; i++) {
            n += (size_t)snprintf(known + n, sizeof known - n, " %s", nw_method_name((nw_method)i));
        }
        mistake(rd, pointer, "unknown method '%.60s' (known:%s)", name != NULL ? name : "?", known);
    }
    return m;
}

static void read_target(reader *rd, const json_t *item, size_t i)
{
    const char *match = json_string_value(json_object_get(item, "match"));
    const char *weights = json_string_value(json_object_get(item, "weights"));
    nw_panel_type type = {.kind = NW_PANEL_BF16};
    nw_format_id block = NW_FMT_F32;
    char pointer[64];

    (void)snprintf(pointer, sizeof pointer, "/targets/%zu", i);
    const size_t n_keys = 2 + (json_object_get(item, "method") != NULL);
    if (match == NULL || weights == NULL || json_object_size(item) != n_keys) {
        mistake(rd, pointer,
                "a target is {match: PATTERN, weights: TYPE}, method: METHOD if wanted, and "
                "nothing else");
        return;
    }
    if (!nw_block_parse(weights, &block, &type) &&
        (!nw_panel_parse(weights, &type) || !nw_method_writes(type))) {
        mistake(rd, pointer,
                "unknown weights '%.60s' (f32, bf16, int8, int4-g32, int4-g64-zp, q4_k, ...)",
                weights);
        return;
    }
    const size_t n = rd->recipe->targets.n;
    add_pattern(rd, &rd->recipe->targets, pointer, match, type);
    if (rd->recipe->targets.n > n) {
        rd->recipe->targets.items[n].block = block;
        rd->recipe->targets.items[n].method = read_method(rd, item, pointer, rd->recipe->method);
    }
}

/* The bit of a transform's name, or 0. */
static unsigned transform_bit(const char *name)
{
    for (unsigned i = 0; name != NULL && i < NW_TRANSFORM_WORDS; i++) {
        if (strcmp(name, nw_transform_words[i]) == 0) {
            return 1U << i;
        }
    }
    return 0;
}

static void read_transforms(reader *rd, const json_t *root)
{
    const json_t *v = json_object_get(root, "transform");
    char pointer[64];

    if (v != NULL && !json_is_array(v)) {
        mistake(rd, "/transform", "'transform' is not a list of names");
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        const unsigned bit = transform_bit(name);
        (void)snprintf(pointer, sizeof pointer, "/transform/%zu", i);
        if (bit == 0) {
            mistake(rd, pointer,
                    "unknown transform '%.60s' (known: rotate rotate-heads rotate-down awq "
                    "smoothquant)",
                    name != NULL ? name : "?");
        }
        rd->recipe->transforms |= bit;
    }
}

static void read_outliers(reader *rd, const json_t *root)
{
    const json_t *v = json_object_get(root, "outliers");

    if (v != NULL && !(json_number_value(v) > 0 && json_number_value(v) < 1e30)) {
        mistake(rd, "/outliers", "'outliers' is no number above 0");
    }
    rd->recipe->outliers = (float)json_number_value(v);
}

static void read_code_bits(reader *rd, const json_t *root)
{
    const json_t *v = json_object_get(root, "code_bits");
    const json_int_t bits = json_integer_value(v);

    if (v != NULL && (!json_is_integer(v) || bits < 2 || bits > 7)) {
        mistake(rd, "/code_bits", "'code_bits' is no whole number from 2 to 7");
        return;
    }
    rd->recipe->scales.code_bits = (uint8_t)bits;
}

/* Folder of statistics: as it stands in the file, seen from where the program runs. */
static nw_status read_calibration(reader *rd, const json_t *root, nw_error *err)
{
    const json_t *v = json_object_get(root, "calibration");

    if (v != NULL && !json_is_string(v)) {
        mistake(rd, "/calibration", "'calibration' is not a path");
        return NW_OK;
    }
    return nw_recipe_set_calibration(rd->recipe, json_string_value(v), err);
}

static const char *copy_text(reader *rd, const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);
    const char *text = json_string_value(v);
    char pointer[64];

    if (v == NULL) {
        return NULL;
    }
    (void)snprintf(pointer, sizeof pointer, "/%s", key);
    if (text == NULL) {
        mistake(rd, pointer, "'%s' is not a string", key);
        return NULL;
    }
    const char *copy = nw_arena_strndup(&rd->recipe->arena, text, strlen(text));
    if (copy == NULL) {
        mistake(rd, pointer, "no memory for '%s'", key);
    }
    return copy;
}

/* Whether the format is one is the plan's matter (kv_plan.c). */
static void read_kv(reader *rd, const json_t *root)
{
    nw_recipe *r = rd->recipe;

    r->kv = copy_text(rd, root, "kv");
    r->kv_heads = read_choice(rd, root, "kv_scales", "tensor", "head");
    r->kv_calibration = copy_text(rd, root, "kv_calibration");
    if (r->kv == NULL && (r->kv_heads || r->kv_calibration != NULL)) {
        mistake(rd, "/kv", "'kv_scales' and 'kv_calibration' want a format under 'kv'");
    }
}

static nw_status read_lists(reader *rd, const json_t *root, nw_error *err)
{
    nw_recipe *r = rd->recipe;
    const json_t *targets = json_object_get(root, "targets");
    const json_t *ignored = json_object_get(root, "ignore");
    const size_t n_targets = json_array_size(targets);
    const size_t n_ignored = json_array_size(ignored);
    char pointer[64];

    /* one more than needed, since an array of nothing is no memory */
    r->targets.items = nw_arena_array(&r->arena, n_targets + 1, sizeof *r->targets.items);
    r->ignored.items = nw_arena_array(&r->arena, n_ignored + 1, sizeof *r->ignored.items);
    if (r->targets.items == NULL || r->ignored.items == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu patterns", nw_yaml_path(rd->yaml),
                       n_targets + n_ignored);
    }
    if (n_targets == 0) {
        mistake(rd, "/targets", "'targets' is missing or empty");
    }
    if (ignored != NULL && !json_is_array(ignored)) {
        mistake(rd, "/ignore", "'ignore' is not a list of patterns");
    }
    for (size_t i = 0; i < n_targets; i++) {
        read_target(rd, json_array_get(targets, i), i);
    }
    for (size_t i = 0; i < n_ignored; i++) {
        const char *text = json_string_value(json_array_get(ignored, i));
        (void)snprintf(pointer, sizeof pointer, "/ignore/%zu", i);
        if (text == NULL) {
            mistake(rd, pointer, "an ignored pattern is a string");
        } else {
            add_pattern(rd, &r->ignored, pointer, text, r->keep);
        }
    }
    return NW_OK;
}

/* The file's name without folder and ending, where it gives itself no name. */
static const char *name_of(nw_recipe *r, const char *path, const json_t *root)
{
    const char *given = json_string_value(json_object_get(root, "name"));
    const char *slash = strrchr(path, '/');
    const char *base = given != NULL ? given : slash != NULL ? slash + 1 : path;
    const size_t n = given != NULL ? strlen(given) : strcspn(base, ".");

    return nw_arena_strndup(&r->arena, base, n);
}

/* nvfp4 knows no other. */
static void read_static_scales(reader *rd, const json_t *root)
{
    const bool needed = rd->recipe->act == NW_ACT_RULE_NVFP4;
    const char *said = json_string_value(json_object_get(root, "activation_scale"));

    rd->recipe->static_scales =
        read_choice(rd, root, "activation_scale", "dynamic", "static") || needed;
    if (needed && said != NULL && strcmp(said, "dynamic") == 0) {
        mistake(rd, "/activation_scale",
                "'activation_scale' is 'dynamic', and activations 'nvfp4' need static ones");
    }
}

nw_status nw_recipe_load_yaml(const char *path, nw_recipe *r, nw_error *err)
{
    nw_yaml *yaml = NULL;
    reader rd = {.recipe = r};
    nw_status st = nw_yaml_load(path, &yaml, err);

    if (st != NW_OK) {
        return st;
    }
    rd.yaml = yaml;
    nw_buf_init(&rd.mistakes, 1 << 16);
    const json_t *root = nw_yaml_root(yaml);
    if (!json_is_object(root)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: a recipe is a mapping with 'targets'", path);
        goto out;
    }
    read_keys(&rd, root);
    r->name = name_of(r, path, root);
    r->act = read_act(&rd, root);
    r->scales.rule = (nw_scale_rule)read_word(&rd, root, "scale", nw_scale_rules, NW_SCALE_RULES);
    r->scales.bf16 = read_choice(&rd, root, "scale_dtype", "fp16", "bf16");
    r->keep = (nw_panel_type){
        .kind = read_choice(&rd, root, "keep", "bf16", "f32") ? NW_PANEL_F32 : NW_PANEL_BF16};
    r->method = read_method(&rd, root, "/method", NW_METHOD_RTN);
    r->short_groups = read_choice(&rd, root, "last_group", "whole", "short");
    read_static_scales(&rd, root);
    read_outliers(&rd, root);
    read_code_bits(&rd, root);
    read_transforms(&rd, root);
    read_kv(&rd, root);
    st = read_calibration(&rd, root, err);
    st = st == NW_OK ? read_lists(&rd, root, err) : st;
    if (st == NW_OK && rd.mistakes.len > 0) {
        st = nw_fail(err, NW_E_FORMAT, "%.*s", MAX_MISTAKE_BYTES, rd.mistakes.data);
    }
    if (st == NW_OK && r->name == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", path);
    }
out:
    nw_buf_release(&rd.mistakes);
    nw_yaml_close(yaml);
    return st;
}
