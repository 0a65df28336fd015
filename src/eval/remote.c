/* Threads that wait for answers; rows are told in order once all are there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "eval/remote.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/signal.h"

#define TEXT_MAX ((size_t)64 << 20)

/* One sequence: ids[n_context..n) are scored. */
typedef struct {
    int32_t *ids; /* owned, or a window's */
    size_t n, n_context;
    float *logprob; /* [n - n_context] owned */
} sequence;

/* What the threads share. */
typedef struct {
    nw_target *t;
    sequence *seqs;
    size_t n;
    const char *what;
    pthread_mutex_t lock; /* guards what follows */
    size_t n_done;
    nw_progress progress;
    nw_status status;
    nw_error err;
} batch;

static void score_one(void *ctx, size_t i, unsigned worker)
{
    batch *b = ctx;
    sequence *s = &b->seqs[i];
    nw_error err = {0};

    (void)worker;
    pthread_mutex_lock(&b->lock);
    const bool stop = b->status != NW_OK;
    pthread_mutex_unlock(&b->lock);
    if (stop) {
        return;
    }
    nw_status st = nw_stop_requested()
                       ? nw_fail(&err, NW_E_CANCELLED, "stopped at sequence %zu of %zu", i, b->n)
                       : nw_target_score(b->t, s->ids, s->n, s->n_context, s->logprob, NULL, &err);
    pthread_mutex_lock(&b->lock);
    if (st != NW_OK && b->status == NW_OK) {
        b->status = st;
        b->err = err;
    }
    nw_progress_step(&b->progress, ++b->n_done);
    pthread_mutex_unlock(&b->lock);
}

static nw_status score_all(nw_target *t, sequence *seqs, size_t n, unsigned n_parallel,
                           const char *what, nw_error *err)
{
    batch b = {.t = t, .seqs = seqs, .n = n, .what = what};
    nw_pool *pool = NULL;

    for (size_t i = 0; i < n; i++) {
        seqs[i].logprob = calloc(seqs[i].n - seqs[i].n_context, sizeof *seqs[i].logprob);
        if (seqs[i].logprob == NULL) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu sequences", n);
        }
    }
    if (nw_pool_open(n_parallel, &pool, err) != NW_OK) {
        return err->code;
    }
    (void)pthread_mutex_init(&b.lock, NULL);
    nw_progress_begin(&b.progress, what, "sequences", n);
    nw_pool_run(pool, n, score_one, &b);
    (void)pthread_mutex_destroy(&b.lock);
    nw_pool_close(pool);
    if (b.status != NW_OK) {
        *err = b.err;
    }
    return b.status;
}

/* ---- choice ---- */

/* Ids of prompt + choice, of which those after the prompt's own are scored. */
static nw_status encode_choice(nw_target *t, const nw_item *it, const char *choice,
                               size_t n_context, sequence *s, nw_error *err)
{
    nw_buf whole;

    nw_buf_init(&whole, TEXT_MAX);
    (void)nw_buf_puts(&whole, it->prompt);
    (void)nw_buf_puts(&whole, choice);
    nw_status st = whole.failed
                       ? nw_fail(err, NW_E_RANGE, "item %s: prompt and choice are too long", it->id)
                       : nw_target_tokenize(t, whole.data, whole.len, true, &s->ids, &s->n, err);
    nw_buf_release(&whole);
    s->n_context = n_context;
    if (st == NW_OK && (s->n <= n_context || n_context == 0)) {
        st = nw_fail(err, NW_E_RANGE, "item %s: %zu tokens of prompt leave none of '%s' to score",
                     it->id, n_context, choice);
    }
    return st;
}

/* All choices of an item, from seqs on; *n_seqs counts those that are scored. */
static nw_status encode_item(nw_target *t, const nw_item *it, uint32_t max_len, sequence *seqs,
                             nw_choice_answer *a, size_t *n_seqs, nw_error *err)
{
    int32_t *context = NULL;
    size_t n_context = 0;
    nw_status st =
        nw_target_tokenize(t, it->prompt, strlen(it->prompt), true, &context, &n_context, err);

    free(context);
    a->n_context = (uint32_t)n_context;
    for (uint32_t c = 0; c < it->n_choices && st == NW_OK; c++) {
        st = encode_choice(t, it, it->choices[c], n_context, &seqs[c], err);
        a->n_tokens = seqs[c].n > a->n_tokens ? (uint32_t)seqs[c].n : a->n_tokens;
    }
    a->scored = max_len == 0 || a->n_tokens < max_len;
    *n_seqs = a->scored ? it->n_choices : 0;
    for (uint32_t c = 0; c < it->n_choices && (st != NW_OK || !a->scored); c++) {
        free(seqs[c].ids);
        seqs[c] = (sequence){.ids = NULL};
    }
    return st;
}

static void take_scores(const nw_suite *suite, nw_choice_answers *out, const sequence *seqs)
{
    size_t at = 0;

    for (size_t i = 0; i < suite->n_items; i++) {
        nw_choice_answer *a = &out->items[i];
        for (uint32_t c = 0; a->scored && c < suite->items[i].n_choices; c++, at++) {
            for (size_t k = 0; k < seqs[at].n - seqs[at].n_context; k++) {
                a->logprob[c] += (double)seqs[at].logprob[k];
            }
        }
        nw_choice_pick(&suite->items[i], a);
    }
}

static void release(sequence *seqs, size_t n, bool ids)
{
    for (size_t i = 0; seqs != NULL && i < n; i++) {
        free(seqs[i].logprob);
        if (ids) {
            free(seqs[i].ids);
        }
    }
    free(seqs);
}

nw_status nw_remote_choice(nw_target *t, const nw_suite *suite, unsigned n_parallel,
                           uint32_t max_len, nw_choice_answers *out, nw_error *err)
{
    nw_choice_answers answers = {.items = NULL};
    size_t n = 0;
    size_t used = 0;

    nw_status st = nw_choice_answers_open(suite, &answers, &n, err);
    sequence *seqs = calloc(n + 1, sizeof *seqs);
    if (st == NW_OK && seqs == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for %zu sequences", n);
    }
    for (size_t i = 0; i < suite->n_items && st == NW_OK; i++) {
        size_t more = 0;
        st = encode_item(t, &suite->items[i], max_len, seqs + used, &answers.items[i], &more, err);
        used += more;
    }
    st = st == NW_OK ? score_all(t, seqs, used, n_parallel, "choice", err) : st;
    if (st == NW_OK) {
        take_scores(suite, &answers, seqs);
        *out = answers;
    } else {
        nw_choice_answers_release(&answers);
    }
    release(seqs, n, true);
    return st;
}

/* ---- perplexity ---- */

static nw_status tell(const nw_windows *w, const sequence *seqs, nw_token_fn each, void *ctx,
                      nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; i < w->n && st == NW_OK; i++) {
        for (uint32_t k = w->items[i].first; k < w->items[i].n && st == NW_OK; k++) {
            const nw_divergence d = {.nll = -(double)seqs[i].logprob[k - w->items[i].first],
                                     .nll_base = (double)NAN,
                                     .kl = (double)NAN,
                                     .top1 = -1,
                                     .rank_base = -1};
            st = each(ctx, i, k, &d, err);
        }
    }
    return st;
}

nw_status nw_remote_perplexity(nw_target *t, const nw_windows *w, unsigned n_parallel,
                               nw_token_fn each, void *ctx, nw_error *err)
{
    sequence *seqs = calloc(w->n + 1, sizeof *seqs);

    if (seqs == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu windows", w->n);
    }
    for (size_t i = 0; i < w->n; i++) {
        union {
            const int32_t *from;
            int32_t *to;
        } ids = {w->items[i].ids}; /* read only: release leaves them */
        seqs[i] = (sequence){.ids = ids.to, .n = w->items[i].n, .n_context = w->items[i].first};
    }
    nw_status st = score_all(t, seqs, w->n, n_parallel, "perplexity", err);
    st = st == NW_OK ? tell(w, seqs, each, ctx, err) : st;
    release(seqs, w->n, false);
    return st;
}
