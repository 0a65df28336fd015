/* tokenizer.json, tokenizer_config.json and chat_template.jinja. A tokenizer that was read from such
 * files is copied byte for byte. Any other becomes a BPE of the `tokenizers` library: byte-level with
 * the file's merges, or over characters with merges derived from SentencePiece's scores: a piece
 * merges from every pair of pieces it splits into, pieces with higher scores first; for one piece the
 * longer left part first (as in transformers' converter), which makes runs of spaces grow from the
 * left, as SentencePiece's longest match does.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/tokenizer_internal.h"

#define SPACE_MARK "\xE2\x96\x81"
#define MAX_COPIED ((size_t)512 << 20)

typedef struct {
    float score;
    uint32_t n_left, n_right; /* characters */
    uint32_t left, right;
    size_t order; /* of discovery: vocabulary order */
} derived;

typedef struct {
    derived *items;
    size_t n, cap;
} derived_list;

static nw_status no_memory(const nw_tokenizer *t, nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "%s: no memory to write the tokenizer", t->path);
}

static json_t *token_text(const nw_tokenizer *t, uint32_t id)
{
    return json_stringn(t->text[id].s, t->text[id].n); /* NULL: not UTF-8 */
}

static nw_status vocab_json(const nw_tokenizer *t, json_t *vocab, nw_error *err)
{
    for (uint32_t id = 0; id < t->n; id++) {
        const nw_text *x = &t->text[id];
        if (x->n == 0) {
            continue; /* a hole in the ids */
        }
        const json_t *same = json_object_getn(vocab, x->s, x->n);
        if (same != NULL) {
            return nw_fail(
                err, NW_E_UNSUPPORTED,
                "%s: tokens %lld and %u have the same text '%.60s', which tokenizer.json "
                "cannot hold",
                t->path, (long long)json_integer_value(same), id, x->s);
        }
        if (!nw_utf8_valid(x->s, x->n)) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "%s: token %u is not UTF-8, which tokenizer.json cannot hold", t->path,
                           id);
        }
        if (json_object_setn_new(vocab, x->s, x->n, json_integer(id)) != 0) {
            return no_memory(t, err);
        }
    }
    return NW_OK;
}

/* "a b", the older form, which is read twice as fast as ["a", "b"], unless a token holds a space. */
static json_t *merge_json(const nw_tokenizer *t, bool pairs, uint32_t left, uint32_t right)
{
    return pairs ? json_pack("[o, o]", token_text(t, left), token_text(t, right))
                 : json_sprintf("%s %s", t->text[left].s, t->text[right].s);
}

static bool any_space(const nw_tokenizer *t)
{
    for (uint32_t id = 0; id < t->n; id++) {
        if (nw_vocab_mergeable(t, (int32_t)id) &&
            (memchr(t->text[id].s, ' ', t->text[id].n) != NULL ||
             memchr(t->text[id].s, '\0', t->text[id].n) != NULL)) {
            return true;
        }
    }
    return false;
}

static bool derive_add(derived_list *l, derived d)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap == 0 ? 1024 : l->cap * 2;
        size_t bytes = 0;
        derived *items = nw_size_mul(cap, sizeof *items, &bytes) ? realloc(l->items, bytes) : NULL;
        if (items == NULL) {
            return false;
        }
        l->items = items;
        l->cap = cap;
    }
    d.order = l->n;
    l->items[l->n++] = d;
    return true;
}

static bool is_mark_run(const nw_text *x)
{
    for (uint32_t i = 0; i < x->n; i += 3) {
        if (x->n - i < 3 || memcmp(x->s + i, SPACE_MARK, 3) != 0) {
            return false;
        }
    }
    return true;
}

/* Every way to split piece `id` into two pieces. User-defined tokens are cut out before merging; only
 * runs of spaces arise by merging as well. */
static bool derive_piece(const nw_tokenizer *t, uint32_t id, derived_list *l)
{
    const nw_text *x = &t->text[id];
    uint32_t cp = 0;
    uint32_t n_chars = 0;
    uint32_t left_chars = 0;

    if (!nw_vocab_mergeable(t, (int32_t)id) || nw_vocab_find(t, x->s, x->n) != (int32_t)id ||
        (t->type[id] == NW_TYPE_USER && !is_mark_run(x))) {
        return true;
    }
    for (size_t i = 0; i < x->n; n_chars++) {
        i += nw_utf8_decode(x->s + i, x->n - i, &cp, NULL);
    }
    for (size_t i = 0; i < x->n;) {
        i += nw_utf8_decode(x->s + i, x->n - i, &cp, NULL);
        left_chars++;
        const int32_t a = nw_vocab_find(t, x->s, i);
        const int32_t b = i < x->n ? nw_vocab_find(t, x->s + i, x->n - i) : -1;
        if (a >= 0 && b >= 0 && nw_vocab_mergeable(t, a) && nw_vocab_mergeable(t, b) &&
            !derive_add(l, (derived){t->score[id], left_chars, n_chars - left_chars, (uint32_t)a,
                                     (uint32_t)b, 0})) {
            return false;
        }
    }
    return true;
}

static int by_rank(const void *a, const void *b)
{
    const derived *x = a;
    const derived *y = b;

    if (x->score != y->score) { /* neither is NaN: the readers refuse it */
        return x->score > y->score ? -1 : 1;
    }
    if (x->n_left != y->n_left) {
        return x->n_left > y->n_left ? -1 : 1;
    }
    if (x->n_right != y->n_right) {
        return x->n_right > y->n_right ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

static nw_status derived_merges(const nw_tokenizer *t, bool pairs, json_t *merges, nw_error *err)
{
    derived_list l = {0};
    bool ok = true;

    for (uint32_t id = 0; id < t->n && ok; id++) {
        ok = derive_piece(t, id, &l);
    }
    if (ok && l.n > 0) {
        qsort(l.items, l.n, sizeof *l.items, by_rank);
    }
    for (size_t i = 0; i < l.n && ok; i++) {
        ok = json_array_append_new(merges,
                                   merge_json(t, pairs, l.items[i].left, l.items[i].right)) == 0;
    }
    free(l.items);
    return ok ? NW_OK : no_memory(t, err);
}

static nw_status merges_json(const nw_tokenizer *t, json_t *merges, nw_error *err)
{
    const bool pairs = any_space(t);

    if (t->kind == NW_TOK_SPM) {
        return derived_merges(t, pairs, merges, err);
    }
    for (size_t i = 0; i < t->n_merges; i++) {
        const uint64_t m = t->merge_list[i];
        if (json_array_append_new(merges, merge_json(t, pairs, (uint32_t)(m >> 32), (uint32_t)m)) !=
            0) {
            return no_memory(t, err);
        }
    }
    return NW_OK;
}

static json_t *added_json(const nw_tokenizer *t)
{
    json_t *list = json_array();

    for (size_t i = 0; i < t->n_added; i++) {
        const nw_added *a = &t->added[i];
        (void)json_array_append_new(
            list, json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (int)a->id, "content",
                            json_stringn(a->text.s, a->text.n), "single_word", a->single_word,
                            "lstrip", a->lstrip, "rstrip", a->rstrip, "normalized", a->normalized,
                            "special", a->special));
    }
    return list;
}

static json_t *replace_json(const char *kind, const char *pattern, const char *content)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", kind, pattern, "content",
                     content);
}

static json_t *normalizer_json(const nw_tokenizer *t)
{
    json_t *steps = json_array();

    if (t->kind == NW_TOK_SPM) {
        if (t->collapse_spaces) {
            (void)json_array_append_new(
                steps, replace_json("Regex", "\\A +|(?: |" SPACE_MARK ")+\\z", ""));
            (void)json_array_append_new(steps, replace_json("Regex", " {2,}", " "));
        }
        if (t->add_space_prefix) {
            (void)json_array_append_new(
                steps, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", SPACE_MARK));
        }
        (void)json_array_append_new(steps, replace_json("String", " ", SPACE_MARK));
    } else if (t->n_norm > 0) { /* GGUF's qwen2 is the only byte-level one with a step: NFC */
        (void)json_array_append_new(steps, json_pack("{s:s}", "type", "NFC"));
    }
    if (json_array_size(steps) > 0) {
        return json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", steps);
    }
    json_decref(steps);
    return json_null();
}

static json_t *byte_level_json(bool use_regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", use_regex);
}

static json_t *pre_tokenizer_json(const nw_tokenizer *t)
{
    json_t *steps = NULL;

    if (t->kind == NW_TOK_SPM) {
        return json_null();
    }
    steps = json_array();
    for (size_t i = 0; i < t->pretok.n; i++) {
        const nw_pre_kind kind = t->pretok.steps[i].kind;
        if (kind == NW_PRE_DIGITS) {
            (void)json_array_append_new(
                steps, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
        } else if (kind == NW_PRE_GPT2) {
            (void)json_array_append_new(steps, byte_level_json(true));
        } else {
            (void)json_array_append_new(
                steps, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                                 nw_pretok_pattern(kind), "behavior", "Isolated", "invert", 0));
            (void)json_array_append_new(steps, byte_level_json(false));
        }
    }
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps);
}

static json_t *post_processor_json(const nw_tokenizer *t)
{
    if (!nw_tokenizer_adds_bos(t)) {
        return json_null();
    }
    const char *bos = t->text[t->bos].s;
    return json_pack(
        "{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, "
        "s:i}}], s:{s:{s:s, s:[i], s:[s]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", bos, "type_id", 0, "Sequence",
        "id", "A", "type_id", 0, "pair", "SpecialToken", "id", bos, "type_id", 0, "Sequence", "id",
        "A", "type_id", 0, "Sequence", "id", "B", "type_id", 1, "special_tokens", bos, "id", bos,
        "ids", (int)t->bos, "tokens", bos);
}

static json_t *decoder_json(const nw_tokenizer *t)
{
    if (t->kind == NW_TOK_BYTE_BPE) {
        return byte_level_json(true);
    }
    json_t *steps = json_array();
    (void)json_array_append_new(steps, replace_json("String", SPACE_MARK, " "));
    (void)json_array_append_new(steps, json_pack("{s:s}", "type", "ByteFallback"));
    (void)json_array_append_new(steps, json_pack("{s:s}", "type", "Fuse"));
    if (t->decode_strip) {
        (void)json_array_append_new(steps, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
                                                     "content", " ", "start", 1, "stop", 0));
    }
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", steps);
}

static bool has_byte_tokens(const nw_tokenizer *t)
{
    for (unsigned b = 0; b < 256; b++) {
        if (t->byte_id[b] >= 0) {
            return true;
        }
    }
    return false;
}

static nw_status tokenizer_json(const nw_tokenizer *t, json_t **out, nw_error *err)
{
    json_t *vocab = json_object();
    json_t *merges = json_array();
    const bool spm = t->kind == NW_TOK_SPM;
    const char *unk = t->model_unk >= 0 ? t->text[t->model_unk].s : NULL;

    if (vocab_json(t, vocab, err) != NW_OK || merges_json(t, merges, err) != NW_OK) {
        json_decref(vocab);
        json_decref(merges);
        return err->code;
    }
    *out = json_pack(
        "{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:{s:s, s:n, s:s?, s:n, s:n, s:b, s:b, s:b, s:o, "
        "s:o}}",
        "version", "1.0", "truncation", "padding", "added_tokens", added_json(t), "normalizer",
        normalizer_json(t), "pre_tokenizer", pre_tokenizer_json(t), "post_processor",
        post_processor_json(t), "decoder", decoder_json(t), "model", "type", "BPE", "dropout",
        "unk_token", unk, "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
        spm && t->fuse_unk, "byte_fallback", spm && has_byte_tokens(t), "ignore_merges",
        t->ignore_merges, "vocab", vocab, "merges", merges);
    return *out != NULL ? NW_OK : no_memory(t, err);
}

static json_t *config_json(const nw_tokenizer *t)
{
    const struct {
        const char *key;
        int32_t id;
    } tokens[] = {
        {"bos_token", t->bos}, {"eos_token", t->eos}, {"pad_token", t->pad}, {"unk_token", t->unk}};
    json_t *config = json_pack("{s:s, s:b, s:b, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "add_bos_token", nw_tokenizer_adds_bos(t), "add_eos_token", 0,
                               "clean_up_tokenization_spaces", 0);

    for (size_t i = 0; i < NW_COUNT(tokens); i++) {
        if (tokens[i].id >= 0) {
            (void)json_object_set_new(config, tokens[i].key, token_text(t, (uint32_t)tokens[i].id));
        }
    }
    if (t->chat_template != NULL) {
        (void)json_object_set_new(config, "chat_template", json_string(t->chat_template));
    }
    return config;
}

static nw_status write_text(const char *dir, const char *name, const char *bytes, size_t n,
                            nw_error *err)
{
    char *path = nw_path_join(dir, name);

    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir);
    }
    const nw_status st = nw_file_write(path, bytes, n, err);
    free(path);
    return st;
}

static nw_status write_json(const char *dir, const char *name, json_t *value, size_t indent,
                            nw_error *err)
{
    char *text =
        value == NULL ? NULL : json_dumps(value, indent == 0 ? JSON_COMPACT : JSON_INDENT(indent));
    nw_status st = NW_OK;

    if (text == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s/%s: no memory, or a text that is not UTF-8", dir, name);
    } else {
        st = write_text(dir, name, text, strlen(text), err);
    }
    free(text);
    json_decref(value);
    return st;
}

/* Copies from/name to dir/as, if it is there. */
static nw_status copy(const char *from, const char *name, const char *dir, const char *as,
                      nw_error *err)
{
    char *path = nw_path_join(from, name);
    char *data = NULL;
    size_t len = 0;
    nw_status st = NW_OK;

    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", from);
    }
    if (nw_file_exists(path)) {
        st = nw_file_read(path, MAX_COPIED, &data, &len, err);
        if (st == NW_OK) {
            st = write_text(dir, as, data, len, err);
        }
    }
    free(data);
    free(path);
    return st;
}

static nw_status copy_all(const nw_tokenizer *t, const char *dir, nw_error *err)
{
    static const char *const names[] = {"tokenizer_config.json", "chat_template.jinja",
                                        "special_tokens_map.json"};
    nw_status st = copy(t->hf_dir, t->hf_json, dir, "tokenizer.json", err);

    for (size_t i = 0; i < NW_COUNT(names) && st == NW_OK; i++) {
        st = copy(t->hf_dir, names[i], dir, names[i], err);
    }
    return st;
}

nw_status nw_tokenizer_write_hf(const nw_tokenizer *tok, const char *dir, nw_error *err)
{
    json_t *root = NULL;

    if (tok->hf_dir != NULL) {
        return copy_all(tok, dir, err);
    }
    if (tok->chat_template != NULL &&
        !nw_utf8_valid(tok->chat_template, strlen(tok->chat_template))) {
        return nw_fail(err, NW_E_FORMAT, "%s: the chat template is not UTF-8", tok->path);
    }
    if (tokenizer_json(tok, &root, err) != NW_OK ||
        write_json(dir, "tokenizer.json", root, 0, err) != NW_OK ||
        write_json(dir, "tokenizer_config.json", config_json(tok), 2, err) != NW_OK) {
        return err->code;
    }
    return tok->chat_template == NULL ? NW_OK
                                      : write_text(dir, "chat_template.jinja", tok->chat_template,
                                                   strlen(tok->chat_template), err);
}
