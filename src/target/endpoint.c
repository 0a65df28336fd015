/* A target that is a URL: one thread owns a curl multi handle and every transfer in it; callers hand
 * it requests and cancellations under a lock and wake it. Receipts are stamped in the write callback,
 * the last request byte in curl's trace of what it sent, both on the one monotonic clock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "target/endpoint.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define MAX_EVENT_WAIT_MS 1000
#define MAX_RETRY_AFTER_S 60.0

void nw_ep_call_free(nw_ep_call *call)
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

/* Seconds, or a date; at most a minute is waited at once. */
static double seconds_of(const char *value)
{
    char *end = NULL;
    double s = strtod(value, &end);

    if (end == value) {
        const time_t at = curl_getdate(value, NULL);
        s = at < 0 ? MAX_RETRY_AFTER_S : difftime(at, time(NULL));
    }
    return fmin(fmax(s, 0), MAX_RETRY_AFTER_S);
}

void nw_ep_take_retry_after(const char *header, size_t n, double *wait_s)
{
    static const char name[] = "retry-after:";

    if (n > sizeof name - 1 && strncasecmp(header, name, sizeof name - 1) == 0) {
        char value[48] = "";
        const size_t n_value = n - (sizeof name - 1);
        memcpy(value, header + sizeof name - 1,
               n_value < sizeof value - 1 ? n_value : sizeof value - 1);
        *wait_s = seconds_of(value);
    }
}

double nw_ep_wait_s(unsigned n_tries, double retry_after_s)
{
    const double doubled = NW_EP_BACK_OFF_FIRST_S * pow(2.0, (double)n_tries - 1);

    return fmax(fmin(doubled, NW_EP_BACK_OFF_LAST_S), retry_after_s);
}

static size_t on_header(char *bytes, size_t size, size_t n, void *ctx)
{
    nw_ep_call *call = ctx;

    nw_ep_take_retry_after(bytes, size * n, &call->retry_after_s);
    return size * n;
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

static bool call_prepare(nw_ep_call *call)
{
    CURL *e = curl_easy_init();
    const nw_endpoint *ep = call->ep;

    call->easy = e;
    if (e == NULL) {
        return false;
    }
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

/* The replica with the fewest requests; one that just failed this call only where there is no other. */
static size_t pick_replica(nw_endpoint *ep, const nw_ep_call *call)
{
    size_t best = ep->n_replicas;

    for (size_t k = 0; k < ep->n_replicas; k++) {
        const size_t i = (ep->turn + k) % ep->n_replicas;
        const bool failed = call->n_tries > 0 && i == call->replica && ep->n_replicas > 1;
        if (!failed && (best == ep->n_replicas || ep->n_asking[i] < ep->n_asking[best])) {
            best = i;
        }
    }
    ep->turn = (best + 1) % ep->n_replicas;
    return best;
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
    char why[CURL_ERROR_SIZE] = "";

    unlink_call(ep, call);
    nw_ep_say_why(ep, call->easy, rc, why);
    nw_ep_reply_end(call, rc, http, why);
    pthread_mutex_lock(&ep->lock);
    ep->n_open--;
    pthread_mutex_unlock(&ep->lock);
    nw_ep_call_free(call);
}

/* The call is gone after that where curl does not take it. */
static void begin_transfer(nw_ep_call *call)
{
    char url[1024];
    nw_endpoint *ep = call->ep;

    call->replica = pick_replica(ep, call);
    ep->n_asking[call->replica]++;
    call->n_tries++;
    call->due_ns = 0;
    call->retry_after_s = -1;
    (void)snprintf(url, sizeof url, "%s%s", ep->roots[call->replica], call->path);
    curl_easy_setopt(call->easy, CURLOPT_URL, url);
    if (curl_multi_add_handle(ep->multi, call->easy) != CURLM_OK) {
        ep->n_asking[call->replica]--;
        finish_call(ep, call, CURLE_FAILED_INIT, 0);
    }
}

static void end_transfer(nw_ep_call *call)
{
    (void)curl_multi_remove_handle(call->ep->multi, call->easy);
    call->ep->n_asking[call->replica]--;
}

/* Whether the call may go now under the rate limit; otherwise it is due again when its slot comes. A slot
 * is taken when the call could use it: one that waits for a busy server holds up nobody. */
static bool take_slot(nw_ep_call *call, int64_t now)
{
    nw_endpoint *ep = call->ep;

    if (!call->has_slot && ep->max_rate > 0) {
        call->due_ns = ep->next_slot_ns > now ? ep->next_slot_ns : now;
        ep->next_slot_ns = call->due_ns + (int64_t)(1e9 / ep->max_rate);
        call->has_slot = true;
    }
    return call->due_ns <= now;
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
    const double wait_s = nw_ep_wait_s(call->n_tries, call->retry_after_s);
    call->due_ns = nw_now_ns() + (int64_t)(wait_s * 1e9);
    call->has_slot = false;
    nw_ep_reply_release(call);
    nw_ep_reply_begin(call);
    return true;
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
        end_transfer(call);
        if (!retry_later(call, rc, http)) {
            finish_call(ep, call, rc, http);
        }
    }
}

static void cancel_call(nw_endpoint *ep, nw_ep_call *call)
{
    call->cancelled = true;
    if (call->due_ns == 0) {
        end_transfer(call);
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
        if (take_slot(call, nw_now_ns())) {
            begin_transfer(call);
        }
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

    for (nw_ep_call *c = ep->calls, *next = NULL; c != NULL; c = next) {
        next = c->next; /* a call that cannot begin is gone */
        if (c->due_ns != 0 && c->due_ns <= now && take_slot(c, now)) {
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

nw_ep_call *nw_ep_call_new(nw_endpoint *ep, const char *path, char *body)
{
    nw_ep_call *call = body != NULL ? calloc(1, sizeof *call) : NULL;

    if (call == NULL) {
        free(body);
        return NULL;
    }
    call->ep = ep;
    call->path = path;
    call->body = body;
    call->n_body = strlen(body);
    nw_ep_reply_begin(call);
    if (!call_prepare(call)) {
        nw_ep_call_free(call);
        return NULL;
    }
    return call;
}

nw_status nw_ep_submit(nw_endpoint *ep, nw_ep_call *call, const nw_gen_request *req,
                       const nw_gen_callbacks *cb, uint64_t *id, nw_error *err)
{
    pthread_mutex_lock(&ep->lock);
    if (ep->n_open >= ep->max_open) {
        pthread_mutex_unlock(&ep->lock);
        nw_ep_call_free(call);
        return nw_fail(err, NW_E_BUSY, "%s: %u requests open, at most %u are allowed", ep->root,
                       ep->max_open, ep->max_open);
    }
    ep->n_open++;
    *id = ++ep->next_id;
    nw_gen_init(&call->gen, *id, req, cb, call->score == NULL ? ep->recount : NULL);
    nw_ep_call **tail = &ep->incoming;
    while (*tail != NULL) {
        tail = &(*tail)->next;
    }
    *tail = call;
    pthread_mutex_unlock(&ep->lock);
    (void)curl_multi_wakeup(ep->multi);
    return NW_OK;
}

static nw_status ep_start(void *impl, const nw_gen_request *req, const nw_gen_callbacks *cb,
                          uint64_t *id, nw_error *err)
{
    nw_endpoint *ep = impl;
    const bool chat = req->messages != NULL;
    nw_ep_call *call =
        nw_ep_call_new(ep, chat ? "/v1/chat/completions" : "/v1/completions", nw_ep_body(ep, req));

    if (call == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a request", ep->root);
    }
    call->chat = chat;
    call->stream = !req->no_stream;
    return nw_ep_submit(ep, call, req, cb, id, err);
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

/* A caller that waits for its score. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    nw_status status;
    char error[256];
} score_wait;

static void on_scored(void *ctx, uint64_t id, const nw_gen_result *r)
{
    score_wait *w = ctx;

    (void)id;
    pthread_mutex_lock(&w->lock);
    w->status = r->status;
    (void)snprintf(w->error, sizeof w->error, "%s", r->error);
    w->done = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static nw_status score_and_wait(nw_endpoint *ep, nw_ep_call *call, nw_error *err)
{
    score_wait w = {.done = false};
    const nw_gen_callbacks cb = {.on_done = on_scored, .ctx = &w};
    const nw_gen_request req = {.max_tokens = 1};
    uint64_t id = 0;

    (void)pthread_mutex_init(&w.lock, NULL);
    (void)pthread_cond_init(&w.changed, NULL);
    nw_status st = nw_ep_submit(ep, call, &req, &cb, &id, err);
    if (st == NW_OK) {
        pthread_mutex_lock(&w.lock);
        while (!w.done) {
            pthread_cond_wait(&w.changed, &w.lock);
        }
        pthread_mutex_unlock(&w.lock);
        st = w.status == NW_OK ? NW_OK : nw_fail(err, w.status, "score: %s", w.error);
    }
    (void)pthread_cond_destroy(&w.changed);
    (void)pthread_mutex_destroy(&w.lock);
    return st;
}

static nw_status ep_score(void *impl, const int32_t *ids, size_t n, size_t n_context,
                          float *logprob, bool *greedy, nw_error *err)
{
    nw_endpoint *ep = impl;
    nw_ep_score s = {.ids = ids, .n = n, .n_context = n_context, .logprob = logprob};

    if (nw_ep_score_ready(ep, err) != NW_OK) {
        return err->code;
    }
    s.kind = ep->score_kind;
    json_t *body = nw_ep_score_body(ep, &s);
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    nw_ep_call *call = nw_ep_call_new(ep, "/v1/completions", text);
    if (call == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a request", ep->root);
    }
    call->score = &s;
    const nw_status st = score_and_wait(ep, call, err);
    if (st == NW_OK && greedy != NULL) {
        *greedy = s.greedy;
    }
    return st;
}

static nw_status ep_can_score(void *impl, nw_error *err)
{
    return nw_ep_score_ready(impl, err);
}

static nw_status ep_tokenize(void *impl, const char *text, size_t n_bytes, bool add_bos,
                             int32_t **ids, size_t *n, nw_error *err)
{
    return nw_ep_tokenize(impl, text, n_bytes, add_bos, ids, n, err);
}

static nw_status ep_check_tokenizer(void *impl, const nw_tokenizer *tok, nw_error *err)
{
    return nw_ep_check_tokenizer(impl, tok, err);
}

static json_t *ep_facts(void *impl)
{
    json_t *facts = NULL;
    nw_error ignored = {0};

    return nw_ep_get_json(impl, "/narrow/facts", &facts, &ignored) == NW_OK ? facts : NULL;
}

void nw_ep_close(void *impl)
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
    pthread_mutex_destroy(&ep->learn_lock);
    free(ep->cancels);
    for (size_t i = 0; i < ep->n_replicas; i++) {
        free(ep->roots[i]);
    }
    json_decref(ep->identity);
    free(ep->model);
    free(ep);
}

nw_status nw_ep_start_thread(nw_endpoint *ep, nw_error *err)
{
    const int rc = pthread_create(&ep->thread, NULL, run, ep);

    ep->thread_started = rc == 0;
    return rc == 0 ? NW_OK
                   : nw_fail(err, NW_E_IO, "%s: no thread for the connections: %s", ep->root,
                             strerror(rc));
}

const nw_target_ops nw_endpoint_ops = {.start = ep_start,
                                       .cancel = ep_cancel,
                                       .score = ep_score,
                                       .can_score = ep_can_score,
                                       .tokenize = ep_tokenize,
                                       .probe = nw_ep_probe,
                                       .check_tokenizer = ep_check_tokenizer,
                                       .facts = ep_facts,
                                       .close = nw_ep_close};
