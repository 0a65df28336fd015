/* The perplexity layer: windows of a text through target and baseline, every token a row.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/hash.h"
#include "eval/remote.h"
#include "eval/session.h"
#include "eval/summary.h"

typedef struct {
    nw_rec_token *rows; /* [n_scored] */
    double *nll_base;   /* [n_scored]; NaN without a baseline */
    size_t n;
} collector;

static nw_status collect(void *ctx, size_t window, uint32_t pos, const nw_divergence *d,
                         nw_error *err)
{
    collector *c = ctx;

    (void)err;
    c->nll_base[c->n] = d->nll_base;
    c->rows[c->n] = (nw_rec_token){.window = (int64_t)window,
                                   .pos = pos,
                                   .nll = d->nll,
                                   .kl = d->kl,
                                   .top1 = d->top1,
                                   .rank_base = d->rank_base};
    c->n++;
    return NW_OK;
}

static json_t *settings_of(const nw_eval_session *s, const nw_windows *w, uint32_t n_ctx)
{
    const nw_digest tok = nw_tokenizer_hash(nw_eval_tokenizer(s));
    return json_pack("{s:s, s:i, s:i, s:I, s:s, s:s, s:s}", "cut", nw_cut_name(w->cut), "n_ctx",
                     (int)n_ctx, "stride", (int)s->o->stride, "windows", (json_int_t)w->n, "text",
                     w->data_hash.hex, "tokenizer", tok.hex, "baseline",
                     s->base != NULL ? nw_artifact_hash(nw_engine_artifact(s->base)) : "none");
}

/* Perplexity is a figure of one tokenizer's tokens; bits a byte of the scored text can be held against
 * those of another model. */
static nw_status keep_bits_per_byte(const nw_eval_session *s, const nw_windows *w,
                                    const collector *c, const nw_eval_run *run, json_t *out,
                                    nw_error *err)
{
    double nll = 0;

    for (size_t i = 0; i < c->n; i++) {
        nll += c->rows[i].nll;
    }
    if (w->n_scored_bytes == 0) {
        return NW_OK;
    }
    const double bits = nll / log(2) / (double)w->n_scored_bytes;
    const nw_rec_metric rows[] = {
        {"bits_per_byte", bits, "bits", NULL},
        {"scored_bytes", (double)w->n_scored_bytes, "bytes", NULL},
    };
    (void)json_object_set_new(out, "bits_per_byte", json_real(bits));
    return s->record != NULL ? nw_record_add_metrics(s->record, run->id, rows, NW_COUNT(rows), err)
                             : NW_OK;
}

static nw_status measure(nw_eval_session *s, const nw_windows *w, nw_eval_run *run, json_t *out,
                         nw_error *err)
{
    collector c = {.rows = calloc(w->n_scored, sizeof *c.rows),
                   .nll_base = calloc(w->n_scored, sizeof *c.nll_base)};
    nw_status st = NW_OK;

    if (c.rows == NULL || c.nll_base == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for %llu tokens", (unsigned long long)w->n_scored);
    }
    if (st == NW_OK) {
        st = s->remote != NULL
                 ? nw_remote_perplexity(s->remote, w, nw_eval_parallel(s), collect, &c, err)
                 : nw_perplexity_run(s->engine, s->base, w, collect, &c, err);
    }
    if (st == NW_OK && s->record != NULL) {
        st = nw_record_add_tokens(s->record, run->id, c.rows, c.n, err);
    }
    st = st == NW_OK ? nw_summary_tokens(c.rows, c.nll_base, c.n, out, err) : st;
    st = st == NW_OK ? keep_bits_per_byte(s, w, &c, run, out, err) : st;
    free(c.rows);
    free(c.nll_base);
    return st;
}

nw_status nw_eval_perplexity(nw_eval_session *s, nw_error *err)
{
    const nw_window_options wo = {.path = s->o->text,
                                  .n_ctx = s->o->n_ctx > 0 ? s->o->n_ctx : 512,
                                  .stride = s->o->stride,
                                  .max_windows = s->o->max_windows};
    const uint32_t limit = s->engine != NULL ? nw_engine_get_facts(s->engine)->n_ctx
                           : s->max_len > 0  ? s->max_len
                                             : UINT32_MAX;
    nw_windows w;
    nw_eval_run run;

    if (wo.n_ctx > limit) {
        return nw_fail(err, NW_E_RANGE, "context of %u tokens, the model's limit is %u", wo.n_ctx,
                       limit);
    }
    if (nw_windows_open(nw_eval_tokenizer(s), &wo, &w, err) != NW_OK) {
        return err->code;
    }
    json_t *settings = settings_of(s, &w, wo.n_ctx);
    json_t *out = json_pack("{s:s, s:I, s:I}", "cut", nw_cut_name(w.cut), "windows",
                            (json_int_t)w.n, "tokens_scored", (json_int_t)w.n_scored);
    nw_status st = nw_eval_run_begin(s, "perplexity", settings, w.data_hash.hex, &run, err);
    if (st == NW_OK && run.reused) {
        (void)json_object_set_new(out, "reused_run", json_integer(run.id));
    } else if (st == NW_OK) {
        st = nw_eval_run_end(&run, measure(s, &w, &run, out, err), err);
    }
    if (st == NW_OK) {
        (void)json_object_update(s->out, out); /* "perplexity" stands at the top, for scripts */
    }
    json_decref(out);
    json_decref(settings);
    nw_windows_release(&w);
    return st;
}
