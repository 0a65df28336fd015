/* narrow serve: an artifact behind the OpenAI API. SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signal.h"
#include "cli/command.h"
#include "cli/option_rows.h"
#include "cli/say.h"
#include "engine/engine.h"
#include "serve/server.h"

#define GRACE_S 10.0 /* for running answers after SIGTERM */

static const nw_option options[] = {
    {.name = "host",
     .type = NW_OPT_STRING,
     .fallback = "127.0.0.1",
     .unit = "ADDRESS",
     .help = "address to listen on; only this machine by default"},
    {.name = "port",
     .letter = 'p',
     .type = NW_OPT_INT,
     .fallback = "8080",
     .lo = 0,
     .hi = 65535,
     .help = "port to listen on; 0 for any free one"},
    {.name = "port-file",
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "file that gets the port once the server listens"},
    {.name = "api-key",
     .type = NW_OPT_STRING,
     .unit = "KEY",
     .help = "bearer token that clients must send"},
    {.name = "name",
     .type = NW_OPT_STRING,
     .unit = "NAME",
     .help = "model name in the API; by default the last part of the path"},
    NW_OPTION_THREADS,
    NW_OPTION_TIER,
    NW_OPTION_KV,
    NW_OPTION_ACT,
    {.name = "context",
     .letter = 'c',
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1048576,
     .unit = "tokens",
     .help = "longest prompt and answer; 0 for the model's, at most 8192"},
    {.name = "max-seqs",
     .type = NW_OPT_INT,
     .fallback = "32",
     .lo = 1,
     .hi = NW_ENGINE_MAX_SEQS,
     .unit = "requests",
     .help = "requests in the batch at one time"},
    {.name = "kv-mib",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1048576,
     .unit = "MiB",
     .help = "memory of the KV pool; 0 for what the batch and context need"},
    {.name = "prefill-chunk",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 65536,
     .unit = "tokens",
     .help = "prompt tokens read in a step that also decodes; 0 for the scheduler's"},
    {.name = "max-queue",
     .type = NW_OPT_INT,
     .fallback = "128",
     .lo = 1,
     .hi = 65536,
     .unit = "requests",
     .help = "requests that may wait; further ones get status 429"},
    {.name = "max-connections",
     .type = NW_OPT_INT,
     .fallback = "256",
     .lo = 1,
     .hi = 4096,
     .unit = "connections",
     .help = "open connections; further ones wait to be accepted"},
    {.name = "max-body",
     .type = NW_OPT_INT,
     .fallback = "4096",
     .lo = 1,
     .hi = 1048576,
     .unit = "KiB",
     .help = "longest request body; longer ones get status 413"},
};

static nw_status engine_options(const nw_args *args, nw_engine_options *o, nw_error *err)
{
    const char *act = nw_args_str(args, "act");
    const char *kv = nw_args_str(args, "kv");

    *o = nw_engine_options_default();
    o->n_threads = (unsigned)nw_args_int(args, "threads");
    o->tier = nw_args_str(args, "tier");
    o->n_ctx = (uint32_t)nw_args_int(args, "context");
    o->max_seqs = (uint32_t)nw_args_int(args, "max-seqs");
    o->kv_bytes = (size_t)nw_args_int(args, "kv-mib") << 20;
    if (act != NULL && nw_engine_act_parse(act, o, err) != NW_OK) {
        return err->code;
    }
    return kv != NULL ? nw_engine_kv_parse(kv, o, err) : NW_OK;
}

static void say_what_was_loaded(const nw_engine *e)
{
    const nw_engine_facts *f = nw_engine_get_facts(e);
    const nw_artifact *a = nw_engine_artifact(e);

    nw_log(NW_LOG_INFO, "%s: %s, %.2f bits a weight, loaded in %.2f s", nw_artifact_path(a),
           nw_artifact_recipe(a), nw_artifact_get_facts(a)->effective_bits, f->load_s);
    nw_say_engine_kernels(e);
    nw_log(NW_LOG_INFO,
           "context %u tokens, up to %u requests at once, KV %s: %" PRIu64 " tokens in %.1f MiB",
           f->n_ctx, f->max_seqs, f->kv, f->kv_capacity_tokens,
           (double)f->kv_pool_bytes / 1048576.0);
}

static nw_status announce(const nw_server *s, const char *host, const char *port_file,
                          nw_error *err)
{
    char text[16];
    const bool v6 = strchr(host, ':') != NULL;
    const int n = snprintf(text, sizeof text, "%u\n", nw_server_port(s));

    if (port_file != NULL && nw_file_write(port_file, text, (size_t)n, err) != NW_OK) {
        return err->code;
    }
    (void)printf("listening on http://%s%s%s:%u\n", v6 ? "[" : "", host, v6 ? "]" : "",
                 nw_server_port(s));
    return fflush(stdout) == 0 ? NW_OK : nw_fail(err, NW_E_IO, "stdout: cannot write");
}

static nw_status serve(const nw_args *args, nw_engine *e, nw_error *err)
{
    nw_server_options o = nw_server_options_default();
    nw_server *s = NULL;

    o.host = nw_args_str(args, "host");
    o.port = (uint16_t)nw_args_int(args, "port");
    o.api_key = nw_args_str(args, "api-key");
    o.model_name = nw_args_str(args, "name");
    o.max_connections = (unsigned)nw_args_int(args, "max-connections");
    o.max_queue = (uint32_t)nw_args_int(args, "max-queue");
    o.max_body_bytes = (size_t)nw_args_int(args, "max-body") << 10;
    o.prefill_chunk = (uint32_t)nw_args_int(args, "prefill-chunk");
    if (nw_server_open(e, &o, &s, err) != NW_OK) {
        return err->code;
    }
    nw_status st = announce(s, o.host, nw_args_str(args, "port-file"), err);
    while (st == NW_OK && !nw_stop_requested()) {
        nw_sleep_until_ns(nw_now_ns() + 100000000);
    }
    nw_log(NW_LOG_INFO, "stopping: running answers have %.0f s", GRACE_S);
    nw_server_drain(s, GRACE_S);
    nw_server_close(s);
    return st;
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    nw_engine_options o;
    nw_engine *e = NULL;

    (void)exit_code;
    (void)signal(SIGPIPE, SIG_IGN); /* a client that hangs up is no reason to die */
    if (engine_options(args, &o, err) != NW_OK ||
        nw_engine_open(args->operands[0], &o, &e, err) != NW_OK) {
        return err->code;
    }
    say_what_was_loaded(e);
    const nw_status st = serve(args, e, err);
    nw_engine_close(e);
    return st;
}

const nw_command nw_cmd_serve = {
    .name = "serve",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "ARTIFACT",
    .min_operands = 1,
    .max_operands = 1,
    .text_only = true,
    .summary = "serve an artifact through the OpenAI API",
    .description =
        "Loads ARTIFACT (an artifact folder or any checkpoint) and answers POST "
        "/v1/chat/completions and /v1/completions, whole or as a stream, /tokenize and "
        "/detokenize, GET /v1/models, /tokenizer_info, /health, /metrics and /narrow/facts (the "
        "engine and its "
        "kernel ledger). Completions take several prompts, echo, and logprobs of prompt and answer "
        "(natural log, before sampling); max_tokens 0 with echo scores a prompt alone. Requests "
        "are batched as "
        "they come.\n\n"
        "Prints 'listening on http://ADDRESS:PORT' when it is ready. SIGTERM or ^C stops it: new "
        "requests are refused, running ones have 10 seconds to end.\n\n"
        "A parameter that is not supported is refused with status 400 and its name; a full queue "
        "with 429 and Retry-After. A connection on which the client neither sends nor takes a byte "
        "for 30 seconds is closed; one that waits for its answer is not.",
};
