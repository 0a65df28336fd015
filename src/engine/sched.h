/* The inside of the scheduler. `lock` guards everything marked (lock); the rest belongs to the
 * worker thread, which takes the lock for moments only and never during a step or an event.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_SCHED_H
#define NW_ENGINE_SCHED_H

#include <pthread.h>

#include "engine/scheduler.h"
#include "engine/state.h"

/* A request from submit to its last event. */
typedef struct nw_sched_job {
    uint64_t id; /* grows with age: the smaller, the older */
    nw_sched_request request;
    int32_t *tokens;   /* [n_prompt + max_tokens] prompt and output */
    uint32_t n_prompt; /* tokens of the prompt */
    uint32_t n_tokens; /* tokens known: n_prompt + n_output */
    uint32_t n_output; /* TOKEN events given */
    uint32_t n_scored; /* prompt tokens told of, the first included, which has nothing before it */
    nw_sampler *sampler;
    nw_session *session; /* NULL while it waits; its len says which tokens were run */
    bool leaving;        /* (lock) is to end with `leaves` before the next step */
    nw_finish leaves;    /* (lock) CANCELLED or STOP */
    struct nw_sched_job *next;
} nw_sched_job;

typedef struct {
    nw_pick pick;
    nw_status status;
    nw_error error;
} nw_sched_pick;

/* One row of logits of a prompt that is scored. */
typedef struct {
    int32_t id; /* the token that came after it; -1: the prompt's end */
    uint32_t n_top;
    nw_sched_pick score;
} nw_sched_row;

/* Someone else's work, done between two steps; lives on the caller's stack. */
typedef struct nw_sched_call {
    void (*fn)(void *ctx, nw_engine *e);
    void *ctx;
    bool done; /* (lock) */
    struct nw_sched_call *next;
} nw_sched_call;

struct nw_scheduler {
    nw_engine *engine;
    uint32_t max_active, max_queue, prefill_chunk;
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t wake;              /* work for the worker */
    pthread_cond_t idle;              /* n_live fell to 0 */
    bool stop;                        /* (lock) */
    uint64_t last_id;                 /* (lock) */
    uint32_t n_live;                  /* (lock) jobs whose last event was not given yet */
    nw_sched_call *calls;             /* (lock) */
    nw_sched_job *queue, *queue_tail; /* (lock) oldest first */
    nw_sched_job **active;            /* (lock to write) [max_active] oldest first */
    uint32_t n_active;                /* (lock to write) */
    nw_sched_stats stats;             /* (lock) */

    /* one step, of n_items items */
    nw_step_item *items;      /* [max_active] */
    nw_sched_job **item_jobs; /* [max_active] */
    uint32_t n_items;
    uint64_t n_shared;            /* tokens taken over since they were last counted */
    float *logits;                /* [max_active][n_vocab] */
    nw_sched_pick *picks;         /* [max_active] */
    nw_sampler_scratch **scratch; /* [n_threads] */

    /* scoring of prompts; made by the first request that asks for it */
    uint32_t max_score_rows, n_score; /* n_score: rows of this step */
    float *score_logits;              /* [max_score_rows][n_vocab] */
    nw_sched_row *score_rows;         /* [max_score_rows] */
    uint32_t *item_row;               /* [max_active] first row of an item that is scored */
};

void *nw_sched_worker(void *scheduler);
void nw_sched_job_free(nw_sched_job *j);

/* Scoring of prompts (sched_score.c). Open: from any thread, before such a request is queued. */
NW_MUST_USE nw_status nw_sched_score_open(nw_scheduler *s, nw_error *err);
bool nw_sched_scoring(const nw_sched_job *j); /* the prompt is not told of to its end */
/* How many of the next n tokens of j may be run in this step for want of rows. */
uint32_t nw_sched_score_limit(const nw_scheduler *s, const nw_sched_job *j, uint32_t n);
/* Gives item i of the plan, whose tokens are set, its rows. */
void nw_sched_score_item(nw_scheduler *s, uint32_t i, nw_step_item *it);
void nw_sched_score_run(nw_scheduler *s); /* after the step: all rows, on all threads */
/* One PROMPT event a scored token of item i. Not NULL: why one has no score; nothing more is told. */
const nw_error *nw_sched_score_tell(nw_scheduler *s, uint32_t i,
                                    void (*tell)(const nw_sched_job *j, nw_sched_event ev));

#endif
