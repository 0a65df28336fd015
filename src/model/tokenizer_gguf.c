/* A tokenizer from GGUF metadata (tokenizer.ggml.*). What counts is each token's type: 1 normal
 * 2 unknown 3 control 4 user defined 5 unused 6 byte; a text that only looks like a control token
 * is an ordinary one. Sources: the GGUF specification; llama.cpp's keys and defaults.
 * SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "model/tokenizer_internal.h"

#define KEY(name)  "tokenizer.ggml." name
#define SPACE_MARK "\xE2\x96\x81"

/* Little-endian, unaligned. */
static uint32_t u32_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The array `key` of n elements of elem_type; NULL in *out where the key is absent. */
static nw_status array_of(const nw_gguf *g, const char *name, const char *key, nw_gguf_type elem,
                          uint64_t n, const nw_gguf_kv **out, nw_error *err)
{
    char found[24];
    char wanted[24];
    const nw_gguf_kv *kv = nw_gguf_find(g, key);

    if (kv != NULL && (kv->type != NW_GGUF_ARR || kv->elem_type != (uint32_t)elem)) {
        return nw_fail(err, NW_E_FORMAT, "%s: %s is %s of %s, wanted an array of %s", name, key,
                       kv->type == NW_GGUF_ARR ? "an array" : "not an array",
                       nw_gguf_type_name(kv->elem_type, found), nw_gguf_type_name(elem, wanted));
    }
    if (kv != NULL && n != 0 && kv->n != n) {
        return nw_fail(err, NW_E_FORMAT, "%s: %s has %llu entries, tokens has %llu", name, key,
                       (unsigned long long)kv->n, (unsigned long long)n);
    }
    *out = kv;
    return NW_OK;
}

/* Gemma keeps runs of spaces as user-defined tokens written with real spaces. They are merged from
 * U+2581 before anything else, as in SentencePiece, so they are stored in that form. */
static bool is_space_run(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != ' ') {
            return false;
        }
    }
    return n > 1;
}

static nw_status add_space_run(nw_tokenizer *t, uint32_t id, size_t n, nw_error *err)
{
    char *marks = nw_arena_alloc(&t->arena, n * 3 + 1);

    if (marks == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for token %u", t->path, id);
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(marks + i * 3, SPACE_MARK, 3);
    }
    t->score[id] = FLT_MAX;
    return nw_vocab_set(t, id, marks, n * 3, NW_TYPE_USER, err);
}

static nw_status add_token(nw_tokenizer *t, uint32_t id, const char *s, size_t n, uint32_t type,
                           nw_error *err)
{
    if (type > NW_TYPE_BYTE) {
        return nw_fail(err, NW_E_FORMAT, "%s: token %u has type %u, known are 0 to 6", t->path, id,
                       type);
    }
    const nw_tok_type kind = type == 0 ? NW_TYPE_NORMAL : (nw_tok_type)type;
    const bool run = kind == NW_TYPE_USER && t->kind == NW_TOK_SPM && is_space_run(s, n);
    if ((run ? add_space_run(t, id, n, err) : nw_vocab_set(t, id, s, n, kind, err)) != NW_OK) {
        return err->code;
    }
    if (kind == NW_TYPE_CONTROL || kind == NW_TYPE_UNKNOWN || kind == NW_TYPE_USER) {
        const nw_added a = {
            .text = t->text[id], .id = (int32_t)id, .special = kind != NW_TYPE_USER};
        return nw_vocab_add_added(t, &a, err);
    }
    return NW_OK;
}

static nw_status read_scores(nw_tokenizer *t, const nw_gguf_kv *kv, nw_error *err)
{
    t->score = nw_arena_array(&t->arena, t->n, sizeof *t->score);
    if (t->score == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %u scores", t->path, t->n);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        const uint32_t bits = u32_at(kv->data + (size_t)i * 4);
        memcpy(&t->score[i], &bits, sizeof bits);
        if (isnan(t->score[i])) {
            return nw_fail(err, NW_E_FORMAT, "%s: the score of token %u is not a number", t->path,
                           i);
        }
    }
    return NW_OK;
}

static nw_status read_tokens(nw_tokenizer *t, const nw_gguf *g, nw_error *err)
{
    const nw_gguf_kv *tokens = NULL;
    const nw_gguf_kv *types = NULL;
    const nw_gguf_kv *scores = NULL;
    const char *s = NULL;
    size_t cursor = 0;
    size_t len = 0;

    if (array_of(g, t->path, KEY("tokens"), NW_GGUF_STR, 0, &tokens, err) != NW_OK) {
        return err->code;
    }
    if (tokens == NULL || tokens->n > UINT32_MAX) {
        return nw_fail(err, NW_E_FORMAT, "%s: %s is %s", t->path, KEY("tokens"),
                       tokens == NULL ? "missing" : "too long");
    }
    const uint64_t n = tokens->n;
    if (nw_vocab_init(t, (uint32_t)n, err) != NW_OK ||
        array_of(g, t->path, KEY("token_type"), NW_GGUF_I32, n, &types, err) != NW_OK ||
        array_of(g, t->path, KEY("scores"), NW_GGUF_F32, n, &scores, err) != NW_OK) {
        return err->code;
    }
    if (t->kind == NW_TOK_SPM) {
        if (scores == NULL) {
            return nw_fail(err, NW_E_FORMAT, "%s: %s is missing", t->path, KEY("scores"));
        }
        if (read_scores(t, scores, err) != NW_OK) {
            return err->code;
        }
    }
    for (uint32_t id = 0; id < n && nw_gguf_next_str(tokens, &cursor, &s, &len); id++) {
        const uint32_t type = types == NULL ? NW_TYPE_NORMAL : u32_at(types->data + (size_t)id * 4);
        if (add_token(t, id, s, len, type, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

static nw_status read_merges(nw_tokenizer *t, const nw_gguf *g, nw_error *err)
{
    const nw_gguf_kv *kv = NULL;
    const char *s = NULL;
    size_t cursor = 0;
    size_t len = 0;

    if (array_of(g, t->path, KEY("merges"), NW_GGUF_STR, 0, &kv, err) != NW_OK) {
        return err->code;
    }
    if (kv == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: %s is missing", t->path, KEY("merges"));
    }
    if (nw_vocab_reserve_merges(t, (size_t)kv->n, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; nw_gguf_next_str(kv, &cursor, &s, &len); i++) {
        const char *gap = len < 3 ? NULL : memchr(s + 1, ' ', len - 1);
        const size_t n_left = gap == NULL ? 0 : (size_t)(gap - s);
        if (gap == NULL) {
            return nw_fail(err, NW_E_FORMAT, "%s: merge %zu, '%.*s', is not two texts and a blank",
                           t->path, i, len > 80 ? 80 : (int)len, s);
        }
        /* a merge that gives no token of the vocabulary can never apply: as if it were not there */
        (void)nw_vocab_add_merge(t, s, n_left, gap + 1, len - n_left - 1);
    }
    return NW_OK;
}

/* A token id, held against the vocabulary. */
static nw_status read_id(nw_tokenizer *t, const nw_gguf *g, const char *key, int32_t *out,
                         nw_error *err)
{
    uint32_t id = UINT32_MAX;

    if (nw_gguf_opt_u32(g, key, &id, err) != NW_OK) {
        return err->code;
    }
    if (id == UINT32_MAX) {
        return NW_OK; /* absent; llama.cpp writes -1 for "none" as well */
    }
    if (id >= t->n) {
        return nw_fail(err, NW_E_RANGE, "%s: %s is %u, the vocabulary has %u tokens", t->path, key,
                       id, t->n);
    }
    *out = (int32_t)id;
    return NW_OK;
}

static nw_status read_ids(nw_tokenizer *t, const nw_gguf *g, nw_error *err)
{
    static const char *const ends[] = {KEY("eot_token_id"), KEY("eom_token_id")};

    if (t->kind == NW_TOK_SPM && t->n > 2) { /* llama.cpp's defaults for this kind */
        t->unk = 0;
        t->bos = 1;
        t->eos = 2;
    }
    if (read_id(t, g, KEY("bos_token_id"), &t->bos, err) != NW_OK ||
        read_id(t, g, KEY("eos_token_id"), &t->eos, err) != NW_OK ||
        read_id(t, g, KEY("unknown_token_id"), &t->unk, err) != NW_OK ||
        read_id(t, g, KEY("padding_token_id"), &t->pad, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < NW_COUNT(ends); i++) {
        int32_t id = -1;
        if (read_id(t, g, ends[i], &id, err) != NW_OK) {
            return err->code;
        }
        nw_vocab_add_eog(t, id);
    }
    return NW_OK;
}

static nw_status read_pre(nw_tokenizer *t, const nw_gguf *g, nw_error *err)
{
    const char *pre = NULL;
    size_t len = 0;

    if (nw_gguf_opt_str(g, KEY("pre"), &pre, &len, err) != NW_OK) {
        return err->code;
    }
    if (pre == NULL || !nw_pretok_by_name(pre, len, &t->pretok)) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: %s is '%.*s', known are %s", t->path, KEY("pre"),
                       len > 80 ? 80 : (int)len, pre == NULL ? "" : pre, nw_pretok_names());
    }
    const nw_pre_kind kind = t->pretok.steps[t->pretok.n - 1].kind;
    t->ignore_merges = kind == NW_PRE_LLAMA3;
    t->add_bos = kind == NW_PRE_LLAMA3;
    if (kind == NW_PRE_QWEN2) { /* its tokenizer.json normalizes first */
        t->norm[t->n_norm++] = (nw_norm_step){.kind = NW_NORM_FORM, .form = NW_NFC};
    }
    return NW_OK;
}

static void set_spm(nw_tokenizer *t)
{
    t->add_bos = true;
    t->add_space_prefix = true;
    t->byte_fallback = true;
    t->fuse_unk = true;
    t->norm[t->n_norm++] =
        (nw_norm_step){.kind = NW_NORM_REPLACE, .from = {" ", 1}, .to = {SPACE_MARK, 3}};
}

static nw_status read_template(nw_tokenizer *t, const nw_gguf *g, nw_error *err)
{
    const char *s = NULL;
    size_t len = 0;

    if (nw_gguf_opt_str(g, "tokenizer.chat_template", &s, &len, err) != NW_OK) {
        return err->code;
    }
    if (s != NULL && memchr(s, '\0', len) != NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: tokenizer.chat_template holds a NUL byte", t->path);
    }
    if (s != NULL) {
        t->chat_template = strndup(s, len);
        if (t->chat_template == NULL) {
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for the chat template", t->path);
        }
    }
    return NW_OK;
}

static nw_status read_spm_flags(nw_tokenizer *t, const nw_gguf *g, nw_error *err)
{
    if (t->kind != NW_TOK_SPM) {
        return NW_OK;
    }
    t->model_unk = t->unk;
    if (nw_gguf_opt_bool(g, KEY("add_space_prefix"), &t->add_space_prefix, err) != NW_OK) {
        return err->code;
    }
    t->decode_strip = t->add_space_prefix;
    return NW_OK;
}

static nw_status read_kind(nw_tokenizer *t, const nw_gguf *g, const char *name, nw_error *err)
{
    const char *model = NULL;
    size_t len = 0;

    if (nw_gguf_str(g, KEY("model"), &model, &len, err) != NW_OK) {
        return err->code;
    }
    if (len == 4 && memcmp(model, "gpt2", 4) == 0) {
        t->kind = NW_TOK_BYTE_BPE;
        return read_pre(t, g, err);
    }
    if (len == 5 && memcmp(model, "llama", 5) == 0) {
        t->kind = NW_TOK_SPM;
        set_spm(t);
        return NW_OK;
    }
    return nw_fail(err, NW_E_UNSUPPORTED, "%s: %s is '%.*s', known are gpt2 and llama", name,
                   KEY("model"), len > 80 ? 80 : (int)len, model);
}

nw_status nw_tokenizer_read_gguf(nw_tokenizer *t, const nw_gguf *g, const char *name, nw_error *err)
{
    if (read_kind(t, g, name, err) != NW_OK || read_tokens(t, g, err) != NW_OK ||
        (t->kind == NW_TOK_BYTE_BPE && read_merges(t, g, err) != NW_OK) ||
        read_ids(t, g, err) != NW_OK ||
        nw_gguf_opt_bool(g, KEY("add_bos_token"), &t->add_bos, err) != NW_OK ||
        read_spm_flags(t, g, err) != NW_OK || read_template(t, g, err) != NW_OK) {
        return err->code;
    }
    return nw_vocab_finish(t, err);
}
