/* What an endpoint is sent: the bodies of /v1/chat/completions and /v1/completions, and plain GETs.
 * Settings at their defaults are left out, so that servers which know fewer of them still answer.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/signal.h"
#include "model/unicode.h"
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

static size_t on_get_header(char *bytes, size_t size, size_t n, void *ctx)
{
    nw_ep_take_retry_after(bytes, size * n, ctx);
    return size * n;
}

static void set_blocking(CURL *easy, const nw_endpoint *ep, const char *url, char *why,
                         nw_buf *reply)
{
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, ep->headers);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, (long)ep->timeout_s);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_get_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, reply);
}

void nw_ep_say_why(const nw_endpoint *ep, CURL *easy, CURLcode rc, char why[CURL_ERROR_SIZE])
{
    curl_off_t connected_us = 0;

    (void)curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
    if (rc == CURLE_OPERATION_TIMEDOUT && connected_us > 0) {
        (void)snprintf(why, CURL_ERROR_SIZE, "not answered within %u s (--timeout)", ep->timeout_s);
    } else if (why[0] == '\0') {
        (void)snprintf(why, CURL_ERROR_SIZE, "%s", curl_easy_strerror(rc));
    }
}

/* nw_ep_ask, and what Retry-After says (< 0: nothing). */
static nw_status ask(const nw_endpoint *ep, size_t replica, const char *path, const json_t *body,
                     long *http, json_t **out, double *retry_after_s, nw_error *err)
{
    char url[1024];
    char why[CURL_ERROR_SIZE] = "";
    nw_buf reply;
    json_error_t at;
    CURL *easy = curl_easy_init();
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;

    *out = NULL;
    *retry_after_s = -1;
    if (easy == NULL || (text == NULL) != (body == NULL)) {
        curl_easy_cleanup(easy);
        free(text);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a connection", ep->roots[replica]);
    }
    nw_buf_init(&reply, NW_REPLY_BODY_MAX);
    (void)snprintf(url, sizeof url, "%s%s", ep->roots[replica], path);
    set_blocking(easy, ep, url, why, &reply);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_get_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, retry_after_s);
    if (text != NULL) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, text);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(text));
    }
    const CURLcode rc = curl_easy_perform(easy);
    nw_ep_say_why(ep, easy, rc, why);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, http);
    curl_easy_cleanup(easy);
    free(text);
    if (rc == CURLE_OK) {
        *out = json_loadb(reply.data != NULL ? reply.data : "", reply.len, JSON_ALLOW_NUL, &at);
    }
    nw_buf_release(&reply);
    return rc == CURLE_OK ? NW_OK : nw_fail(err, NW_E_NETWORK, "%s: %s", url, why);
}

nw_status nw_ep_ask(const nw_endpoint *ep, size_t replica, const char *path, const json_t *body,
                    long *http, json_t **out, nw_error *err)
{
    double ignored = -1;

    return ask(ep, replica, path, body, http, out, &ignored, err);
}

/* An answer that says nothing of what the server can: no room, or it failed at it. */
static nw_status passing_fault(const char *path, long http, const json_t *reply, nw_error *err)
{
    const char *m = nw_ep_error_message(reply);
    const bool busy = http == 408 || http == 429 || http == 503;

    if (!busy && (http < 500 || http == 501)) {
        return NW_OK;
    }
    (void)nw_fail(err, busy ? NW_E_BUSY : NW_E_NETWORK, "%s: HTTP status %ld: %.120s", path, http,
                  m != NULL ? m : "no reason");
    nw_utf8_mend(err->message);
    return err->code;
}

/* False: the program is to end. */
static bool wait_or_stop(double wait_s)
{
    const int64_t end = nw_now_ns() + (int64_t)(wait_s * 1e9);

    while (!nw_stop_requested() && nw_now_ns() < end) {
        const int64_t soon = nw_now_ns() + 100000000;
        nw_sleep_until_ns(soon < end ? soon : end);
    }
    return !nw_stop_requested();
}

nw_status nw_ep_ask_again(const nw_endpoint *ep, const char *path, const json_t *body, long *http,
                          json_t **out, nw_error *err)
{
    for (unsigned n = 0;; n++) {
        double retry_after_s = -1;
        *http = 0;
        nw_status st = ask(ep, n % ep->n_replicas, path, body, http, out, &retry_after_s, err);
        const bool lost = st == NW_E_NETWORK;
        st = st == NW_OK ? passing_fault(path, *http, *out, err) : st;
        if (st == NW_OK) {
            return NW_OK;
        }
        json_decref(*out);
        *out = NULL;
        if (!(lost || st == NW_E_BUSY) || n >= ep->max_retries ||
            !wait_or_stop(nw_ep_wait_s(n + 1, retry_after_s))) {
            return st;
        }
    }
}

nw_status nw_ep_get_json(const nw_endpoint *ep, const char *path, json_t **out, nw_error *err)
{
    long http = 0;

    if (nw_ep_ask(ep, 0, path, NULL, &http, out, err) != NW_OK) {
        return err->code;
    }
    if (http == 200 && *out != NULL) {
        return NW_OK;
    }
    json_decref(*out);
    *out = NULL;
    return http == 200
               ? nw_fail(err, NW_E_NETWORK, "%s%s: answer is not JSON", ep->root, path)
               : nw_fail(err, NW_E_NETWORK, "%s%s: answered with HTTP status %ld, 200 is needed",
                         ep->root, path, http);
}
