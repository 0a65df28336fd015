/* Scheduler: continuous batching. One worker thread owns the engine; every step it runs one token of
 * each request that decodes and chunks of the prompts that are being read, oldest first.
 *
 * Pages: a request is refused at submit when its prompt and max_tokens could never fit the pool. It
 * starts when the pages of its prompt are free. When the pool runs dry in mid-flight, the youngest
 * running request gives its pages back and is computed again later, from the tokens it has: since
 * logits do not depend on chunking or batch, its text goes on unchanged. The oldest request always
 * gets its pages, so that there is no deadlock.
 *
 * Prompts that begin alike share the pages of their beginning, also with requests that ended while
 * their pages were not needed otherwise; only the rest is computed. The text is the same either way.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_SCHEDULER_H
#define NW_ENGINE_SCHEDULER_H

#include "engine/engine.h"
#include "engine/sampler.h"

typedef enum { NW_SCHED_PROMPT, NW_SCHED_TOKEN, NW_SCHED_DONE, NW_SCHED_ERROR } nw_sched_event_type;

#define NW_FINISH_MAP(X)      \
    X(NONE, "")               \
    X(STOP, "stop")           \
    X(LENGTH, "length")       \
    X(CANCELLED, "cancelled") \
    X(ERROR, "error")

typedef enum {
#define NW_FINISH_ENUM(name, text) NW_FINISH_##name,
    NW_FINISH_MAP(NW_FINISH_ENUM)
#undef NW_FINISH_ENUM
} nw_finish;
const char *nw_finish_name(nw_finish f);

/* A request gets its PROMPT events (where it asked for them: one for each prompt token but the first)
 * and TOKEN events in order, then exactly one DONE or ERROR, after which it is gone.
 * The id that ended it (finish STOP) is in the DONE event and gives no TOKEN event; n_output counts
 * TOKEN events. */
typedef struct {
    nw_sched_event_type type;
    uint64_t request; /* what submit gave */
    int32_t id;       /* PROMPT, TOKEN: the token; DONE with STOP: the end token; -1 otherwise */
    float logprob;    /* of id, nats, before sampling */
    uint32_t n_top;   /* the most likely in its place */
    const nw_logprob *top; /* borrowed for the call */
    nw_finish finish;      /* DONE, ERROR */
    const nw_error *error; /* ERROR: borrowed for the call */
    int64_t t_ns;          /* CLOCK_MONOTONIC, when the event was made */
    uint32_t n_prompt, n_output;
} nw_sched_event;

typedef struct {
    const int32_t *prompt; /* copied */
    size_t n_prompt;       /* 1.. */
    uint32_t max_tokens;   /* 1.., or 0 with score_prompt: the prompt is scored, no more */
    nw_sampling sampling;
    bool score_prompt;       /* PROMPT events: the log-probability of each prompt token */
    bool ignore_eos;         /* end tokens are output like any other; for load measurements */
    uint32_t n_top_logprobs; /* 0..NW_TOP_LOGPROBS_MAX */
    /* Called from the worker thread; must not block. May call submit and cancel, not close. */
    void (*on_event)(void *ctx, const nw_sched_event *e);
    void *ctx;
} nw_sched_request;

typedef struct {
    uint32_t max_queue;     /* requests that wait for a slot; 0: 64 */
    uint32_t prefill_chunk; /* prompt tokens in a step that also decodes; 0: 128. A step without
                             * decoding requests uses all of max_step_tokens */
} nw_scheduler_options;

typedef struct {
    uint32_t active, queued; /* requests with a session; waiting */
    uint32_t pages_used, pages_total;
    uint64_t submitted, completed, cancelled, failed, rejected;
    uint64_t preempted;                           /* times a request gave its pages back */
    uint64_t steps, prompt_tokens, output_tokens; /* of TOKEN events */
    uint64_t
        shared_tokens; /* of prompts (and of what is computed again): found in pages, not run */
    uint64_t busy_ns;  /* time inside steps and sampling */
    uint32_t last_step_tokens;
} nw_sched_stats;

typedef struct nw_scheduler nw_scheduler;

/* Borrows the engine until close, and is then its only user. */
NW_MUST_USE nw_status nw_scheduler_open(nw_engine *e, const nw_scheduler_options *o,
                                        nw_scheduler **out, nw_error *err);
/* From any thread. NW_E_BUSY when the queue is full; NW_E_RANGE, with the numbers, when prompt and
 * max_tokens exceed n_ctx or the page pool. */
NW_MUST_USE nw_status nw_scheduler_submit(nw_scheduler *s, const nw_sched_request *r, uint64_t *id,
                                          nw_error *err);
/* From any thread. The request's DONE event (CANCELLED) follows within one step; an id that is
 * already gone is ignored. */
void nw_scheduler_cancel(nw_scheduler *s, uint64_t id);
/* The same for a request whose text is complete (a stop string was found): it ends with STOP and
 * counts as completed. */
void nw_scheduler_stop(nw_scheduler *s, uint64_t id);
/* Runs fn on the worker between two steps and returns when it is done, so that the caller may use
 * the engine (score, ledger) beside running requests. Not from on_event. */
void nw_scheduler_call(nw_scheduler *s, void (*fn)(void *ctx, nw_engine *e), void *ctx);
void nw_scheduler_stats(nw_scheduler *s, nw_sched_stats *out);
void nw_scheduler_drain(nw_scheduler *s); /* returns when no request is left */
void nw_scheduler_close(nw_scheduler *s); /* cancels what is left; takes NULL */

#endif
