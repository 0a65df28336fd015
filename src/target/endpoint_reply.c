/* What an endpoint answers: events of a stream, whole answers, errors. All of it is hostile: wrong
 * types are errors of that one request, never of the program.
 *
 * Token counts. A server that repeats usage in every event (vLLM, narrow) gives m_k exactly. Without
 * that, one token an event is taken only where the final count equals the number of events; else
 * m_k is 0, "not said", and no gap is split.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "model/unicode.h"
#include "target/endpoint.h"

void nw_ep_reply_begin(nw_ep_call *call)
{
    nw_sse_init(&call->sse, NW_SSE_EVENT_MAX);
    nw_buf_init(&call->reply, NW_REPLY_BODY_MAX);
    call->retry_after_s = -1;
}

void nw_ep_reply_release(nw_ep_call *call)
{
    nw_sse_release(&call->sse);
    nw_buf_release(&call->reply);
}

static void fault(nw_ep_call *call, const char *what)
{
    if (!call->bad) {
        call->bad = true;
        (void)snprintf(call->why, sizeof call->why, "%.*s", (int)sizeof call->why - 1, what);
        nw_utf8_mend(call->why);
    }
}

/* usage: {"prompt_tokens": n, "completion_tokens": n}; null or absent is "not said". */
static void take_usage(nw_ep_call *call, const json_t *usage)
{
    const json_t *p = json_object_get(usage, "prompt_tokens");
    const json_t *c = json_object_get(usage, "completion_tokens");

    if (!json_is_integer(p) || !json_is_integer(c)) {
        return;
    }
    const json_int_t np = json_integer_value(p);
    const json_int_t nc = json_integer_value(c);
    if (np < 0 || np > UINT32_MAX || nc < 0 || nc > UINT32_MAX) {
        fault(call, "usage holds a number that is no token count");
        return;
    }
    call->has_usage = true;
    call->usage_prompt = (uint32_t)np;
    call->usage_output = (uint32_t)nc;
}

static void take_finish(nw_ep_call *call, const json_t *choice)
{
    const char *why = json_string_value(json_object_get(choice, "finish_reason"));

    if (why != NULL) {
        call->saw_finish = true;
        call->finish = strcmp(why, "length") == 0 ? NW_GEN_LENGTH : NW_GEN_STOP;
    }
}

static const json_t *choice_text(const nw_ep_call *call, const json_t *choice, const char *holder)
{
    return call->chat ? json_object_get(json_object_get(choice, holder), "content")
                      : json_object_get(choice, "text");
}

const char *nw_ep_error_message(const json_t *root)
{
    const json_t *e = json_object_get(root, "error");
    const char *m = json_string_value(json_object_get(e, "message"));

    if (m == NULL) {
        m = json_string_value(e);
    }
    return m != NULL ? m : json_string_value(json_object_get(root, "message"));
}

static void take_event(nw_ep_call *call, const json_t *root, int64_t t_ns)
{
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *text = choice_text(call, choice, "delta");
    const size_t n = json_string_length(text);
    const uint32_t before = call->usage_output;
    uint32_t m = 0;

    take_usage(call, json_object_get(root, "usage"));
    if (choice == NULL) { /* the closing event with usage alone: no receipt */
        return;
    }
    if (call->has_usage && call->ep->event_usage) {
        call->usage_in_stream = true;
        m = call->usage_output > before ? call->usage_output - before : 0;
    }
    take_finish(call, choice);
    call->n_events_with_text += n > 0;
    nw_gen_receive(&call->gen, json_string_value(text), n, m, t_ns);
}

typedef struct {
    nw_ep_call *call;
    int64_t t_ns;
} event_ctx;

/* A model may well generate a NUL, which JSON writes as \u0000. */
static void on_event(void *ctx, const char *data, size_t n)
{
    const event_ctx *c = ctx;
    json_error_t at;

    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        c->call->saw_done = true;
        return;
    }
    json_t *root = json_loadb(data, n, JSON_ALLOW_NUL, &at);
    if (!json_is_object(root)) {
        fault(c->call, "an event is not a JSON object");
    } else if (json_object_get(root, "error") != NULL) {
        const char *m = nw_ep_error_message(root);
        fault(c->call, m != NULL ? m : "the server reported an error inside the stream");
    } else if (!c->call->bad) {
        take_event(c->call, root, c->t_ns);
    }
    json_decref(root);
}

bool nw_ep_reply_bytes(nw_ep_call *call, long http_status, const char *bytes, size_t n,
                       int64_t t_ns)
{
    event_ctx ctx = {call, t_ns};
    nw_error err = {0};

    if (http_status != 200 || !call->stream) {
        call->last_byte_ns = t_ns;
        return nw_buf_add(&call->reply, bytes, n);
    }
    if (nw_sse_push(&call->sse, bytes, n, on_event, &ctx, &err) != NW_OK) {
        fault(call, err.message);
    }
    return !call->bad;
}

/* An answer that came whole. Its receipt is one event of all tokens; the first token was not seen. */
static void take_whole(nw_ep_call *call)
{
    json_error_t at;
    json_t *root = json_loadb(call->reply.data != NULL ? call->reply.data : "", call->reply.len,
                              JSON_ALLOW_NUL, &at);
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *text = choice_text(call, choice, "message");

    if (!json_is_string(text)) {
        fault(call, "the answer holds no choices[0] with text");
    } else {
        take_usage(call, json_object_get(root, "usage"));
        take_finish(call, choice);
        nw_gen_receive(&call->gen, json_string_value(text), json_string_length(text),
                       call->usage_output, call->last_byte_ns);
        call->gen.r.f_ns = 0;
    }
    json_decref(root);
}

static void take_score(nw_ep_call *call)
{
    json_error_t at;
    json_t *root = json_loadb(call->reply.data != NULL ? call->reply.data : "", call->reply.len,
                              JSON_ALLOW_NUL, &at);
    char why[200];

    if (!nw_ep_score_read(root, call->score, why, sizeof why)) {
        fault(call, why);
    }
    json_decref(root);
}

static void settle_counts(nw_ep_call *call)
{
    nw_gen *g = &call->gen;

    g->r.n_prompt = call->usage_prompt;
    g->r.n_output = call->usage_output;
    if (!call->stream || call->usage_in_stream) {
        return;
    }
    const uint32_t m = call->has_usage && call->usage_output == call->n_events_with_text ? 1 : 0;
    for (size_t i = 0; i < g->n_marks; i++) {
        g->marks[i].n_tokens = m;
    }
}

static void end_refused(nw_ep_call *call, long http_status)
{
    char why[256];
    json_error_t at;
    json_t *root = json_loadb(call->reply.data != NULL ? call->reply.data : "", call->reply.len,
                              JSON_ALLOW_NUL, &at);
    const char *m = nw_ep_error_message(root);
    const nw_status st = http_status == 429 || http_status == 503 ? NW_E_BUSY
                         : http_status >= 500                     ? NW_E_NETWORK
                                                                  : NW_E_RANGE;

    (void)snprintf(why, sizeof why, "HTTP status %ld: %s", http_status,
                   m != NULL ? m : "no reason");
    nw_utf8_mend(why);
    json_decref(root);
    nw_gen_end(&call->gen, st, NW_GEN_ERROR, why);
}

/* What the end of a good transfer brings. */
static void take_rest(nw_ep_call *call)
{
    if (call->score != NULL) {
        take_score(call);
    } else if (!call->stream) {
        take_whole(call);
    } else if (!call->bad && !call->saw_finish && !call->saw_done) {
        fault(call, "the stream ended before the answer did");
    }
}

void nw_ep_reply_end(nw_ep_call *call, CURLcode rc, long http_status, const char *why)
{
    call->gen.r.http_status = (int)http_status;
    call->gen.r.n_retries = call->n_tries > 0 ? call->n_tries - 1 : 0;
    if (call->cancelled) {
        settle_counts(call);
        nw_gen_end(&call->gen, NW_E_CANCELLED, NW_GEN_CANCELLED, "cancelled");
        return;
    }
    if (rc == CURLE_OK && http_status != 200) {
        end_refused(call, http_status);
        return;
    }
    if (rc == CURLE_OK) {
        take_rest(call);
    }
    settle_counts(call);
    if (call->bad) {
        nw_gen_end(&call->gen, NW_E_NETWORK, NW_GEN_ERROR, call->why);
    } else if (rc != CURLE_OK) {
        nw_gen_end(&call->gen, NW_E_NETWORK, NW_GEN_ERROR, why);
    } else {
        nw_gen_end(&call->gen, NW_OK, call->finish, NULL);
    }
}
