/* What both regimes of `narrow bench` do: start or reach the service, keep the run; and batch 1.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_print.h"
#include "cli/say.h"

/* "64" or "32-96". */
nw_status nw_bench_range(const nw_args *args, const char *name, nw_token_range *out, nw_error *err)
{
    const char *text = nw_args_str(args, name);
    char *end = NULL;
    const unsigned long lo = strtoul(text, &end, 10);
    const unsigned long hi = *end == '-' ? strtoul(end + 1, &end, 10) : lo;

    if (end == text || *end != '\0' || lo == 0 || lo > hi || hi > 10000000) {
        return nw_fail(err, NW_E_USAGE, "--%s %s: a number of tokens, or LO-HI, is wanted", name,
                       text);
    }
    *out = (nw_token_range){(uint32_t)lo, (uint32_t)hi};
    return NW_OK;
}

uint32_t nw_bench_max_seqs(const nw_args *args)
{
    const uint32_t asked = (uint32_t)nw_args_int(args, "max-seqs");
    const char *regime = nw_args_str(args, "regime");

    if (asked != 0) {
        return asked;
    }
    return regime != NULL && strcmp(regime, "micro") == 0 ? 1 : 32;
}

/* Options that `narrow serve` understands by the same name are handed on. */
static size_t serve_args(const nw_args *args, const char *out[NW_SERVICE_MAX_ARGS],
                         char numbers[4][24])
{
    static const char *const texts[] = {"kv", "act", "tier"};
    static const char *const ints[] = {"threads", "context"};
    static const char *const flags[] = {"--kv", "--act", "--tier", "--threads", "--context"};
    size_t n = 0;

    for (size_t i = 0; i < NW_COUNT(texts); i++) {
        const char *v = nw_args_str(args, texts[i]);
        if (v != NULL) {
            out[n++] = flags[i];
            out[n++] = v;
        }
    }
    for (size_t i = 0; i < NW_COUNT(ints); i++) {
        (void)snprintf(numbers[i], sizeof numbers[i], "%lld",
                       (long long)nw_args_int(args, ints[i]));
        out[n++] = flags[NW_COUNT(texts) + i];
        out[n++] = numbers[i];
    }
    (void)snprintf(numbers[NW_COUNT(ints)], sizeof numbers[0], "%u", nw_bench_max_seqs(args));
    out[n++] = "--max-seqs";
    out[n++] = numbers[NW_COUNT(ints)];
    /* an open-loop client does not slow down: the queue must take what the window sends */
    out[n++] = "--max-queue";
    out[n++] = "65536";
    out[n++] = "--max-connections";
    out[n++] = "4096";
    return n;
}

nw_status nw_bench_open_service(nw_bench *b, nw_error *err)
{
    const char *argv[NW_SERVICE_MAX_ARGS];
    char numbers[4][24];
    const nw_args *a = b->args;
    nw_service_options o = {.spec = a->operands[0],
                            .serve_args = argv,
                            .in_process = nw_args_flag(a, "in-process"),
                            .target = {.max_queue = 65536,
                                       .n_threads = (unsigned)nw_args_int(a, "threads"),
                                       .tier = nw_args_str(a, "tier"),
                                       .kv = nw_args_str(a, "kv"),
                                       .act = nw_args_str(a, "act"),
                                       .n_ctx = (uint32_t)nw_args_int(a, "context"),
                                       .max_seqs = nw_bench_max_seqs(a),
                                       .api_key = nw_args_server_key(a),
                                       .model = nw_args_str(a, "model"),
                                       .timeout_s = (unsigned)nw_args_int(a, "timeout"),
                                       .tokenizer = nw_args_str(a, "tokenizer")}};

    o.n_serve_args = serve_args(a, argv, numbers);
    if (nw_service_open(&o, &b->service, err) != NW_OK) {
        return nw_context(err, "bench");
    }
    nw_say_kernels(b->service.facts);
    nw_energy_begin(&b->energy, NULL);
    b->begin_ns = nw_now_ns();
    return NW_OK;
}

/* ---- the record ------------------------------------------------------------------------------ */

/* Opens the record and begins a run; *done when it is already there. */
nw_status nw_bench_begin_run(nw_bench *b, const char *stage, const char *suite, json_t *settings,
                             const char *data_hash, bool *done, nw_error *err)
{
    const nw_args *a = b->args;
    const char *path = nw_args_str(a, "record");
    int64_t id = 0;

    *done = false;
    if (path == NULL) {
        return NW_OK;
    }
    if (nw_args_str(a, "candidate") == NULL) {
        return nw_fail(err, NW_E_USAGE, "--record needs --candidate NAME");
    }
    if (nw_record_open(path, NW_RECORD_WRITE, &b->record, err) != NW_OK) {
        return err->code;
    }
    b->run = (nw_bench_run){.record = b->record,
                            .candidate = nw_args_str(a, "candidate"),
                            .role = nw_args_str(a, "role"),
                            .stage = stage,
                            .suite = suite,
                            .settings = settings,
                            .data_hash = data_hash,
                            .seed = nw_args_int(a, "seed")};
    if (nw_bench_find(&b->run, &b->service, &id, err) != NW_OK) {
        return err->code;
    }
    if (id != 0 && !nw_args_flag(a, "again")) {
        nw_log(NW_LOG_INFO, "bench: already in the record, run %lld (--again measures once more)",
               (long long)id);
        (void)json_object_set_new(b->out, "reused_run", json_integer(id));
        *done = true;
        return NW_OK;
    }
    return nw_bench_begin(&b->run, &b->service, &b->run_id, err);
}

nw_status nw_bench_finish_run(nw_bench *b, nw_error *err)
{
    nw_bench_costs_end(&b->costs, &b->energy, &b->service);
    return b->record != NULL ? nw_bench_finish(b->record, b->run_id, &b->costs, err) : NW_OK;
}

/* ---- batch 1 --------------------------------------------------------------------------------- */

static void on_micro_tick(void *ctx, size_t n_done, size_t n_total)
{
    nw_bench *b = ctx;

    (void)n_total;
    nw_progress_step(&b->progress, n_done);
    nw_bench_costs_sample(&b->costs, &b->energy, &b->service, nw_now_ns() - b->begin_ns);
}

static nw_status measure_micro(nw_bench *b, const nw_micro_options *o, nw_error *err)
{
    nw_micro_result r;

    nw_progress_begin(&b->progress, "batch 1", "requests", (uint64_t)o->n_warmup + o->n_requests);
    if (nw_micro_run(b->service.target, o, &r, err) != NW_OK) {
        return err->code;
    }
    nw_status st = b->record != NULL ? nw_bench_keep_micro(b->record, b->run_id, &r, err) : NW_OK;
    if (st == NW_OK) {
        st = nw_bench_finish_run(b, err);
    }
    if (st == NW_OK && b->args->json) {
        json_decref(b->out);
        b->out = nw_micro_json(o, &r, &b->service, &b->costs);
    } else if (st == NW_OK) {
        nw_bench_print_micro(o, &r, &b->costs);
    }
    nw_micro_result_release(&r);
    return st;
}

nw_status nw_bench_micro(nw_bench *b, nw_error *err)
{
    const nw_args *a = b->args;
    nw_token_range prompt;
    nw_token_range output;
    bool done = false;

    if (nw_bench_range(a, "prompt", &prompt, err) != NW_OK ||
        nw_bench_range(a, "output", &output, err) != NW_OK) {
        return err->code;
    }
    if (prompt.lo != prompt.hi || output.lo != output.hi) {
        return nw_fail(err, NW_E_USAGE, "batch 1 needs one prompt and one output length, no range");
    }
    const nw_micro_options o = {.n_prompt = prompt.lo,
                                .n_output = output.lo,
                                .n_warmup = (uint32_t)nw_args_int(a, "warmup"),
                                .n_requests = (uint32_t)nw_args_int(a, "requests"),
                                .seed = (uint64_t)nw_args_int(a, "seed"),
                                .natural_stop = nw_args_flag(a, "natural-stop"),
                                .on_tick = on_micro_tick,
                                .ctx = b};
    json_t *settings =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "regime", "micro", "max_seqs",
                  (json_int_t)nw_bench_max_seqs(a), "prompt", (json_int_t)o.n_prompt, "output",
                  (json_int_t)o.n_output, "warmup", (json_int_t)o.n_warmup, "requests",
                  (json_int_t)o.n_requests, "seed", (json_int_t)o.seed, "natural_stop",
                  o.natural_stop, "in_process", nw_args_flag(a, "in-process"));
    nw_status st = nw_bench_open_service(b, err);
    if (st == NW_OK) {
        st = nw_bench_begin_run(b, "micro", o.natural_stop ? "batch1-natural" : "batch1", settings,
                                NULL, &done, err);
    }
    if (st == NW_OK && !done) {
        st = measure_micro(b, &o, err);
    }
    json_decref(settings);
    return st;
}
