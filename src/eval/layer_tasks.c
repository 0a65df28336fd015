/* The task layers: a choice suite by likelihood, a generate suite by graded answers. They differ in
 * how rows come about; suite, settings, run and summary are the same for both.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "eval/choice.h"
#include "eval/generate.h"
#include "eval/remote.h"
#include "eval/session.h"
#include "eval/summary.h"
#include "model/template.h"
#include "model/tokenizer.h"

enum { NAME_MAX_BYTES = 256, GENERATE_CTX = 4096 };

/* rows [n_items] with what they point to; details are owned strings, one an item, or NULL. */
typedef struct {
    nw_rec_item *rows;
    char **details;
    nw_choice_answers choices;
    nw_gen_answer *answers;
} task_rows;

typedef nw_status (*measure_fn)(nw_eval_session *s, const nw_suite *suite, task_rows *t,
                                nw_error *err);

typedef struct {
    nw_item_kind kind;
    const char *layer; /* key of the summary, and first part of the run's suite name */
    const char *scoring;
    measure_fn measure;
} task_layer;

/* {"logprob": [..], "correct_by_sum", "n_context"}, or why there is no score. */
static char *choice_details(const nw_item *it, const nw_choice_answer *a)
{
    json_t *row = NULL;

    if (a->scored) {
        json_t *lp = json_array();
        for (uint32_t c = 0; c < it->n_choices; c++) {
            (void)json_array_append_new(lp, json_real(a->logprob[c]));
        }
        row = json_pack("{s:o, s:b, s:i}", "logprob", lp, "correct_by_sum",
                        a->best_sum == (int)it->answer, "n_context", (int)a->n_context);
    } else {
        row = json_pack("{s:s, s:i}", "not_scored", "longer than the context", "n_tokens",
                        (int)a->n_tokens);
    }
    char *text = row == NULL ? NULL : nw_json_canonical(row);
    json_decref(row);
    return text;
}

/* The choice by likelihood a byte is the score: continuations differ in length. */
static nw_status measure_choice(nw_eval_session *s, const nw_suite *suite, task_rows *t,
                                nw_error *err)
{
    const nw_status st = s->remote != NULL ? nw_remote_choice(s->remote, suite, nw_eval_parallel(s),
                                                              s->max_len, &t->choices, err)
                                           : nw_choice_run(s->engine, suite, &t->choices, err);
    if (st != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < suite->n_items; i++) {
        const nw_item *it = &suite->items[i];
        const nw_choice_answer *a = &t->choices.items[i];
        const bool right = a->best_bytes == (int)it->answer;
        t->details[i] = choice_details(it, a);
        t->rows[i] = (nw_rec_item){.item_id = it->id,
                                   .cluster = it->cluster,
                                   .score = a->scored ? (double)right : (double)NAN,
                                   .correct = a->scored ? right : -1,
                                   .n_prompt = a->n_context,
                                   .n_output = -1,
                                   .output = a->scored ? it->choices[a->best_bytes] : NULL,
                                   .expected = it->choices[it->answer],
                                   .json = t->details[i]};
    }
    return NW_OK;
}

/* A context of 4096 tokens is enough for any item, and a model may hold fewer. */
static uint32_t generate_ctx(const nw_eval_session *s)
{
    const uint32_t limit = s->engine != NULL ? nw_engine_get_facts(s->engine)->n_ctx : GENERATE_CTX;
    return limit < GENERATE_CTX ? limit : GENERATE_CTX;
}

static nw_status open_target(const nw_eval_session *s, unsigned n_parallel, nw_target **out,
                             nw_error *err)
{
    const nw_eval_options *o = s->o;
    const nw_target_options t = {.n_threads = o->n_threads,
                                 .tier = o->tier,
                                 .kv = o->kv,
                                 .act = o->act,
                                 .n_ctx = generate_ctx(s),
                                 .max_seqs = n_parallel};
    return nw_target_open(o->target, &t, out, err);
}

/* No answer is a wrong answer: a server that drops requests does not score higher for it. */
static nw_status measure_generate(nw_eval_session *s, const nw_suite *suite, task_rows *t,
                                  nw_error *err)
{
    const unsigned n_parallel = nw_eval_parallel(s);
    nw_target *target = s->remote;

    if (target == NULL && open_target(s, n_parallel, &target, err) != NW_OK) {
        return err->code;
    }
    const nw_status st = nw_generate_run(target, suite, n_parallel, s->o->seed, &t->answers, err);
    if (target != s->remote) {
        nw_target_close(target);
    }
    for (size_t i = 0; i < suite->n_items && st == NW_OK; i++) {
        const nw_gen_answer *a = &t->answers[i];
        t->rows[i] = (nw_rec_item){.item_id = suite->items[i].id,
                                   .cluster = suite->items[i].cluster,
                                   .score = (double)a->correct,
                                   .correct = a->correct,
                                   .n_prompt = a->answered ? (int64_t)a->n_prompt : -1,
                                   .n_output = a->answered ? (int64_t)a->n_output : -1,
                                   .finish = nw_gen_finish_name(a->finish),
                                   .output = a->answered ? a->text : a->error,
                                   .expected = suite->items[i].expected};
    }
    return st;
}

static void release_rows(task_rows *t, size_t n)
{
    for (size_t i = 0; t->details != NULL && i < n; i++) {
        free(t->details[i]);
    }
    free(t->details);
    free(t->rows);
    nw_choice_answers_release(&t->choices);
    nw_gen_answers_free(t->answers, n);
}

static nw_status measure(nw_eval_session *s, const task_layer *layer, const nw_suite *suite,
                         nw_eval_run *run, json_t *out, nw_error *err)
{
    const size_t n = suite->n_items;
    task_rows t = {.rows = calloc(n, sizeof *t.rows), .details = calloc(n, sizeof *t.details)};
    nw_status st = NW_OK;

    if (t.rows == NULL || t.details == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu rows", suite->name, n);
    }
    st = st == NW_OK ? layer->measure(s, suite, &t, err) : st;
    if (st == NW_OK && s->record != NULL) {
        st = nw_record_add_items(s->record, run->id, t.rows, n, err);
    }
    if (st == NW_OK) {
        nw_summary_items(t.rows, n, out);
    }
    release_rows(&t, n);
    return st;
}

/* "choice:basics" for builtin:basics, "choice:arc.jsonl" for a path: the suite's name in the record
 * must not hold a machine's folders. */
static void suite_name(const char *layer, const char *spec, char *name, size_t n)
{
    const char *slash = strrchr(spec, '/');
    const char *colon = strncmp(spec, "builtin:", 8) == 0 ? spec + 8 : spec;
    (void)snprintf(name, n, "%s:%s", layer, slash != NULL ? slash + 1 : colon);
}

/* Whether a server counts as many tokens for a chat as the template of the tokenizer here gives. */
static nw_status same_template(const nw_eval_session *s, const nw_suite *suite, bool *same,
                               nw_error *err)
{
    const nw_gen_request req = {
        .messages = suite->items[0].messages, .max_tokens = 1, .no_stream = true};
    nw_gen_result r;
    nw_error ignored = {0};
    nw_ids ids;

    *same = false;
    if (nw_target_generate(s->remote, &req, &r, err) != NW_OK) {
        return err->code;
    }
    nw_ids_init(&ids);
    if (nw_chat_encode(s->tokenizer, req.messages, true, &ids, &ignored) == NW_OK) {
        *same = ids.n == r.n_prompt;
    }
    if (r.n_prompt == 0) {
        nw_log(NW_LOG_WARN,
               "the server does not tell the tokens of a chat: whether its template is that of %s "
               "is not known, and its runs are not compared with those under this one",
               s->o->tokenizer);
    } else if (!*same) {
        nw_log(
            NW_LOG_WARN,
            "the server makes %u tokens of a chat, %s %zu: its template is another, and its runs "
            "are not compared with those under this one",
            r.n_prompt, s->o->tokenizer, ids.n);
    }
    nw_ids_release(&ids);
    nw_gen_result_release(&r);
    return NW_OK;
}

/* A template moves scores by more than quantization does (REPORTS H5): it is a setting. */
static nw_status put_template(const nw_eval_session *s, const nw_suite *suite, json_t *settings,
                              nw_error *err)
{
    bool same = true;

    if (s->remote != NULL && same_template(s, suite, &same, err) != NW_OK) {
        return err->code;
    }
    if (!same) {
        (void)json_object_set_new(settings, "template", json_string("the server's own"));
        return NW_OK;
    }
    const char *template = nw_tokenizer_chat_template(nw_eval_tokenizer(s));
    nw_digest hash = {"none"};

    if (template != NULL && nw_digest_bytes(template, strlen(template), &hash, err) != NW_OK) {
        return err->code;
    }
    (void)json_object_set_new(settings, "template", json_string(hash.hex));
    return NW_OK;
}

static nw_status settings_of(const nw_eval_session *s, const task_layer *layer,
                             const nw_suite *suite, json_t **out, nw_error *err)
{
    *out = json_pack("{s:s, s:s, s:s}", "layer", layer->layer, "items", suite->hash.hex, "scoring",
                     layer->scoring);
    if (nw_eval_tokenizer(s) == NULL) {
        return NW_OK;
    }
    const nw_digest tok = nw_tokenizer_hash(nw_eval_tokenizer(s));
    (void)json_object_set_new(*out, "tokenizer", json_string(tok.hex));
    return layer->kind == NW_ITEM_GENERATE ? put_template(s, suite, *out, err) : NW_OK;
}

static nw_status run_layer(nw_eval_session *s, const task_layer *layer, const char *spec,
                           nw_error *err)
{
    nw_suite suite;
    nw_eval_run run;
    char name[NAME_MAX_BYTES];

    if (nw_suite_open(spec, layer->kind, s->o->seed, s->o->max_items, &suite, err) != NW_OK) {
        return err->code;
    }
    json_t *settings = NULL;
    json_t *out = json_pack("{s:s, s:I}", "suite", spec, "items", (json_int_t)suite.n_items);
    suite_name(layer->layer, spec, name, sizeof name);
    nw_status st = settings_of(s, layer, &suite, &settings, err);
    st = st == NW_OK ? nw_eval_run_begin(s, name, settings, suite.hash.hex, &run, err) : st;
    if (st == NW_OK && run.reused) {
        (void)json_object_set_new(out, "reused_run", json_integer(run.id));
    } else if (st == NW_OK) {
        st = nw_eval_run_end(&run, measure(s, layer, &suite, &run, out, err), err);
    }
    if (st == NW_OK) {
        (void)json_object_set(s->out, layer->layer, out);
    }
    json_decref(out);
    json_decref(settings);
    nw_suite_release(&suite);
    return st;
}

nw_status nw_eval_choice(nw_eval_session *s, nw_error *err)
{
    static const task_layer layer = {NW_ITEM_CHOICE, "choice", "log-probability a byte",
                                     measure_choice};
    return run_layer(s, &layer, s->o->choice != NULL ? s->o->choice : "builtin:basics", err);
}

nw_status nw_eval_generate(nw_eval_session *s, nw_error *err)
{
    static const task_layer layer = {NW_ITEM_GENERATE, "generate", "greedy, graded",
                                     measure_generate};
    return run_layer(s, &layer, s->o->generate != NULL ? s->o->generate : "builtin:assistant", err);
}
