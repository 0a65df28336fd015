/* A target: something that generates text. One interface, two implementations: an artifact run by
 * our engine in this process, and the URL of any OpenAI-compatible server. Measuring code (bench,
 * eval) sees only this, so that both are measured by the same client with the same clock.
 *
 * Threads: any thread may call any function of an open target. Callbacks come from the target's own
 * thread, one at a time, and must not block; they may start and cancel requests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TARGET_TARGET_H
#define NW_TARGET_TARGET_H

#include <jansson.h>

#include "base/status.h"

typedef struct nw_target nw_target;

typedef enum { NW_TARGET_LOCAL, NW_TARGET_ENDPOINT } nw_target_kind;

/* Strings are borrowed during nw_target_open only. Zero is "default" everywhere. */
typedef struct {
    /* both */
    const char *tokenizer; /* a model path whose tokenizer serves tokenize and recounts; NULL: the
                              artifact's own when local, none when an endpoint */
    uint32_t max_queue;    /* requests waiting beyond those being worked on; 0: 1024 */
    /* local */
    unsigned n_threads; /* 0: by affinity and quota */
    const char *tier;   /* "ref" "avx2" "avx512"; NULL: the best */
    const char *kv;     /* "f32" "bf16" "int8", or "K/V" such as "int8/bf16"; NULL: f32 */
    const char *act;    /* "a16" "a8"; NULL: as the manifest says */
    uint32_t n_ctx;     /* tokens; 0: the model's, capped */
    uint32_t max_seqs;  /* sequences in a step; 0: 32 */
    /* endpoint */
    const char *api_key;  /* sent as a bearer token; NULL: none */
    const char *model;    /* NULL: the first of GET /v1/models */
    unsigned max_retries; /* of a request refused with 429/503 or never answered; 0: none. The clock
                             of a retried request runs on: s and d stay those of the first try */
    unsigned timeout_s;   /* for an answer, whole; 0: 600 */
    double max_rate; /* requests/s that are sent at most; 0: no limit. Not for open-loop load */
} nw_target_options;

/* `spec` is an http:// or https:// URL (with or without /v1), several of them separated by commas
 * (replicas of one service, each request to the idlest), or the path of an artifact or checkpoint.
 * Opening an endpoint asks every replica for its models, so a wrong URL fails here. */
NW_MUST_USE nw_status nw_target_open(const char *spec, const nw_target_options *opt,
                                     nw_target **out, nw_error *err);
/* Cancels what is in flight (on_done is called for each), then closes. Takes NULL. */
void nw_target_close(nw_target *t);

bool nw_target_spec_is_url(const char *spec);
nw_target_kind nw_target_get_kind(const nw_target *t);
const char *nw_target_model(const nw_target *t); /* name as the server gives it, or the path */

/* ---- generate ------------------------------------------------------------------------------ */

typedef enum {
    NW_GEN_STOP,      /* end of text or a stop string */
    NW_GEN_LENGTH,    /* max_tokens */
    NW_GEN_CANCELLED, /* by us */
    NW_GEN_ERROR      /* see status and error */
} nw_gen_finish;

const char *nw_gen_finish_name(nw_gen_finish f); /* "stop" "length" "cancelled" "error" */

/* Exactly one of messages, prompt and ids is set. All of it is copied by nw_target_start. */
typedef struct {
    const json_t *messages; /* chat: array of {role, content} */
    const char *prompt;     /* completion of raw text; n_prompt_bytes long */
    size_t n_prompt_bytes;
    const int32_t *ids; /* completion of token ids (sent as an array to an endpoint) */
    size_t n_ids;
    uint32_t max_tokens; /* > 0 */
    double temperature;  /* 0: greedy */
    double top_p;        /* 0: off */
    double min_p;
    uint32_t top_k;
    double repetition_penalty; /* 0: off */
    uint64_t seed;
    bool ignore_eos;
    bool no_stream; /* endpoint: one answer at the end; TTFT and TPOT are then not measured */
    const char *const *stop;
    size_t n_stop;
    uint32_t n_top_logprobs; /* local only */
    int64_t scheduled_ns;    /* s on nw_now_ns(); 0: the moment of the start (s = d) */
} nw_gen_request;

/* One receipt: when, and how many tokens it carried. n_tokens is 0 where the server did not say
 * (no usage inside the stream and more tokens than events): a gap is then one of an event, not of
 * a token, and is never split into invented zeros. */
typedef struct {
    int64_t t_ns;
    uint32_t n_tokens;
} nw_gen_mark;

/* What is known of a finished request. Times are CLOCK_MONOTONIC ns (MEASURES section 5); 0 where
 * the event never happened or was not measured. */
typedef struct {
    nw_status status; /* NW_OK, or why there is no answer; NW_E_BUSY: refused with 429 */
    int http_status;  /* 0 for a local target or no answer */
    char error[256];
    int64_t s_ns; /* scheduled */
    int64_t d_ns; /* last request byte written; local: handed to the scheduler */
    int64_t f_ns; /* first event with non-empty text */
    int64_t l_ns; /* last token */
    const nw_gen_mark *events;
    size_t n_events;
    uint32_t n_prompt;  /* by the server's usage; 0: it did not say */
    uint32_t n_asked;   /* max_tokens of the request */
    uint32_t n_output;  /* by the server's usage; else by our recount */
    uint32_t n_recount; /* tokens of `text` by our tokenizer; 0: none open */
    nw_gen_finish finish;
    unsigned n_retries;
    const char *text; /* UTF-8, NUL-terminated */
    size_t n_text_bytes;
    const int32_t *ids;    /* [n_output], local only; NULL otherwise */
    const float *logprobs; /* [n_output] nats before sampling, local only; NULL otherwise */
} nw_gen_result;

typedef struct {
    void (*on_text)(void *ctx, const char *text, size_t n, nw_gen_mark mark); /* NULL: not wanted */
    /* Exactly once for each started request; the result dies with the call. */
    void (*on_done)(void *ctx, uint64_t id, const nw_gen_result *result);
    void *ctx;
} nw_gen_callbacks;

/* Asynchronous. Errors here: NW_E_RANGE (a request that can never run), NW_E_BUSY (queue full),
 * NW_E_NOMEM; on_done is then not called. */
NW_MUST_USE nw_status nw_target_start(nw_target *t, const nw_gen_request *req,
                                      const nw_gen_callbacks *cb, uint64_t *id, nw_error *err);
/* on_done follows with NW_GEN_CANCELLED unless it came first. Unknown ids are ignored. */
void nw_target_cancel(nw_target *t, uint64_t id);

/* Blocking. *out is owned: nw_gen_result_release. A refused or failed request is an error here. */
NW_MUST_USE nw_status nw_target_generate(nw_target *t, const nw_gen_request *req,
                                         nw_gen_result *out, nw_error *err);
void nw_gen_result_release(nw_gen_result *r); /* for results of nw_target_generate only */

/* ---- score, tokenize ----------------------------------------------------------------------- */

/* Log-probability (nats) of each of ids[n_context .. n-1] given all before it: logprob
 * [n - n_context]. n_context >= 1. An endpoint is asked for the log-probabilities of its prompt;
 * NW_E_UNSUPPORTED says why it has none. greedy (may be NULL): all were the top token. */
NW_MUST_USE nw_status nw_target_score(nw_target *t, const int32_t *ids, size_t n, size_t n_context,
                                      float *logprob, bool *greedy, nw_error *err);

/* NW_OK, or NW_E_UNSUPPORTED with the reason why nw_target_score cannot work here. Asks an endpoint
 * once, with a control: other tokens have to get other log-probabilities. */
NW_MUST_USE nw_status nw_target_can_score(nw_target *t, nw_error *err);

/* Appends nothing: *ids is new, freed with free(). add_bos as the model wants it. By
 * options.tokenizer or the artifact's own; else by the server, NW_E_UNSUPPORTED where it cannot. */
NW_MUST_USE nw_status nw_target_tokenize(nw_target *t, const char *text, size_t n_bytes,
                                         bool add_bos, int32_t **ids, size_t *n, nw_error *err);
bool nw_target_has_tokenizer(const nw_target *t);
/* Tokens of the longest prompt and answer, as a server says; 0: not known, or not a server. */
uint32_t nw_target_max_len(const nw_target *t);

/* Whether options.tokenizer gives the ids that the server itself counts for a fixed text of many
 * kinds of characters: NW_OK (or nothing to compare with), or NW_E_FORMAT with both counts. */
NW_MUST_USE nw_status nw_target_check_tokenizer(nw_target *t, nw_error *err);

/* Tries out what a server can do, one request each. *out: {"url", "model", "owner", "max_model_len",
 * "capabilities": [{"name", "ok", "how"}], "measures": [{"name", "ok", "why"}]}: "how" and "why" are
 * sentences. The caller owns it. Endpoints only. */
NW_MUST_USE nw_status nw_target_probe(nw_target *t, json_t **out, nw_error *err);

/* ---- facts --------------------------------------------------------------------------------- */

/* What the engine knows of itself: {"model", "artifact_hash", "tier", "threads", "weights",
 * "weight_bytes", "kv_bytes_per_token", "kv_capacity_tokens", "kv_bytes", "workspace_bytes",
 * "load_s", "kernel_map", "pid", "ledger": [...]}. The caller owns it; NULL is "absent" (a server
 * that is not narrow's). */
json_t *nw_target_facts(nw_target *t);

#endif
