/* Batch 1: warm-up, then n requests in a row. Prompts are made before the clock starts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/micro.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/signal.h"
#include "bench/usage.h"

static nw_status one(nw_target *t, const nw_micro_options *o, uint32_t key, nw_gen_result *r,
                     nw_error *err)
{
    char *text = NULL;
    uint32_t n = 0;

    if (nw_prompt_make(t, o->n_prompt, o->seed, key, &text, &n, err) != NW_OK) {
        return err->code;
    }
    const nw_gen_request req = {.prompt = text,
                                .n_prompt_bytes = strlen(text),
                                .max_tokens = o->n_output,
                                .ignore_eos = !o->natural_stop};
    const nw_status st = nw_target_generate(t, &req, r, err);
    free(text);
    return st;
}

static nw_status add(nw_micro_result *out, const nw_gen_result *r, uint32_t idx, int64_t t0,
                     nw_error *err)
{
    if (nw_bench_row_from(r, idx, t0, true, &out->rows.rows[out->rows.n], err) != NW_OK) {
        return err->code;
    }
    out->rows.n++;
    return NW_OK;
}

static nw_status measure(nw_target *t, const nw_micro_options *o, nw_micro_result *out, int64_t *t0,
                         nw_error *err)
{
    const size_t total = (size_t)o->n_warmup + o->n_requests;

    for (uint32_t i = 0; i < total; i++) {
        nw_gen_result r;
        if (nw_stop_requested()) {
            return nw_fail(err, NW_E_CANCELLED, "batch 1: stopped after %u of %zu requests", i,
                           total);
        }
        if (i == o->n_warmup) {
            *t0 = nw_now_ns();
        }
        if (one(t, o, i, &r, err) != NW_OK) {
            return nw_context(err, "batch 1: request %u", i);
        }
        const nw_status st = i >= o->n_warmup ? add(out, &r, i - o->n_warmup, *t0, err) : NW_OK;
        nw_gen_result_release(&r);
        if (st != NW_OK) {
            return st;
        }
        if (o->on_tick != NULL) {
            o->on_tick(o->ctx, i + 1, total);
        }
    }
    return NW_OK;
}

/* Rates of each request that has them; medians over requests. */
static nw_status rates(nw_micro_result *out, nw_error *err)
{
    double *decode = calloc(out->rows.n + 1, sizeof *decode);
    double *prefill = calloc(out->rows.n + 1, sizeof *prefill);
    size_t n_decode = 0;
    size_t n_prefill = 0;

    if (decode == NULL || prefill == NULL) {
        free(decode);
        free(prefill);
        return nw_fail(err, NW_E_NOMEM, "batch 1: no memory for %zu rates", out->rows.n);
    }
    for (size_t i = 0; i < out->rows.n; i++) {
        const nw_bench_row *r = &out->rows.rows[i];
        if (r->f_ns >= 0 && r->l_ns > r->f_ns && r->n_output >= 2) {
            decode[n_decode++] = (double)(r->n_output - 1) * 1e9 / (double)(r->l_ns - r->f_ns);
        }
        if (r->f_ns > r->d_ns && r->d_ns >= 0 && r->n_prompt > 0) {
            prefill[n_prefill++] = (double)r->n_prompt * 1e9 / (double)(r->f_ns - r->d_ns);
        }
    }
    out->decode_tokens_per_s = nw_bench_dist_of(decode, n_decode);
    out->prefill_tokens_per_s = nw_bench_dist_of(prefill, n_prefill);
    free(decode);
    free(prefill);
    return NW_OK;
}

nw_status nw_micro_run(nw_target *t, const nw_micro_options *o, nw_micro_result *out, nw_error *err)
{
    const nw_slo none = {0};
    const double cpu_s = nw_client_cpu_s();
    int64_t t0 = 0;
    nw_micro_result r = {0};

    if (o->n_requests == 0 || o->n_prompt == 0 || o->n_output == 0) {
        return nw_fail(err, NW_E_RANGE,
                       "batch 1: %u requests of %u/%u tokens: each must be at "
                       "least 1",
                       o->n_requests, o->n_prompt, o->n_output);
    }
    r.rows.rows = calloc(o->n_requests, sizeof *r.rows.rows);
    if (r.rows.rows == NULL) {
        return nw_fail(err, NW_E_NOMEM, "batch 1: no memory for %u requests", o->n_requests);
    }
    r.rows.cap = o->n_requests;
    nw_status st = measure(t, o, &r, &t0, err);
    if (st == NW_OK) {
        const int64_t span = nw_now_ns() - t0;
        r.wall_s = (double)span * 1e-9;
        r.client_cpu_s = nw_client_cpu_s() - cpu_s;
        st = rates(&r, err);
        if (st == NW_OK) {
            st = nw_bench_summarize(r.rows.rows, r.rows.n, 0, span + 1, &none, &r.summary, err);
        }
    }
    if (st != NW_OK) {
        nw_micro_result_release(&r);
        return st;
    }
    *out = r;
    return NW_OK;
}

void nw_micro_result_release(nw_micro_result *r)
{
    nw_bench_rows_release(&r->rows);
}
