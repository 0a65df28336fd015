/* quantization_config, read strictly where it decides what numbers mean: see hf_quant.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/json.h"
#include "model/hf_quant.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MAX_GROUP_SIZE   65536U

/* An object of the file and what it is called in messages. */
typedef struct {
    const json_t *o;
    const char *name;
} view;

static nw_status refuse(view v, const char *what, nw_error *err)
{
    return nw_fail(err, NW_E_UNSUPPORTED, "%s: quantization_config: %s", v.name, what);
}

/* A key that must be absent, null, an empty object, or (objects) name the format "dense". */
static nw_status must_be_empty(view v, const char *key, nw_error *err)
{
    const json_t *x = json_object_get(v.o, key);
    const char *format = json_string_value(json_object_get(x, "format"));

    if (x == NULL || json_is_null(x) || (json_is_object(x) && json_object_size(x) == 0) ||
        (format != NULL && strcmp(format, "dense") == 0)) {
        return NW_OK;
    }
    return nw_fail(
        err, NW_E_UNSUPPORTED,
        "%s: quantization_config has a %s, which changes the weights' meaning and is not "
        "read",
        v.name, key);
}

static bool same_word(const json_t *o, const char *key, const char *want)
{
    const char *have = json_string_value(json_object_get(o, key));

    return have != NULL && strcmp(have, want) == 0;
}

/* group_size: a number, or -1 or null for the whole row. */
static nw_status group_size(view v, uint32_t *out, nw_error *err)
{
    const json_t *x = json_object_get(v.o, "group_size");
    const json_int_t n = json_integer_value(x);

    *out = 0;
    if (x == NULL || json_is_null(x) || (json_is_integer(x) && n == -1)) {
        return NW_OK;
    }
    if (!json_is_integer(x) || n < 1 || n > MAX_GROUP_SIZE) {
        return nw_fail(err, NW_E_RANGE,
                       "%s: quantization_config: group_size is %" JSON_INTEGER_FORMAT
                       ", it must be -1 or 1 to %u",
                       v.name, n, MAX_GROUP_SIZE);
    }
    *out = (uint32_t)n;
    return NW_OK;
}

static nw_status block_structure(view v, nw_hfq_group *g, nw_error *err)
{
    const json_t *b = json_object_get(v.o, "block_structure");
    const json_int_t rows = json_integer_value(json_array_get(b, 0));
    const json_int_t cols = json_integer_value(json_array_get(b, 1));

    if (json_array_size(b) != 2 || rows < 1 || rows > MAX_GROUP_SIZE || cols < 1 ||
        cols > MAX_GROUP_SIZE) {
        return refuse(v, "strategy 'block' needs a block_structure of two sizes", err);
    }
    g->scale_rows = (uint32_t)rows;
    g->scale_cols = (uint32_t)cols;
    return NW_OK;
}

/* Which weights share a scale; scale_cols holds the group_size. */
static nw_status weight_strategy(view v, const char *strategy, nw_hfq_group *g, nw_error *err)
{
    const bool grouped = strcmp(strategy, "group") == 0 || strcmp(strategy, "tensor_group") == 0;

    if (strcmp(strategy, "block") == 0) {
        return block_structure(v, g, err);
    }
    if (strcmp(strategy, "tensor") == 0) {
        g->scale_rows = g->scale_cols = 0;
        return NW_OK;
    }
    if (strcmp(strategy, "channel") == 0) {
        g->scale_cols = 0;
        return NW_OK;
    }
    if (grouped && g->scale_cols > 0) {
        return NW_OK;
    }
    return nw_fail(err, NW_E_UNSUPPORTED,
                   "%s: quantization_config: weights of strategy '%.40s'%s are not read", v.name,
                   strategy, grouped ? " without a group_size" : "");
}

/* The "weights" of a group. */
static nw_status weights(view v, nw_hfq_group *g, nw_error *err)
{
    const char *type = "int";
    const char *strategy = NULL;
    uint32_t bits = 0;
    nw_status st = nw_json_u32(v.o, v.name, "num_bits", 1, 32, &bits, err);

    if (st == NW_OK) {
        st = nw_json_opt_str(v.o, v.name, "type", &type, err);
    }
    if (st == NW_OK) {
        st = nw_json_opt_str(v.o, v.name, "strategy", &strategy, err);
    }
    if (st == NW_OK) {
        st = group_size(v, &g->scale_cols, err);
    }
    if (st != NW_OK) {
        return st;
    }
    g->bits = bits;
    g->is_float = strcmp(type, "float") == 0;
    g->zeros = json_is_false(json_object_get(v.o, "symmetric"));
    g->order = same_word(v.o, "actorder", "group");
    g->scale_rows = 1;
    if (!g->is_float && strcmp(type, "int") != 0) {
        return refuse(v, "the type of weights must be 'int' or 'float'", err);
    }
    if (strategy == NULL) { /* as the format's own reader fills it in */
        strategy = g->scale_cols > 0 ? "group" : "tensor";
    }
    return weight_strategy(v, strategy, g, err);
}

/* What one group asks for of the inputs of its matrices. */
typedef struct {
    nw_act_rule rule;
    bool fixed, zeros;
    const char *note; /* what of it is not done; the rule is then a16 */
} act_args;

/* 8 bits, scales of the token, of the input, or FP8's of 128 columns. */
static act_args activations_8(const json_t *a, bool is_float, bool symmetric)
{
    const bool dynamic = json_is_true(json_object_get(a, "dynamic"));
    const json_int_t group = json_integer_value(json_object_get(a, "group_size"));
    const nw_act_rule rule = is_float     ? NW_ACT_RULE_FP8
                             : !symmetric ? NW_ACT_RULE_A8_CT /* kernels know no zero points */
                                          : NW_ACT_RULE_A8;

    if (!dynamic && same_word(a, "strategy", "tensor") && (symmetric || !is_float)) {
        return (act_args){.rule = rule, .fixed = true, .zeros = !symmetric};
    }
    if (!symmetric) {
        return (act_args){.note = "activations with zero points of a token"};
    }
    if (dynamic && same_word(a, "strategy", "token")) {
        return (act_args){.rule = rule};
    }
    if (dynamic && is_float && same_word(a, "strategy", "group") && group == 128) {
        return (act_args){.rule = NW_ACT_RULE_FP8_G128};
    }
    return (act_args){.note = is_float ? "FP8 activations with scales of other parts than a token, "
                                         "128 columns or the whole input"
                                       : "INT8 activations with scales of other parts than a token "
                                         "or the whole input"};
}

static act_args activations(const json_t *a)
{
    const json_int_t bits = json_integer_value(json_object_get(a, "num_bits"));
    const json_int_t group = json_integer_value(json_object_get(a, "group_size"));
    const bool is_float = same_word(a, "type", "float");
    const bool symmetric = !json_is_false(json_object_get(a, "symmetric"));

    if (a == NULL || json_is_null(a)) {
        return (act_args){.rule = NW_ACT_RULE_A16};
    }
    if (bits == 8) {
        return activations_8(a, is_float, symmetric);
    }
    if (bits == 4 && is_float && symmetric && same_word(a, "strategy", "tensor_group") &&
        same_word(a, "dynamic", "local") && group == 16) {
        return (act_args){.rule = NW_ACT_RULE_NVFP4, .fixed = true};
    }
    return (act_args){.note = bits == 4 ? "4-bit activations other than NVFP4's"
                                        : "activations of other widths than 4 and 8 bits"};
}

/* The same rounding, with scales of the input in one and of the token in the other. */
static bool mixes(const nw_hfq_config *c, const act_args *a)
{
    return a->fixed != c->act_fixed && nw_act_rule_shares(a->rule, c->act);
}

/* One rule holds for all groups; its scales may be fixed in some and of the token in others. */
static void take_activations(nw_hfq_config *c, const act_args *a)
{
    const bool first = c->n_groups == 0;
    const bool same = first || (a->rule == c->act && a->zeros == c->act_zeros);

    if (a->note != NULL) {
        c->act_note = a->note;
    } else if (!same && !mixes(c, a)) {
        c->act_note = "different activations in different groups";
    }
    if (c->act_note != NULL) {
        c->act = NW_ACT_RULE_A16;
        c->act_fixed = c->act_zeros = c->act_mixed = false;
        return;
    }
    c->act_mixed = c->act_mixed || (!first && a->fixed != c->act_fixed);
    c->act = first || a->zeros ? a->rule : c->act; /* zero points want the rule that has them */
    c->act_fixed = c->act_fixed || a->fixed;
    c->act_zeros = c->act_zeros || a->zeros;
}

static nw_status add_group(view v, const char *key, const json_t *group, nw_hfq_config *c,
                           nw_error *err)
{
    const json_t *w = json_object_get(group, "weights");
    nw_hfq_group *g = &c->groups[c->n_groups];

    if (!json_is_object(group)) {
        return nw_fail(err, NW_E_FORMAT, "%s: quantization_config: group '%.40s' is no object",
                       v.name, key);
    }
    if (w == NULL || json_is_null(w)) {
        return NW_OK; /* its weights stay as they are */
    }
    if (!json_is_object(w) || c->n_groups == NW_HFQ_MAX_GROUPS) {
        return nw_fail(
            err, NW_E_FORMAT,
            "%s: quantization_config: group '%.40s': weights are no object, or there are "
            "more than %d groups",
            v.name, key, NW_HFQ_MAX_GROUPS);
    }
    const act_args act = activations(json_object_get(group, "input_activations"));
    take_activations(c, &act);
    c->n_groups++;
    return weights((view){w, v.name}, g, err);
}

/* As vLLM: E4M3 with one scale a tensor or a head. In folders of method fp8 it may be the word "static". */
static void parse_kv(const json_t *kv, nw_hfq_config *c)
{
    const char *word = json_string_value(kv);
    const char *type = json_string_value(json_object_get(kv, "type"));
    const char *strategy = json_string_value(json_object_get(kv, "strategy"));

    if (kv == NULL || json_is_null(kv)) {
        return;
    }
    c->kv_scheme = json_integer_value(json_object_get(kv, "num_bits")) == 8 && type != NULL &&
                   strcmp(type, "float") == 0 && strategy != NULL &&
                   (strcmp(strategy, "tensor") == 0 || strcmp(strategy, "attn_head") == 0) &&
                   !json_is_true(json_object_get(kv, "dynamic"));
    c->kv_scheme =
        c->kv_scheme || (c->method == NW_HFQ_FP8 && word != NULL && strcmp(word, "static") == 0);
    c->kv_note = c->kv_scheme
                     ? NULL
                     : "keys and values other than 8-bit floats with fixed scales a tensor "
                       "or a head";
}

static nw_status parse_ct(view v, nw_hfq_config *c, nw_error *err)
{
    json_t *groups = json_object_get(v.o, "config_groups");
    const json_t *kv = json_object_get(v.o, "kv_cache_scheme");
    const char *key = NULL;
    json_t *group = NULL;
    nw_status st = must_be_empty(v, "transform_config", err);

    parse_kv(kv, c);
    if (st == NW_OK) {
        st = must_be_empty(v, "sparsity_config", err);
    }
    if (st == NW_OK && !json_is_object(groups)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: quantization_config has no object config_groups",
                     v.name);
    }
    if (st != NW_OK) {
        return st;
    }
    json_object_foreach(groups, key, group)
    {
        if (st == NW_OK) {
            st = add_group(v, key, group, c, err);
        }
    }
    return st;
}

/* The one group of AWQ and GPTQ. */
static nw_status one_group(view v, const char *const *bits_read, nw_hfq_config *c, nw_error *err)
{
    uint32_t bits = 0;
    nw_status st = nw_json_u32(v.o, v.name, json_object_get(v.o, "bits") ? "bits" : "w_bit", 1, 32,
                               &bits, err);
    char text[16];

    if (st == NW_OK) {
        st = group_size(v, &c->groups[0].scale_cols, err);
    }
    if (st != NW_OK) {
        return st;
    }
    c->groups[0].bits = bits;
    c->groups[0].zeros = json_is_true(json_object_get(v.o, "zero_point"));
    c->groups[0].order = json_is_true(json_object_get(v.o, "desc_act"));
    c->groups[0].scale_rows = 1;
    c->n_groups = 1;
    (void)snprintf(text, sizeof text, "%" PRIu32, bits);
    for (; *bits_read != NULL; bits_read++) {
        if (strcmp(*bits_read, text) == 0) {
            return NW_OK;
        }
    }
    return nw_fail(err, NW_E_UNSUPPORTED,
                   "%s: quantization_config: %s of %" PRIu32 " bits is not read", v.name,
                   c->method == NW_HFQ_AWQ ? "awq" : "gptq", bits);
}

static nw_status parse_awq(view v, nw_hfq_config *c, nw_error *err)
{
    static const char *const bits[] = {"4", NULL};
    const char *version = "gemm";
    nw_status st = nw_json_opt_str(v.o, v.name, "version", &version, err);

    if (st == NW_OK && strcasecmp(version, "gemm") != 0) {
        st = nw_fail(err, NW_E_UNSUPPORTED,
                     "%s: quantization_config: awq of version '%.40s' is not read, 'gemm' is",
                     v.name, version);
    }
    return st == NW_OK ? one_group(v, bits, c, err) : st;
}

static nw_status parse_gptq(view v, nw_hfq_config *c, nw_error *err)
{
    static const char *const bits[] = {"2", "4", "8", NULL};
    const char *format = "gptq";
    nw_status st = nw_json_opt_str(v.o, v.name, "checkpoint_format", &format, err);

    if (st == NW_OK && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0) {
        st = nw_fail(err, NW_E_UNSUPPORTED,
                     "%s: quantization_config: checkpoint_format '%.40s' is not read, 'gptq' and "
                     "'gptq_v2' are",
                     v.name, format);
    }
    c->zero_less_one = strcmp(format, "gptq") == 0;
    return st == NW_OK ? one_group(v, bits, c, err) : st;
}

/* weight_block_size: two sizes, or null for one scale a tensor. */
static nw_status fp8_blocks(view v, nw_hfq_group *g, nw_error *err)
{
    const json_t *b = json_object_get(v.o, "weight_block_size");
    const json_int_t rows = json_integer_value(json_array_get(b, 0));
    const json_int_t cols = json_integer_value(json_array_get(b, 1));

    *g = (nw_hfq_group){.bits = 8, .is_float = true};
    if (b == NULL || json_is_null(b)) {
        return NW_OK;
    }
    if (json_array_size(b) != 2 || rows < 1 || rows > MAX_GROUP_SIZE || cols < 1 ||
        cols > MAX_GROUP_SIZE) {
        return refuse(v, "weight_block_size must be null or two sizes", err);
    }
    g->scale_rows = (uint32_t)rows;
    g->scale_cols = (uint32_t)cols;
    return NW_OK;
}

/* Folders of Qwen3, DeepSeek and others: one group, and activations by 128 columns beside blocks. */
static nw_status parse_fp8(view v, nw_hfq_config *c, nw_error *err)
{
    const char *fmt = "e4m3";
    const char *scheme = "dynamic";
    nw_status st = nw_json_opt_str(v.o, v.name, "fmt", &fmt, err);

    if (st == NW_OK) {
        st = nw_json_opt_str(v.o, v.name, "activation_scheme", &scheme, err);
    }
    if (st == NW_OK && strcmp(fmt, "e4m3") != 0) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: quantization_config: fp8 of fmt '%.40s' is not read, 'e4m3' is", v.name,
                       fmt);
    }
    st = st == NW_OK ? fp8_blocks(v, &c->groups[0], err) : st;
    if (st != NW_OK) {
        return st;
    }
    parse_kv(json_object_get(v.o, "kv_cache_scheme"), c);
    const nw_hfq_group *g = &c->groups[0];
    c->n_groups = 1;
    c->act_fixed = strcmp(scheme, "static") == 0;
    if (!c->act_fixed && strcmp(scheme, "dynamic") != 0) {
        c->act_note = "another activation_scheme than 'dynamic' and 'static'";
    } else if (same_word(v.o, "scale_fmt", "ue8m0")) {
        c->act_note = "FP8 activations with scales that are powers of two";
    } else if (!c->act_fixed && g->scale_cols > 0 && g->scale_cols != 128) {
        c->act_note = "FP8 activations with scales of other parts than 128 columns";
    } else {
        c->act = !c->act_fixed && g->scale_cols > 0 ? NW_ACT_RULE_FP8_G128 : NW_ACT_RULE_FP8;
    }
    c->act_fixed = c->act_fixed && c->act_note == NULL;
    return NW_OK;
}

static const struct {
    const char *name;
    nw_hfq_method method;
    nw_status (*parse)(view v, nw_hfq_config *c, nw_error *err);
} methods[] = {
    {"compressed-tensors", NW_HFQ_CT, parse_ct},
    {"awq", NW_HFQ_AWQ, parse_awq},
    {"gptq", NW_HFQ_GPTQ, parse_gptq},
    {"fp8", NW_HFQ_FP8, parse_fp8},
};

/* quantize_config.json carries no quant_method: `fallback` names it. */
static nw_status parse(view v, const char *fallback, nw_hfq_config *out, nw_error *err)
{
    const char *method = fallback;
    nw_status st = nw_json_opt_str(v.o, v.name, "quant_method", &method, err);

    for (size_t i = 0; st == NW_OK && method != NULL && i < NW_COUNT(methods); i++) {
        if (strcmp(method, methods[i].name) == 0) {
            nw_hfq_config c = {.method = methods[i].method};
            st = methods[i].parse(v, &c, err);
            if (st == NW_OK) {
                *out = c;
            }
            return st;
        }
    }
    return st != NW_OK ? st
                       : nw_fail(err, NW_E_UNSUPPORTED,
                                 "%s: quantization_config: quant_method '%.40s' is not read; "
                                 "compressed-tensors, awq, gptq and fp8 are",
                                 v.name, method != NULL ? method : "(none)");
}

nw_status nw_hfq_config_parse(const char *name, const json_t *root, nw_hfq_config *out,
                              nw_error *err)
{
    static const char *const keys[] = {"quantization_config", "compression_config"};
    const json_t *q = NULL;
    const json_t *const at[] = {root, json_object_get(root, "text_config")}; /* nested models */

    for (size_t i = 0; i < 2 * NW_COUNT(keys) && (q == NULL || json_is_null(q)); i++) {
        q = json_object_get(at[i / 2], keys[i % 2]);
    }
    if (q == NULL || json_is_null(q)) {
        *out = (nw_hfq_config){.method = NW_HFQ_NONE};
        return NW_OK;
    }
    if (!json_is_object(q)) {
        return nw_fail(err, NW_E_FORMAT, "%s: quantization_config is no object", name);
    }
    return parse((view){q, name}, NULL, out, err);
}

/* A file of the folder, when it is there; *root stays NULL otherwise. */
static nw_status load(const char *dir, const char *file, char **path, json_t **root, nw_error *err)
{
    *path = nw_path_join(dir, file);
    if (*path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir);
    }
    return nw_file_exists(*path) ? nw_json_load(*path, MAX_CONFIG_BYTES, root, err) : NW_OK;
}

nw_status nw_hfq_config_load(const char *dir, nw_hfq_config *out, nw_error *err)
{
    nw_hfq_config c = {.method = NW_HFQ_NONE};
    char *path = NULL;
    json_t *root = NULL;
    nw_status st = load(dir, "config.json", &path, &root, err);

    if (st == NW_OK) {
        st = nw_hfq_config_parse(path, root, &c, err);
    }
    json_decref(root);
    free(path);
    root = NULL;
    path = NULL;
    if (st == NW_OK && c.method == NW_HFQ_NONE) {
        st = load(dir, "quantize_config.json", &path, &root, err);
        if (st == NW_OK && json_is_object(root)) {
            st = parse((view){root, path}, "gptq", &c, err);
        }
        json_decref(root);
        free(path);
    }
    if (st == NW_OK) {
        *out = c;
    }
    return st;
}
