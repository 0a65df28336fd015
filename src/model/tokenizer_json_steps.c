/* Normalizer, pre-tokenizer and post-processor of a tokenizer.json. Each known component is a row of
 * a table with the function that reads it; Sequence is a row like any other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_json_steps.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define SPACE_MARK    "\xE2\x96\x81"
#define MAX_SEQ_DEPTH 8

typedef nw_status (*component_fn)(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err);

typedef struct {
    const char *type;
    component_fn read;
} component;

/* Reads v by the row of its "type"; null is nothing. */
static nw_status dispatch(nw_tokenizer *t, const json_t *v, const char *what, const component *rows,
                          size_t n_rows, unsigned depth, nw_error *err)
{
    const char *type = NULL;

    if (v == NULL || json_is_null(v)) {
        return NW_OK;
    }
    if (nw_json_str(v, t->path, "type", &type, err) != NW_OK) {
        return nw_context(err, "%s", what);
    }
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(rows[i].type, type) == 0) {
            return depth > MAX_SEQ_DEPTH ? nw_fail(err, NW_E_RANGE, "%s: %s nested deeper than %d",
                                                   t->path, what, MAX_SEQ_DEPTH)
                                         : rows[i].read(t, v, depth, err);
        }
    }
    char known[256] = "";
    size_t len = 0;
    for (size_t i = 0; i < n_rows && len < sizeof known; i++) {
        const int n =
            snprintf(known + len, sizeof known - len, "%s%s", i == 0 ? "" : ", ", rows[i].type);
        len += n < 0 ? 0 : (size_t)n;
    }
    return nw_fail(err, NW_E_UNSUPPORTED, "%s: %s '%.80s', known are %s", t->path, what, type,
                   known);
}

/* The string or regex of a "pattern": {"String": s} or {"Regex": r}. */
static nw_status read_pattern(nw_tokenizer *t, const json_t *v, nw_text *literal,
                              const char **regex, size_t *n_regex, nw_error *err)
{
    const json_t *pattern = json_object_get(v, "pattern");
    const json_t *s = json_object_get(pattern, "String");
    const json_t *r = json_object_get(pattern, "Regex");

    if (json_is_string(r)) {
        *regex = json_string_value(r);
        *n_regex = json_string_length(r);
        return NW_OK;
    }
    if (!json_is_string(s) || json_string_length(s) == 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: a pattern is neither a \"String\" nor a \"Regex\"",
                       t->path);
    }
    literal->s = nw_arena_strndup(&t->arena, json_string_value(s), json_string_length(s));
    literal->n = (uint32_t)json_string_length(s);
    return literal->s != NULL ? NW_OK
                              : nw_fail(err, NW_E_NOMEM, "%s: no memory for a pattern", t->path);
}

/* ---- normalizers ---- */

static nw_status next_norm(nw_tokenizer *t, nw_norm_step **out, nw_error *err)
{
    if (t->n_norm == NW_MAX_STEPS) {
        return nw_fail(err, NW_E_RANGE, "%s: more than %d normalization steps", t->path,
                       NW_MAX_STEPS);
    }
    *out = &t->norm[t->n_norm++];
    return NW_OK;
}

static nw_status read_form(nw_tokenizer *t, nw_normal_form form, nw_error *err)
{
    nw_norm_step *step = NULL;

    if (next_norm(t, &step, err) != NW_OK) {
        return err->code;
    }
    *step = (nw_norm_step){.kind = NW_NORM_FORM, .form = form};
    return NW_OK;
}

static nw_status norm_nfc(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    (void)v, (void)depth;
    return read_form(t, NW_NFC, err);
}

static nw_status norm_nfd(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    (void)v, (void)depth;
    return read_form(t, NW_NFD, err);
}

static nw_status norm_nfkc(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    (void)v, (void)depth;
    return read_form(t, NW_NFKC, err);
}

static nw_status norm_nfkd(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    (void)v, (void)depth;
    return read_form(t, NW_NFKD, err);
}

static nw_status copy_text(nw_tokenizer *t, const json_t *v, const char *key, nw_text *out,
                           nw_error *err)
{
    const json_t *s = json_object_get(v, key);

    if (!json_is_string(s)) {
        return nw_fail(err, NW_E_FORMAT, "%s: \"%s\" of a normalizer is not a string", t->path,
                       key);
    }
    out->s = nw_arena_strndup(&t->arena, json_string_value(s), json_string_length(s));
    out->n = (uint32_t)json_string_length(s);
    return out->s != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for a text", t->path);
}

static nw_status norm_replace(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    nw_norm_step *step = NULL;
    const char *regex = NULL;
    size_t n_regex = 0;

    (void)depth;
    if (next_norm(t, &step, err) != NW_OK) {
        return err->code;
    }
    *step = (nw_norm_step){.kind = NW_NORM_REPLACE};
    if (copy_text(t, v, "content", &step->to, err) != NW_OK ||
        read_pattern(t, v, &step->from, &regex, &n_regex, err) != NW_OK) {
        return err->code;
    }
    return regex == NULL ? NW_OK : nw_regex_new(regex, n_regex, &step->regex, err);
}

static nw_status norm_prepend(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    nw_norm_step *step = NULL;
    nw_text text = {NULL, 0};

    (void)depth;
    if (copy_text(t, v, "prepend", &text, err) != NW_OK) {
        return err->code;
    }
    t->decode_strip = text.n == 3 && memcmp(text.s, SPACE_MARK, 3) == 0;
    if (next_norm(t, &step, err) != NW_OK) {
        return err->code;
    }
    *step = (nw_norm_step){.kind = NW_NORM_PREPEND, .to = text};
    return NW_OK;
}

static nw_status norm_sequence(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err);

static const component normalizers[] = {
    {"NFC", norm_nfc},           {"NFD", norm_nfd},         {"NFKC", norm_nfkc},
    {"NFKD", norm_nfkd},         {"Replace", norm_replace}, {"Prepend", norm_prepend},
    {"Sequence", norm_sequence},
};

static nw_status read_norm(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    return dispatch(t, v, "normalizer", normalizers, NW_COUNT(normalizers), depth, err);
}

static nw_status norm_sequence(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    size_t i = 0;
    json_t *item = NULL;

    json_array_foreach(json_object_get(v, "normalizers"), i, item)
    {
        if (read_norm(t, item, depth + 1, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

nw_status nw_json_read_normalizer(nw_tokenizer *t, const json_t *v, nw_error *err)
{
    return read_norm(t, v, 0, err);
}

/* ---- pre-tokenizers ---- */

static nw_status next_pre(nw_tokenizer *t, nw_pre_step **out, nw_error *err)
{
    if (t->pretok.n == NW_PRE_MAX_STEPS) {
        return nw_fail(err, NW_E_RANGE, "%s: more than %d pre-tokenizers", t->path,
                       NW_PRE_MAX_STEPS);
    }
    *out = &t->pretok.steps[t->pretok.n++];
    return NW_OK;
}

static nw_status pre_byte_level(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    bool prefix = true;
    bool use_regex = true;
    nw_pre_step *step = NULL;

    (void)depth;
    if (nw_json_opt_bool(v, t->path, "add_prefix_space", &prefix, err) != NW_OK ||
        nw_json_opt_bool(v, t->path, "use_regex", &use_regex, err) != NW_OK) {
        return err->code;
    }
    t->kind = NW_TOK_BYTE_BPE;
    if (prefix && t->pretok.n > 0) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: ByteLevel with add_prefix_space after another pre-tokenizer", t->path);
    }
    t->pretok.prefix_space = prefix;
    if (use_regex) {
        if (next_pre(t, &step, err) != NW_OK) {
            return err->code;
        }
        *step = (nw_pre_step){.kind = NW_PRE_GPT2};
    }
    return NW_OK;
}

static nw_status pre_digits(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    bool individual = false;
    nw_pre_step *step = NULL;

    (void)depth;
    if (nw_json_opt_bool(v, t->path, "individual_digits", &individual, err) != NW_OK ||
        next_pre(t, &step, err) != NW_OK) {
        return err->code;
    }
    *step = (nw_pre_step){.kind = individual ? NW_PRE_DIGITS : NW_PRE_DIGIT_RUNS};
    return NW_OK;
}

static nw_status read_behavior(nw_tokenizer *t, const json_t *v, nw_split_behavior *out,
                               nw_error *err)
{
    static const char *const names[] = {
        [NW_SPLIT_REMOVED] = "Removed",
        [NW_SPLIT_ISOLATED] = "Isolated",
        [NW_SPLIT_MERGED_PREVIOUS] = "MergedWithPrevious",
        [NW_SPLIT_MERGED_NEXT] = "MergedWithNext",
        [NW_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name = NULL;

    if (nw_json_str(v, t->path, "behavior", &name, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (nw_split_behavior)i;
            return NW_OK;
        }
    }
    return nw_fail(err, NW_E_UNSUPPORTED, "%s: split behavior '%.80s'", t->path, name);
}

static nw_status pre_split(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    nw_pre_step *step = NULL;
    nw_text literal = {NULL, 0};
    const char *regex = NULL;
    size_t n_regex = 0;
    nw_pre_kind scanner = NW_PRE_SPLIT;

    (void)depth;
    if (next_pre(t, &step, err) != NW_OK) {
        return err->code;
    }
    *step = (nw_pre_step){.kind = NW_PRE_SPLIT};
    if (read_behavior(t, v, &step->behavior, err) != NW_OK ||
        nw_json_opt_bool(v, t->path, "invert", &step->invert, err) != NW_OK ||
        read_pattern(t, v, &literal, &regex, &n_regex, err) != NW_OK) {
        return err->code;
    }
    if (regex == NULL) {
        step->literal = literal.s;
        step->n_literal = literal.n;
        return NW_OK;
    }
    /* These patterns match every character, so Isolated and Removed-inverted cut alike. */
    const bool every =
        step->invert ? step->behavior == NW_SPLIT_REMOVED : step->behavior == NW_SPLIT_ISOLATED;
    if (every && nw_pretok_scanner_for(regex, n_regex, &scanner)) {
        *step = (nw_pre_step){.kind = scanner};
        return NW_OK;
    }
    return nw_regex_new(regex, n_regex, &step->regex, err);
}

/* Metaspace: spaces become U+2581, one is put in front, and words are cut before each when split. */
static nw_status pre_metaspace(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    nw_norm_step *norm = NULL;
    nw_pre_step *step = NULL;
    bool split = true;
    const char *scheme = "always";
    const char *mark = NULL;

    (void)depth;
    if (nw_json_str(v, t->path, "replacement", &mark, err) != NW_OK ||
        nw_json_opt_bool(v, t->path, "split", &split, err) != NW_OK ||
        nw_json_opt_str(v, t->path, "prepend_scheme", &scheme, err) != NW_OK) {
        return err->code;
    }
    if (strcmp(mark, SPACE_MARK) != 0 || t->pretok.n > 0) {
        return nw_fail(
            err, NW_E_UNSUPPORTED,
            "%s: Metaspace with another mark than U+2581, or after another pre-tokenizer", t->path);
    }
    t->add_space_prefix = strcmp(scheme, "never") != 0;
    t->prefix_first_only = strcmp(scheme, "first") == 0;
    t->prefix_unless_there = true;
    t->decode_strip = t->add_space_prefix;
    if (next_norm(t, &norm, err) != NW_OK) {
        return err->code;
    }
    *norm = (nw_norm_step){.kind = NW_NORM_REPLACE, .from = {" ", 1}, .to = {SPACE_MARK, 3}};
    if (split) {
        if (next_pre(t, &step, err) != NW_OK) {
            return err->code;
        }
        *step = (nw_pre_step){.kind = NW_PRE_SPLIT,
                              .behavior = NW_SPLIT_MERGED_NEXT,
                              .literal = SPACE_MARK,
                              .n_literal = 3};
    }
    return NW_OK;
}

static nw_status pre_sequence(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err);

static const component pre_tokenizers[] = {
    {"ByteLevel", pre_byte_level}, {"Digits", pre_digits},     {"Split", pre_split},
    {"Metaspace", pre_metaspace},  {"Sequence", pre_sequence},
};

static nw_status read_pre(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    return dispatch(t, v, "pre-tokenizer", pre_tokenizers, NW_COUNT(pre_tokenizers), depth, err);
}

static nw_status pre_sequence(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    size_t i = 0;
    json_t *item = NULL;

    json_array_foreach(json_object_get(v, "pretokenizers"), i, item)
    {
        if (read_pre(t, item, depth + 1, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

nw_status nw_json_read_pre_tokenizer(nw_tokenizer *t, const json_t *v, nw_error *err)
{
    return read_pre(t, v, 0, err);
}

/* ---- post-processors ---- */

/* The ids of what stands before the text in "single": at most one token, BOS. */
static nw_status post_template(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    size_t i = 0;
    json_t *item = NULL;

    (void)depth;
    json_array_foreach(json_object_get(v, "single"), i, item)
    {
        const json_t *special = json_object_get(item, "SpecialToken");
        if (special == NULL) {
            break; /* the text; what stands after it (EOS) is no part of a prompt */
        }
        const char *name = json_string_value(json_object_get(special, "id"));
        const json_t *rule =
            name == NULL ? NULL : json_object_get(json_object_get(v, "special_tokens"), name);
        const json_t *id = json_array_get(json_object_get(rule, "ids"), 0);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= (json_int_t)t->n) {
            return nw_fail(err, NW_E_FORMAT,
                           "%s: the post-processor's token '%.80s' has no id in the vocabulary",
                           t->path, name == NULL ? "" : name);
        }
        if (t->add_bos) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "%s: the post-processor puts more than one token before the text",
                           t->path);
        }
        t->bos = (int32_t)json_integer_value(id);
        t->add_bos = true;
    }
    return NW_OK;
}

static nw_status post_nothing(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    (void)t, (void)v, (void)depth, (void)err;
    return NW_OK;
}

static nw_status post_sequence(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err);

static const component post_processors[] = {
    {"TemplateProcessing", post_template},
    {"ByteLevel", post_nothing}, /* offsets only */
    {"Sequence", post_sequence},
};

static nw_status read_post(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    return dispatch(t, v, "post-processor", post_processors, NW_COUNT(post_processors), depth, err);
}

static nw_status post_sequence(nw_tokenizer *t, const json_t *v, unsigned depth, nw_error *err)
{
    size_t i = 0;
    json_t *item = NULL;

    json_array_foreach(json_object_get(v, "processors"), i, item)
    {
        if (read_post(t, item, depth + 1, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

nw_status nw_json_read_post_processor(nw_tokenizer *t, const json_t *v, nw_error *err)
{
    return read_post(t, v, 0, err);
}
