/* One word to ids: whole-word tokens, the first symbols (bytes, or characters with byte fallback),
 * the merge, and a small cache of the words of one call and their ids. The cache belongs to the
 * call, so the tokenizer stays immutable and may be shared by threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_internal.h"

#define CACHE_SLOTS    4096
#define CACHE_MAX_WORD 24 /* bytes; longer words seldom come again */
#define CACHE_MAX_IDS  8

typedef struct {
    uint8_t n_word; /* 0: empty */
    uint8_t n_ids;
    char word[CACHE_MAX_WORD];
    int32_t ids[CACHE_MAX_IDS];
} cache_entry;

struct nw_word_cache {
    cache_entry entries[CACHE_SLOTS];
};

nw_word_cache *nw_word_cache_new(void)
{
    return calloc(1, sizeof(nw_word_cache));
}

void nw_word_cache_free(nw_word_cache *c)
{
    free(c);
}

static nw_status no_memory(nw_encoder *e)
{
    return nw_fail(e->err, NW_E_NOMEM, "no memory to tokenize a word of %zu bytes",
                   e->merger.n_word);
}

static nw_status push(nw_encoder *e, int32_t id)
{
    return nw_ids_push(e->out, id) ? NW_OK : no_memory(e);
}

/* Bytes of a byte-level word. A byte without a token takes the unknown token; where there is none it
 * is left out, as in `tokenizers` (SmolLM2 has none for bytes that UTF-8 never holds). */
static nw_status add_bytes(nw_encoder *e, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = e->tok->byte_id[(unsigned char)s[i]];
        id = id >= 0 ? id : e->tok->model_unk;
        if (id >= 0 && !nw_merger_add(&e->merger, i, 1, id)) {
            return no_memory(e);
        }
    }
    return NW_OK;
}

/* True when each byte of the character has a token of its own. */
static bool has_bytes(const nw_tokenizer *t, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (t->byte_id[(unsigned char)s[i]] < 0) {
            return false;
        }
    }
    return true;
}

/* A character that is no token, for BPE: its bytes, or the unknown token (one for a run of such
 * characters when fuse_unk is set), or nothing. */
static nw_status add_unknown(nw_encoder *e, const char *s, size_t pos, size_t len, bool *fused)
{
    const nw_tokenizer *t = e->tok;

    if (t->byte_fallback && has_bytes(t, s + pos, len)) {
        *fused = false;
        for (size_t i = 0; i < len; i++) {
            if (!nw_merger_add(&e->merger, pos + i, 1, t->byte_id[(unsigned char)s[pos + i]])) {
                return no_memory(e);
            }
        }
        return NW_OK;
    }
    if (t->model_unk >= 0 && !(*fused && t->fuse_unk) &&
        !nw_merger_add(&e->merger, pos, len, t->model_unk)) {
        return no_memory(e);
    }
    *fused = t->model_unk >= 0;
    return NW_OK;
}

static nw_status add_chars(nw_encoder *e, const char *s, size_t n)
{
    const nw_tokenizer *t = e->tok;
    bool fused = false;

    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        const size_t len = nw_utf8_decode(s + i, n - i, &cp, NULL);
        const int32_t id = nw_vocab_find(t, s + i, len);
        if ((id >= 0 && nw_vocab_mergeable(t, id)) || t->kind == NW_TOK_SPM) {
            fused = false;
            if (!nw_merger_add(&e->merger, i, len, id)) {
                return no_memory(e);
            }
        } else if (add_unknown(e, s, i, len, &fused) != NW_OK) {
            return e->err->code;
        }
        i += len;
    }
    return NW_OK;
}

/* What SentencePiece's merging left over: pieces, or characters that are none, which become their
 * bytes, or one unknown token for a run of them. */
static nw_status emit_pieces(nw_encoder *e, const char *s)
{
    const nw_tokenizer *t = e->tok;
    bool in_unknown = false;

    for (uint32_t i = 0; i != UINT32_MAX; i = e->merger.sym[i].next) {
        const nw_symbol *x = &e->merger.sym[i];
        nw_status st = NW_OK;
        if (x->id >= 0 && nw_vocab_mergeable(t, x->id)) {
            in_unknown = false;
            st = push(e, x->id);
        } else if (has_bytes(t, s + x->pos, x->len)) {
            in_unknown = false;
            for (uint32_t k = 0; k < x->len && st == NW_OK; k++) {
                st = push(e, t->byte_id[(unsigned char)s[x->pos + k]]);
            }
        } else if (!in_unknown) {
            in_unknown = true;
            st = t->model_unk >= 0 ? push(e, t->model_unk) : NW_OK;
        }
        if (st != NW_OK) {
            return st;
        }
    }
    return NW_OK;
}

static nw_status emit_symbols(nw_encoder *e)
{
    for (uint32_t i = 0; i != UINT32_MAX; i = e->merger.sym[i].next) {
        if (push(e, e->merger.sym[i].id) != NW_OK) {
            return e->err->code;
        }
    }
    return NW_OK;
}

/* ignore_merges: a word that is a token is taken at once. Words of byte-level BPE are looked up in
 * the byte alphabet. -1: no such token. */
static int32_t whole_word(nw_encoder *e, const char *s, size_t n)
{
    const nw_tokenizer *t = e->tok;
    int32_t id = -1;

    if (t->kind == NW_TOK_BYTE_BPE) {
        nw_buf_clear(&e->c);
        for (size_t i = 0; i < n && e->c.len <= t->max_len; i++) {
            char c[4];
            if (!nw_buf_add(&e->c, c, nw_utf8_encode(nw_byte_to_char((uint8_t)s[i]), c))) {
                return -1;
            }
        }
        id = nw_vocab_find(t, e->c.data, e->c.len);
    } else {
        id = nw_vocab_find(t, s, n);
    }
    return id >= 0 && nw_vocab_mergeable(t, id) ? id : -1;
}

static nw_status merge_word(nw_encoder *e, const char *s, size_t n)
{
    const nw_tokenizer *t = e->tok;
    const int32_t id = t->ignore_merges ? whole_word(e, s, n) : -1;

    if (id >= 0) {
        return push(e, id);
    }
    nw_merger_begin(&e->merger, s, n);
    if ((t->kind == NW_TOK_BYTE_BPE ? add_bytes(e, s, n) : add_chars(e, s, n)) != NW_OK) {
        return e->err->code;
    }
    if (e->merger.n_sym == 0) {
        return NW_OK;
    }
    if (!nw_merger_run(&e->merger, t)) {
        return no_memory(e);
    }
    return t->kind == NW_TOK_SPM ? emit_pieces(e, s) : emit_symbols(e);
}

static cache_entry *cache_slot(nw_encoder *e, const char *s, size_t n)
{
    uint64_t h = e->tok->seed;

    if (e->cache == NULL || n > CACHE_MAX_WORD) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)s[i]) * 0x9E3779B97F4A7C15U;
    }
    return &e->cache->entries[(h >> 40) % CACHE_SLOTS];
}

nw_status nw_encode_word(nw_encoder *e, const char *s, size_t n)
{
    cache_entry *slot = cache_slot(e, s, n);
    const size_t n_before = e->out->n;

    if (n == 0) {
        return NW_OK;
    }
    if (slot != NULL && slot->n_word == n && memcmp(slot->word, s, n) == 0) {
        for (size_t i = 0; i < slot->n_ids; i++) {
            if (push(e, slot->ids[i]) != NW_OK) {
                return e->err->code;
            }
        }
        return NW_OK;
    }
    if (merge_word(e, s, n) != NW_OK) {
        return e->err->code;
    }
    const size_t n_ids = e->out->n - n_before;
    if (slot != NULL && n_ids <= CACHE_MAX_IDS) {
        slot->n_word = (uint8_t)n;
        slot->n_ids = (uint8_t)n_ids;
        memcpy(slot->word, s, n);
        if (n_ids > 0) {
            memcpy(slot->ids, e->out->ids + n_before, n_ids * sizeof *slot->ids);
        }
    }
    return NW_OK;
}
