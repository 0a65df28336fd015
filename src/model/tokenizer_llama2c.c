/* A llama2.c vocabulary (tokenizer.bin): i32 longest text, then for each token f32 score, i32 length,
 * bytes, to the end of the file. The exporter wrote spaces for U+2581 and line ends around <s> and
 * </s>; ids 0, 1, 2 are unknown, BOS, EOS, and "<0xNN>" stands for a byte. The file does not say
 * whether double spaces were collapsed: they are kept, as llama2.c does. A SentencePiece model beside
 * it says more and is preferred (tokenizer.c).
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_internal.h"

#define SPACE_MARK "\xE2\x96\x81"

static uint32_t u32_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Steps over one entry; false when the file ends inside it. */
static bool next(const uint8_t *bytes, size_t n, size_t *at, float *score, const char **s,
                 size_t *len)
{
    if (n - *at < 8) {
        return false;
    }
    const uint32_t bits = u32_at(bytes + *at);
    const size_t want = u32_at(bytes + *at + 4);
    *at += 8;
    if (want > n - *at) {
        return false;
    }
    memcpy(score, &bits, sizeof *score);
    *s = (const char *)bytes + *at;
    *len = want;
    *at += want;
    return true;
}

static bool is_byte_text(const char *s, size_t n)
{
    return n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>';
}

static nw_tok_type type_of(uint32_t id, const char *s, size_t n)
{
    if (id < 3) {
        return id == 0 ? NW_TYPE_UNKNOWN : NW_TYPE_CONTROL;
    }
    return is_byte_text(s, n) ? NW_TYPE_BYTE : NW_TYPE_NORMAL;
}

static nw_status add_token(nw_tokenizer *t, uint32_t id, const char *s, size_t n, nw_error *err)
{
    nw_buf text;
    nw_status st = NW_OK;
    const nw_tok_type type = type_of(id, s, n);

    while (type == NW_TYPE_CONTROL && n > 0 && s[0] == '\n') {
        s++;
        n--;
    }
    while (type == NW_TYPE_CONTROL && n > 0 && s[n - 1] == '\n') {
        n--;
    }
    nw_buf_init(&text, SIZE_MAX);
    for (size_t i = 0; i < n; i++) {
        (void)(s[i] == ' ' ? nw_buf_puts(&text, SPACE_MARK) : nw_buf_add(&text, s + i, 1));
    }
    if (text.failed) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for token %u", t->path, id);
    } else {
        st = nw_vocab_set(t, id, text.data == NULL ? "" : text.data, text.len, type, err);
    }
    nw_buf_release(&text);
    if (st == NW_OK && id < 3) {
        const nw_added a = {.text = t->text[id], .id = (int32_t)id, .special = true};
        st = nw_vocab_add_added(t, &a, err);
    }
    return st;
}

static nw_status read_entries(nw_tokenizer *t, const uint8_t *bytes, size_t n, nw_error *err)
{
    size_t at = 4;
    const char *s = NULL;
    size_t len = 0;

    for (uint32_t id = 0; id < t->n && next(bytes, n, &at, &t->score[id], &s, &len); id++) {
        if (isnan(t->score[id])) {
            return nw_fail(err, NW_E_FORMAT, "%s: the score of token %u is not a number", t->path,
                           id);
        }
        if (add_token(t, id, s, len, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

nw_status nw_tokenizer_read_llama2c(nw_tokenizer *t, const char *name, const uint8_t *bytes,
                                    size_t n, nw_error *err)
{
    size_t at = 4;
    float score = 0;
    const char *s = NULL;
    size_t len = 0;
    uint32_t n_tokens = 0;

    while (n >= 4 && at < n && next(bytes, n, &at, &score, &s, &len)) {
        n_tokens++;
    }
    if (n < 4 || at != n || n_tokens < 3) {
        return nw_fail(
            err, NW_E_FORMAT,
            "%s: not a llama2.c vocabulary: entry %u ends after the file's %zu bytes, or "
            "there are fewer than 3",
            name, n_tokens, n);
    }
    if (nw_vocab_init(t, n_tokens, err) != NW_OK) {
        return err->code;
    }
    t->score = nw_arena_array(&t->arena, n_tokens, sizeof *t->score);
    if (t->score == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %u scores", name, n_tokens);
    }
    t->kind = NW_TOK_SPM;
    t->unk = t->model_unk = 0;
    t->bos = 1;
    t->eos = 2;
    t->add_bos = true;
    t->add_space_prefix = t->decode_strip = true;
    t->byte_fallback = true;
    t->fuse_unk = true;
    t->norm[t->n_norm++] =
        (nw_norm_step){.kind = NW_NORM_REPLACE, .from = {" ", 1}, .to = {SPACE_MARK, 3}};
    if (read_entries(t, bytes, n, err) != NW_OK) {
        return err->code;
    }
    return nw_vocab_finish(t, err);
}
