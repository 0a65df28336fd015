/* narrow bench --regime steps: the engine alone, inside this process. Rounds of a raw read, a prefill
 * and a decode, so that each rate stands beside what memory gave at that moment; with --profile the
 * ledger of all rounds against the machine's limits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/bandwidth.h"
#include "bench/peak.h"
#include "cli/print_json.h"
#include "engine/facts.h"
#include "engine/profile.h"
#include "engine/speed.h"
#include "stats/summary.h"

#define READ_BYTES   ((size_t)256 << 20)
#define READ_S       0.1
#define TRACE_EVENTS ((size_t)1 << 17)

typedef struct {
    const nw_args *args;
    nw_engine *engine;
    nw_speed *speed;
    nw_pool *pool; /* of raw reads */
    uint32_t n_prompt, n_output, n_seqs, depth, n_rounds;
    double *prefill, *decode, *read,
        *share; /* [n_rounds] a second: tokens, tokens, bytes; a ratio */
    nw_roofs roofs;
} steps;

static nw_status open_engine(steps *s, nw_error *err)
{
    nw_engine_options o = nw_engine_options_default();
    const char *act = nw_args_str(s->args, "act");
    const char *kv = nw_args_str(s->args, "kv");
    const uint64_t longest = (uint64_t)s->depth + s->n_prompt + s->n_output;

    o.n_threads = (unsigned)nw_args_int(s->args, "threads");
    o.tier = nw_args_str(s->args, "tier");
    o.max_seqs = s->n_seqs;
    o.n_ctx = (uint32_t)nw_args_int(s->args, "context");
    o.n_ctx = o.n_ctx == 0 && longest <= UINT32_MAX ? (uint32_t)longest : o.n_ctx;
    o.no_tokenizer = true;
    if ((act != NULL && nw_engine_act_parse(act, &o, err) != NW_OK) ||
        (kv != NULL && nw_engine_kv_parse(kv, &o, err) != NW_OK) ||
        nw_engine_open(s->args->operands[0], &o, &s->engine, err) != NW_OK ||
        nw_pool_open(nw_engine_get_facts(s->engine)->n_threads, &s->pool, err) != NW_OK) {
        return err->code;
    }
    return nw_speed_open(s->engine, s->n_seqs, s->depth, &s->speed, err);
}

static nw_status one_round(steps *s, uint32_t i, nw_error *err)
{
    const nw_engine_facts *f = nw_engine_get_facts(s->engine);
    nw_bandwidth b;
    double prefill_s = 0;
    double decode_s = 0;

    if (nw_bandwidth_read(s->pool, READ_BYTES, READ_S, &b, err) != NW_OK ||
        nw_speed_prefill(s->speed, s->n_prompt, &prefill_s, err) != NW_OK ||
        nw_speed_decode(s->speed, s->n_output, s->n_seqs, &decode_s, err) != NW_OK) {
        return err->code;
    }
    const double kv_tokens = s->depth + (s->n_output + 1) / 2.0; /* on average over the steps */
    const double step_bytes =
        (double)f->weight_bytes + kv_tokens * s->n_seqs * (double)f->kv_bytes_per_token;
    s->read[i] = b.median_bytes_s;
    s->prefill[i] = s->n_prompt / prefill_s;
    s->decode[i] = (double)s->n_output * s->n_seqs / decode_s;
    s->share[i] = step_bytes * s->n_output / decode_s / b.median_bytes_s;
    return NW_OK;
}

static nw_status measure(steps *s, nw_error *err)
{
    double warm = 0;

    if (nw_speed_prefill(s->speed, s->n_prompt, &warm, err) != NW_OK ||
        nw_speed_decode(s->speed, 2, s->n_seqs, &warm, err) != NW_OK) {
        return err->code;
    }
    nw_ledger_reset(nw_engine_ledger(s->engine));
    if (nw_args_str(s->args, "trace") != NULL &&
        nw_ledger_trace(nw_engine_ledger(s->engine), TRACE_EVENTS, err) != NW_OK) {
        return err->code;
    }
    for (uint32_t i = 0; i < s->n_rounds; i++) {
        if (one_round(s, i, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

/* Median, lowest and highest of x [n], which is sorted by it. */
static json_t *spread(double *x, uint32_t n)
{
    const nw_summary r = nw_summarize(x, n);
    return json_pack("{s:f, s:f, s:f}", "median", r.p50, "min", r.min, "max", r.max);
}

static json_t *profile(steps *s)
{
    const nw_summary read = nw_summarize(s->read, s->n_rounds);

    s->roofs = (nw_roofs){.read_bytes_s = read.p50,
                          .f32_macs_s = nw_peak_pool(s->pool, NW_PEAK_F32),
                          .bf16_macs_s = nw_peak_pool(s->pool, NW_PEAK_BF16),
                          .int8_macs_s = nw_peak_pool(s->pool, NW_PEAK_INT8)};
    return nw_profile_json(s->engine, &s->roofs);
}

static json_t *result(steps *s)
{
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "regime",
                          "steps", "prompt", (int)s->n_prompt, "output", (int)s->n_output,
                          "sequences", (int)s->n_seqs, "depth", (int)s->depth, "rounds",
                          (int)s->n_rounds, "prefill_tokens_per_s", spread(s->prefill, s->n_rounds),
                          "decode_tokens_per_s", spread(s->decode, s->n_rounds), "read_bytes_per_s",
                          spread(s->read, s->n_rounds), "decode_share_of_read",
                          spread(s->share, s->n_rounds), "facts", nw_engine_facts_json(s->engine));

    if (o != NULL && nw_args_flag(s->args, "profile")) {
        (void)json_object_set_new(o, "profile", profile(s));
    }
    return o;
}

/* ---- for people ---- */

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* "x" in the width of a column, or "-" for null. */
static void print_share(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);

    if (json_is_number(x)) {
        (void)printf(" %5.1f%%", 100 * json_number_value(x));
    } else {
        (void)printf("      -");
    }
}

static void print_op(const json_t *o)
{
    (void)printf("%-8s %-18s %-13s", json_string_value(json_object_get(o, "phase")),
                 json_string_value(json_object_get(o, "op")),
                 json_string_value(json_object_get(o, "shape")));
    print_share(o, "share_of_time");
    (void)printf(" %9.1f %8.2f", 1e6 * number(o, "s") / number(o, "calls"), number(o, "gb_per_s"));
    print_share(o, "share_of_read");
    (void)printf(" %8.1f", number(o, "gmac_per_s"));
    print_share(o, "share_of_peak");
    (void)printf("  %s", json_string_value(json_object_get(o, "used")));
    if (json_is_true(json_object_get(o, "fallback"))) {
        (void)printf(", intended %s", json_string_value(json_object_get(o, "intended")));
    }
    (void)printf("\n");
}

static void print_profile(const json_t *p)
{
    const json_t *item = NULL;
    size_t i = 0;

    (void)printf("\n%-8s %-18s %-13s %6s %9s %8s %6s %8s %6s  %s\n", "phase", "op", "shape", "time",
                 "us a call", "GB/s", "roof", "GMAC/s", "peak", "kernel");
    json_array_foreach(json_object_get(p, "ops"), i, item)
    {
        print_op(item);
    }
    json_array_foreach(json_object_get(p, "phases"), i, item)
    {
        (void)printf("%-8s %-18s %-13s %6s %9s %8.2f",
                     json_string_value(json_object_get(item, "phase")), "all", "", "100.0%", "",
                     number(item, "gb_per_s"));
        print_share(item, "share_of_read");
        (void)printf(" %8.1f         fallbacks", number(item, "gmac_per_s"));
        print_share(item, "fallback_share");
        (void)printf(" of time, %.1f MB converted\n", number(item, "bytes_converted") / 1e6);
    }
    json_array_foreach(json_object_get(p, "islands"), i, item)
    {
        (void)printf("island %s %s %s: %s among %s, %.1f MB read, %.1f MB converted\n",
                     json_string_value(json_object_get(item, "phase")),
                     json_string_value(json_object_get(item, "op")),
                     json_string_value(json_object_get(item, "shape")),
                     json_string_value(json_object_get(item, "used")),
                     json_string_value(json_object_get(item, "among")), number(item, "bytes") / 1e6,
                     number(item, "bytes_converted") / 1e6);
    }
}

static void print_spread(const char *name, const json_t *x, double scale, const char *unit)
{
    (void)printf("  %-8s %10.2f %s   (%.2f to %.2f)\n", name, scale * number(x, "median"), unit,
                 scale * number(x, "min"), scale * number(x, "max"));
}

static void print_text(const steps *s, const json_t *o)
{
    const nw_engine_facts *f = nw_engine_get_facts(s->engine);

    (void)printf("steps: %u rounds, %u sequence%s after %u tokens; %s, %u threads, %s, KV %s\n",
                 s->n_rounds, s->n_seqs, s->n_seqs == 1 ? "" : "s", s->depth, f->tier, f->n_threads,
                 nw_act_rule_name(f->act), f->kv);
    print_spread("prefill", json_object_get(o, "prefill_tokens_per_s"), 1, "tokens/s");
    print_spread("decode", json_object_get(o, "decode_tokens_per_s"), 1, "tokens/s");
    print_spread("raw read", json_object_get(o, "read_bytes_per_s"), 1e-9, "GB/s    ");
    print_spread("share", json_object_get(o, "decode_share_of_read"), 100,
                 "% of the raw read that a decode step's weights and KV make");
    if (json_object_get(o, "profile") != NULL) {
        print_profile(json_object_get(o, "profile"));
    }
}

static nw_status show(steps *s, nw_error *err)
{
    const char *trace = nw_args_str(s->args, "trace");
    json_t *o = result(s);
    nw_status st = NW_OK;

    if (o == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the result");
    }
    if (trace != NULL) {
        st = nw_ledger_trace_write(nw_engine_ledger(s->engine), trace, err);
    }
    if (st == NW_OK && s->args->json) {
        return nw_print_json("bench", o, err);
    }
    if (st == NW_OK) {
        print_text(s, o);
    }
    json_decref(o);
    return st;
}

nw_status nw_bench_steps(const nw_args *args, nw_token_range prompt, nw_token_range output,
                         nw_error *err)
{
    steps s = {.args = args,
               .n_prompt = prompt.hi,
               .n_output = output.hi,
               .n_seqs = (uint32_t)nw_args_int(args, "sequences"),
               .depth = (uint32_t)nw_args_int(args, "depth"),
               .n_rounds = (uint32_t)nw_args_int(args, "rounds")};
    double *room = calloc((size_t)4 * s.n_rounds, sizeof *room);

    if (room == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %u rounds", s.n_rounds);
    }
    s.prefill = room;
    s.decode = room + s.n_rounds;
    s.read = room + (size_t)2 * s.n_rounds;
    s.share = room + (size_t)3 * s.n_rounds;
    nw_status st = open_engine(&s, err);
    if (st == NW_OK) {
        st = measure(&s, err);
    }
    if (st == NW_OK) {
        st = show(&s, err);
    }
    nw_speed_close(s.speed);
    nw_engine_close(s.engine);
    nw_pool_close(s.pool);
    free(room);
    return st;
}
