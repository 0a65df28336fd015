/* tokenizer.json: the model (BPE), the added tokens and their flags. The steps before the model
 * (normalizer, pre-tokenizer) and after it (BOS) are read by tokenizer_json_steps.c. A component
 * that is not known is refused by its name. Merges come as "a b" or as ["a", "b"].
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "model/tokenizer_json_steps.h"

/* Ids may have holes, but not so many that a small file asks for much memory. */
#define MAX_HOLES 65536

/* The greatest id of vocab and added tokens, plus one. */
static nw_status count_ids(const nw_tokenizer *t, json_t *vocab, json_t *added, uint32_t *out,
                           nw_error *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    size_t i = 0;
    json_int_t max = -1;
    const json_int_t limit =
        (json_int_t)(json_object_size(vocab) + json_array_size(added)) + MAX_HOLES;

    json_object_foreach(vocab, key, value)
    {
        const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= limit) {
            return nw_fail(err, NW_E_RANGE, "%s: token '%.80s' has an id outside of [0, %lld)",
                           t->path, key, (long long)limit);
        }
        max = id > max ? id : max;
    }
    json_array_foreach(added, i, value)
    {
        const json_int_t id = json_integer_value(json_object_get(value, "id"));
        if (!json_is_integer(json_object_get(value, "id")) || id < 0 || id >= limit) {
            return nw_fail(err, NW_E_RANGE, "%s: added token %zu has no id in [0, %lld)", t->path,
                           i, (long long)limit);
        }
        max = id > max ? id : max;
    }
    *out = (uint32_t)(max + 1);
    return NW_OK;
}

/* What an added token makes of its id: control when special. */
static nw_status read_added(nw_tokenizer *t, json_t *item, size_t i, uint8_t *types, nw_added *out,
                            nw_error *err)
{
    const json_t *text = json_object_get(item, "content");
    const uint32_t id = (uint32_t)json_integer_value(json_object_get(item, "id"));

    if (!json_is_string(text)) {
        return nw_fail(err, NW_E_FORMAT, "%s: added token %zu has no \"content\"", t->path, i);
    }
    *out = (nw_added){
        .text = {json_string_value(text), (uint32_t)json_string_length(text)},
        .id = (int32_t)id,
        .special = json_is_true(json_object_get(item, "special")),
        .normalized = json_is_true(json_object_get(item, "normalized")),
        .lstrip = json_is_true(json_object_get(item, "lstrip")),
        .rstrip = json_is_true(json_object_get(item, "rstrip")),
        .single_word = json_is_true(json_object_get(item, "single_word")),
    };
    types[id] = out->special ? NW_TYPE_CONTROL : NW_TYPE_USER;
    return NW_OK;
}

/* Enters the token, or makes sure that the vocabulary has the same text under this id. */
static nw_status enter(nw_tokenizer *t, uint32_t id, const char *s, size_t n, uint8_t type,
                       nw_error *err)
{
    const nw_text *held = &t->text[id];

    if (held->s == NULL) {
        return nw_vocab_set(t, id, s, n, (nw_tok_type)type, err);
    }
    if (held->n != n || memcmp(held->s, s, n) != 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: '%.60s' and '%.60s' have the same id %u", t->path,
                       held->s, s, id);
    }
    return NW_OK;
}

static nw_status read_tokens(nw_tokenizer *t, json_t *vocab, json_t *added, nw_error *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    size_t i = 0;
    nw_added a;
    size_t n_key = 0;
    uint32_t n = 0;

    if (count_ids(t, vocab, added, &n, err) != NW_OK || nw_vocab_init(t, n, err) != NW_OK) {
        return err->code;
    }
    uint8_t *types = nw_arena_alloc(&t->arena, n);
    if (types == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %u tokens", t->path, n);
    }
    memset(types, NW_TYPE_NORMAL, n);
    json_array_foreach(added, i, value)
    {
        if (read_added(t, value, i, types, &a, err) != NW_OK) {
            return err->code;
        }
    }
    json_object_keylen_foreach(vocab, key, n_key, value)
    {
        const uint32_t id = (uint32_t)json_integer_value(value);
        if (enter(t, id, key, n_key, types[id], err) != NW_OK) {
            return err->code;
        }
    }
    json_array_foreach(added, i, value)
    {
        if (read_added(t, value, i, types, &a, err) != NW_OK ||
            enter(t, (uint32_t)a.id, a.text.s, a.text.n, types[a.id], err) != NW_OK) {
            return err->code;
        }
        a.text = t->text[a.id];
        if (nw_vocab_add_added(t, &a, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

/* One entry of "merges": its two halves. False: neither form. */
static bool split_merge(const json_t *m, const char **a, size_t *n_a, const char **b, size_t *n_b)
{
    if (json_is_array(m) && json_array_size(m) == 2 && json_is_string(json_array_get(m, 0)) &&
        json_is_string(json_array_get(m, 1))) {
        *a = json_string_value(json_array_get(m, 0));
        *n_a = json_string_length(json_array_get(m, 0));
        *b = json_string_value(json_array_get(m, 1));
        *n_b = json_string_length(json_array_get(m, 1));
        return true;
    }
    const char *s = json_string_value(m);
    const char *gap = s == NULL ? NULL : strchr(s, ' ');
    if (gap == NULL) {
        return false;
    }
    *a = s;
    *n_a = (size_t)(gap - s);
    *b = gap + 1;
    *n_b = json_string_length(m) - *n_a - 1;
    return true;
}

static nw_status read_merges(nw_tokenizer *t, json_t *merges, nw_error *err)
{
    size_t i = 0;
    json_t *m = NULL;

    if (!json_is_array(merges)) {
        return nw_fail(err, NW_E_FORMAT, "%s: model.merges is not a list", t->path);
    }
    if (nw_vocab_reserve_merges(t, json_array_size(merges), err) != NW_OK) {
        return err->code;
    }
    json_array_foreach(merges, i, m)
    {
        const char *a = NULL;
        const char *b = NULL;
        size_t n_a = 0;
        size_t n_b = 0;
        if (!split_merge(m, &a, &n_a, &b, &n_b) || !nw_vocab_add_merge(t, a, n_a, b, n_b)) {
            return nw_fail(err, NW_E_FORMAT,
                           "%s: model.merges[%zu] is not two tokens that join to a third", t->path,
                           i);
        }
    }
    return NW_OK;
}

/* Members of a BPE model that would change the ids and that no model narrow runs uses. */
static nw_status refuse_unknown(const nw_tokenizer *t, const json_t *model, nw_error *err)
{
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = NULL;
    double dropout = 0;

    if (nw_json_opt_str(model, t->path, "type", &type, err) != NW_OK ||
        nw_json_opt_double(model, t->path, "dropout", 0, 1, &dropout, err) != NW_OK) {
        return err->code;
    }
    if (type != NULL && strcmp(type, "BPE") != 0) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: model type '%s', known is BPE", t->path, type);
    }
    if (dropout > 0) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: model.dropout is %g, known is none", t->path,
                       dropout);
    }
    for (size_t i = 0; i < NW_COUNT(keys); i++) {
        const char *s = NULL;
        if (nw_json_opt_str(model, t->path, keys[i], &s, err) != NW_OK) {
            return err->code;
        }
        if (s != NULL && *s != '\0') {
            return nw_fail(err, NW_E_UNSUPPORTED, "%s: model.%s is '%s', known is none", t->path,
                           keys[i], s);
        }
    }
    return NW_OK;
}

static nw_status read_model(nw_tokenizer *t, json_t *root, nw_error *err)
{
    json_t *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab");
    const char *unk = NULL;

    if (!json_is_object(model) || !json_is_object(vocab)) {
        return nw_fail(err, NW_E_FORMAT, "%s: model.vocab is not an object", t->path);
    }
    if (refuse_unknown(t, model, err) != NW_OK ||
        nw_json_opt_str(model, t->path, "unk_token", &unk, err) != NW_OK ||
        nw_json_opt_bool(model, t->path, "byte_fallback", &t->byte_fallback, err) != NW_OK ||
        nw_json_opt_bool(model, t->path, "fuse_unk", &t->fuse_unk, err) != NW_OK ||
        nw_json_opt_bool(model, t->path, "ignore_merges", &t->ignore_merges, err) != NW_OK ||
        read_tokens(t, vocab, json_object_get(root, "added_tokens"), err) != NW_OK ||
        read_merges(t, json_object_get(model, "merges"), err) != NW_OK) {
        return err->code;
    }
    if (unk != NULL) {
        t->unk = nw_vocab_find(t, unk, strlen(unk));
        if (t->unk < 0) {
            return nw_fail(err, NW_E_FORMAT, "%s: model.unk_token '%.80s' is not in the vocabulary",
                           t->path, unk);
        }
        t->model_unk = t->unk;
        if (t->type[t->unk] == NW_TYPE_NORMAL) {
            t->type[t->unk] = NW_TYPE_UNKNOWN;
        }
    }
    return NW_OK;
}

/* With byte fallback, "<0x00>" to "<0xFF>" stand for bytes. */
static void mark_bytes(nw_tokenizer *t)
{
    for (unsigned b = 0; b < 256 && t->byte_fallback; b++) {
        static const char digits[] = "0123456789ABCDEF";
        const char text[6] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        const int32_t id = nw_vocab_find(t, text, sizeof text);
        if (id >= 0 && t->type[id] == NW_TYPE_NORMAL) {
            t->type[id] = NW_TYPE_BYTE;
        }
    }
}

nw_status nw_tokenizer_read_json(nw_tokenizer *t, const char *name, const char *bytes, size_t n,
                                 nw_error *err)
{
    json_t *root = NULL;

    if (nw_json_parse(name, bytes, n, &root, err) != NW_OK) {
        return err->code;
    }
    nw_status st = NW_OK;
    if (!json_is_object(root)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: not a JSON object", name);
    }
    t->kind = NW_TOK_CHAR_BPE;
    if (st == NW_OK) {
        st = nw_json_read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err);
    }
    if (st == NW_OK) {
        st = nw_json_read_normalizer(t, json_object_get(root, "normalizer"), err);
    }
    if (st == NW_OK) {
        st = read_model(t, root, err);
    }
    if (st == NW_OK) {
        st = nw_json_read_post_processor(t, json_object_get(root, "post_processor"), err);
    }
    if (st == NW_OK) {
        mark_bytes(t);
        st = nw_vocab_finish(t, err);
    }
    json_decref(root);
    return st;
}
