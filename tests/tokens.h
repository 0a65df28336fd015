/* Small tokenizers made in memory, for tests: a byte-level BPE from a tokenizer.json and a
 * SentencePiece-like one from GGUF bytes, both with a few control tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_TOKENS_H
#define NW_TESTS_TOKENS_H

#include <string.h>

#include "gguf_bytes.h"
#include "model/tokenizer_internal.h"

#define TK_MARK "\xE2\x96\x81"

/* All 256 bytes as ids 0..255, then merges "h e", "l l", "he ll", "hell o", then <s> </s>
 * <|im_start|> <|im_end|> as control tokens. `pre` is the pre-tokenizer's JSON. */
static inline void tk_json(nw_buf *b, const char *pre, const char *post)
{
    (void)nw_buf_puts(b, "{\"added_tokens\":[");
    const char *control[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    for (int i = 0; i < 4; i++) {
        (void)nw_buf_printf(b, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true}", i ? "," : "",
                            260 + i, control[i]);
    }
    (void)nw_buf_printf(
        b, "],\"pre_tokenizer\":%s,\"post_processor\":%s,\"model\":{\"type\":\"BPE\",", pre, post);
    (void)nw_buf_puts(b, "\"vocab\":{");
    for (unsigned i = 0; i < 256; i++) {
        char c[4];
        const size_t n = nw_utf8_encode(nw_byte_to_char((uint8_t)i), c);
        (void)nw_buf_printf(b, "\"%s%.*s\":%u,", c[0] == '"' || c[0] == '\\' ? "\\" : "", (int)n, c,
                            i);
    }
    (void)nw_buf_puts(b, "\"he\":256,\"ll\":257,\"hell\":258,\"hello\":259},\"merges\":[\"h e\","
                         "[\"l\",\"l\"],\"he ll\",\"hell o\"]}}");
}

#define TK_BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

static inline nw_tokenizer *tk_bpe(const char *pre, const char *post, nw_error *err)
{
    nw_buf b;
    nw_tokenizer *t = nw_tokenizer_new("t.json", err);

    nw_buf_init(&b, 1 << 20);
    tk_json(&b, pre, post);
    if (nw_tokenizer_read_json(t, "t.json", b.data, b.len, err) != NW_OK) {
        nw_tokenizer_close(t);
        t = NULL;
    }
    nw_buf_release(&b);
    return t;
}

typedef struct {
    const char *text;
    float score;
    int32_t type;
} tk_piece;

/* A GGUF file of tokenizer model `model` with these pieces; no tensors. Ids follow the order. */
static inline void tk_gguf(nw_buf *b, const char *model, const tk_piece *p, size_t n,
                           const char *chat_template)
{
    gb_head(b, 3, 0, chat_template != NULL ? 5 : 4);
    gb_kv_str(b, "tokenizer.ggml.model", model);
    gb_kv_arr(b, "tokenizer.ggml.tokens", NW_GGUF_STR, n);
    for (size_t i = 0; i < n; i++) {
        gb_str(b, p[i].text);
    }
    gb_kv_arr(b, "tokenizer.ggml.scores", NW_GGUF_F32, n);
    for (size_t i = 0; i < n; i++) {
        gb_u32(b, nw_f32_bits(p[i].score));
    }
    gb_kv_arr(b, "tokenizer.ggml.token_type", NW_GGUF_I32, n);
    for (size_t i = 0; i < n; i++) {
        gb_u32(b, (uint32_t)p[i].type);
    }
    if (chat_template != NULL) {
        gb_kv_str(b, "tokenizer.chat_template", chat_template);
    }
    gb_pad(b, 32);
}

static inline nw_tokenizer *tk_spm(const tk_piece *p, size_t n, const char *chat_template,
                                   nw_error *err)
{
    nw_buf b;
    nw_gguf *g = NULL;
    nw_tokenizer *t = nw_tokenizer_new("t.gguf", err);

    nw_buf_init(&b, 1 << 20);
    tk_gguf(&b, "llama", p, n, chat_template);
    if (nw_gguf_read("t.gguf", (const uint8_t *)b.data, b.len, &g, err) != NW_OK ||
        nw_tokenizer_read_gguf(t, g, "t.gguf", err) != NW_OK) {
        nw_tokenizer_close(t);
        t = NULL;
    }
    nw_gguf_close(g);
    nw_buf_release(&b);
    return t;
}

/* unk <s> </s>, then single characters and a few merges of "hello world". */
static const tk_piece tk_pieces[] = {
    {"<unk>", 0, 2},      {"<s>", 0, 3},     {"</s>", 0, 3},
    {"<0x0A>", 0, 6},     {TK_MARK, -20, 1}, {"h", -21, 1},
    {"e", -22, 1},        {"l", -23, 1},     {"o", -24, 1},
    {"w", -25, 1},        {"r", -26, 1},     {"d", -27, 1},
    {"<", -28, 1},        {">", -29, 1},     {"s", -30, 1},
    {"/", -31, 1},        {"he", -1, 1},     {"ll", -2, 1},
    {"hell", -3, 1},      {"hello", -4, 1},  {TK_MARK "hello", -5, 1},
    {TK_MARK "w", -6, 1}, {"</", -7, 1},     {"s>", -8, 1},
    {"</s", -9, 1},
};

#endif
