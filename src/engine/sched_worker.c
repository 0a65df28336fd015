/* The scheduler's worker: admit, plan a step, run it, sample, tell.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/sched.h"

static uint32_t pending(const nw_sched_job *j)
{
    return j->n_tokens - nw_session_len(j->session);
}

/* ---- events; without the lock ---- */

static void tell(const nw_sched_job *j, nw_sched_event ev)
{
    ev.request = j->id;
    ev.t_ns = nw_now_ns();
    ev.n_prompt = j->n_prompt;
    ev.n_output = j->n_output;
    j->request.on_event(j->request.ctx, &ev);
}

static void count_end(nw_scheduler *s, nw_finish why)
{
    (void)pthread_mutex_lock(&s->lock);
    s->stats.cancelled += why == NW_FINISH_CANCELLED;
    s->stats.failed += why == NW_FINISH_ERROR;
    s->stats.completed += why == NW_FINISH_STOP || why == NW_FINISH_LENGTH;
    (void)pthread_mutex_unlock(&s->lock);
}

/* The job is in no list any more. end: the token that ended it; NULL: none. */
static void finish(nw_scheduler *s, nw_sched_job *j, nw_finish why, const nw_pick *end,
                   const nw_error *error)
{
    count_end(s, why); /* first: who was told finds it counted */
    tell(j, (nw_sched_event){.type = why == NW_FINISH_ERROR ? NW_SCHED_ERROR : NW_SCHED_DONE,
                             .id = end != NULL ? end->id : -1,
                             .logprob = end != NULL ? end->logprob : 0,
                             .n_top = end != NULL ? end->n_top : 0,
                             .top = end != NULL ? end->top : NULL,
                             .finish = why,
                             .error = error});
    (void)pthread_mutex_lock(&s->lock);
    if (--s->n_live == 0) {
        (void)pthread_cond_broadcast(&s->idle);
    }
    (void)pthread_mutex_unlock(&s->lock);
    nw_sched_job_free(j);
}

/* ---- lists; with the lock ---- */

static void note_places(nw_scheduler *s)
{
    s->stats.active = s->n_active;
    s->stats.pages_used = nw_engine_pages_total(s->engine) - nw_engine_pages_free(s->engine);
}

static void drop_active(nw_scheduler *s, uint32_t i)
{
    nw_sched_job *j = s->active[i];

    nw_session_close(j->session);
    j->session = NULL;
    s->n_active--;
    memmove(&s->active[i], &s->active[i + 1], (s->n_active - i) * sizeof(nw_sched_job *));
    note_places(s);
}

/* Takes the jobs that are to end (all jobs, once stopping) out of both lists; returns them as a list. */
static nw_sched_job *take_leaving(nw_scheduler *s)
{
    nw_sched_job *taken = NULL;
    nw_sched_job **at = &s->queue;

    s->queue_tail = NULL;
    while (*at != NULL) {
        nw_sched_job *j = *at;
        if (j->leaving || s->stop) {
            *at = j->next;
            j->next = taken;
            taken = j;
            s->stats.queued--;
        } else {
            s->queue_tail = j;
            at = &j->next;
        }
    }
    for (uint32_t i = s->n_active; i-- > 0;) {
        nw_sched_job *j = s->active[i];
        if (j->leaving || s->stop) {
            drop_active(s, i);
            j->next = taken;
            taken = j;
        }
    }
    return taken;
}

/* Pages that the active jobs will still take for the tokens they have. */
static uint32_t promised_pages(const nw_scheduler *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_active; i++) {
        n += nw_session_pages_needed(s->active[i]->session, s->active[i]->n_tokens);
    }
    return n;
}

/* Takes over what other jobs computed since this one started; returns the tokens left to run. */
static uint32_t find_shared(nw_scheduler *s, nw_sched_job *j)
{
    const uint32_t before = nw_session_len(j->session);
    /* tokens that are still to be scored have to be run */
    const uint32_t n = nw_sched_scoring(j) ? j->n_scored : j->n_tokens;

    if (before < n) {
        s->n_shared += nw_session_attach(j->session, j->tokens, n) - before;
    }
    return pending(j);
}

/* Opens a session for the job, with the pages that others computed for the same beginning; false, with
 * nothing held, while there is no session or no pages for its tokens and one more, where one follows. */
static bool seat(nw_scheduler *s, nw_sched_job *j)
{
    nw_error err = {0};

    if (nw_session_open(s->engine, &j->session, &err) != NW_OK) {
        return false;
    }
    (void)find_shared(s, j);
    const uint32_t need =
        nw_session_pages_needed(j->session, j->n_tokens + (j->request.max_tokens > 0));
    if (need + promised_pages(s) > nw_engine_pages_free(s->engine)) {
        nw_session_close(j->session);
        j->session = NULL;
        return false;
    }
    return true;
}

/* Starts waiting jobs, oldest first, while there is room. Nobody overtakes: a long prompt is not
 * starved by short ones. */
static void admit(nw_scheduler *s)
{
    while (s->queue != NULL && s->n_active < s->max_active && seat(s, s->queue)) {
        nw_sched_job *j = s->queue;
        s->queue = j->next;
        s->queue_tail = s->queue == NULL ? NULL : s->queue_tail;
        s->stats.queued--;
        j->next = NULL;
        s->active[s->n_active++] = j;
    }
}

/* The youngest gives its pages back and waits at the head of the queue. */
static void preempt_youngest(nw_scheduler *s)
{
    (void)pthread_mutex_lock(&s->lock);
    nw_sched_job *j = s->active[s->n_active - 1];
    drop_active(s, s->n_active - 1);
    j->next = s->queue;
    s->queue = j;
    s->queue_tail = s->queue_tail == NULL ? j : s->queue_tail;
    s->stats.queued++;
    s->stats.preempted++;
    (void)pthread_mutex_unlock(&s->lock);
}

/* ---- one step ---- */

static void add_item(nw_scheduler *s, nw_sched_job *j, uint32_t n)
{
    const uint32_t done = nw_session_len(j->session);
    nw_step_item *it = &s->items[s->n_items];

    s->item_jobs[s->n_items] = j;
    *it = (nw_step_item){.session = j->session, .tokens = j->tokens + done, .n_tokens = n};
    if (nw_sched_scoring(j)) {
        nw_sched_score_item(s, s->n_items, it);
    } else if (done + n == j->n_tokens && j->request.max_tokens > 0) {
        it->n_logits = 1;
        it->logits = s->logits + (size_t)s->n_items * s->engine->config->n_vocab;
    }
    s->n_items++;
}

/* One token of each job that decodes, then prompts, oldest first, into what is left. */
static void plan(nw_scheduler *s)
{
    uint32_t room = s->engine->facts.max_step_tokens;

    s->n_items = 0;
    s->n_score = 0;
    for (uint32_t i = 0; i < s->n_active; i++) {
        if (pending(s->active[i]) == 1 && !nw_sched_scoring(s->active[i])) {
            add_item(s, s->active[i], 1);
        }
    }
    room -= s->n_items;
    if (s->n_items > 0 && room > s->prefill_chunk) {
        room = s->prefill_chunk; /* the decoding requests wait for this step */
    }
    for (uint32_t i = 0; i < s->n_active && room > 0; i++) {
        nw_sched_job *j = s->active[i];
        if (pending(j) > 1 || nw_sched_scoring(j)) {
            const uint32_t n = find_shared(s, j);
            uint32_t take = n < room ? n : room;
            take = nw_sched_scoring(j) ? nw_sched_score_limit(s, j, take) : take;
            if (take > 0) {
                add_item(s, j, take);
            }
            room -= take;
        }
    }
}

static uint32_t planned_pages(const nw_scheduler *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_items; i++) {
        const nw_session *ses = s->items[i].session;
        n += nw_session_pages_needed(ses, nw_session_len(ses) + s->items[i].n_tokens);
    }
    return n;
}

/* After a step that ran the last of its tokens, a token follows. */
static bool is_sampled(const nw_sched_job *j)
{
    return pending(j) == 0 && j->request.max_tokens > 0;
}

static void pick_item(void *ctx, size_t item, unsigned worker)
{
    nw_scheduler *s = ctx;
    nw_sched_pick *p = &s->picks[item];
    const nw_sched_job *j = s->item_jobs[item];
    const nw_step_item *it = &s->items[item];

    if (!is_sampled(j)) {
        return;
    }
    p->status =
        nw_sampler_pick(j->sampler, s->scratch[worker],
                        it->logits + (size_t)(it->n_logits - 1) * s->engine->config->n_vocab,
                        j->n_output, j->request.n_top_logprobs, &p->pick, &p->error);
}

static bool ends_text(const nw_engine *e, int32_t id)
{
    for (uint32_t i = 0; i < e->config->n_eos; i++) {
        if (e->config->eos[i] == id) {
            return true;
        }
    }
    return e->tokenizer != NULL && nw_tokenizer_is_eog(e->tokenizer, id);
}

static bool is_end(const nw_scheduler *s, const nw_sched_job *j, const nw_sched_pick *p)
{
    return !j->request.ignore_eos && ends_text(s->engine, p->pick.id);
}

static void retire(nw_scheduler *s, nw_sched_job *j, nw_finish why, const nw_pick *end,
                   const nw_error *error)
{
    (void)pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_active; i++) {
        if (s->active[i] == j) {
            drop_active(s, i);
            break;
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
    finish(s, j, why, end, error);
}

/* Hands one picked token on, and ends the job where it was the last. */
static void deliver(nw_scheduler *s, nw_sched_job *j, const nw_sched_pick *p)
{
    if (p->status != NW_OK) {
        retire(s, j, NW_FINISH_ERROR, NULL, &p->error);
        return;
    }
    if (is_end(s, j, p)) {
        retire(s, j, NW_FINISH_STOP, &p->pick, NULL);
        return;
    }
    const int32_t id = p->pick.id;
    j->tokens[j->n_tokens++] = id;
    j->n_output++;
    nw_sampler_saw(j->sampler, &id, 1);
    tell(j, (nw_sched_event){.type = NW_SCHED_TOKEN,
                             .id = id,
                             .logprob = p->pick.logprob,
                             .n_top = p->pick.n_top,
                             .top = p->pick.top});
    if (j->n_output == j->request.max_tokens) {
        retire(s, j, NW_FINISH_LENGTH, NULL, NULL);
    }
}

static void count_step(nw_scheduler *s, int64_t start)
{
    uint32_t tokens = 0;
    uint64_t prompt = 0;
    uint64_t output = 0;

    for (uint32_t i = 0; i < s->n_items; i++) {
        const nw_sched_job *j = s->item_jobs[i];
        const nw_sched_pick *p = &s->picks[i];
        tokens += s->items[i].n_tokens;
        output += is_sampled(j) && p->status == NW_OK && !is_end(s, j, p);
        prompt += pending(j) == 0 && j->n_output == 0 ? j->n_prompt : 0;
    }
    (void)pthread_mutex_lock(&s->lock);
    s->stats.steps++;
    s->stats.last_step_tokens = tokens;
    s->stats.prompt_tokens += prompt;
    s->stats.output_tokens += output;
    s->stats.shared_tokens += s->n_shared;
    s->n_shared = 0;
    s->stats.busy_ns += (uint64_t)(nw_now_ns() - start);
    (void)pthread_mutex_unlock(&s->lock);
}

/* The engine refused the step: nothing was run, and none of its jobs can go on. */
static void fail_step(nw_scheduler *s, const nw_error *err)
{
    for (uint32_t i = 0; i < s->n_items; i++) {
        retire(s, s->item_jobs[i], NW_FINISH_ERROR, NULL, err);
    }
}

/* What the step gave to the job of item i. */
static void end_item(nw_scheduler *s, uint32_t i)
{
    nw_sched_job *j = s->item_jobs[i];
    const bool sampled = is_sampled(j);
    const bool whole = pending(j) == 0;
    const nw_error *why = nw_sched_scoring(j) ? nw_sched_score_tell(s, i, tell) : NULL;

    if (why != NULL) {
        retire(s, j, NW_FINISH_ERROR, NULL, why);
    } else if (sampled) {
        deliver(s, j, &s->picks[i]);
    } else if (whole) { /* nothing was asked for after the prompt */
        retire(s, j, NW_FINISH_LENGTH, NULL, NULL);
    }
}

static void step(nw_scheduler *s)
{
    const int64_t start = nw_now_ns();
    nw_error err = {0};

    plan(s);
    while (planned_pages(s) > nw_engine_pages_free(s->engine) && s->n_active > 1) {
        preempt_youngest(s);
        plan(s);
    }
    if (nw_engine_step(s->engine, s->items, s->n_items, &err) != NW_OK) {
        fail_step(s, &err);
        return;
    }
    nw_sched_score_run(s);
    nw_pool_run(s->engine->pool, s->n_items, pick_item, s);
    count_step(s, start);
    for (uint32_t i = 0; i < s->n_items; i++) {
        end_item(s, i);
    }
}

static void run_calls(nw_scheduler *s, nw_sched_call *calls)
{
    for (nw_sched_call *c = calls, *next = NULL; c != NULL; c = next) {
        next = c->next; /* the caller's stack may go once done is set */
        c->fn(c->ctx, s->engine);
        (void)pthread_mutex_lock(&s->lock);
        c->done = true;
        (void)pthread_cond_broadcast(&s->idle);
        (void)pthread_mutex_unlock(&s->lock);
    }
}

/* Someone else holds the sessions or pages of the engine, against the rule: waiting would spin. */
static nw_sched_job *take_stuck(nw_scheduler *s)
{
    nw_sched_job *j = s->n_active == 0 ? s->queue : NULL;
    if (j != NULL) {
        s->queue = j->next;
        s->queue_tail = s->queue == NULL ? NULL : s->queue_tail;
        s->stats.queued--;
    }
    return j;
}

/* Waits for work, then takes what is to be done outside the lock. */
static bool take_work(nw_scheduler *s, nw_sched_call **calls, nw_sched_job **gone,
                      nw_sched_job **stuck)
{
    (void)pthread_mutex_lock(&s->lock);
    while (s->n_active == 0 && s->queue == NULL && s->calls == NULL && !s->stop) {
        (void)pthread_cond_wait(&s->wake, &s->lock);
    }
    const bool stop = s->stop;
    *calls = s->calls;
    s->calls = NULL;
    *gone = take_leaving(s);
    admit(s);
    *stuck = take_stuck(s);
    note_places(s);
    (void)pthread_mutex_unlock(&s->lock);
    return !stop;
}

void *nw_sched_worker(void *scheduler)
{
    nw_scheduler *s = scheduler;
    bool go_on = true;

    while (go_on) {
        nw_sched_call *calls = NULL;
        nw_sched_job *gone = NULL;
        nw_sched_job *stuck = NULL;
        go_on = take_work(s, &calls, &gone, &stuck);
        for (nw_sched_job *next = NULL; gone != NULL; gone = next) {
            next = gone->next;
            finish(s, gone, gone->leaving ? gone->leaves : NW_FINISH_CANCELLED, NULL, NULL);
        }
        if (stuck != NULL) {
            nw_error err = {0};
            (void)nw_fail(&err, NW_E_BUSY, "the engine's sessions or pages are held elsewhere");
            finish(s, stuck, NW_FINISH_ERROR, NULL, &err);
        }
        run_calls(s, calls);
        if (s->n_active > 0) {
            step(s);
        }
    }
    return NULL;
}
