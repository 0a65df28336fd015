/* A bounded number of requests in flight; answers arrive on the target's thread and wake this one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "eval/generate.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "base/signal.h"

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const nw_suite *suite;
    nw_gen_answer *answers;
    unsigned in_flight;
    size_t n_done, n_answered;
} run;

/* Which item an answer belongs to. */
typedef struct {
    run *r;
    size_t item;
} ticket;

static void on_done(void *ctx, uint64_t id, const nw_gen_result *result)
{
    const ticket *t = ctx;
    run *r = t->r;
    nw_gen_answer *a = &r->answers[t->item];

    (void)id;
    a->answered = result->status == NW_OK;
    a->n_prompt = result->n_prompt;
    a->n_output = result->n_output;
    a->finish = result->finish;
    a->text = a->answered ? strdup(result->text != NULL ? result->text : "") : NULL;
    a->error = a->answered ? NULL : strdup(result->error);
    a->correct = a->text != NULL && nw_grade(&r->suite->items[t->item], a->text);
    (void)pthread_mutex_lock(&r->lock);
    r->in_flight--;
    r->n_done++;
    r->n_answered += a->answered;
    (void)pthread_cond_signal(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

/* Waits until at most `most` requests are in flight; returns how many are done. */
static size_t wait_for(run *r, unsigned most)
{
    (void)pthread_mutex_lock(&r->lock);
    while (r->in_flight > most) {
        (void)pthread_cond_wait(&r->changed, &r->lock);
    }
    const size_t done = r->n_done;
    (void)pthread_mutex_unlock(&r->lock);
    return done;
}

static nw_status start_item(run *r, nw_target *target, ticket *t, uint64_t seed, nw_error *err)
{
    const nw_item *it = &r->suite->items[t->item];
    const nw_gen_request req = {
        .messages = it->messages, .max_tokens = it->max_tokens, .seed = seed};
    const nw_gen_callbacks cb = {.on_done = on_done, .ctx = t};
    uint64_t id = 0;

    (void)pthread_mutex_lock(&r->lock);
    r->in_flight++;
    (void)pthread_mutex_unlock(&r->lock);
    nw_error why = {.code = NW_OK};
    const nw_status st = nw_target_start(target, &req, &cb, &id, &why);
    if (st == NW_OK) {
        return NW_OK;
    }
    (void)pthread_mutex_lock(&r->lock);
    r->in_flight--;
    r->n_done++;
    (void)pthread_mutex_unlock(&r->lock);
    if (st == NW_E_RANGE) { /* this item can never run: its own fault, the others go on */
        r->answers[t->item] = (nw_gen_answer){.finish = NW_GEN_ERROR, .error = strdup(why.message)};
        return NW_OK;
    }
    *err = why;
    return nw_context(err, "item %s", it->id);
}

static nw_status run_items(run *r, nw_target *target, unsigned n_parallel, uint64_t seed,
                           ticket *tickets, nw_error *err)
{
    nw_progress progress;
    nw_status st = NW_OK;

    nw_progress_begin(&progress, "generate", "items", r->suite->n_items);
    for (size_t i = 0; i < r->suite->n_items && st == NW_OK; i++) {
        const size_t done = wait_for(r, n_parallel - 1);
        if (done > 0) {
            nw_progress_step(&progress, done);
        }
        tickets[i] = (ticket){.r = r, .item = i};
        st = nw_stop_requested() ? nw_fail(err, NW_E_CANCELLED, "stopped at item %zu", i)
                                 : start_item(r, target, &tickets[i], seed, err);
    }
    const size_t done = wait_for(r, 0); /* callbacks hold tickets: never leave before the last */
    if (st == NW_OK) {
        nw_progress_step(&progress, done);
    }
    return st;
}

static nw_status check_any(const run *r, nw_error *err)
{
    if (r->n_answered > 0) {
        return NW_OK;
    }
    const char *why = r->answers[0].error;
    return nw_fail(err, NW_E_NETWORK, "%s: none of %zu items was answered; the first: %s",
                   r->suite->name, r->suite->n_items, why != NULL ? why : "no reason given");
}

nw_status nw_generate_run(nw_target *t, const nw_suite *suite, unsigned n_parallel, uint64_t seed,
                          nw_gen_answer **out, nw_error *err)
{
    run r = {.suite = suite};
    ticket *tickets = calloc(suite->n_items, sizeof *tickets);

    r.answers = calloc(suite->n_items, sizeof *r.answers);
    if (tickets == NULL || r.answers == NULL) {
        free(tickets);
        free(r.answers);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for answers", suite->name);
    }
    (void)pthread_mutex_init(&r.lock, NULL);
    (void)pthread_cond_init(&r.changed, NULL);
    nw_status st = run_items(&r, t, n_parallel > 0 ? n_parallel : 1, seed, tickets, err);
    st = st == NW_OK ? check_any(&r, err) : st;
    (void)pthread_cond_destroy(&r.changed);
    (void)pthread_mutex_destroy(&r.lock);
    free(tickets);
    if (st != NW_OK) {
        nw_gen_answers_free(r.answers, suite->n_items);
        return st;
    }
    *out = r.answers;
    return NW_OK;
}

void nw_gen_answers_free(nw_gen_answer *answers, size_t n)
{
    for (size_t i = 0; answers != NULL && i < n; i++) {
        free(answers[i].text);
        free(answers[i].error);
    }
    free(answers);
}
