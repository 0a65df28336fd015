/* The endpoint implementation, shared between its files: opening (endpoint_open.c), the thread that
 * owns curl (endpoint.c), what is sent (endpoint_request.c), what comes back (endpoint_reply.c), and
 * the log-probabilities and tokens a server gives (endpoint_score.c, endpoint_tokens.c). Inside
 * src/target.
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

#define NW_EP_MAX_REPLICAS 16

/* Between tries of a request that found no room: the first wait, doubled each time up to the last. */
#define NW_EP_BACK_OFF_FIRST_S 0.25
#define NW_EP_BACK_OFF_LAST_S  8.0

typedef struct nw_endpoint nw_endpoint;

/* How a server gives log-probabilities of prompt tokens. */
typedef enum {
    NW_EP_SCORE_NONE,
    NW_EP_SCORE_ECHO,  /* completions with echo and logprobs (OpenAI's first API, vLLM, narrow) */
    NW_EP_SCORE_PROMPT /* prompt_logprobs (vLLM) */
} nw_ep_score_kind;

/* How a server turns text into ids. */
typedef enum {
    NW_EP_TOKENS_NONE,
    NW_EP_TOKENS_PROMPT, /* POST /tokenize {"prompt"} (vLLM, narrow) */
    NW_EP_TOKENS_CONTENT /* POST /tokenize {"content"} (llama.cpp) */
} nw_ep_tokens_kind;

/* A sequence whose log-probabilities are asked for; the caller waits, so all of it is borrowed. */
typedef struct {
    nw_ep_score_kind kind;
    const int32_t *ids;
    size_t n, n_context;
    float *logprob; /* [n - n_context] out */
    bool greedy;    /* out */
} nw_ep_score;

typedef struct nw_ep_call {
    struct nw_ep_call *next;
    nw_endpoint *ep;
    nw_gen gen;
    CURL *easy;
    const char *path;   /* "/v1/completions" */
    size_t replica;     /* that is or was asked last */
    nw_ep_score *score; /* NULL: a generation */
    char *body;         /* request, owned */
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
    int64_t due_ns;       /* when to go; 0: now, or under way */
    bool has_slot;        /* of the rate limit, for the next try */
} nw_ep_call;

struct nw_endpoint {
    char *
        root; /* "http://host:port", without /v1 and without a slash at the end; the first replica */
    char *roots[NW_EP_MAX_REPLICAS]; /* all of them, which serve one model */
    size_t n_replicas;
    char *model;
    char owner[32];         /* "narrow" "vllm" "llamacpp" ..., as the server says; "" */
    uint32_t max_model_len; /* 0: not said */
    json_t *identity;       /* of the first replica: what the others are held against */
    double max_rate;        /* requests/s; 0: no limit */
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

    nw_ep_call *calls; /* the thread's alone, and so are the next three */
    uint32_t n_asking[NW_EP_MAX_REPLICAS];
    size_t turn;          /* where the search for the idlest replica begins */
    int64_t next_slot_ns; /* with max_rate: when the next request may go */

    pthread_mutex_t learn_lock; /* guards what is found out when it is first needed */
    bool score_known, tokens_known;
    nw_ep_score_kind score_kind;
    nw_ep_tokens_kind tokens_kind;
    char score_why[240], tokens_why[200]; /* why there is none */
};

/* The JSON body of a request; NULL when there is no memory. */
char *nw_ep_body(const nw_endpoint *ep, const nw_gen_request *req);

void nw_ep_reply_begin(nw_ep_call *call);
void nw_ep_reply_release(nw_ep_call *call);
/* Bytes of an answer with this HTTP status, received at t_ns. False: stop the transfer. */
bool nw_ep_reply_bytes(nw_ep_call *call, long http_status, const char *bytes, size_t n,
                       int64_t t_ns);
/* Why a transfer ended, into `why`, which holds what curl itself wrote of it, or nothing. */
void nw_ep_say_why(const nw_endpoint *ep, CURL *easy, CURLcode rc, char why[CURL_ERROR_SIZE]);
/* The transfer ended; `why` is the reason or NULL. Ends the generation. */
void nw_ep_reply_end(nw_ep_call *call, CURLcode rc, long http_status, const char *why);

/* *wait_s of a header line, where it is Retry-After. */
void nw_ep_take_retry_after(const char *header, size_t n, double *wait_s);
/* How long to wait after n_tries > 0 tries; retry_after_s < 0: the server did not say. */
double nw_ep_wait_s(unsigned n_tries, double retry_after_s);

/* Blocking: one request to a replica (GET without a body); any answer is NW_OK. *out is its JSON, or
 * NULL where it is none; *http its status. NW_E_NETWORK: no answer. */
NW_MUST_USE nw_status nw_ep_ask(const nw_endpoint *ep, size_t replica, const char *path,
                                const json_t *body, long *http, json_t **out, nw_error *err);
/* The same with the retries of the endpoint and the waits that a server asks for, replicas in turn, for
 * finding out what a server can.
 * NW_E_BUSY: 408, 429 or 503 to the end; NW_E_NETWORK: no answer, or another 5xx but 501, whose
 * status is in *http. */
NW_MUST_USE nw_status nw_ep_ask_again(const nw_endpoint *ep, const char *path, const json_t *body,
                                      long *http, json_t **out, nw_error *err);
/* GET of the first replica that has to be answered by 200 and JSON; NW_E_NETWORK names URL and status. */
NW_MUST_USE nw_status nw_ep_get_json(const nw_endpoint *ep, const char *path, json_t **out,
                                     nw_error *err);
/* "message" of an OpenAI-style error object, at the top or under "error"; NULL. */
const char *nw_ep_error_message(const json_t *root);

/* Queues a call (which is taken over) for the thread. */
NW_MUST_USE nw_status nw_ep_submit(nw_endpoint *ep, nw_ep_call *call, const nw_gen_request *req,
                                   const nw_gen_callbacks *cb, uint64_t *id, nw_error *err);
/* A call with body and path set, not queued; body is taken over, also on failure (NULL). */
nw_ep_call *nw_ep_call_new(nw_endpoint *ep, const char *path, char *body);
void nw_ep_call_free(nw_ep_call *call);
NW_MUST_USE nw_status nw_ep_start_thread(nw_endpoint *ep, nw_error *err);
void nw_ep_close(void *ep); /* also one that was opened half way */
extern const nw_target_ops nw_endpoint_ops;

/* Log-probabilities. Ready: finds out, once, how this server gives them; NW_E_UNSUPPORTED says why it
 * does not, any other failure is of the moment and nothing is kept of it. Body and read are the two ends of one request; read sets *why where the answer is not
 * what was asked for. */
NW_MUST_USE nw_status nw_ep_score_ready(nw_endpoint *ep, nw_error *err);
json_t *nw_ep_score_body(const nw_endpoint *ep, const nw_ep_score *s);
NW_MUST_USE bool nw_ep_score_read(const json_t *reply, nw_ep_score *s, char *why, size_t n_why);

/* What can be measured here: see nw_target_probe. */
NW_MUST_USE nw_status nw_ep_probe(void *ep, nw_target *t, json_t **out, nw_error *err);

/* NW_OK where the server gives no ids to compare with; not where it does not answer. */
NW_MUST_USE nw_status nw_ep_check_tokenizer(nw_endpoint *ep, const nw_tokenizer *tok,
                                            nw_error *err);
/* Ids of a text by the server; NW_E_UNSUPPORTED says why it gives none, as for scores. */
NW_MUST_USE nw_status nw_ep_tokenize(nw_endpoint *ep, const char *text, size_t n_bytes,
                                     bool add_bos, int32_t **ids, size_t *n, nw_error *err);

#endif
