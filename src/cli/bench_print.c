/* Results of a benchmark for people. What was not measured says so; a p99 that the number of requests
 * does not carry is printed as INCONCLUSIVE with the number that is missing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_dist(const char *name, const char *formula, const nw_bench_dist *d)
{
    char p99[48];

    if (d->n == 0) {
        (void)printf("  %-12s not measured                                      %s\n", name,
                     formula);
        return;
    }
    if (d->has_p99) {
        (void)snprintf(p99, sizeof p99, "%.2f", d->p99);
    } else {
        (void)snprintf(p99, sizeof p99, "INCONCLUSIVE (n lacks %zu)", d->n_lacking);
    }
    (void)printf("  %-12s p50 %10.2f  p90 %10.2f  p99 %s  n %zu   %s\n", name, d->p50, d->p90, p99,
                 d->n, formula);
}

static void print_latencies(const nw_bench_summary *s)
{
    if (s->n_not_streamed > 0) {
        (void)printf("  TTFT, TPOT, gaps, goodput: not measured: not streaming\n");
    } else {
        print_dist("TTFT ms", "first token - scheduled", &s->ttft_ms);
        print_dist("TPOT ms", "(last - first) / (n - 1)", &s->tpot_ms);
        print_dist("gap ms", "between receipts, all pooled", &s->gap_ms);
        print_dist("max gap ms", "longest of each request", &s->max_gap_ms);
    }
    print_dist("E2E ms", "last token - scheduled", &s->e2e_ms);
    if (s->n_tpot_undefined > 0) {
        (void)printf("  TPOT undefined for %zu answers of one token\n", s->n_tpot_undefined);
    }
}

static void print_lengths(const nw_bench_summary *s)
{
    const double n = s->n_scheduled > 0 ? (double)s->n_scheduled : 1;

    (void)printf("  tokens a request: %.1f in, %.1f asked, %.1f out; ended by stop %zu, by length "
                 "%zu, errors %zu\n",
                 (double)s->prompt_tokens / n, (double)s->asked_tokens / n,
                 (double)s->output_tokens / n, s->n_stop, s->n_length, s->n_error);
}

static void print_rate(const char *name, const nw_bench_dist *d, const char *formula,
                       const char *why_not)
{
    if (d->n > 0) {
        (void)printf("  %-7s %10.2f tokens/s   median of %s\n", name, d->p50, formula);
    } else {
        (void)printf("  %-7s not measured: %s\n", name, why_not);
    }
}

void nw_bench_print_micro(const nw_micro_options *o, const nw_micro_result *r,
                          const nw_bench_costs *c)
{
    (void)printf("batch 1: %zu requests of %u/%u tokens after %u of warm-up%s\n", r->rows.n,
                 o->n_prompt, o->n_output, o->n_warmup,
                 o->natural_stop ? ", natural stop" : ", end tokens ignored");
    print_rate("decode", &r->decode_tokens_per_s, "(n - 1) / (last - first)",
               "no answer has two tokens");
    print_rate("prefill", &r->prefill_tokens_per_s, "prompt tokens / (first - dispatched)",
               "no answer has a first token");
    print_latencies(&r->summary);
    print_lengths(&r->summary);
    nw_bench_print_costs(c);
}

void nw_bench_print_load_head(const nw_load_options *o)
{
    const struct {
        const char *name;
        double ms; /* 0: no such limit */
    } limits[] = {
        {"TTFT", o->slo.ttft_ms}, {"TPOT", o->slo.tpot_ms}, {"longest gap", o->slo.gap_ms}};
    const char *before = "";

    (void)printf("open loop: clock starts at the scheduled time; good: ");
    for (size_t i = 0; i < NW_COUNT(limits); i++) {
        if (limits[i].ms > 0) {
            (void)printf("%s%s <= %g ms", before, limits[i].name, limits[i].ms);
            before = ", ";
        }
    }
    (void)printf("%s\n", before[0] == '\0' ? "every answer, no limit is set" : "");
}

void nw_bench_print_load(const char *name, const nw_load_options *o, const nw_load_result *r)
{
    const nw_bench_summary *s = &r->summary;
    const nw_steady steady = nw_load_steady(r);

    (void)o;
    (void)printf("%s: %.3f requests/s offered over %.1f s, %zu requests\n", name,
                 s->request_rate_asked, s->window_s, s->n_scheduled);
    if (s->n_not_streamed == 0) {
        (void)printf("  goodput %8.3f requests/s, attainment %.1f %% of all scheduled\n",
                     s->goodput_s, 100 * s->attainment);
    }
    (void)printf(
        "  done    %8.3f requests/s, %.1f tokens/s received; in flight %.1f, at most %.0f\n",
        s->throughput_requests_s, s->throughput_tokens_s, s->mean_in_flight, s->max_in_flight);
    print_latencies(s);
    print_dist("lag ms", "dispatched - scheduled", &s->lag_ms);
    print_lengths(s);
    (void)printf("  %s; %s%s; warm-up %s (%zu completions)%s\n",
                 steady.steady == 1   ? "steady"
                 : steady.steady == 0 ? "not steady"
                                      : "steadiness not tested",
                 s->valid ? "valid" : "INVALID: ", s->why_invalid,
                 r->warmup_enough ? "enough" : "too short", r->n_warmup_done,
                 r->ran_dry ? "; arrivals ended before the window's answers did" : "");
}

static double fact(const json_t *facts, const char *key)
{
    const json_t *v = json_object_get(facts, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void print_mib(const char *what, double bytes)
{
    if (isfinite(bytes)) {
        (void)printf("  %-26s %10.1f MiB\n", what, bytes / 1048576.0);
    } else {
        (void)printf("  %-26s not measured\n", what);
    }
}

void nw_bench_print_costs(const nw_bench_costs *c)
{
    const double not_known = (double)NAN;

    (void)printf("costs:\n");
    print_mib("peak memory of the server", c->has_memory ? (double)c->peak_rss_bytes : not_known);
    print_mib("weights read a token", fact(c->facts, "weight_bytes"));
    print_mib("KV pool", fact(c->facts, "kv_bytes"));
    if (c->facts != NULL) {
        (void)printf("  KV a token %.0f bytes, load %.2f s, %s, %.0f threads\n",
                     fact(c->facts, "kv_bytes_per_token"), fact(c->facts, "load_s"),
                     json_string_value(json_object_get(c->facts, "tier")),
                     fact(c->facts, "threads"));
    } else {
        (void)printf("  facts of the engine: absent (not narrow's server)\n");
    }
    if (isfinite(c->energy_j)) {
        (void)printf("  energy %.1f J by RAPL, package, gross\n", c->energy_j);
    } else {
        (void)printf("  energy not measured: %s\n", c->energy_why);
    }
}
