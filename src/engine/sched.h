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
    nw_sampler *sampler;
    nw_session *session; /* NULL while it waits; its len says which tokens were run */
    bool cancelled;      /* (lock) */
    struct nw_sched_job *next;
} nw_sched_job;

typedef struct {
    nw_pick pick;
    nw_status status;
    nw_error error;
} nw_sched_pick;

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
};

void *nw_sched_worker(void *scheduler);
void nw_sched_job_free(nw_sched_job *j);

#endif
