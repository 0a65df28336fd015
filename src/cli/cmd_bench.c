/* narrow bench: batch 1 and open-loop load of a service. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/bench_run.h"
#include "cli/bench_steps.h"
#include "cli/option_rows.h"
#include "cli/print_json.h"

static const nw_option options[] = {
    {.name = "regime",
     .type = NW_OPT_CHOICE,
     .choices = "micro|load|steps",
     .help = "one request after the other, open-loop arrivals, or the engine's own steps"},
    {.name = "prompt",
     .type = NW_OPT_STRING,
     .fallback = "1024",
     .unit = "N|LO-HI",
     .help = "prompt tokens of a request; a range for load"},
    {.name = "output",
     .type = NW_OPT_STRING,
     .fallback = "128",
     .unit = "N|LO-HI",
     .help = "output tokens asked for; a range for load"},
    {.name = "requests",
     .letter = 'n',
     .type = NW_OPT_INT,
     .fallback = "300",
     .lo = 1,
     .hi = 1000000,
     .unit = "requests",
     .help = "measured requests"},
    {.name = "warmup",
     .type = NW_OPT_INT,
     .fallback = "10",
     .lo = 0,
     .hi = 1000000,
     .unit = "requests",
     .help = "requests before the measured ones, micro"},
    {.name = "natural-stop",
     .type = NW_OPT_FLAG,
     .help = "let answers end by themselves; otherwise end tokens are ignored"},
    {.name = "in-process",
     .type = NW_OPT_FLAG,
     .help = "run the engine inside this process instead of a server, micro"},
    {.name = "profile",
     .type = NW_OPT_FLAG,
     .help = "the kernel ledger against the machine's limits; with it the regime is steps"},
    {.name = "trace",
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "every op of the measured rounds as a trace for Perfetto, steps"},
    {.name = "depth",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1048576,
     .unit = "tokens",
     .help = "context before the measured tokens, steps"},
    {.name = "sequences",
     .type = NW_OPT_INT,
     .fallback = "1",
     .lo = 1,
     .hi = 256,
     .unit = "sequences",
     .help = "sequences that decode together, steps"},
    {.name = "rounds",
     .type = NW_OPT_INT,
     .fallback = "7",
     .lo = 1,
     .hi = 1000,
     .unit = "rounds",
     .help = "rounds of raw read, prefill and decode, steps"},
    {.name = "rate",
     .type = NW_OPT_DOUBLE,
     .fallback = "0",
     .lo = 0,
     .hi = 100000,
     .unit = "requests/s",
     .help = "arrivals, load"},
    {.name = "rates",
     .type = NW_OPT_STRING,
     .unit = "R,R,...",
     .help = "one window at each rate; with --sweep, shares of the capacity"},
    {.name = "sweep",
     .type = NW_OPT_FLAG,
     .help = "measure the capacity by a burst, then windows at shares of it"},
    {.name = "search",
     .type = NW_OPT_FLAG,
     .help = "find the highest stable rate, from --rate (or 1) on; every window has --requests"},
    {.name = "attainment",
     .type = NW_OPT_DOUBLE,
     .fallback = "0.9",
     .lo = 0,
     .hi = 1,
     .help = "share of good requests that --search asks for, by its lower 95 % bound; below 1"},
    {.name = "process",
     .type = NW_OPT_CHOICE,
     .fallback = "poisson",
     .choices = "poisson|constant",
     .help = "how arrivals are spaced; --search: constant, and poisson from 20000 requests on"},
    {.name = "arrivals",
     .type = NW_OPT_REPEAT,
     .unit = "FILE",
     .help = "CSV or JSONL with t,prompt_tokens,output_tokens; one window each"},
    {.name = "write-arrivals",
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "keep the arrivals that were made, of the last rate"},
    {.name = "duration",
     .type = NW_OPT_DOUBLE,
     .fallback = "0",
     .lo = 0,
     .hi = 86400,
     .unit = "s",
     .help = "measured window; 0 for as long as --requests take, or to a file's end"},
    {.name = "warmup-s",
     .type = NW_OPT_DOUBLE,
     .fallback = "30",
     .lo = 0,
     .hi = 3600,
     .unit = "s",
     .help = "arrivals before the window, handed over undrained, load"},
    {.name = "drain-s",
     .type = NW_OPT_DOUBLE,
     .fallback = "120",
     .lo = 0,
     .hi = 3600,
     .unit = "s",
     .help = "how long past the window its requests may take"},
    {.name = "tail-s",
     .type = NW_OPT_DOUBLE,
     .fallback = "30",
     .lo = 0,
     .hi = 3600,
     .unit = "s",
     .help = "how long a file's arrivals go on past its last, while the window drains; 0: not"},
    {.name = "slo-ttft",
     .type = NW_OPT_DOUBLE,
     .fallback = "1000",
     .lo = 0,
     .hi = 1e7,
     .unit = "ms",
     .help = "limit of TTFT for a good request; 0 for none"},
    {.name = "slo-tpot",
     .type = NW_OPT_DOUBLE,
     .fallback = "100",
     .lo = 0,
     .hi = 1e7,
     .unit = "ms",
     .help = "limit of TPOT for a good request; 0 for none"},
    {.name = "slo-gap",
     .type = NW_OPT_DOUBLE,
     .fallback = "0",
     .lo = 0,
     .hi = 1e7,
     .unit = "ms",
     .help = "limit of the longest gap inside a request; 0 for none"},
    {.name = "no-stream", .type = NW_OPT_FLAG, .help = "ask for whole answers, load"},
    {.name = "seed",
     .type = NW_OPT_INT,
     .fallback = "1",
     .lo = 0,
     .hi = 4294967295.0,
     .help = "seed of arrivals and prompts"},
    {.name = "max-seqs",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 256,
     .unit = "requests",
     .help =
         "requests in the server's batch at one time; 0: 32, and 1 for micro, whose memory is then "
         "that of one sequence"},
    {.name = "context",
     .letter = 'c',
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1048576,
     .unit = "tokens",
     .help = "context of the server; 0 for the model's, at most 8192"},
    NW_OPTION_THREADS,
    NW_OPTION_TIER,
    NW_OPTION_KV,
    NW_OPTION_ACT,
    NW_OPTION_RECORD,
    NW_OPTION_CANDIDATE,
    NW_OPTION_ROLE,
    {.name = "again", .type = NW_OPT_FLAG, .help = "measure once more what the record already has"},
    NW_OPTION_API_KEY,
    NW_OPTION_SERVER_MODEL,
    NW_OPTION_TOKENIZER,
    NW_OPTION_TIMEOUT,
};

enum { MICRO = 1, LOAD = 2, STEPS = 4 };

/* Options that some regimes do not look at. */
static const struct {
    const char *name;
    unsigned regimes;
} only[] = {
    {"requests", MICRO | LOAD},
    {"natural-stop", MICRO | LOAD},
    {"seed", MICRO | LOAD},
    {"max-seqs", MICRO | LOAD},
    {"record", MICRO | LOAD},
    {"candidate", MICRO | LOAD},
    {"role", MICRO | LOAD},
    {"again", MICRO | LOAD},
    {"api-key", MICRO | LOAD},
    {"model", MICRO | LOAD},
    {"tokenizer", MICRO | LOAD},
    {"timeout", MICRO | LOAD},
    {"warmup", MICRO},
    {"in-process", MICRO},
    {"rate", LOAD},
    {"rates", LOAD},
    {"sweep", LOAD},
    {"search", LOAD},
    {"attainment", LOAD},
    {"process", LOAD},
    {"arrivals", LOAD},
    {"write-arrivals", LOAD},
    {"duration", LOAD},
    {"warmup-s", LOAD},
    {"drain-s", LOAD},
    {"tail-s", LOAD},
    {"slo-ttft", LOAD},
    {"slo-tpot", LOAD},
    {"slo-gap", LOAD},
    {"no-stream", LOAD},
    {"profile", STEPS},
    {"trace", STEPS},
    {"depth", STEPS},
    {"sequences", STEPS},
    {"rounds", STEPS},
};

/* Pairs of which the second decides alone. */
static const struct {
    const char *name, *beside;
} idle[] = {
    {"rates", "search"},
    {"sweep", "search"},
    {"arrivals", "search"},
    {"write-arrivals", "search"},
    {"no-stream", "search"},
    {"record", "search"},
    {"candidate", "search"},
    {"role", "search"},
    {"again", "search"},
    {"rate", "arrivals"},
    {"rates", "arrivals"},
    {"sweep", "arrivals"},
    {"process", "arrivals"},
    {"prompt", "arrivals"},
    {"output", "arrivals"},
    {"requests", "arrivals"},
    {"write-arrivals", "arrivals"},
    {"rate", "rates"},
    {"rate", "sweep"},
    {"requests", "duration"},
};

/* Pairs of which the first means nothing alone. */
static const struct {
    const char *name, *beside;
} needs[] = {{"tail-s", "arrivals"}, {"attainment", "search"}};

static const char *regime_names(unsigned regimes)
{
    return regimes == MICRO   ? "micro"
           : regimes == LOAD  ? "load"
           : regimes == STEPS ? "steps"
                              : "micro and load";
}

static nw_status check_pairs(const nw_args *args, nw_error *err)
{
    for (size_t i = 0; i < NW_COUNT(idle); i++) {
        if (nw_args_given(args, idle[i].name) && nw_args_given(args, idle[i].beside)) {
            return nw_fail(err, NW_E_USAGE, "--%s has no meaning beside --%s", idle[i].name,
                           idle[i].beside);
        }
    }
    for (size_t i = 0; i < NW_COUNT(needs); i++) {
        if (nw_args_given(args, needs[i].name) && !nw_args_given(args, needs[i].beside)) {
            return nw_fail(err, NW_E_USAGE, "--%s needs --%s", needs[i].name, needs[i].beside);
        }
    }
    return NW_OK;
}

/* --context of a benchmark is the server's. */
static nw_status check_server(const nw_args *args, nw_error *err)
{
    if (nw_target_spec_is_url(args->operands[0]) && nw_args_given(args, "context")) {
        return nw_fail(err, NW_E_USAGE, "--context is for an artifact, %s runs already",
                       args->operands[0]);
    }
    return nw_args_check_server(args, err);
}

/* An option that would change nothing is a mistake of whoever gave it. */
static nw_status check_options(const nw_args *args, unsigned regime, nw_error *err)
{
    for (size_t i = 0; i < NW_COUNT(only); i++) {
        if ((only[i].regimes & regime) == 0 && nw_args_given(args, only[i].name)) {
            return nw_fail(err, NW_E_USAGE, "--%s is for --regime %s", only[i].name,
                           regime_names(only[i].regimes));
        }
    }
    return check_pairs(args, err) == NW_OK ? check_server(args, err) : err->code;
}

static nw_status run_steps(const nw_args *args, nw_error *err)
{
    nw_token_range prompt;
    nw_token_range output;

    if (nw_bench_range(args, "prompt", &prompt, err) != NW_OK ||
        nw_bench_range(args, "output", &output, err) != NW_OK) {
        return err->code;
    }
    return nw_bench_steps(args, prompt, output, err);
}

static nw_status run_service(const nw_args *args, bool micro, nw_error *err)
{
    nw_bench b = {.args = args, .out = json_object()};
    nw_error ignored = {0};

    nw_status st = micro ? nw_bench_micro(&b, err) : nw_bench_load(&b, err);
    if (st != NW_OK && b.record != NULL && b.run_id != 0) {
        const char *how = st == NW_E_CANCELLED ? "cancelled" : "failed";
        if (nw_record_run_end(b.record, b.run_id, how, &ignored) != NW_OK) {
            nw_log(NW_LOG_WARN, "%s", ignored.message);
        }
    }
    nw_service_close(&b.service);
    if (st == NW_OK && args->json) {
        st = nw_print_json("bench", json_incref(b.out), err);
    }
    json_decref(b.out);
    nw_bench_costs_release(&b.costs);
    nw_record_close(b.record);
    return st;
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    const char *name = nw_args_str(args, "regime");
    const unsigned regime = name == NULL || strcmp(name, "steps") == 0 ? STEPS
                            : strcmp(name, "micro") == 0               ? MICRO
                                                                       : LOAD;

    (void)exit_code;
    if (name == NULL && !nw_args_flag(args, "profile")) {
        return nw_fail(err, NW_E_USAGE, "--regime is required: micro, load or steps");
    }
    if (check_options(args, regime, err) != NW_OK) {
        return err->code;
    }
    return regime == STEPS ? run_steps(args, err) : run_service(args, regime == MICRO, err);
}

const nw_command nw_cmd_bench = {
    .name = "bench",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "TARGET",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "measure a service: batch 1, or open-loop load",
    .description =
        "TARGET is an artifact or checkpoint, for which 'narrow serve' is started on this machine, "
        "or the URL of an OpenAI-compatible server.\n\n"
        "micro: one request after the other. decode_tokens_per_s is the median of (n - 1) / (last "
        "- "
        "first token), prefill_tokens_per_s the median of prompt tokens / (first token - "
        "dispatch).\n\n"
        "load: requests leave at their scheduled times whatever the server does, and their clock "
        "starts there. Goodput counts requests scheduled in the window that were answered within "
        "the limits; errors count against it. A 99th percentile is shown from 299 requests on. A "
        "window is marked invalid when dispatch lags behind the schedule.\n\n"
        "With --search rates are doubled until one is not held, then bisected to 5 % and confirmed "
        "on three further arrival files. Held: the upper 95 % bound of the drift in flight and of "
        "TTFT is at most 10 % of their means, completions are at least 0.98 of the arrivals, and "
        "attainment is what --attainment asks for. Arrivals are evenly spaced, since those of a "
        "Poisson process drift by chance in windows of fewer than 20000 requests.\n\n"
        "steps: the engine alone, in this process: prefill of --prompt tokens and --output steps "
        "of "
        "--sequences sequences, each round beside a raw read of memory. --profile adds, for each "
        "op "
        "and shape, the kernel intended and used, time, bytes and multiply-adds against the "
        "measured limits; --trace FILE opens in Perfetto. Not kept in a record.\n\n"
        "With --record every request is kept, with the time of every event; figures can be "
        "computed "
        "again from these rows alone.",
};
