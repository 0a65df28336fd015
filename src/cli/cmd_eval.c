/* narrow eval: quality in layers, paired with a baseline. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/option_rows.h"
#include "cli/print_json.h"
#include "eval/evaluate.h"

static const nw_option options[] = {
    {.name = "layer",
     .letter = 'l',
     .type = NW_OPT_REPEAT,
     .unit = "LAYER",
     .help = "perplexity, choice or generate; by default all that have their input"},
    {.name = "baseline",
     .letter = 'b',
     .type = NW_OPT_STRING,
     .unit = "MODEL",
     .help = "model that KL and top-1 agreement are taken against, token by token"},
    {.name = "text",
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "text for perplexity; .json and .jsonl hold documents"},
    {.name = "context",
     .letter = 'c',
     .type = NW_OPT_INT,
     .fallback = "512",
     .lo = 4,
     .hi = 131072,
     .unit = "tokens",
     .help = "window of the perplexity"},
    {.name = "stride",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 131072,
     .unit = "tokens",
     .help = "step of overlapping windows; 0 for windows side by side, second halves scored"},
    {.name = "chunks",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1000000,
     .unit = "windows",
     .help = "at most this many windows; 0 for all"},
    {.name = "choice",
     .type = NW_OPT_STRING,
     .fallback = "builtin:basics",
     .unit = "SUITE",
     .help = "choice suite: a JSONL file or builtin:basics"},
    {.name = "generate",
     .type = NW_OPT_STRING,
     .fallback = "builtin:assistant",
     .unit = "SUITE",
     .help = "generate suite: a JSONL file or builtin:assistant"},
    {.name = "items",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1000000,
     .unit = "items",
     .help = "at most this many items of each suite; 0 for all"},
    {.name = "seed",
     .type = NW_OPT_INT,
     .fallback = "1",
     .lo = 0,
     .hi = 4294967295.0,
     .help = "seed of the generators"},
    {.name = "parallel",
     .type = NW_OPT_INT,
     .fallback = "16",
     .lo = 1,
     .hi = 256,
     .unit = "requests",
     .help = "generate requests in flight"},
    NW_OPTION_THREADS,
    NW_OPTION_TIER,
    NW_OPTION_KV,
    NW_OPTION_ACT,
    NW_OPTION_RECORD,
    NW_OPTION_CANDIDATE,
    NW_OPTION_ROLE,
    NW_OPTION_API_KEY,
    NW_OPTION_SERVER_MODEL,
    NW_OPTION_TOKENIZER,
    NW_OPTION_TIMEOUT,
    NW_OPTION_RETRIES,
    NW_OPTION_MAX_RATE,
};

static nw_status parse_layers(const nw_args *args, unsigned *layers, nw_error *err)
{
    static const char *const names[] = {
#define LAYER_NAME(name, bit, text) text,
        NW_EVAL_LAYER_MAP(LAYER_NAME)
#undef LAYER_NAME
    };

    for (size_t i = 0; i < nw_args_count(args, "layer"); i++) {
        const char *word = nw_args_nth(args, "layer", i);
        size_t k = 0;
        while (k < NW_COUNT(names) && strcmp(names[k], word) != 0) {
            k++;
        }
        if (k == NW_COUNT(names)) {
            return nw_fail(err, NW_E_USAGE,
                           "--layer %s: one of perplexity, choice, generate wanted", word);
        }
        *layers |= 1U << k;
    }
    return NW_OK;
}

static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void print_interval(const char *what, const json_t *o, const char *key, const char *unit,
                           double scale)
{
    char name[64];

    if (isnan(real(o, key))) {
        return;
    }
    (void)printf("%-18s %10.4f%s", what, scale * real(o, key), unit);
    (void)snprintf(name, sizeof name, "%s_lo", key);
    const double lo = real(o, name);
    (void)snprintf(name, sizeof name, "%s_hi", key);
    if (!isnan(lo)) {
        (void)printf("   95 %% [%.4f, %.4f]", scale * lo, scale * real(o, name));
    }
    (void)printf("\n");
}

static void print_tasks(const json_t *out, const char *layer)
{
    const json_t *o = json_object_get(out, layer);

    if (o == NULL) {
        return;
    }
    (void)printf("%-18s %s, %lld items\n", layer, json_string_value(json_object_get(o, "suite")),
                 (long long)json_integer_value(json_object_get(o, "items")));
    print_interval("  accuracy", o, "accuracy", " %", 100);
    print_interval("  output tokens", o, "mean_output_tokens", " a reply", 1);
    if (json_object_get(o, "reused_run") != NULL) {
        (void)printf("  done before: run %lld of the record\n",
                     (long long)json_integer_value(json_object_get(o, "reused_run")));
    }
}

static void print_text(const json_t *out)
{
    const char *layer = NULL;
    json_t *why = NULL;

    print_interval("perplexity", out, "perplexity", "", 1);
    print_interval("  of the baseline", out, "perplexity_base", "", 1);
    print_interval("bits per byte", out, "bits_per_byte", "", 1);
    print_interval("  ln ratio", out, "ln_ratio", " nats", 1);
    print_interval("KL to baseline", out, "kl_mean", " nats", 1);
    print_interval("  median", out, "kl_median", " nats", 1);
    print_interval("  p99", out, "kl_p99", " nats", 1);
    print_interval("  largest", out, "kl_max", " nats", 1);
    print_interval("top-1 agreement", out, "top1", " %", 100);
    print_tasks(out, "choice");
    print_tasks(out, "generate");
    json_object_foreach(json_object_get(out, "not_measured"), layer, why)
    {
        (void)printf("%-18s not measured: %s\n", layer, json_string_value(why));
    }
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    nw_eval_options o = {
        .target = args->operands[0],
        .baseline = nw_args_str(args, "baseline"),
        .text = nw_args_str(args, "text"),
        .n_ctx = (uint32_t)nw_args_int(args, "context"),
        .stride = (uint32_t)nw_args_int(args, "stride"),
        .max_windows = (uint32_t)nw_args_int(args, "chunks"),
        .choice = nw_args_str(args, "choice"),
        .generate = nw_args_str(args, "generate"),
        .max_items = (uint32_t)nw_args_int(args, "items"),
        .seed = (uint64_t)nw_args_int(args, "seed"),
        .n_parallel = (unsigned)nw_args_int(args, "parallel"),
        .n_threads = (unsigned)nw_args_int(args, "threads"),
        .tier = nw_args_str(args, "tier"),
        .kv = nw_args_str(args, "kv"),
        .act = nw_args_str(args, "act"),
        .api_key = nw_args_server_key(args),
        .model = nw_args_str(args, "model"),
        .tokenizer = nw_args_str(args, "tokenizer"),
        .max_retries = (unsigned)nw_args_int(args, "retries"),
        .timeout_s = (unsigned)nw_args_int(args, "timeout"),
        .max_rate = nw_args_double(args, "max-rate"),
        .record = nw_args_str(args, "record"),
        .candidate = nw_args_str(args, "candidate"),
        .role = nw_args_str(args, "role"),
    };
    json_t *out = NULL;

    (void)exit_code;
    nw_status st = nw_args_check_server(args, err);
    st = st == NW_OK ? parse_layers(args, &o.layers, err) : st;
    st = st == NW_OK ? nw_evaluate(&o, &out, err) : st;
    if (st != NW_OK) {
        return st;
    }
    if (args->json) {
        st = nw_print_json("eval", json_incref(out), err);
    } else {
        print_text(out);
    }
    json_decref(out);
    return st;
}

const nw_command nw_cmd_eval = {
    .name = "eval",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "TARGET",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "score an artifact or a server, paired with its baseline",
    .description =
        "TARGET is an artifact or checkpoint on disk, or the URL of an OpenAI-compatible "
        "server (several replicas: URLs separated by commas). On a server perplexity and choice "
        "need log-probabilities of the prompt; what it cannot give is told as 'not measured', with "
        "the reason, and kept so in the record (narrow doctor URL says it beforehand).\n\n"
        "perplexity: exp of the mean negative log-likelihood (natural log) over the windows of a "
        "text, cut as llama-perplexity cuts them (second half of each window scored), or with "
        "--stride as the transformers documentation does. With --baseline also KL(baseline || "
        "target) and top-1 agreement at every scored token.\n\n"
        "choice: the continuation with the highest log-probability a byte. generate: greedy "
        "replies "
        "graded by exact rules, with their length and stop reason.\n\n"
        "With --record every row is kept, under the name given by --candidate; a layer that the "
        "record already has, with the same settings and artifact, is not run again.",
};
