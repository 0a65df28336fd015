/* Packs the sequences of many items into each ragged step: since a token's logits do not depend on
 * its neighbours in the step, the packing changes nothing but the time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "eval/choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/progress.h"
#include "base/signal.h"
#include "model/config.h"
#include "model/tokenizer.h"

enum { LOGITS_BYTES = 96 << 20 };

/* One continuation of one item. */
typedef struct {
    size_t item;
    uint32_t choice;
    size_t at; /* its ids begin here in run.ids */
    uint32_t n, n_context;
} sequence;

typedef struct {
    nw_engine *engine;
    const nw_suite *suite;
    nw_choice_answers *out;
    uint32_t n_vocab, max_rows; /* rows of logits that fit */
    nw_ids ids;
    sequence *seqs; /* all sequences that are scored */
    size_t n_seqs;
    float *logits;   /* [max_rows][n_vocab] */
    double *row_lp;  /* [max_rows] */
    int32_t *row_id; /* [max_rows] */
    nw_pool *pool;
} run;

static nw_status encode_choice(run *r, const nw_item *it, const char *text, uint32_t n_context,
                               sequence *s, nw_error *err)
{
    const nw_tokenizer *tok = nw_engine_tokenizer(r->engine);
    nw_buf whole;

    nw_buf_init(&whole, NW_TOKENIZER_MAX_TEXT);
    (void)nw_buf_puts(&whole, it->prompt);
    (void)nw_buf_puts(&whole, text);
    s->at = r->ids.n;
    nw_status st = whole.failed
                       ? nw_fail(err, NW_E_RANGE, "item %s: prompt and choice are too long", it->id)
                       : nw_tokenizer_encode(tok, whole.data, whole.len, NW_TOK_BOS, &r->ids, err);
    nw_buf_release(&whole);
    if (st != NW_OK) {
        return st;
    }
    s->n = (uint32_t)(r->ids.n - s->at);
    s->n_context = n_context;
    if (s->n <= n_context || n_context == 0) {
        return nw_fail(err, NW_E_RANGE, "item %s: %u tokens of prompt leave none of '%s' to score",
                       it->id, n_context, text);
    }
    return NW_OK;
}

/* Encodes all choices of an item; drops them again where one does not fit the context. */
static nw_status encode_item(run *r, size_t i, nw_error *err)
{
    const nw_item *it = &r->suite->items[i];
    nw_choice_answer *answer = &r->out->items[i];
    const size_t seqs_before = r->n_seqs;
    const size_t ids_before = r->ids.n;
    nw_ids context = {0};
    nw_status st = nw_tokenizer_encode(nw_engine_tokenizer(r->engine), it->prompt,
                                       strlen(it->prompt), NW_TOK_BOS, &context, err);

    answer->n_context = (uint32_t)context.n;
    for (uint32_t c = 0; c < it->n_choices && st == NW_OK; c++) {
        sequence *s = &r->seqs[r->n_seqs];
        *s = (sequence){.item = i, .choice = c};
        st = encode_choice(r, it, it->choices[c], answer->n_context, s, err);
        if (st == NW_OK) {
            answer->n_tokens = s->n > answer->n_tokens ? s->n : answer->n_tokens;
            r->n_seqs++;
        }
    }
    answer->scored = answer->n_tokens <= nw_engine_get_facts(r->engine)->n_ctx;
    if (!answer->scored) {
        r->n_seqs = seqs_before;
        r->ids.n = ids_before;
    }
    nw_ids_release(&context);
    return st;
}

/* ln p(id) from one row of logits. */
static double row_logprob(const float *l, uint32_t n, int32_t id)
{
    float max = l[0];
    double sum = 0;

    for (uint32_t i = 1; i < n; i++) {
        max = l[i] > max ? l[i] : max;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)l[i] - (double)max);
    }
    return (double)l[id] - (double)max - log(sum);
}

static void measure(void *ctx, size_t i, unsigned worker)
{
    run *r = ctx;
    (void)worker;
    r->row_lp[i] = row_logprob(r->logits + i * r->n_vocab, r->n_vocab, r->row_id[i]);
}

/* Runs the sequences [from, to) in one step; their rows of logits stand one after the other. */
static nw_status run_packed(run *r, size_t from, size_t to, nw_error *err)
{
    nw_step_item items[NW_ENGINE_MAX_SEQS] = {{.session = NULL}};
    size_t rows = 0;
    nw_status st = NW_OK;

    for (size_t i = from; i < to && st == NW_OK; i++) {
        const sequence *s = &r->seqs[i];
        const uint32_t n_logits = s->n - s->n_context;
        nw_step_item *item = &items[i - from];
        *item = (nw_step_item){.tokens = r->ids.ids + s->at,
                               .n_tokens = s->n - 1,
                               .n_logits = n_logits,
                               .logits = r->logits + rows * r->n_vocab};
        memcpy(r->row_id + rows, r->ids.ids + s->at + s->n_context, n_logits * sizeof *r->row_id);
        rows += n_logits;
        st = nw_session_open(r->engine, &item->session, err);
    }
    st = st == NW_OK ? nw_engine_step(r->engine, items, to - from, err) : st;
    for (size_t i = 0; i < to - from; i++) {
        nw_session_close(items[i].session);
    }
    if (st != NW_OK) {
        return st;
    }
    nw_pool_run(r->pool, rows, measure, r);
    rows = 0;
    for (size_t i = from; i < to; i++) {
        const sequence *s = &r->seqs[i];
        double *lp = &r->out->items[s->item].logprob[s->choice];
        for (uint32_t k = s->n_context; k < s->n; k++) {
            *lp += r->row_lp[rows++];
        }
    }
    return NW_OK;
}

typedef struct {
    run *r;
    const sequence *s;
} single;

static bool add_logprob(void *ctx, size_t pos, const float *logits)
{
    const single *one = ctx;
    if (pos + 1 < one->s->n) {
        one->r->out->items[one->s->item].logprob[one->s->choice] +=
            row_logprob(logits, one->r->n_vocab, one->r->ids.ids[one->s->at + pos + 1]);
    }
    return !nw_stop_requested();
}

/* A sequence too long for one step goes alone, in chunks. */
static nw_status run_single(run *r, size_t i, nw_error *err)
{
    single one = {.r = r, .s = &r->seqs[i]};
    return nw_engine_score(r->engine, r->ids.ids + one.s->at, one.s->n - 1, one.s->n_context - 1,
                           add_logprob, &one, err);
}

static bool fits_step(const run *r, const sequence *s, size_t tokens, size_t rows)
{
    return tokens + s->n - 1 <= nw_engine_get_facts(r->engine)->max_step_tokens &&
           rows + s->n - s->n_context <= r->max_rows;
}

static nw_status run_all(run *r, nw_error *err)
{
    const uint32_t max_seqs = nw_engine_get_facts(r->engine)->max_seqs;
    nw_progress progress;
    nw_status st = NW_OK;

    nw_progress_begin(&progress, "choice", "sequences", r->n_seqs);
    for (size_t from = 0; from < r->n_seqs && st == NW_OK;) {
        size_t to = from;
        size_t tokens = 0;
        size_t rows = 0;
        while (to < r->n_seqs && to - from < max_seqs && fits_step(r, &r->seqs[to], tokens, rows)) {
            tokens += r->seqs[to].n - 1;
            rows += r->seqs[to].n - r->seqs[to].n_context;
            to++;
        }
        if (nw_stop_requested()) {
            st = nw_fail(err, NW_E_CANCELLED, "stopped at sequence %zu of %zu", from, r->n_seqs);
        } else if (to == from) {
            st = run_single(r, from, err);
            to = from + 1;
        } else {
            st = run_packed(r, from, to, err);
        }
        from = to;
        nw_progress_step(&progress, from);
    }
    return st;
}

void nw_choice_pick(const nw_item *it, nw_choice_answer *a)
{
    a->best_sum = a->best_bytes = a->scored ? 0 : -1;
    for (uint32_t c = 1; c < it->n_choices && a->scored; c++) {
        const double here = a->logprob[c] / (double)strlen(it->choices[c]);
        const int b = a->best_bytes;
        a->best_sum = a->logprob[c] > a->logprob[a->best_sum] ? (int)c : a->best_sum;
        a->best_bytes = here > a->logprob[b] / (double)strlen(it->choices[b]) ? (int)c : b;
    }
}

nw_status nw_choice_answers_open(const nw_suite *suite, nw_choice_answers *a, size_t *n,
                                 nw_error *err)
{
    size_t at = 0;

    *n = 0;
    for (size_t i = 0; i < suite->n_items; i++) {
        *n += suite->items[i].n_choices;
    }
    a->items = calloc(suite->n_items, sizeof *a->items);
    a->storage = calloc(*n, sizeof *a->storage);
    if (a->items == NULL || a->storage == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu choices", *n);
    }
    for (size_t i = 0; i < suite->n_items; i++) {
        a->items[i].logprob = a->storage + at;
        at += suite->items[i].n_choices;
    }
    return NW_OK;
}

static nw_status open_run(run *r, nw_error *err)
{
    size_t n = 0;

    if (nw_choice_answers_open(r->suite, r->out, &n, err) != NW_OK) {
        return err->code;
    }
    r->n_vocab = nw_engine_config(r->engine)->n_vocab;
    r->max_rows = (uint32_t)(LOGITS_BYTES / sizeof(float) / r->n_vocab) + 1;
    r->seqs = calloc(n, sizeof *r->seqs);
    r->logits = calloc((size_t)r->max_rows * r->n_vocab, sizeof *r->logits);
    r->row_lp = calloc(r->max_rows, sizeof *r->row_lp);
    r->row_id = calloc(r->max_rows, sizeof *r->row_id);
    if (r->seqs == NULL || r->logits == NULL || r->row_lp == NULL || r->row_id == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu sequences", n);
    }
    return nw_pool_open(nw_engine_get_facts(r->engine)->n_threads, &r->pool, err);
}

nw_status nw_choice_run(nw_engine *e, const nw_suite *suite, nw_choice_answers *out, nw_error *err)
{
    nw_choice_answers answers = {.items = NULL};
    run r = {.engine = e, .suite = suite, .out = &answers};
    nw_status st = open_run(&r, err);

    for (size_t i = 0; i < suite->n_items && st == NW_OK; i++) {
        st = encode_item(&r, i, err);
    }
    st = st == NW_OK ? run_all(&r, err) : st;
    for (size_t i = 0; i < suite->n_items && st == NW_OK; i++) {
        nw_choice_pick(&suite->items[i], &answers.items[i]);
    }
    nw_ids_release(&r.ids);
    free(r.seqs);
    free(r.logits);
    free(r.row_lp);
    free(r.row_id);
    nw_pool_close(r.pool);
    if (st != NW_OK) {
        nw_choice_answers_release(&answers);
        return st;
    }
    *out = answers;
    return NW_OK;
}

void nw_choice_answers_release(nw_choice_answers *a)
{
    free(a->items);
    free(a->storage);
    *a = (nw_choice_answers){.items = NULL};
}
