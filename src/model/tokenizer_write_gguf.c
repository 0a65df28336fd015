/* A tokenizer as GGUF keys: the inverse of tokenizer_gguf.c. Byte-level BPE keeps its merges. BPE
 * over characters (Gemma's tokenizer.json) becomes a SentencePiece model: scores that fall with the
 * id merge in the same order, which is checked against its merges first.
 * SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/gguf_writer.h"
#include "model/tokenizer_internal.h"

#define KEY(name)  "tokenizer.ggml." name
#define SPACE_MARK "\xE2\x96\x81"

/* Scores of tokens that never merge by score, as llama.cpp's converter writes them. */
#define SCORE_ADDED (-1000.0F)

/* The name that stands for these steps; NULL: GGUF has none. */
static const char *pre_name(const nw_pretok *p)
{
    static const char *const names[] = {"smollm", "gpt-2", "llama-bpe", "qwen2"};

    for (size_t i = 0; i < NW_COUNT(names); i++) {
        nw_pretok named;
        bool same = nw_pretok_by_name(names[i], strlen(names[i]), &named) && named.n == p->n;
        for (size_t k = 0; same && k < p->n; k++) {
            same = named.steps[k].kind == p->steps[k].kind;
        }
        if (same && !p->prefix_space) {
            return names[i];
        }
    }
    return NULL;
}

static nw_status no_memory(const nw_tokenizer *t, nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "%s: no memory for %u tokens", t->path, (unsigned)t->n);
}

static bool is_mark(const nw_text *x)
{
    return x->n == 3 && memcmp(x->s, SPACE_MARK, 3) == 0;
}

/* Llama's tokenizer.json: a mark before the text, then marks for spaces. */
static bool prepends_mark(const nw_tokenizer *t)
{
    return t->n_norm == 2 && t->norm[0].kind == NW_NORM_PREPEND && is_mark(&t->norm[0].to);
}

/* A run of two marks or more that GGUF keeps as a user-defined token with real spaces: Gemma's. Where a
 * mark is put before the text, runs are ordinary pieces. */
static bool is_space_run(const nw_tokenizer *t, uint32_t id)
{
    const nw_text *x = &t->text[id];
    const bool may = t->kind == NW_TOK_SPM ? t->type[id] == NW_TYPE_USER
                                           : t->kind == NW_TOK_CHAR_BPE && !prepends_mark(t) &&
                                                 nw_vocab_mergeable(t, (int32_t)id);
    bool run = may && x->n >= 6 && x->n % 3 == 0;

    for (uint32_t i = 0; run && i < x->n; i += 3) {
        run = memcmp(x->s + i, SPACE_MARK, 3) == 0;
    }
    return run;
}

static nw_tok_type type_of(const nw_tokenizer *t, uint32_t id)
{
    if (id >= t->n || t->text[id].n == 0) {
        return NW_TYPE_UNUSED;
    }
    return is_space_run(t, id) ? NW_TYPE_USER : (nw_tok_type)t->type[id];
}

/* Rows of the embedding beyond the tokenizer's, and holes in its ids, get a name each. */
static void put_token(nw_gguf_writer *w, const nw_tokenizer *t, uint32_t id)
{
    char spaces[256]; /* the longest run of any known vocabulary has 31 */
    char name[32];

    if (id >= t->n || t->text[id].n == 0) {
        const int n = snprintf(name, sizeof name, "[PAD%u]", (unsigned)id);
        nw_gguf_put_item(w, name, (size_t)n);
    } else if (is_space_run(t, id) && t->text[id].n / 3 <= sizeof spaces) {
        memset(spaces, ' ', t->text[id].n / 3);
        nw_gguf_put_item(w, spaces, t->text[id].n / 3);
    } else {
        nw_gguf_put_item(w, t->text[id].s, t->text[id].n);
    }
}

static nw_status put_types(nw_gguf_writer *w, const nw_tokenizer *t, uint32_t n, nw_error *err)
{
    int32_t *types = calloc((size_t)n + 1, sizeof *types);

    if (types == NULL) {
        return no_memory(t, err);
    }
    for (uint32_t id = 0; id < n; id++) {
        types[id] = (int32_t)type_of(t, id);
    }
    nw_gguf_put_words(w, KEY("token_type"), NW_GGUF_I32, types, n);
    free(types);
    return NW_OK;
}

static float score_of(const nw_tokenizer *t, uint32_t id)
{
    const nw_tok_type type = type_of(t, id);

    if (id < t->n && t->score != NULL && t->score[id] < FLT_MAX) {
        return t->score[id];
    }
    if (type == NW_TYPE_BYTE) {
        return 0;
    }
    return type == NW_TYPE_NORMAL ? -(float)id : SCORE_ADDED;
}

static nw_status put_scores(nw_gguf_writer *w, const nw_tokenizer *t, uint32_t n, nw_error *err)
{
    float *scores = calloc((size_t)n + 1, sizeof *scores);

    if (scores == NULL) {
        return no_memory(t, err);
    }
    for (uint32_t id = 0; id < n; id++) {
        scores[id] = score_of(t, id);
    }
    nw_gguf_put_words(w, KEY("scores"), NW_GGUF_F32, scores, n);
    free(scores);
    return NW_OK;
}

static void put_merges(nw_gguf_writer *w, const nw_tokenizer *t)
{
    char *line = calloc(1, 2 * (size_t)t->max_len + 2);

    nw_gguf_put_strings(w, KEY("merges"), line != NULL ? t->n_merges : 0);
    for (size_t i = 0; line != NULL && i < t->n_merges; i++) {
        const nw_text *a = &t->text[t->merge_list[i] >> 32];
        const nw_text *b = &t->text[(uint32_t)t->merge_list[i]];
        memcpy(line, a->s, a->n);
        line[a->n] = ' ';
        memcpy(line + a->n + 1, b->s, b->n);
        nw_gguf_put_item(w, line, (size_t)a->n + 1 + b->n);
    }
    free(line);
}

/* Merging by score and merging by rank agree where the ids that merges give never fall. */
static nw_status check_order(const nw_tokenizer *t, nw_error *err)
{
    int32_t last = -1;

    for (size_t i = 0; i < t->n_merges; i++) {
        uint32_t rank = 0;
        const int32_t left = (int32_t)(t->merge_list[i] >> 32);
        const int32_t right = (int32_t)(uint32_t)t->merge_list[i];
        const int32_t id = nw_vocab_merge(t, left, right, &rank);
        if (id < 0 || is_space_run(t, (uint32_t)id)) {
            continue; /* runs of spaces are cut out of the text before anything merges */
        }
        if (id < last) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "%s: merge %zu gives token %d after one gave %d; a SentencePiece model, "
                           "which is what GGUF has for this kind, merges in the order of the ids",
                           t->path, i, (int)id, (int)last);
        }
        last = id;
    }
    return NW_OK;
}

static nw_status check_char_bpe(const nw_tokenizer *t, nw_error *err)
{
    const nw_norm_step *last = t->n_norm > 0 ? &t->norm[t->n_norm - 1] : NULL;
    const bool marks = last != NULL && (t->n_norm == 1 || prepends_mark(t)) &&
                       last->kind == NW_NORM_REPLACE && last->regex == NULL && last->from.n == 1 &&
                       last->from.s[0] == ' ' && is_mark(&last->to);

    if (!marks || !t->byte_fallback) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: a BPE over characters %s; GGUF has keys for SentencePiece's kind alone",
                       t->path, marks ? "without byte tokens" : "with other normalization");
    }
    return check_order(t, err);
}

static nw_status put_kind(nw_gguf_writer *w, const nw_tokenizer *t, nw_error *err)
{
    const bool bytes = t->kind == NW_TOK_BYTE_BPE;
    const char *model = bytes ? "gpt2" : "llama";
    const char *pre = bytes ? pre_name(&t->pretok) : "default";
    nw_status st = NW_OK;

    if (pre == NULL) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: its pre-tokenizer is none that GGUF has a name for (%s)", t->path,
                       nw_pretok_names());
    }
    if (t->kind == NW_TOK_CHAR_BPE) {
        st = check_char_bpe(t, err);
    }
    if (t->collapse_spaces) {
        nw_log(NW_LOG_WARN, "%s: drops repeated spaces, which readers of GGUF keep", t->path);
    }
    if (st == NW_OK) {
        nw_gguf_put_str(w, KEY("model"), model, strlen(model));
        nw_gguf_put_str(w, KEY("pre"), pre, strlen(pre));
    }
    return st;
}

static void put_ids(nw_gguf_writer *w, const nw_tokenizer *t)
{
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{KEY("bos_token_id"), t->bos},
               {KEY("eos_token_id"), t->eos},
               {KEY("unknown_token_id"), t->unk},
               {KEY("padding_token_id"), t->pad}};

    for (size_t i = 0; i < NW_COUNT(ids); i++) {
        if (ids[i].id >= 0) {
            nw_gguf_put_u32(w, ids[i].key, (uint32_t)ids[i].id);
        }
    }
    for (size_t i = 0; i < t->n_eog; i++) {
        if (t->eog[i] != t->eos) { /* GGUF has room for one more */
            nw_gguf_put_u32(w, KEY("eot_token_id"), (uint32_t)t->eog[i]);
            break;
        }
    }
}

nw_status nw_gguf_put_tokenizer(nw_gguf_writer *w, const nw_tokenizer *t, uint32_t n_vocab,
                                nw_error *err)
{
    nw_status st = NW_OK;

    if (t->n > n_vocab) {
        return nw_fail(err, NW_E_FORMAT, "%s: %u tokens, the embedding has %u rows", t->path,
                       (unsigned)t->n, (unsigned)n_vocab);
    }
    st = put_kind(w, t, err);
    if (st != NW_OK) {
        return st;
    }
    nw_gguf_put_strings(w, KEY("tokens"), n_vocab);
    for (uint32_t id = 0; id < n_vocab; id++) {
        put_token(w, t, id);
    }
    if (t->kind == NW_TOK_BYTE_BPE) {
        put_merges(w, t);
    } else {
        st = put_scores(w, t, n_vocab, err);
    }
    st = st == NW_OK ? put_types(w, t, n_vocab, err) : st;
    put_ids(w, t);
    nw_gguf_put_bool(w, KEY("add_bos_token"), nw_tokenizer_adds_bos(t));
    nw_gguf_put_bool(w, KEY("add_eos_token"), false);
    nw_gguf_put_bool(w, KEY("add_space_prefix"),
                     t->kind == NW_TOK_SPM ? t->add_space_prefix : prepends_mark(t));
    if (t->chat_template != NULL) {
        nw_gguf_put_str(w, "tokenizer.chat_template", t->chat_template, strlen(t->chat_template));
    }
    return st;
}
