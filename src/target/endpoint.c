/* A target that is a URL: one thread owns a curl multi handle and every transfer in it; callers hand
 * it requests and cancellations under a lock and wake it. Receipts are stamped in the write callback,
 * the last request byte in curl's trace of what it sent, both on the one monotonic clock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "target/endpoint.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"

#define MAX_EVENT_WAIT_MS 1000
#define BACK_OFF_FIRST_S  0.25
#define BACK_OFF_LAST_S   8.0

static void call_free(nw_ep_call *call)
{
    if (call != NULL) {
        if (call->easy != NULL) {
            curl_easy_cleanup(call->easy);
        }
        nw_ep_reply_release(call);
        nw_gen_release(&call->gen);
        free(call->body);
        free(call);
    }
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *ctx)
{
    nw_ep_call *call = ctx;
    const int64_t now = nw_now_ns();
    long http = 0;

    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &http);
    return nw_ep_reply_bytes(call, http, bytes, size * n, now) ? size * n : 0;
}

static size_t on_header(char *bytes, size_t size, size_t n, void *ctx)
{
    nw_ep_call *call = ctx;
    static const char name[] = "retry-after:";
    const size_t len = size * n;

    if (len > sizeof name - 1 && strncasecmp(bytes, name, sizeof name - 1) == 0) {
        char value[16] = "";
        memcpy(value, bytes + sizeof name - 1,
               len - sizeof name + 1 < 15 ? len - sizeof name + 1 : 15);
        const double s = strtod(value, NULL);
        call->retry_after_s = s >= 0 && s <= 60 ? s : 60;
    }
    return len;
}

/* curl reports what it has handed to the kernel; the body's last piece is the request's end. */
static int on_trace(CURL *easy, curl_infotype type, char *data, size_t n, void *ctx)
{
    nw_ep_call *call = ctx;

    (void)easy;
    (void)data;
    if (type == CURLINFO_DATA_OUT && n > 0 && call->n_tries == 1) {
        call->gen.r.d_ns = nw_now_ns();
    }
    return 0;
}

static bool call_prepare(nw_ep_call *call, const char *path)
{
    char url[1024];
    CURL *e = curl_easy_init();
    const nw_endpoint *ep = call->ep;

    call->easy = e;
    if (e == NULL) {
        return false;
    }
    (void)snprintf(url, sizeof url, "%s%s", ep->root, path);
    curl_easy_setopt(e, CURLOPT_URL, url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, ep->headers);
    curl_easy_setopt(e, CURLOPT_POST, 1L);
    curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->body);
    curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->n_body);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(e, CURLOPT_TIMEOUT, (long)ep->timeout_s);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(e, CURLOPT_DEBUGFUNCTION, on_trace);
    curl_easy_setopt(e, CURLOPT_DEBUGDATA, call);
    curl_easy_setopt(e, CURLOPT_VERBOSE, 1L);
    curl_easy_setopt(e, CURLOPT_PRIVATE, call);
    return true;
}

static void begin_transfer(nw_ep_call *call)
{
    call->n_tries++;
    call->due_ns = 0;
    call->retry_after_s = -1;
    (void)curl_multi_add_handle(call->ep->multi, call->easy);
}

/* Refused for lack of room, or never answered: worth another try, with waits that double. */
static bool retry_later(nw_ep_call *call, CURLcode rc, long http)
{
    const bool busy = rc == CURLE_OK && (http == 429 || http == 503);
    const bool lost = rc == CURLE_COULDNT_CONNECT || rc == CURLE_GOT_NOTHING ||
                      (rc == CURLE_SEND_ERROR && http == 0);

    if (call->cancelled || !(busy || lost) || call->n_tries > call->ep->max_retries ||
        call->gen.n_marks > 0) {
        return false;
    }
    double wait_s = BACK_OFF_FIRST_S * pow(2.0, (double)(call->n_tries - 1));
    wait_s = fmin(wait_s, BACK_OFF_LAST_S);
    wait_s = fmax(wait_s, call->retry_after_s);
    call->due_ns = nw_now_ns() + (int64_t)(wait_s * 1e9);
    nw_ep_reply_release(call);
    nw_ep_reply_begin(call);
    return true;
}

static void unlink_call(nw_endpoint *ep, nw_ep_call *call)
{
    nw_ep_call **at = &ep->calls;

    while (*at != call) {
        at = &(*at)->next;
    }
    *at = call->next;
}

static void finish_call(nw_endpoint *ep, nw_ep_call *call, CURLcode rc, long http)
{
    unlink_call(ep, call);
    nw_ep_reply_end(call, rc, http, curl_easy_strerror(rc));
    pthread_mutex_lock(&ep->lock);
    ep->n_open--;
    pthread_mutex_unlock(&ep->lock);
    call_free(call);
}

static void collect_finished(nw_endpoint *ep)
{
    CURLMsg *msg = NULL;
    int left = 0;

    while ((msg = curl_multi_info_read(ep->multi, &left)) != NULL) {
        if (msg->msg != CURLMSG_DONE) {
            continue;
        }
        char *private = NULL;
        long http = 0;
        const CURLcode rc = msg->data.result;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &private);
        curl_easy_getinfo(msg->easy_handle, CURLINFO_RESPONSE_CODE, &http);
        nw_ep_call *call = (nw_ep_call *)(void *)private;
        (void)curl_multi_remove_handle(ep->multi, msg->easy_handle);
        if (!retry_later(call, rc, http)) {
            finish_call(ep, call, rc, http);
        }
    }
}

static void cancel_call(nw_endpoint *ep, nw_ep_call *call)
{
    call->cancelled = true;
    if (call->due_ns == 0) {
        (void)curl_multi_remove_handle(ep->multi, call->easy);
    }
    finish_call(ep, call, CURLE_OK, 0);
}

static void cancel_by_id(nw_endpoint *ep, uint64_t id)
{
    for (nw_ep_call *c = ep->calls; c != NULL; c = c->next) {
        if (c->gen.id == id) {
            cancel_call(ep, c);
            return;
        }
    }
}

/* Takes what callers have left: new requests in their order, then cancellations. False: closing. */
static bool take_orders(nw_endpoint *ep)
{
    pthread_mutex_lock(&ep->lock);
    nw_ep_call *incoming = ep->incoming;
    uint64_t *cancels = ep->cancels;
    const size_t n_cancels = ep->n_cancels;
    const bool closing = ep->closing;
    ep->incoming = NULL;
    ep->cancels = NULL;
    ep->n_cancels = ep->cap_cancels = 0;
    pthread_mutex_unlock(&ep->lock);

    while (incoming != NULL) {
        nw_ep_call *call = incoming;
        incoming = call->next;
        call->next = ep->calls;
        ep->calls = call;
        begin_transfer(call);
    }
    for (size_t i = 0; i < n_cancels; i++) {
        cancel_by_id(ep, cancels[i]);
    }
    free(cancels);
    return !closing;
}

static int start_due(nw_endpoint *ep)
{
    const int64_t now = nw_now_ns();
    int64_t wait_ms = MAX_EVENT_WAIT_MS;

    for (nw_ep_call *c = ep->calls; c != NULL; c = c->next) {
        if (c->due_ns != 0 && c->due_ns <= now) {
            begin_transfer(c);
        } else if (c->due_ns != 0 && (c->due_ns - now) / 1000000 + 1 < wait_ms) {
            wait_ms = (c->due_ns - now) / 1000000 + 1;
        }
    }
    return (int)wait_ms;
}

static void *run(void *arg)
{
    nw_endpoint *ep = arg;
    int running = 0;

    while (take_orders(ep)) {
        const int wait_ms = start_due(ep);
        (void)curl_multi_perform(ep->multi, &running);
        collect_finished(ep);
        (void)curl_multi_poll(ep->multi, NULL, 0, wait_ms, NULL);
    }
    while (ep->calls != NULL) {
        cancel_call(ep, ep->calls);
    }
    return NULL;
}

static nw_ep_call *call_new(nw_endpoint *ep, const nw_gen_request *req)
{
    nw_ep_call *call = calloc(1, sizeof *call);

    if (call == NULL) {
        return NULL;
    }
    call->ep = ep;
    call->chat = req->messages != NULL;
    call->stream = !req->no_stream;
    nw_ep_reply_begin(call);
    call->body = nw_ep_body(ep, req);
    call->n_body = call->body != NULL ? strlen(call->body) : 0;
    if (call->body == NULL ||
        !call_prepare(call, call->chat ? "/v1/chat/completions" : "/v1/completions")) {
        call_free(call);
        return NULL;
    }
    return call;
}

static nw_status ep_start(void *impl, const nw_gen_request *req, const nw_gen_callbacks *cb,
                          uint64_t *id, nw_error *err)
{
    nw_endpoint *ep = impl;
    nw_ep_call *call = call_new(ep, req);

    if (call == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a request", ep->root);
    }
    pthread_mutex_lock(&ep->lock);
    if (ep->n_open >= ep->max_open) {
        pthread_mutex_unlock(&ep->lock);
        call_free(call);
        return nw_fail(err, NW_E_BUSY, "%s: %u requests open, at most %u are allowed", ep->root,
                       ep->max_open, ep->max_open);
    }
    ep->n_open++;
    *id = ++ep->next_id;
    nw_gen_init(&call->gen, *id, req, cb, ep->recount);
    nw_ep_call **tail = &ep->incoming;
    while (*tail != NULL) {
        tail = &(*tail)->next;
    }
    *tail = call;
    pthread_mutex_unlock(&ep->lock);
    (void)curl_multi_wakeup(ep->multi);
    return NW_OK;
}

static void ep_cancel(void *impl, uint64_t id)
{
    nw_endpoint *ep = impl;

    pthread_mutex_lock(&ep->lock);
    if (ep->n_cancels == ep->cap_cancels) {
        const size_t cap = ep->cap_cancels == 0 ? 16 : ep->cap_cancels * 2;
        uint64_t *p = realloc(ep->cancels, cap * sizeof *p);
        if (p == NULL) { /* the request then runs to its own end */
            pthread_mutex_unlock(&ep->lock);
            return;
        }
        ep->cancels = p;
        ep->cap_cancels = cap;
    }
    ep->cancels[ep->n_cancels++] = id;
    pthread_mutex_unlock(&ep->lock);
    (void)curl_multi_wakeup(ep->multi);
}

static nw_status ep_score(void *impl, const int32_t *ids, size_t n, size_t n_context,
                          float *logprob, bool *greedy, nw_error *err)
{
    const nw_endpoint *ep = impl;

    (void)ids;
    (void)n;
    (void)n_context;
    (void)logprob;
    (void)greedy;
    return nw_fail(err, NW_E_UNSUPPORTED,
                   "%s: scoring needs log-probabilities of prompt tokens, which a chat server does "
                   "not echo",
                   ep->root);
}

static json_t *ep_facts(void *impl)
{
    json_t *facts = NULL;
    nw_error ignored = {0};

    return nw_ep_get_json(impl, "/narrow/facts", &facts, &ignored) == NW_OK ? facts : NULL;
}

static void ep_close(void *impl)
{
    nw_endpoint *ep = impl;

    if (ep->thread_started) {
        pthread_mutex_lock(&ep->lock);
        ep->closing = true;
        pthread_mutex_unlock(&ep->lock);
        (void)curl_multi_wakeup(ep->multi);
        (void)pthread_join(ep->thread, NULL);
    }
    if (ep->multi != NULL) {
        (void)curl_multi_cleanup(ep->multi);
    }
    curl_slist_free_all(ep->headers);
    pthread_mutex_destroy(&ep->lock);
    free(ep->cancels);
    free(ep->root);
    free(ep->model);
    free(ep);
}

static const nw_target_ops endpoint_ops = {ep_start, ep_cancel, ep_score, ep_facts, ep_close};

static void curl_init_once(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* "http://h:1/v1/" and "http://h:1" are the same server. */
static char *root_of(const char *url)
{
    size_t n = strlen(url);

    while (n > 0 && url[n - 1] == '/') {
        n--;
    }
    if (n > 3 && memcmp(url + n - 3, "/v1", 3) == 0) {
        n -= 3;
    }
    return strndup(url, n);
}

static bool set_headers(nw_endpoint *ep, const char *api_key)
{
    /* "Expect:" without a value: a long body must not wait a second for "100 Continue" */
    static const char *const fixed[] = {"Content-Type: application/json", "Expect:"};
    char line[1024];

    for (size_t i = 0; i < NW_COUNT(fixed); i++) {
        struct curl_slist *l = curl_slist_append(ep->headers, fixed[i]);
        if (l == NULL) {
            return false;
        }
        ep->headers = l;
    }
    if (api_key != NULL) {
        (void)snprintf(line, sizeof line, "Authorization: Bearer %s", api_key);
        struct curl_slist *l = curl_slist_append(ep->headers, line);
        if (l == NULL) {
            return false;
        }
        ep->headers = l;
    }
    return true;
}

/* Asks for the models: takes the first when none was named, and learns from its owner whether the
 * server repeats usage in every event. */
static nw_status learn_model(nw_endpoint *ep, const char *wanted, nw_error *err)
{
    json_t *root = NULL;

    if (nw_ep_get_json(ep, "/v1/models", &root, err) != NW_OK) {
        return nw_context(err, "asking for the models");
    }
    const json_t *first = json_array_get(json_object_get(root, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    const char *owner = json_string_value(json_object_get(first, "owned_by"));
    ep->event_usage = owner != NULL && (strcmp(owner, "narrow") == 0 || strcmp(owner, "vllm") == 0);
    if (wanted == NULL && id == NULL) {
        json_decref(root);
        return nw_fail(err, NW_E_NETWORK, "%s/v1/models: names no model, and none was given",
                       ep->root);
    }
    ep->model = strdup(wanted != NULL ? wanted : id);
    json_decref(root);
    return ep->model != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", ep->root);
}

/* Room in the table of open files for each connection. */
static void raise_file_limit(void)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &lim);
    }
}

nw_status nw_endpoint_open(const char *url, const nw_target_options *opt, nw_target *t,
                           nw_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    nw_endpoint *ep = calloc(1, sizeof *ep);

    if (ep == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for an endpoint", url);
    }
    (void)pthread_once(&once, curl_init_once);
    (void)pthread_mutex_init(&ep->lock, NULL);
    raise_file_limit();
    ep->root = root_of(url);
    ep->max_retries = opt->max_retries;
    ep->timeout_s = opt->timeout_s != 0 ? opt->timeout_s : 600;
    ep->max_open = opt->max_queue != 0 ? opt->max_queue : 1024;
    ep->recount = t->own_tokenizer;
    ep->multi = curl_multi_init();
    if (ep->root == NULL || ep->multi == NULL || !set_headers(ep, opt->api_key)) {
        ep_close(ep);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for an endpoint", url);
    }
    (void)curl_multi_setopt(ep->multi, CURLMOPT_MAXCONNECTS, (long)ep->max_open);
    if (learn_model(ep, opt->model, err) != NW_OK) {
        ep_close(ep);
        return err->code;
    }
    const int rc = pthread_create(&ep->thread, NULL, run, ep);
    if (rc != 0) {
        ep_close(ep);
        return nw_fail(err, NW_E_IO, "%s: no thread for the connections: %s", url, strerror(rc));
    }
    ep->thread_started = true;
    t->ops = &endpoint_ops;
    t->impl = ep;
    t->model = strdup(ep->model);
    return NW_OK;
}
