/* Ids of a text from a server, and whether a tokenizer here agrees with them. vLLM and narrow take
 * {"prompt", "add_special_tokens"}, llama.cpp {"content", "add_special"}; each ignores the other's keys
 * or refuses them, so that the shape of the answer tells.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer.h"
#include "target/endpoint.h"

static json_t *tokenize_body(const nw_endpoint *ep, nw_ep_tokens_kind kind, const char *text,
                             size_t n_bytes, bool add_bos)
{
    json_t *s = json_stringn(text, n_bytes);

    if (s == NULL) {
        return NULL;
    }
    return kind == NW_EP_TOKENS_PROMPT ? json_pack("{s:s, s:o, s:b}", "model", ep->model, "prompt",
                                                   s, "add_special_tokens", (int)add_bos)
                                       : json_pack("{s:o, s:b, s:b}", "content", s, "add_special",
                                                   (int)add_bos, "parse_special", 0);
}

/* *ids is new. False: no list of ids. */
static bool read_ids(const json_t *reply, int32_t **ids, size_t *n)
{
    const json_t *list = json_object_get(reply, "tokens");
    const size_t count = json_array_size(list);
    int32_t *out = json_is_array(list) ? calloc(count + 1, sizeof *out) : NULL;

    for (size_t i = 0; out != NULL && i < count; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX) {
            free(out);
            return false;
        }
        out[i] = (int32_t)json_integer_value(v);
    }
    if (out == NULL) {
        return false;
    }
    *ids = out;
    *n = count;
    return true;
}

/* NW_E_UNSUPPORTED: an answer without ids. */
static nw_status ask_ids(const nw_endpoint *ep, nw_ep_tokens_kind kind, const char *text,
                         size_t n_bytes, bool add_bos, int32_t **ids, size_t *n, nw_error *err)
{
    json_t *reply = NULL;
    long http = 0;
    json_t *body = tokenize_body(ep, kind, text, n_bytes, add_bos);
    nw_status st = body != NULL ? nw_ep_ask_again(ep, "/tokenize", body, &http, &reply, err)
                                : nw_fail(err, NW_E_FORMAT, "the text is no UTF-8");

    if (st == NW_OK && http != 200) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "/tokenize: HTTP status %ld", http);
    } else if (st == NW_OK && !read_ids(reply, ids, n)) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "/tokenize: no list of ids in the answer");
    }
    json_decref(reply);
    json_decref(body);
    return st;
}

/* The kind that gives a few ids for a few letters. */
static nw_status learn(nw_endpoint *ep, nw_error *err)
{
    static const nw_ep_tokens_kind kinds[] = {NW_EP_TOKENS_PROMPT, NW_EP_TOKENS_CONTENT};

    for (size_t i = 0; i < NW_COUNT(kinds) && ep->tokens_kind == NW_EP_TOKENS_NONE; i++) {
        int32_t *ids = NULL;
        size_t n = 0;
        nw_error fault = {0};
        const nw_status st = ask_ids(ep, kinds[i], "tokens", 6, false, &ids, &n, &fault);
        if (st == NW_OK) {
            ep->tokens_kind = n > 0 && n <= 6 ? kinds[i] : NW_EP_TOKENS_NONE;
            (void)snprintf(ep->tokens_why, sizeof ep->tokens_why,
                           "/tokenize: %zu ids for 6 letters", n);
        } else if (st == NW_E_UNSUPPORTED) {
            (void)snprintf(ep->tokens_why, sizeof ep->tokens_why, "%.199s", fault.message);
        } else {
            *err = fault;
            return nw_context(err, "asking for the ids of a text");
        }
        free(ids);
    }
    ep->tokens_known = true;
    return NW_OK;
}

nw_status nw_ep_tokenize(nw_endpoint *ep, const char *text, size_t n_bytes, bool add_bos,
                         int32_t **ids, size_t *n, nw_error *err)
{
    pthread_mutex_lock(&ep->learn_lock);
    nw_status st = ep->tokens_known ? NW_OK : learn(ep, err);
    pthread_mutex_unlock(&ep->learn_lock);
    if (st != NW_OK) {
        return st;
    }
    if (ep->tokens_kind == NW_EP_TOKENS_NONE) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: the server tokenizes nothing for others (%s), and no tokenizer was "
                       "given (--tokenizer)",
                       ep->root, ep->tokens_why);
    }
    st = ask_ids(ep, ep->tokens_kind, text, n_bytes, add_bos, ids, n, err);
    if (st == NW_E_UNSUPPORTED) { /* it gave ids before */
        err->code = NW_E_NETWORK;
    }
    return st == NW_OK ? NW_OK : nw_context(err, "%s", ep->root);
}

/* Scripts, digits, blanks, an emoji of several parts, and text that looks like a control token. */
static const char probe_text[] =
    "The price rose by 3.14159 % in 2024.\n\n  I'm sure: caf\xC3\xA9, "
    "\xD0\xA1\xD0\xBB\xD0\xBE\xD0\xB2"
    "\xD0\xBE, \xE4\xB8\xAD\xE6\x96\x87, \xE0\xB9\x84\xE0\xB8\x97\xE0\xB8\xA2 "
    "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80 <x> {\"key\": [1, 22, 333]}\t-- end";

nw_status nw_ep_check_tokenizer(nw_endpoint *ep, const nw_tokenizer *tok, nw_error *err)
{
    const size_t n_bytes = sizeof probe_text - 1;
    nw_ids ours;
    int32_t *theirs = NULL;
    size_t n = 0;

    nw_status st = nw_ep_tokenize(ep, probe_text, n_bytes, true, &theirs, &n, err);
    if (st != NW_OK) {
        return st == NW_E_UNSUPPORTED ? NW_OK : st; /* nothing to compare with */
    }
    nw_ids_init(&ours);
    st = nw_tokenizer_encode(tok, probe_text, n_bytes, NW_TOK_BOS, &ours, err);
    size_t i = 0;
    while (st == NW_OK && i < n && i < ours.n && theirs[i] == ours.ids[i]) {
        i++;
    }
    if (st == NW_OK && (n != ours.n || i < n)) {
        st = nw_fail(err, NW_E_FORMAT,
                     "%s: the server makes %zu tokens of a fixed text, %s makes %zu; they part at "
                     "token %zu",
                     ep->root, n, nw_tokenizer_path(tok), ours.n, i);
    }
    nw_ids_release(&ours);
    free(theirs);
    return st;
}
