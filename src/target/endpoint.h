/* The endpoint implementation, shared between its files: the thread that owns curl (endpoint.c), what
 * is sent (endpoint_request.c) and what comes back (endpoint_reply.c). Inside src/target.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TARGET_ENDPOINT_H
#define NW_TARGET_ENDPOINT_H

#include <curl/curl.h>
#include <pthread.h>

#include "target/gen.h"
#include "target/impl.h"
#include "target/sse.h"

#define NW_SSE_EVENT_MAX  ((size_t)1 << 20)
#define NW_REPLY_BODY_MAX ((size_t)64 << 20)

typedef struct nw_endpoint nw_endpoint;

typedef struct nw_ep_call {
    struct nw_ep_call *next;
    nw_endpoint *ep;
    nw_gen gen;
    CURL *easy;
    char *body; /* request, owned */
    size_t n_body;
    bool chat, stream;
    nw_sse sse;
    nw_buf reply; /* whole body when not streaming, and of error answers */
    uint32_t n_events_with_text;
    uint32_t usage_prompt, usage_output; /* as last reported */
    bool has_usage, usage_in_stream;     /* in_stream: counted event by event */
    bool saw_finish, saw_done, bad;
    nw_gen_finish finish;
    char why[200]; /* when bad */
    int64_t last_byte_ns;
    bool cancelled;
    unsigned n_tries;
    double retry_after_s; /* asked for by the server; < 0: not */
    int64_t due_ns;       /* when to try again; 0: not waiting */
} nw_ep_call;

struct nw_endpoint {
    char *root; /* "http://host:port", without /v1 and without a slash at the end */
    char *model;
    struct curl_slist *headers;
    bool event_usage; /* the server takes stream_options.continuous_usage_stats */
    unsigned max_retries, timeout_s;
    uint32_t max_open;
    const nw_tokenizer *recount;

    CURLM *multi; /* the thread's alone, but for curl_multi_wakeup */
    pthread_t thread;
    bool thread_started;

    pthread_mutex_t lock; /* guards what follows */
    nw_ep_call *incoming;
    uint64_t *cancels;
    size_t n_cancels, cap_cancels;
    uint64_t next_id;
    uint32_t n_open;
    bool closing;

    nw_ep_call *calls; /* the thread's alone */
};

/* The JSON body of a request; NULL when there is no memory. */
char *nw_ep_body(const nw_endpoint *ep, const nw_gen_request *req);

void nw_ep_reply_begin(nw_ep_call *call);
void nw_ep_reply_release(nw_ep_call *call);
/* Bytes of an answer with this HTTP status, received at t_ns. False: stop the transfer. */
bool nw_ep_reply_bytes(nw_ep_call *call, long http_status, const char *bytes, size_t n,
                       int64_t t_ns);
/* The transfer ended; `why` is curl's reason or NULL. Ends the generation. */
void nw_ep_reply_end(nw_ep_call *call, CURLcode rc, long http_status, const char *why);

/* Blocking GET of root + path, parsed; NW_E_NETWORK names URL and status. */
NW_MUST_USE nw_status nw_ep_get_json(const nw_endpoint *ep, const char *path, json_t **out,
                                     nw_error *err);

#endif
