/* A recipe against a checkpoint: names and shapes only, all mistakes at once, in the first moment.
 * SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "formats/repack.h"
#include "quant/block_method.h"
#include "quant/recipe_parts.h"
#include "quant/rotate.h"

#define MAX_MISTAKE_BYTES 900 /* of nw_error's message */
#define MAX_LIST_BYTES    ((size_t)1 << 20)

/* Patterns are matched against leaf names: without the ".weight" that every one ends in. */
static size_t leaf_length(const char *name)
{
    static const char suffix[] = ".weight";
    const size_t n = strlen(name);
    const size_t s = sizeof suffix - 1;

    return n > s && strcmp(name + n - s, suffix) == 0 ? n - s : n;
}

/* The first item that matches, or n. A match that exceeds PCRE2's limits is no match: the pattern
 * then stands in the list of those that match nothing. */
static size_t first_match(const nw_recipe_list *list, const char *name, pcre2_match_data *md)
{
    const size_t len = leaf_length(name);
    size_t i = 0;

    while (i < list->n &&
           pcre2_match(list->items[i].code, (PCRE2_SPTR)name, len, 0, 0, md, NULL) < 0) {
        i++;
    }
    return i;
}

static bool matches_any(const nw_recipe_pattern *p, const nw_checkpoint *c, pcre2_match_data *md)
{
    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        if (!nw_role_is_vector(t->role) &&
            pcre2_match(p->code, (PCRE2_SPTR)t->name, leaf_length(t->name), 0, 0, md, NULL) >= 0) {
            return true;
        }
    }
    return false;
}

static void check_patterns(const nw_recipe_list *list, const char *kind, const nw_checkpoint *c,
                           pcre2_match_data *md, nw_buf *mistakes)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!matches_any(&list->items[i], c, md)) {
            (void)nw_buf_printf(mistakes,
                                "%s pattern '%s' matches no matrix (patterns match whole leaf "
                                "names, such as %.*s)\n",
                                kind, list->items[i].text,
                                (int)leaf_length(nw_checkpoint_at(c, 1)->name),
                                nw_checkpoint_at(c, 1)->name);
        }
    }
}

/* `short_groups`: a row may end in a shorter group, but in no shorter block of a GGUF type. */
static bool group_fits(const nw_recipe_choice *ch, bool short_groups)
{
    const uint32_t group =
        ch->type.group > 0 ? nw_panel_scale_cols(ch->type, ch->tensor->n_cols) : 0;

    return ch->is_vector || group == 0 || ch->tensor->n_cols % group == 0 ||
           (short_groups && ch->block == NW_FMT_F32);
}

static bool same_kind(const nw_recipe_choice *a, const nw_recipe_choice *b)
{
    return a->tensor->role == b->tensor->role && a->tensor->n_cols == b->tensor->n_cols &&
           a->type.kind == b->type.kind && a->type.group == b->type.group &&
           a->type.span == b->type.span;
}

/* How many matrices have the mistake of choices[i]; *first is the first of them. */
static size_t count_like(const nw_recipe_choice *choices, size_t n, size_t i, bool short_groups,
                         size_t *first)
{
    size_t count = 0;

    for (size_t k = 0; k < n; k++) {
        if (!group_fits(&choices[k], short_groups) && same_kind(&choices[i], &choices[k])) {
            *first = count == 0 ? k : *first;
            count++;
        }
    }
    return count;
}

/* One line for all layers in which the same matrix has the same mistake. */
static void check_groups(const nw_recipe_choice *choices, size_t n, bool short_groups,
                         nw_buf *mistakes)
{
    for (size_t i = 0; i < n; i++) {
        size_t first = i;
        if (group_fits(&choices[i], short_groups)) {
            continue;
        }
        const size_t count = count_like(choices, n, i, short_groups, &first);
        if (first != i) {
            continue; /* told already */
        }
        const nw_ckpt_tensor *t = choices[i].tensor;
        (void)nw_buf_printf(mistakes, "%.*s", (int)leaf_length(t->name), t->name);
        if (count > 1) {
            (void)nw_buf_printf(mistakes, " and %zu like it", count - 1);
        }
        (void)nw_buf_printf(mistakes, ": %u columns are no multiple of group %u (fits:%s%s%s)\n",
                            (unsigned)t->n_cols,
                            (unsigned)nw_panel_scale_cols(choices[i].type, t->n_cols),
                            t->n_cols % 16 != 0   ? " none"
                            : t->n_cols % 32 != 0 ? " 16"
                                                  : " 16 32",
                            t->n_cols % 64 == 0 ? " 64" : "", t->n_cols % 128 == 0 ? " 128" : "");
    }
}

/* The block type that the matrix's columns allow, and its panel. */
static void choose_block(nw_recipe_choice *out)
{
    if (out->block != NW_FMT_F32) {
        out->block = nw_block_for_columns(out->block, out->tensor->n_cols);
        const bool has_panel = nw_repack_type(out->block, &out->type);
        assert(has_panel);
        (void)has_panel;
    }
}

static void choose(const nw_recipe *r, const nw_ckpt_tensor *t, pcre2_match_data *md,
                   nw_recipe_choice *out)
{
    *out = (nw_recipe_choice){.tensor = t, .type = r->keep, .why = "kept"};
    if (nw_role_is_vector(t->role)) {
        out->is_vector = true;
        out->type = (nw_panel_type){.kind = NW_PANEL_F32};
        return;
    }
    const size_t ignored = first_match(&r->ignored, t->name, md);
    if (ignored < r->ignored.n) {
        out->why = r->ignored.items[ignored].text;
        return;
    }
    const size_t target = first_match(&r->targets, t->name, md);
    if (target < r->targets.n) {
        out->targeted = true;
        out->type = nw_panel_for_columns(r->targets.items[target].type, t->n_cols);
        out->asked = r->targets.items[target].method;
        out->block = out->asked_block = r->targets.items[target].block;
        choose_block(out);
        out->method = out->block == NW_FMT_F32 ? nw_method_for(out->asked, out->type)
                      : nw_block_knows(out->block, out->asked) ? out->asked
                                                               : NW_METHOD_RTN;
        out->why = r->targets.items[target].text;
    }
}

/* A method that needs statistics, of an input that calibration watches. */
static void check_methods(const nw_recipe *r, const nw_recipe_choice *choices, size_t n,
                          const nw_model_config *config, nw_buf *mistakes)
{
    bool told = false;

    for (size_t i = 0; i < n; i++) {
        const nw_recipe_choice *ch = &choices[i];
        const char *name = nw_method_name(ch->asked);
        nw_input input = NW_INPUT_COUNT;
        if (!nw_method_needs_stats(ch->method)) {
            continue;
        }
        if (r->calibration == NULL && !told) {
            told = true;
            (void)nw_buf_printf(mistakes,
                                "method %s needs calibration statistics: name the folder that "
                                "narrow calibrate wrote\n",
                                name);
        }
        if (!nw_input_of_role(ch->tensor->role, config->tied, &input)) {
            (void)nw_buf_printf(mistakes,
                                "%.*s: method %s needs statistics of its input, and a table that "
                                "is only looked up has none\n",
                                (int)leaf_length(ch->tensor->name), ch->tensor->name, name);
        }
    }
}

/* Outlier columns against the activations, and both against rotations. */
static void check_inputs(const nw_recipe *r, bool rotated, nw_buf *mistakes)
{
    if ((r->outliers > 0 || r->static_scales) && rotated) {
        (void)nw_buf_printf(mistakes, "outliers and static activation scales are of inputs as "
                                      "calibration saw them: not of rotated ones\n");
    }
    if (r->outliers > 0 && r->act != NW_ACT_RULE_A8 && r->act != NW_ACT_RULE_A16) {
        (void)nw_buf_printf(mistakes, "outliers are kept beside activations of 16 bits or of INT8: "
                                      "'activations' must be a16 or a8\n");
    }
}

/* Fewer codes than a layout has, in the layouts that have codes to leave out. */
static void check_code_bits(const nw_recipe *r, const nw_recipe_choice *choices, size_t n,
                            nw_buf *mistakes)
{
    const unsigned bits = r->scales.code_bits;
    char type[32];

    if (bits > 0 && r->scales.rule == NW_SCALE_TENSOR) {
        (void)nw_buf_printf(mistakes, "code_bits %u: not with scale tensor\n", bits);
    }
    for (size_t i = 0; bits > 0 && i < n; i++) {
        const nw_recipe_choice *ch = &choices[i];
        const bool codes = ch->type.kind == NW_PANEL_INT4 || ch->type.kind == NW_PANEL_INT8;
        if (ch->targeted &&
            (!codes || ch->block != NW_FMT_F32 || bits >= nw_panel_code_bits(ch->type))) {
            (void)nw_buf_printf(mistakes, "%.*s: code_bits %u, and %s has no codes of more bits\n",
                                (int)leaf_length(ch->tensor->name), ch->tensor->name, bits,
                                ch->block != NW_FMT_F32 ? nw_block_name(ch->block)
                                                        : nw_panel_name(ch->type, type));
            return; /* the recipe's mistake, not the matrix's: one line */
        }
    }
}

/* What the recipe fixes of inputs against the rule that rounds them. */
static void check_activations(const nw_recipe *r, const nw_recipe_choice *choices, size_t n,
                              nw_buf *mistakes)
{
    const bool has_scale = r->act == NW_ACT_RULE_A8 || r->act == NW_ACT_RULE_A8_CT ||
                           r->act == NW_ACT_RULE_FP8 || r->act == NW_ACT_RULE_NVFP4;

    if (r->static_scales && !has_scale) {
        (void)nw_buf_printf(mistakes,
                            "activations '%s' have no scale of a whole input that could "
                            "be static: a8, a8-ct, fp8 and nvfp4 have\n",
                            nw_act_rule_name(r->act));
    }
    for (size_t i = 0; r->act == NW_ACT_RULE_NVFP4 && i < n; i++) {
        const nw_recipe_choice *ch = &choices[i];
        if (ch->targeted && !ch->is_vector && nw_panel_code_bits(ch->type) <= 8 &&
            (ch->type.kind != NW_PANEL_NVFP4 || ch->tensor->layer < 0)) {
            (void)nw_buf_printf(mistakes,
                                "%.*s: nvfp4 activations have scales beside nvfp4 "
                                "weights of layers only\n",
                                (int)leaf_length(ch->tensor->name), ch->tensor->name);
        }
    }
}

static bool has_codes(const nw_recipe_choice *ch)
{
    return nw_panel_code_bits(ch->type) <= 8;
}

/* A matrix of values beside one of codes that reads the same input of its layer. */
static bool is_left_out(const nw_recipe_choice *choices, size_t n, const nw_recipe_choice *ch)
{
    nw_input input = NW_INPUT_COUNT;
    bool found = false;

    if (ch->is_vector || has_codes(ch) || ch->tensor->layer < 0 ||
        !nw_input_of_role(ch->tensor->role, false, &input)) {
        return false;
    }
    for (size_t i = 0; !found && i < n; i++) {
        nw_input reads = NW_INPUT_COUNT;
        found = choices[i].tensor->layer == ch->tensor->layer && has_codes(&choices[i]) &&
                nw_input_of_role(choices[i].tensor->role, false, &reads) && reads == input;
    }
    return found;
}

/* A rule that rounds values does so for all matrices that read them. One line for all layers. */
static void check_mixed(const nw_recipe *r, const nw_recipe_choice *choices, size_t n,
                        nw_buf *mistakes)
{
    const nw_ckpt_tensor *first[NW_ROLE_COUNT] = {0};
    size_t count[NW_ROLE_COUNT] = {0};

    for (size_t i = 0; nw_act_rule_rounds(r->act) && i < n; i++) {
        if (is_left_out(choices, n, &choices[i])) {
            const nw_ckpt_tensor *t = choices[i].tensor;
            first[t->role] = count[t->role]++ == 0 ? t : first[t->role];
        }
    }
    for (size_t role = 0; role < NW_ROLE_COUNT; role++) {
        if (count[role] == 0) {
            continue;
        }
        (void)nw_buf_printf(mistakes, "%.*s", (int)leaf_length(first[role]->name),
                            first[role]->name);
        if (count[role] > 1) {
            (void)nw_buf_printf(mistakes, " and %zu like it", count[role] - 1);
        }
        (void)nw_buf_printf(mistakes,
                            ": not quantized, but others that read its input are, and activations "
                            "'%s' are rounded for all of them or for none\n",
                            nw_act_rule_name(r->act));
    }
}

/* Transforms against each other and against the model. */
static void check_transforms(const nw_recipe *r, const nw_model_config *config, nw_buf *mistakes)
{
    const unsigned t = nw_recipe_transforms(r);
    const unsigned rotations =
        NW_TRANSFORM_ROTATE | NW_TRANSFORM_ROTATE_HEADS | NW_TRANSFORM_ROTATE_DOWN;
    const char *refusal =
        (t & NW_TRANSFORM_ROTATE) != 0 ? nw_rotation_refusal(config, NW_ROTATE_RESIDUAL) : NULL;

    if (refusal != NULL) {
        (void)nw_buf_printf(mistakes, "transform rotate: %s\n", refusal);
    }
    if ((t & NW_TRANSFORM_SMOOTH) != 0 && (t & (rotations | NW_TRANSFORM_AWQ)) != 0) {
        (void)nw_buf_printf(mistakes,
                            "transform smoothquant needs the largest value of each channel as "
                            "calibration saw it: not with %s\n",
                            (t & rotations) != 0 ? "a rotation" : "awq");
    }
    check_inputs(r, (t & rotations) != 0, mistakes);
    if (nw_recipe_needs_stats(r) && r->calibration == NULL) {
        (void)nw_buf_printf(mistakes,
                            "what it does to inputs needs calibration statistics: name the folder "
                            "that narrow calibrate wrote\n");
    }
}

static size_t count_lines(const nw_buf *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->len; i++) {
        n += b->data[i] == '\n';
    }
    return n;
}

/* Whole lines, as many as fit the message. */
static nw_status fail_with(const nw_recipe *r, const nw_buf *mistakes, nw_error *err)
{
    size_t n = mistakes->len;

    if (n > MAX_MISTAKE_BYTES) {
        n = MAX_MISTAKE_BYTES;
        while (n > 0 && mistakes->data[n - 1] != '\n') {
            n--;
        }
    }
    return nw_fail(err, NW_E_FORMAT, "recipe '%s' does not fit the model, %zu mistake%s:\n%.*s",
                   r->name, count_lines(mistakes), count_lines(mistakes) > 1 ? "s" : "",
                   n > 0 ? (int)n - 1 : 0, mistakes->data);
}

nw_status nw_recipe_resolve(const nw_recipe *r, const nw_checkpoint *c, nw_recipe_choice **out,
                            size_t *n, nw_buf *mistakes, nw_error *err)
{
    const size_t n_tensors = nw_checkpoint_n_tensors(c);
    nw_recipe_choice *choices = calloc(n_tensors + 1, sizeof *choices);
    pcre2_match_data *md = pcre2_match_data_create(8, NULL);
    nw_buf found = {0};
    nw_status st = NW_OK;

    nw_buf_init(&found, MAX_LIST_BYTES);
    if (choices == NULL || md == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory to resolve recipe '%s'", r->name);
        goto out;
    }
    check_patterns(&r->targets, "target", c, md, &found);
    check_patterns(&r->ignored, "ignore", c, md, &found);
    for (size_t i = 0; i < n_tensors; i++) {
        choose(r, nw_checkpoint_at(c, i), md, &choices[i]);
    }
    check_groups(choices, n_tensors, r->short_groups, &found);
    check_methods(r, choices, n_tensors, nw_checkpoint_config(c), &found);
    check_activations(r, choices, n_tensors, &found);
    check_code_bits(r, choices, n_tensors, &found);
    check_mixed(r, choices, n_tensors, &found);
    check_transforms(r, nw_checkpoint_config(c), &found);
    if (found.len > 0) {
        st = fail_with(r, &found, err);
        if (mistakes != NULL) {
            (void)nw_buf_add(mistakes, found.data, found.len);
        }
        goto out;
    }
    *out = choices;
    *n = n_tensors;
    choices = NULL;
out:
    free(choices);
    pcre2_match_data_free(md);
    nw_buf_release(&found);
    return st;
}

static const char *weights_name(const nw_recipe_pattern *p, char buf[32])
{
    return p->block != NW_FMT_F32 ? nw_block_name(p->block) : nw_panel_name(p->type, buf);
}

static json_t *list_json(const nw_recipe_list *list, bool with_type)
{
    json_t *out = json_array();
    char type[32];

    for (size_t i = 0; i < list->n; i++) {
        json_t *item = with_type ? json_pack("{s:s, s:s, s:s}", "match", list->items[i].text,
                                             "weights", weights_name(&list->items[i], type),
                                             "method", nw_method_name(list->items[i].method))
                                 : json_string(list->items[i].text);
        (void)json_array_append_new(out, item);
    }
    return out;
}

static json_t *transforms_json(const nw_recipe *r)
{
    json_t *out = json_array();

    for (unsigned i = 0; i < NW_TRANSFORM_WORDS; i++) {
        if ((nw_recipe_transforms(r) >> i & 1U) != 0) {
            (void)json_array_append_new(out, json_string(nw_transform_words[i]));
        }
    }
    return out;
}

/* Scales are named where the format has some. */
static void note_kv(const nw_recipe *r, json_t *doc)
{
    nw_engine_options o = nw_engine_options_default();
    nw_error ignored = {.code = NW_OK};

    if (doc == NULL || r->kv == NULL) {
        return;
    }
    (void)json_object_set_new(doc, "kv", json_string(r->kv));
    if (nw_engine_kv_parse(r->kv, &o, &ignored) == NW_OK && nw_engine_kv_needs_numbers(&o)) {
        (void)json_object_set_new(doc, "kv_scales", json_string(r->kv_heads ? "head" : "tensor"));
    }
}

json_t *nw_recipe_json(const nw_recipe *r, const nw_recipe_choice *choices, size_t n)
{
    json_t *kept = json_array();
    char type[32];

    for (size_t i = 0; i < n; i++) {
        if (!choices[i].targeted && !choices[i].is_vector) {
            (void)json_array_append_new(kept, json_string(choices[i].tensor->name));
        }
    }
    json_t *doc = json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:o}", "activations",
                            nw_act_rule_name(r->act), "scale", nw_scale_rules[r->scales.rule],
                            "scale_dtype", r->scales.bf16 ? "bf16" : "fp16", "targets",
                            list_json(&r->targets, true), "ignore", list_json(&r->ignored, false),
                            "keep", nw_panel_name(r->keep, type), "kept_tensors", kept);
    if (doc != NULL && nw_recipe_transforms(r) != 0) {
        (void)json_object_set_new(doc, "transform", transforms_json(r));
    }
    if (doc != NULL && r->outliers > 0) {
        (void)json_object_set_new(doc, "outliers", json_real((double)r->outliers));
    }
    if (doc != NULL && r->static_scales) {
        (void)json_object_set_new(doc, "activation_scale", json_string("static"));
    }
    if (doc != NULL && r->short_groups) {
        (void)json_object_set_new(doc, "last_group", json_string("short"));
    }
    if (doc != NULL && r->scales.code_bits > 0) {
        (void)json_object_set_new(doc, "code_bits", json_integer(r->scales.code_bits));
    }
    note_kv(r, doc);
    return doc;
}
