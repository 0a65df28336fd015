/* The JSON of log-probabilities: see logprobs.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/logprobs.h"

#include <stdio.h>
#include <string.h>

static json_t *token_entry(const nw_tokenizer *tok, int32_t id, json_t *logprob)
{
    size_t n = 0;
    const char *piece = nw_tokenizer_piece(tok, id, &n);
    json_t *text = json_stringn(piece != NULL ? piece : "", n);
    json_t *bytes = json_array();

    if (text == NULL) {
        text = json_string("\xEF\xBF\xBD");
    }
    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(bytes, json_integer((unsigned char)piece[i]));
    }
    return json_pack("{s:o, s:o, s:o}", "token", text, "logprob", logprob, "bytes", bytes);
}

json_t *nw_logprob_entry(const nw_tokenizer *tok, int32_t id, float logprob, const nw_logprob *top,
                         uint32_t n_top)
{
    json_t *entry = token_entry(tok, id, top != NULL ? json_real((double)logprob) : json_null());
    json_t *tops = top != NULL ? json_array() : json_null();

    for (uint32_t i = 0; top != NULL && i < n_top; i++) {
        (void)json_array_append_new(tops,
                                    token_entry(tok, top[i].id, json_real((double)top[i].logprob)));
    }
    (void)json_object_set_new(entry, "top_logprobs", tops);
    return entry;
}

/* The token's text, or its bytes where they are no text. */
static void show_token(const json_t *entry, char *out, size_t n)
{
    const json_t *bytes = json_object_get(entry, "bytes");
    const char *text = json_string_value(json_object_get(entry, "token"));
    size_t at = 0;

    if (text == NULL || strcmp(text, "\xEF\xBF\xBD") != 0) {
        (void)snprintf(out, n, "%s", text != NULL ? text : "");
        return;
    }
    at = (size_t)snprintf(out, n, "bytes:");
    for (size_t i = 0; i < json_array_size(bytes) && at + 5 < n; i++) {
        at += (size_t)snprintf(out + at, n - at, "\\x%02x",
                               (unsigned)json_integer_value(json_array_get(bytes, i)));
    }
}

/* Characters that begin in the token. */
static size_t n_characters(const json_t *entry)
{
    const json_t *bytes = json_object_get(entry, "bytes");
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(bytes); i++) {
        n += (json_integer_value(json_array_get(bytes, i)) & 0xC0) != 0x80;
    }
    return n;
}

#define TOKEN_TEXT_MAX 4096

/* Two tokens may have one text: the more likely one, which comes first, stands for both. */
static void put_top(json_t *o, const json_t *entry)
{
    char key[TOKEN_TEXT_MAX];

    show_token(entry, key, sizeof key);
    if (json_object_get(o, key) == NULL) {
        (void)json_object_set(o, key, json_object_get(entry, "logprob"));
    }
}

static json_t *top_object(const json_t *entry)
{
    const json_t *tops = json_object_get(entry, "top_logprobs");
    json_t *o = NULL;

    if (!json_is_array(tops)) {
        return json_null();
    }
    o = json_object();
    for (size_t i = 0; i < json_array_size(tops); i++) {
        put_top(o, json_array_get(tops, i));
    }
    put_top(o, entry);
    return o;
}

json_t *nw_logprob_lists(const json_t *entries, size_t *offset)
{
    json_t *tokens = json_array();
    json_t *logprobs = json_array();
    json_t *tops = json_array();
    json_t *offsets = json_array();
    char text[TOKEN_TEXT_MAX];

    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *e = json_array_get(entries, i);
        show_token(e, text, sizeof text);
        (void)json_array_append_new(tokens, json_string(text));
        (void)json_array_append(logprobs, json_object_get(e, "logprob"));
        (void)json_array_append_new(tops, top_object(e));
        (void)json_array_append_new(offsets, json_integer((json_int_t)*offset));
        *offset += n_characters(e);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", tops, "text_offset", offsets);
}
