/* POST /tokenize and /detokenize, in the shape of vLLM's:
 *   {"prompt": text | "messages": [...], "add_special_tokens": true, "parse_special": false,
 *    "add_generation_prompt": true, "return_token_strs": false}
 *        -> {"count", "max_model_len", "tokens", "token_strs"}
 *   {"tokens": [ids]} -> {"prompt"}
 * and GET /tokenizer_info, the texts of the special tokens and the chat template.
 * Text never becomes control tokens unless parse_special asks for it; ids of control tokens come out as
 * their text.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/template.h"
#include "serve/http.h"
#include "serve/messages.h"

#define MAX_TEXT ((size_t)64 << 20)

/* A fault of the text or the template is the client's. */
static void client_fault(nw_api_error *e, const nw_error *err)
{
    (void)nw_api_fail(e, "", "%.500s", err->message);
    if (err->code == NW_E_NOMEM) {
        e->http_status = 503;
        e->type = "server_error";
    }
}

static nw_status flag(const json_t *o, const char *key, bool *out, nw_api_error *e)
{
    const json_t *v = json_object_get(o, key);

    if (v == NULL || json_is_null(v)) {
        return NW_OK;
    }
    if (!json_is_boolean(v)) {
        return nw_api_wrong(e, key, v, "true or false");
    }
    *out = json_is_true(v);
    return NW_OK;
}

static bool given(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v != NULL && !json_is_null(v);
}

/* Refuses a key that changes nothing where `there` stands; false asks for nothing. */
static nw_status only_with(const json_t *o, const char *key, const char *where, const char *there,
                           nw_api_error *e)
{
    return given(o, key) && !json_is_false(json_object_get(o, key))
               ? nw_api_fail(e, key, "%s: goes with %s, not with %s", key, where, there)
               : NW_OK;
}

/* The model may be named, as in other requests. */
static nw_status check_model(const nw_server *s, const json_t *o, nw_api_error *e)
{
    const json_t *v = json_object_get(o, "model");

    if (!given(o, "model")) {
        return NW_OK;
    }
    return json_is_string(v) ? nw_api_check_model(json_string_value(v), s->model_name, e)
                             : nw_api_wrong(e, "model", v, "a string");
}

static nw_status encode_messages(const nw_server *s, const json_t *o, nw_ids *ids, nw_api_error *e)
{
    nw_api_request r = {.chat = true};
    nw_error err = {0};
    bool prompt = true;
    nw_status st = NW_OK;

    if (given(o, "prompt")) {
        return nw_api_fail(e, "prompt", "prompt: stands beside messages, one of them is expected");
    }
    if (only_with(o, "add_special_tokens", "prompt", "messages", e) != NW_OK ||
        only_with(o, "parse_special", "prompt", "messages", e) != NW_OK) {
        return NW_E_FORMAT;
    }
    st = flag(o, "add_generation_prompt", &prompt, e);
    st = st == NW_OK ? nw_api_read_messages("messages", json_object_get(o, "messages"), &r, e) : st;
    if (st == NW_OK && nw_chat_encode(s->tok, r.messages, prompt, ids, &err) != NW_OK) {
        client_fault(e, &err);
        st = NW_E_FORMAT;
    }
    nw_api_release(&r);
    return st;
}

static nw_status encode_prompt(const nw_server *s, const json_t *o, nw_ids *ids, nw_api_error *e)
{
    const json_t *text = json_object_get(o, "prompt");
    bool bos = true;
    bool special = false;
    nw_error err = {0};

    if (!json_is_string(text)) {
        return nw_api_wrong(e, "prompt", text, "a string (or messages)");
    }
    if (only_with(o, "add_generation_prompt", "messages", "prompt", e) != NW_OK ||
        flag(o, "add_special_tokens", &bos, e) != NW_OK ||
        flag(o, "parse_special", &special, e) != NW_OK) {
        return NW_E_FORMAT;
    }
    const unsigned flags = (bos ? NW_TOK_BOS : 0U) | (special ? NW_TOK_SPECIAL : 0U);
    if (nw_tokenizer_encode(s->tok, json_string_value(text), json_string_length(text), flags, ids,
                            &err) != NW_OK) {
        client_fault(e, &err);
        return NW_E_FORMAT;
    }
    return NW_OK;
}

/* Each token as text; U+FFFD where it is a part of a character. */
static json_t *token_strings(const nw_server *s, const nw_ids *ids)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const char *piece = nw_tokenizer_piece(s->tok, ids->ids[i], &n);
        json_t *text = json_stringn(piece != NULL ? piece : "", n);
        (void)json_array_append_new(list, text != NULL ? text : json_string("\xEF\xBF\xBD"));
    }
    return list;
}

static char *tokens_text(const nw_server *s, const nw_ids *ids, bool strings)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ids->n; i++) {
        (void)json_array_append_new(list, json_integer(ids->ids[i]));
    }
    json_t *root = json_pack("{s:I, s:I, s:o, s:o}", "count", (json_int_t)ids->n, "max_model_len",
                             (json_int_t)s->n_ctx, "tokens", list, "token_strs",
                             strings ? token_strings(s, ids) : json_null());
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

char *nw_tokenize_text(const nw_server *s, const char *body, size_t n, nw_api_error *e)
{
    static const char *const keys[] = {"model",
                                       "prompt",
                                       "messages",
                                       "add_special_tokens",
                                       "parse_special",
                                       "add_generation_prompt",
                                       "return_token_strs"};
    json_t *o = NULL;
    nw_ids ids;
    bool strings = false;
    char *text = NULL;

    if (nw_api_parse_object(body, n, s->opt.max_depth, keys, NW_COUNT(keys), &o, e) != NW_OK) {
        return NULL;
    }
    nw_ids_init(&ids);
    nw_status st = check_model(s, o, e);
    st = st == NW_OK ? flag(o, "return_token_strs", &strings, e) : st;
    if (st == NW_OK) {
        st = given(o, "messages") ? encode_messages(s, o, &ids, e) : encode_prompt(s, o, &ids, e);
    }
    if (st == NW_OK) {
        text = tokens_text(s, &ids, strings);
        if (text == NULL) {
            (void)nw_api_no_memory(e, "");
        }
    }
    nw_ids_release(&ids);
    json_decref(o);
    return text;
}

static json_t *special(const nw_server *s, int32_t id)
{
    size_t n = 0;
    const char *piece = id >= 0 ? nw_tokenizer_piece(s->tok, id, &n) : NULL;
    json_t *text = piece != NULL ? json_stringn(piece, n) : NULL;

    return text != NULL ? text : json_null();
}

char *nw_tokenizer_info_text(const nw_server *s)
{
    const char *template = nw_tokenizer_chat_template(s->tok);
    const nw_digest hash = nw_tokenizer_hash(s->tok);
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:b, s:o}", "tokenizer_class",
        nw_tokenizer_kind(s->tok), "hash", hash.hex, "vocab_size",
        (json_int_t)nw_tokenizer_size(s->tok), "bos_token", special(s, nw_tokenizer_bos(s->tok)),
        "eos_token", special(s, nw_tokenizer_eos(s->tok)), "pad_token",
        special(s, nw_tokenizer_pad(s->tok)), "unk_token", special(s, nw_tokenizer_unk(s->tok)),
        "add_bos_token", (int)nw_tokenizer_adds_bos(s->tok), "chat_template",
        template != NULL ? json_string(template) : json_null());
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    return text;
}

char *nw_detokenize_text(const nw_server *s, const char *body, size_t n, nw_api_error *e)
{
    static const char *const keys[] = {"model", "tokens"};
    json_t *o = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    nw_buf out;
    nw_error err = {0};
    char *text = NULL;

    if (nw_api_parse_object(body, n, s->opt.max_depth, keys, NW_COUNT(keys), &o, e) != NW_OK) {
        return NULL;
    }
    const json_t *tokens = json_object_get(o, "tokens");
    nw_status st = check_model(s, o, e);
    if (st == NW_OK) {
        st = json_is_array(tokens) ? nw_api_read_ids("tokens", tokens, &ids, &n_ids, e)
                                   : nw_api_wrong(e, "tokens", tokens, "a list of ids");
    }
    nw_buf_init(&out, MAX_TEXT);
    if (st == NW_OK && nw_tokenizer_decode(s->tok, ids, n_ids, NW_DETOK_START | NW_DETOK_CONTROL,
                                           &out, &err) != NW_OK) {
        client_fault(e, &err);
        st = NW_E_FORMAT;
    }
    if (st == NW_OK) {
        json_t *root =
            json_pack("{s:o}", "prompt", json_stringn(out.data != NULL ? out.data : "", out.len));
        text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
        if (text == NULL) {
            (void)nw_api_no_memory(e, "");
        }
        json_decref(root);
    }
    nw_buf_release(&out);
    free(ids);
    json_decref(o);
    return text;
}
