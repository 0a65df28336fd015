/* What an endpoint is sent: the bodies of /v1/chat/completions and /v1/completions, and plain GETs.
 * Settings at their defaults are left out, so that servers which know fewer of them still answer.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "target/endpoint.h"

static bool put(json_t *o, const char *key, json_t *value)
{
    return json_object_set_new(o, key, value) == 0;
}

static bool put_input(json_t *o, const nw_gen_request *req)
{
    if (req->messages != NULL) {
        return put(o, "messages", json_deep_copy(req->messages));
    }
    if (req->prompt != NULL) {
        return put(o, "prompt", json_stringn(req->prompt, req->n_prompt_bytes));
    }
    json_t *ids = json_array();
    for (size_t i = 0; i < req->n_ids; i++) {
        if (json_array_append_new(ids, json_integer(req->ids[i])) != 0) {
            json_decref(ids);
            return false;
        }
    }
    return put(o, "prompt", ids);
}

static bool put_sampling(json_t *o, const nw_gen_request *req)
{
    bool ok = put(o, "temperature", json_real(req->temperature));

    if (req->top_p > 0) {
        ok = ok && put(o, "top_p", json_real(req->top_p));
    }
    if (req->top_k > 0) {
        ok = ok && put(o, "top_k", json_integer(req->top_k));
    }
    if (req->min_p > 0) {
        ok = ok && put(o, "min_p", json_real(req->min_p));
    }
    if (req->repetition_penalty > 0) {
        ok = ok && put(o, "repetition_penalty", json_real(req->repetition_penalty));
    }
    if (req->seed != 0) {
        ok = ok && put(o, "seed", json_integer((json_int_t)(req->seed & INT64_MAX)));
    }
    if (req->ignore_eos) {
        ok = ok && put(o, "ignore_eos", json_true());
    }
    return ok;
}

static bool put_stop(json_t *o, const nw_gen_request *req)
{
    if (req->n_stop == 0) {
        return true;
    }
    json_t *stop = json_array();
    for (size_t i = 0; i < req->n_stop; i++) {
        if (json_array_append_new(stop, json_string(req->stop[i])) != 0) {
            json_decref(stop);
            return false;
        }
    }
    return put(o, "stop", stop);
}

static bool put_stream(json_t *o, const nw_endpoint *ep, const nw_gen_request *req)
{
    if (req->no_stream) {
        return true;
    }
    json_t *options = json_object();
    bool ok = put(options, "include_usage", json_true());
    if (ep->event_usage) {
        ok = ok && put(options, "continuous_usage_stats", json_true());
    }
    return put(o, "stream_options", options) && ok && put(o, "stream", json_true());
}

char *nw_ep_body(const nw_endpoint *ep, const nw_gen_request *req)
{
    json_t *o = json_object();
    char *text = NULL;

    if (o != NULL && put(o, "model", json_string(ep->model)) && put_input(o, req) &&
        put(o, "max_tokens", json_integer(req->max_tokens)) && put_sampling(o, req) &&
        put_stop(o, req) && put_stream(o, ep, req)) {
        text = json_dumps(o, JSON_COMPACT);
    }
    json_decref(o);
    return text;
}

static size_t on_get_bytes(char *bytes, size_t size, size_t n, void *ctx)
{
    return nw_buf_add(ctx, bytes, size * n) ? size * n : 0;
}

nw_status nw_ep_get_json(const nw_endpoint *ep, const char *path, json_t **out, nw_error *err)
{
    char url[1024];
    char why[CURL_ERROR_SIZE] = "";
    nw_buf body;
    long http = 0;
    json_error_t at;
    nw_status st = NW_OK;
    CURL *easy = curl_easy_init();

    if (easy == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a connection", ep->root);
    }
    nw_buf_init(&body, NW_REPLY_BODY_MAX);
    (void)snprintf(url, sizeof url, "%s%s", ep->root, path);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, ep->headers);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, 30L);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_get_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &body);
    const CURLcode rc = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &http);
    curl_easy_cleanup(easy);
    if (rc != CURLE_OK) {
        st = nw_fail(err, NW_E_NETWORK, "%s: %s", url,
                     why[0] != '\0' ? why : curl_easy_strerror(rc));
    } else if (http != 200) {
        st = nw_fail(err, NW_E_NETWORK, "%s: answered with HTTP status %ld, 200 is needed", url,
                     http);
    } else {
        *out = json_loadb(body.data != NULL ? body.data : "", body.len, JSON_ALLOW_NUL, &at);
        if (*out == NULL) {
            st = nw_fail(err, NW_E_NETWORK, "%s: answer is not JSON: line %d: %s", url, at.line,
                         at.text);
        }
    }
    nw_buf_release(&body);
    return st;
}
