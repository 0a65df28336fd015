/* One HTTP request: find the route, hold it to method, key and size, gather the body under its limit,
 * answer. A body that is announced too long is refused before a byte of it is kept; one that turns
 * out too long is read on and thrown away up to a bound, and then refused, so that the client gets to
 * see the answer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/job.h"

#define EVENT_MAX   ((size_t)64 << 20)
#define BLOCK_BYTES ((size_t)16 << 10) /* what libmicrohttpd asks of a stream at a time */
#define DISCARD_MAX 4                  /* times max_body_bytes, of a body that came too long */

typedef enum {
    ROUTE_CHAT,
    ROUTE_TEXT,
    ROUTE_TOKENIZE,
    ROUTE_DETOKENIZE,
    ROUTE_TOKENIZER,
    ROUTE_MODELS,
    ROUTE_HEALTH,
    ROUTE_METRICS,
    ROUTE_FACTS
} route;

static const struct {
    const char *path, *method;
    route id;
    bool open; /* answered without a key */
} routes[] = {
    {"/v1/chat/completions", "POST", ROUTE_CHAT, false},
    {"/v1/completions", "POST", ROUTE_TEXT, false},
    {"/tokenize", "POST", ROUTE_TOKENIZE, false},
    {"/detokenize", "POST", ROUTE_DETOKENIZE, false},
    {"/tokenizer_info", "GET", ROUTE_TOKENIZER, false},
    {"/v1/models", "GET", ROUTE_MODELS, false},
    {"/health", "GET", ROUTE_HEALTH, true},
    {"/metrics", "GET", ROUTE_METRICS, false},
    {"/narrow/facts", "GET", ROUTE_FACTS, false},
};

/* State of a request between libmicrohttpd's calls. */
typedef struct {
    size_t route; /* index into routes */
    nw_buf body;
    size_t n_discarded;
    bool read; /* to its end, and counted in n_open */
} exchange;

/* ---- answers -------------------------------------------------------------------------------- */

static enum MHD_Result answer(nw_server *s, struct MHD_Connection *conn, unsigned status,
                              const char *content_type, char *text, const char *extra_name,
                              const char *extra_value)
{
    struct MHD_Response *r = NULL;
    enum MHD_Result rc = MHD_NO;

    if (text != NULL) {
        r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    }
    if (r == NULL) {
        free(text);
        return MHD_NO; /* no memory: the connection is closed */
    }
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    if (extra_name != NULL) {
        (void)MHD_add_response_header(r, extra_name, extra_value);
    }
    rc = MHD_queue_response(conn, status, r);
    MHD_destroy_response(r);
    atomic_fetch_add(&s->answers[status / 100 < NW_STATUS_CLASSES ? status / 100 : 0], 1);
    return rc;
}

static enum MHD_Result answer_error(nw_server *s, struct MHD_Connection *conn,
                                    const nw_api_error *e)
{
    const bool later = e->http_status == 429 || e->http_status == 503;

    return answer(s, conn, (unsigned)e->http_status, "application/json", nw_api_error_json(e),
                  later ? MHD_HTTP_HEADER_RETRY_AFTER : NULL, "1");
}

/* Says what is wrong with a request before its body is looked at. */
static nw_api_error *fault(nw_api_error *e, int http_status, const char *message)
{
    (void)nw_api_fail(e, "", "%s", message);
    e->http_status = http_status;
    return e;
}

static char *models_text(const nw_server *s)
{
    json_t *root = json_pack("{s:s, s:[{s:s, s:s, s:I, s:s, s:I}]}", "object", "list", "data", "id",
                             s->model_name, "object", "model", "created", (json_int_t)s->created,
                             "owned_by", "narrow", "max_model_len", (json_int_t)s->n_ctx);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    return text;
}

/* ---- streams -------------------------------------------------------------------------------- */

/* What waits for the engine is no idle connection: from here until end_wait its clock stands still. */
static void begin_wait(struct MHD_Connection *conn)
{
    (void)MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
}

/* The clock starts anew: from here on the client is waited for. */
static void end_wait(const nw_server *s, struct MHD_Connection *conn)
{
    (void)MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, s->opt.idle_timeout_s);
}

typedef struct {
    const nw_server *server;
    struct MHD_Connection *conn;
    nw_job *job;
    nw_buf events;
    size_t n_sent;
} stream;

/* Called on the connection's own thread; may wait. */
static ssize_t stream_read(void *cls, uint64_t pos, char *to, size_t max)
{
    stream *st = cls;

    (void)pos;
    if (st->n_sent == st->events.len) {
        st->n_sent = 0;
        begin_wait(st->conn);
        const bool more = nw_job_next_events(st->job, &st->events);
        end_wait(st->server, st->conn);
        if (!more) {
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
    }
    const size_t left = st->events.len - st->n_sent;
    const size_t n = left < max ? left : max;
    memcpy(to, st->events.data + st->n_sent, n);
    st->n_sent += n;
    return (ssize_t)n;
}

static void stream_free(void *cls)
{
    stream *st = cls;

    nw_job_close(st->job);
    nw_buf_release(&st->events);
    free(st);
}

static enum MHD_Result answer_stream(nw_server *s, struct MHD_Connection *conn, nw_job *job)
{
    stream *st = calloc(1, sizeof *st);
    enum MHD_Result rc = MHD_NO;

    if (st == NULL) {
        nw_job_close(job);
        return MHD_NO;
    }
    st->server = s;
    st->conn = conn;
    st->job = job;
    nw_buf_init(&st->events, EVENT_MAX);
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
                                                               stream_read, st, stream_free);
    if (r == NULL) {
        stream_free(st);
        return MHD_NO;
    }
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    rc = MHD_queue_response(conn, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    atomic_fetch_add(&s->answers[2], 1);
    return rc;
}

/* ---- generation ----------------------------------------------------------------------------- */

/* text, or the error; neither: the client has gone */
static enum MHD_Result answer_text(nw_server *s, struct MHD_Connection *conn, char *text,
                                   const nw_api_error *e)
{
    if (text == NULL) {
        return e->http_status != 0 ? answer_error(s, conn, e) : MHD_NO;
    }
    return answer(s, conn, MHD_HTTP_OK, "application/json", text, NULL, NULL);
}

static enum MHD_Result generate(nw_server *s, struct MHD_Connection *conn, const nw_buf *body,
                                bool chat)
{
    nw_api_request req;
    nw_api_error e = {0};
    nw_job *job = NULL;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (nw_api_parse(body->data != NULL ? body->data : "", body->len, chat, s->opt.max_depth, &req,
                     &e) != NW_OK) {
        return answer_error(s, conn, &e);
    }
    const int fd = info != NULL ? info->connect_fd : -1;
    if (req.stream) {
        const nw_status st = nw_job_admit(s, &req, fd, &job, &e);
        nw_api_release(&req);
        return st == NW_OK ? answer_stream(s, conn, job) : answer_error(s, conn, &e);
    }
    char *text = nw_job_answer(s, &req, fd, &e);
    nw_api_release(&req);
    return answer_text(s, conn, text, &e);
}

static enum MHD_Result answer_tokens(nw_server *s, struct MHD_Connection *conn, const nw_buf *body,
                                     char *(*make)(const nw_server *, const char *, size_t,
                                                   nw_api_error *))
{
    nw_api_error e = {0};

    nw_gate_enter(&s->texts);
    char *text = make(s, body->data != NULL ? body->data : "", body->len, &e);
    nw_gate_leave(&s->texts);
    return answer_text(s, conn, text, &e);
}

static enum MHD_Result dispatch(nw_server *s, struct MHD_Connection *conn, const exchange *x)
{
    switch (routes[x->route].id) {
    case ROUTE_CHAT:
        return generate(s, conn, &x->body, true);
    case ROUTE_TEXT:
        return generate(s, conn, &x->body, false);
    case ROUTE_TOKENIZE:
        return answer_tokens(s, conn, &x->body, nw_tokenize_text);
    case ROUTE_DETOKENIZE:
        return answer_tokens(s, conn, &x->body, nw_detokenize_text);
    case ROUTE_TOKENIZER:
        return answer(s, conn, MHD_HTTP_OK, "application/json", nw_tokenizer_info_text(s), NULL,
                      NULL);
    case ROUTE_MODELS:
        return answer(s, conn, MHD_HTTP_OK, "application/json", models_text(s), NULL, NULL);
    case ROUTE_HEALTH:
        return answer(
            s, conn, atomic_load(&s->draining) ? 503 : MHD_HTTP_OK, "application/json",
            strdup(atomic_load(&s->draining) ? "{\"status\":\"draining\"}" : "{\"status\":\"ok\"}"),
            NULL, NULL);
    case ROUTE_METRICS:
        return answer(s, conn, MHD_HTTP_OK, "text/plain; version=0.0.4", nw_metrics_text(s), NULL,
                      NULL);
    case ROUTE_FACTS:
        break;
    }
    return answer(s, conn, MHD_HTTP_OK, "application/json", nw_facts_text(s), NULL, NULL);
}

/* ---- the first look at a request ------------------------------------------------------------- */

/* Takes the same time wherever the first difference is. */
static bool same_key(const char *a, const char *b)
{
    const size_t na = strlen(a);
    const size_t nb = strlen(b);
    unsigned diff = na != nb;

    for (size_t i = 0; i < na; i++) {
        diff |= (unsigned)((unsigned char)a[i] ^ (unsigned char)b[nb > 0 ? i % nb : 0]);
    }
    return diff == 0 && na > 0;
}

static bool has_key(const nw_server *s, struct MHD_Connection *conn)
{
    static const char scheme[] = "Bearer ";
    const char *h =
        MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);

    return s->opt.api_key == NULL || (h != NULL && strncmp(h, scheme, sizeof scheme - 1) == 0 &&
                                      same_key(h + sizeof scheme - 1, s->opt.api_key));
}

/* 0 where the length is not told beforehand. */
static unsigned long long announced_bytes(struct MHD_Connection *conn)
{
    const char *h =
        MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

    return h != NULL ? strtoull(h, NULL, 10) : 0;
}

static enum MHD_Result too_long(nw_server *s, struct MHD_Connection *conn)
{
    const unsigned long long n = announced_bytes(conn);
    nw_api_error e;
    char why[128];

    if (n > s->opt.max_body_bytes) {
        (void)snprintf(why, sizeof why, "the body has %llu bytes, at most %zu are allowed", n,
                       s->opt.max_body_bytes);
    } else {
        (void)snprintf(why, sizeof why, "the body is longer than %zu bytes, which are allowed",
                       s->opt.max_body_bytes);
    }
    return answer_error(s, conn, fault(&e, MHD_HTTP_CONTENT_TOO_LARGE, why));
}

/* The route's index, or one of the two below. */
#define NO_ROUTE     SIZE_MAX
#define WRONG_METHOD (SIZE_MAX - 1)

static size_t find_route(const char *url, const char *method, const char **allowed)
{
    for (size_t i = 0; i < NW_COUNT(routes); i++) {
        if (strcmp(routes[i].path, url) == 0) {
            const bool head = strcmp(method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0;
            *allowed = routes[i].method;
            return head || strcmp(routes[i].method, method) == 0 ? i : WRONG_METHOD;
        }
    }
    return NO_ROUTE;
}

static enum MHD_Result begin(nw_server *s, struct MHD_Connection *conn, const char *url,
                             const char *method, void **req_cls)
{
    const char *allowed = NULL;
    const size_t i = find_route(url, method, &allowed);
    nw_api_error e;
    char why[160];

    if (i == NO_ROUTE) {
        (void)snprintf(why, sizeof why, "no such path '%.100s'", url);
        return answer_error(s, conn, fault(&e, MHD_HTTP_NOT_FOUND, why));
    }
    if (i == WRONG_METHOD) {
        (void)snprintf(why, sizeof why, "%s takes %s, not %.20s", url, allowed, method);
        (void)fault(&e, MHD_HTTP_METHOD_NOT_ALLOWED, why);
        return answer(s, conn, MHD_HTTP_METHOD_NOT_ALLOWED, "application/json",
                      nw_api_error_json(&e), MHD_HTTP_HEADER_ALLOW, allowed);
    }
    if (!routes[i].open && !has_key(s, conn)) {
        (void)fault(&e, MHD_HTTP_UNAUTHORIZED,
                    "a valid API key is needed: Authorization: Bearer KEY");
        return answer_error(s, conn, &e);
    }
    if (announced_bytes(conn) > s->opt.max_body_bytes) {
        return too_long(s, conn);
    }
    exchange *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return MHD_NO;
    }
    x->route = i;
    nw_buf_init(&x->body, s->opt.max_body_bytes);
    *req_cls = x;
    return MHD_YES;
}

static enum MHD_Result gather(const nw_server *s, exchange *x, const char *data, size_t *n_data)
{
    if (x->n_discarded > 0 || !nw_buf_add(&x->body, data, *n_data)) {
        nw_buf_release(&x->body);
        x->n_discarded += *n_data;
    }
    *n_data = 0;
    return x->n_discarded / DISCARD_MAX > s->opt.max_body_bytes ? MHD_NO : MHD_YES;
}

enum MHD_Result nw_http_request(void *cls, struct MHD_Connection *conn, const char *url,
                                const char *method, const char *version, const char *data,
                                size_t *n_data, void **req_cls)
{
    nw_server *s = cls;
    exchange *x = *req_cls;

    (void)version;
    if (x == NULL) {
        return begin(s, conn, url, method, req_cls);
    }
    if (*n_data > 0) {
        return gather(s, x, data, n_data);
    }
    if (x->n_discarded > 0) {
        return too_long(s, conn);
    }
    x->read = true;
    atomic_fetch_add(&s->n_open, 1);
    begin_wait(conn);
    const enum MHD_Result rc = dispatch(s, conn, x);
    end_wait(s, conn);
    return rc;
}

void nw_http_completed(void *cls, struct MHD_Connection *conn, void **req_cls,
                       enum MHD_RequestTerminationCode why)
{
    nw_server *s = cls;
    exchange *x = *req_cls;

    (void)conn;
    (void)why;
    if (x != NULL) {
        if (x->read) {
            atomic_fetch_sub(&s->n_open, 1);
        }
        nw_buf_release(&x->body);
        free(x);
        *req_cls = NULL;
    }
}
