/* narrow generate: text from an artifact or a checkpoint, token by token on the terminal; with --chat
 * through the model's chat template, as a conversation where no prompt is given.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/signal.h"
#include "cli/command.h"
#include "cli/option_rows.h"
#include "cli/print_json.h"
#include "cli/say.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "model/config.h"
#include "model/template.h"

#define MAX_TEXT ((size_t)64 << 20)

static const nw_option options[] = {
    {.name = "max-tokens",
     .letter = 'n',
     .type = NW_OPT_INT,
     .fallback = "256",
     .lo = 1,
     .hi = 1 << 20,
     .unit = "tokens",
     .help = "end the text after this many tokens"},
    {.name = "chat",
     .type = NW_OPT_FLAG,
     .help = "use the model's chat template; without a prompt, talk until the end of the input"},
    {.name = "system", .type = NW_OPT_STRING, .unit = "TEXT", .help = "system message of the chat"},
    {.name = "temperature",
     .type = NW_OPT_DOUBLE,
     .fallback = "0",
     .lo = 0,
     .hi = 100,
     .help = "0 takes the most likely token each time"},
    {.name = "top-k",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1 << 20,
     .unit = "tokens",
     .help = "draw from the k most likely tokens; 0 for all"},
    {.name = "top-p",
     .type = NW_OPT_DOUBLE,
     .fallback = "1",
     .lo = 1e-6,
     .hi = 1,
     .help = "draw from the smallest set of this probability"},
    {.name = "min-p",
     .type = NW_OPT_DOUBLE,
     .fallback = "0",
     .lo = 0,
     .hi = 1,
     .help = "leave out tokens below this share of the most likely one"},
    {.name = "repeat-penalty",
     .type = NW_OPT_DOUBLE,
     .fallback = "1",
     .lo = 0.01,
     .hi = 10,
     .help = "divide the logits of tokens that occurred"},
    {.name = "seed",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 9007199254740991,
     .help = "the same seed draws the same text"},
    NW_OPTION_THREADS,
    NW_OPTION_TIER,
    NW_OPTION_KV,
    {.name = "act",
     .type = NW_OPT_CHOICE,
     .fallback = "manifest",
     .choices = "manifest|" NW_ACT_RULE_NAMES,
     .help = "activations of quantized matrices"},
    {.name = "n-ctx",
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1 << 20,
     .unit = "tokens",
     .help = "longest context; 0 for the model's, at most 8192"},
};

typedef struct {
    const nw_args *args;
    nw_engine *engine;
    nw_session *session;
    nw_sampler_scratch *scratch;
    nw_sampling sampling;
    float *logits;      /* [n_vocab] */
    nw_ids held;        /* what the session holds */
    nw_ids output;      /* of the last answer */
    nw_buf text;        /* of the last answer */
    uint32_t n_prompt;  /* of the last answer, and of these: */
    uint32_t n_prefill; /* run for it, less what the session held already */
    int64_t prefill_ns, decode_ns;
    const char *finish;
} generator;

static nw_status open_generator(generator *g, nw_error *err)
{
    const nw_args *a = g->args;
    const char *act = nw_args_str(a, "act");
    nw_engine_options o = nw_engine_options_default();

    o.n_threads = (unsigned)nw_args_int(a, "threads");
    o.tier = nw_args_str(a, "tier");
    o.n_ctx = (uint32_t)nw_args_int(a, "n-ctx");
    o.max_seqs = 1;
    if (strcmp(act, "manifest") != 0 && nw_engine_act_parse(act, &o, err) != NW_OK) {
        return err->code;
    }
    g->sampling = (nw_sampling){
        .temperature = (float)nw_args_double(a, "temperature"),
        .top_p = (float)nw_args_double(a, "top-p"),
        .min_p = (float)nw_args_double(a, "min-p"),
        .repeat_penalty = (float)nw_args_double(a, "repeat-penalty"),
        .top_k = (uint32_t)nw_args_int(a, "top-k"),
        .seed = (uint64_t)nw_args_int(a, "seed"),
    };
    const char *kv = nw_args_str(a, "kv");
    if ((kv != NULL && nw_engine_kv_parse(kv, &o, err) != NW_OK) ||
        nw_engine_open(a->operands[0], &o, &g->engine, err) != NW_OK ||
        nw_session_open(g->engine, &g->session, err) != NW_OK) {
        return err->code;
    }
    nw_say_engine_kernels(g->engine);
    const uint32_t n_vocab = nw_engine_config(g->engine)->n_vocab;
    g->logits = malloc(n_vocab * sizeof *g->logits);
    if (g->logits == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %u logits", n_vocab);
    }
    return nw_sampler_scratch_open(n_vocab, &g->scratch, err);
}

static void close_generator(generator *g)
{
    free(g->logits);
    nw_sampler_scratch_close(g->scratch);
    nw_session_close(g->session);
    nw_engine_close(g->engine);
    nw_ids_release(&g->held);
    nw_ids_release(&g->output);
    nw_buf_release(&g->text);
}

/* Runs n ids through the session; logits of the last one. */
static nw_status run_ids(generator *g, const int32_t *ids, size_t n, nw_error *err)
{
    const size_t most = nw_engine_get_facts(g->engine)->max_step_tokens;

    for (size_t at = 0, m = 0; at < n; at += m) {
        m = n - at < most ? n - at : most;
        const bool last = at + m == n;
        const nw_step_item it = {.session = g->session,
                                 .tokens = ids + at,
                                 .n_tokens = (uint32_t)m,
                                 .n_logits = last ? 1 : 0,
                                 .logits = last ? g->logits : NULL};
        if (nw_stop_requested()) {
            return nw_fail(err, NW_E_CANCELLED, "stopped while reading the prompt");
        }
        if (nw_engine_step(g->engine, &it, 1, err) != NW_OK) {
            return err->code;
        }
        for (size_t i = 0; i < m; i++) {
            if (!nw_ids_push(&g->held, ids[at + i])) {
                return nw_fail(err, NW_E_NOMEM, "no memory for a context of %zu tokens", n);
            }
        }
    }
    return NW_OK;
}

/* Keeps what the session and the prompt have in common, and runs the rest. */
static nw_status prefill(generator *g, const nw_ids *prompt, nw_error *err)
{
    const int64_t start = nw_now_ns();
    size_t same = 0;

    while (same < g->held.n && same + 1 < prompt->n && g->held.ids[same] == prompt->ids[same]) {
        same++;
    }
    same = nw_session_truncate(g->session, (uint32_t)same);
    g->held.n = same;
    const nw_status st = run_ids(g, prompt->ids + same, prompt->n - same, err);
    g->n_prompt = (uint32_t)prompt->n;
    g->n_prefill = (uint32_t)(prompt->n - same);
    g->prefill_ns = nw_now_ns() - start;
    return st;
}

/* On the terminal as it comes, unless the result is JSON. */
static void show(generator *g, size_t from)
{
    if (!g->args->json && g->text.len > from) {
        (void)fwrite(g->text.data + from, 1, g->text.len - from, stdout);
        (void)fflush(stdout);
    }
}

static bool full(const generator *g)
{
    return nw_session_len(g->session) == nw_engine_get_facts(g->engine)->n_ctx;
}

static nw_status decode(generator *g, nw_sampler *sampler, nw_detok *detok, nw_error *err)
{
    const uint32_t most = (uint32_t)nw_args_int(g->args, "max-tokens");
    nw_pick p = {0};

    for (g->finish = "length"; g->output.n < most;) {
        if (nw_stop_requested()) {
            g->finish = "cancelled";
            break;
        }
        if (nw_sampler_pick(sampler, g->scratch, g->logits, g->output.n, 0, &p, err) != NW_OK) {
            return err->code;
        }
        if (nw_tokenizer_is_eog(nw_engine_tokenizer(g->engine), p.id)) {
            g->finish = "stop";
            break;
        }
        const size_t from = g->text.len;
        if (!nw_ids_push(&g->output, p.id) || !nw_detok_push(detok, p.id, &g->text)) {
            return nw_fail(err, NW_E_RANGE, "output of %zu tokens: id %d has no text, or no memory",
                           g->output.n, (int)p.id);
        }
        show(g, from);
        nw_sampler_saw(sampler, &p.id, 1);
        if (g->output.n == most || full(g)) {
            break; /* nothing would be picked from the next logits */
        }
        const int64_t start = nw_now_ns();
        if (run_ids(g, &p.id, 1, err) != NW_OK) {
            return err->code;
        }
        g->decode_ns += nw_now_ns() - start;
    }
    const size_t from = g->text.len;
    (void)nw_detok_flush(detok, &g->text);
    show(g, from);
    return NW_OK;
}

static nw_status answer(generator *g, const nw_ids *prompt, nw_error *err)
{
    const nw_engine_facts *f = nw_engine_get_facts(g->engine);
    nw_sampler *sampler = NULL;
    nw_detok detok;

    if (prompt->n == 0 || prompt->n > f->n_ctx) {
        return nw_fail(err, NW_E_RANGE, "prompt of %zu tokens: 1 to %u fit the context", prompt->n,
                       f->n_ctx);
    }
    if (nw_sampler_open(&g->sampling, nw_engine_config(g->engine)->n_vocab, &sampler, err) !=
        NW_OK) {
        return err->code;
    }
    nw_sampler_saw(sampler, prompt->ids, prompt->n);
    nw_buf_clear(&g->text);
    g->output.n = 0;
    g->decode_ns = 0;
    nw_detok_init(&detok, nw_engine_tokenizer(g->engine), 0);
    nw_status st = prefill(g, prompt, err);
    if (st == NW_OK) {
        st = decode(g, sampler, &detok, err);
    }
    nw_detok_release(&detok);
    nw_sampler_close(sampler);
    return st;
}

static double per_s(uint32_t n, int64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

/* The first token comes from the prompt's logits: decoding steps are one fewer, or as many where
 * the text was stopped by an end token. */
static uint32_t decode_steps(const generator *g)
{
    const size_t prompt_and_steps = g->held.n;
    return (uint32_t)(prompt_and_steps - g->n_prompt);
}

static void report_speed(const generator *g)
{
    const nw_engine_facts *f = nw_engine_get_facts(g->engine);
    nw_log(NW_LOG_INFO,
           "prompt %u tokens, %.1f tokens/s; output %zu tokens (%s), %.1f tokens/s; %s, %u threads",
           g->n_prompt, per_s(g->n_prefill, g->prefill_ns), g->output.n, g->finish,
           per_s(decode_steps(g), g->decode_ns), f->tier, f->n_threads);
}

static nw_status print_json(const generator *g, nw_error *err)
{
    const nw_engine_facts *f = nw_engine_get_facts(g->engine);
    json_t *ids = json_array();
    for (size_t i = 0; i < g->output.n; i++) {
        (void)json_array_append_new(ids, json_integer(g->output.ids[i]));
    }
    json_t *row = json_pack(
        "{s:s#, s:o, s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:s, s:i, s:s, s:s, s:I, s:I}", "text",
        g->text.data != NULL ? g->text.data : "", (int)g->text.len, "ids", ids, "finish", g->finish,
        "n_prompt", (int)g->n_prompt, "n_output", (int)g->output.n, "load_s", f->load_s,
        "prefill_s", (double)g->prefill_ns / 1e9, "decode_s", (double)g->decode_ns / 1e9,
        "prefill_tokens_per_s", per_s(g->n_prefill, g->prefill_ns), "decode_tokens_per_s",
        per_s(decode_steps(g), g->decode_ns), "tier", f->tier, "threads", (int)f->n_threads, "act",
        nw_act_rule_name(f->act), "kernel_map", f->kernel_map, "weight_bytes",
        (json_int_t)f->weight_bytes, "kv_bytes_per_token", (json_int_t)f->kv_bytes_per_token);
    return nw_print_json("generate", row, err);
}

static nw_status finish_answer(const generator *g, nw_error *err)
{
    if (g->args->json) {
        return print_json(g, err);
    }
    (void)printf("\n");
    (void)fflush(stdout);
    report_speed(g);
    return NW_OK;
}

/* ---- prompts ---- */

static bool add_message(json_t *messages, const char *role, const char *text, size_t n)
{
    json_t *m = json_pack("{s:s, s:s#}", "role", role, "content", text, (int)n);
    return m != NULL && json_array_append_new(messages, m) == 0;
}

static nw_status chat_answer(generator *g, json_t *messages, const char *text, size_t n,
                             nw_error *err)
{
    nw_ids ids;
    nw_status st = NW_OK;

    nw_ids_init(&ids);
    if (!add_message(messages, "user", text, n)) {
        st = nw_fail(err, NW_E_FORMAT, "message of %zu bytes is no UTF-8 text", n);
    }
    if (st == NW_OK) {
        st = nw_chat_encode(nw_engine_tokenizer(g->engine), messages, true, &ids, err);
    }
    if (st == NW_OK) {
        st = answer(g, &ids, err);
    }
    if (st == NW_OK && !add_message(messages, "assistant", g->text.data != NULL ? g->text.data : "",
                                    g->text.len)) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for the conversation");
    }
    nw_ids_release(&ids);
    return st == NW_OK ? finish_answer(g, err) : st;
}

/* Until the end of the input or ^C. */
static nw_status converse(generator *g, json_t *messages, nw_error *err)
{
    const bool tty = isatty(STDIN_FILENO) == 1;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = 0;
    nw_status st = NW_OK;

    while (st == NW_OK && !nw_stop_requested()) {
        if (tty) {
            (void)printf("> ");
            (void)fflush(stdout);
        }
        n = getline(&line, &cap, stdin);
        if (n < 0) {
            break;
        }
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) {
            n--;
        }
        if (n > 0) {
            st = chat_answer(g, messages, line, (size_t)n, err);
        }
    }
    free(line);
    return st;
}

static nw_status run_chat(generator *g, const char *prompt, nw_error *err)
{
    const char *system = nw_args_str(g->args, "system");
    json_t *messages = json_array();
    nw_status st = NW_OK;

    if (messages == NULL ||
        (system != NULL && !add_message(messages, "system", system, strlen(system)))) {
        st = nw_fail(err, NW_E_FORMAT, "system message is no UTF-8 text");
    } else if (prompt != NULL) {
        st = chat_answer(g, messages, prompt, strlen(prompt), err);
    } else {
        st = converse(g, messages, err);
    }
    json_decref(messages);
    return st;
}

static nw_status run_plain(generator *g, const char *prompt, nw_error *err)
{
    nw_ids ids;

    nw_ids_init(&ids);
    nw_status st = nw_tokenizer_encode(nw_engine_tokenizer(g->engine), prompt, strlen(prompt),
                                       NW_TOK_BOS, &ids, err);
    if (st == NW_OK) {
        st = answer(g, &ids, err);
    }
    nw_ids_release(&ids);
    return st == NW_OK ? finish_answer(g, err) : st;
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    const char *prompt = args->n_operands > 1 ? args->operands[1] : NULL;
    const bool chat = nw_args_flag(args, "chat");
    generator g = {.args = args};

    (void)exit_code;
    if (prompt == NULL && (!chat || args->json)) {
        return nw_fail(err, NW_E_USAGE, "no prompt: give PROMPT, or --chat without --json to talk");
    }
    if (!chat && nw_args_given(args, "system")) {
        return nw_fail(err, NW_E_USAGE, "--system is for --chat");
    }
    nw_ids_init(&g.held);
    nw_ids_init(&g.output);
    nw_buf_init(&g.text, MAX_TEXT);
    nw_status st = open_generator(&g, err);
    if (st == NW_OK) {
        st = chat ? run_chat(&g, prompt, err) : run_plain(&g, prompt, err);
    }
    close_generator(&g);
    return st;
}

const nw_command nw_cmd_generate = {
    .name = "generate",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "MODEL [PROMPT]",
    .min_operands = 1,
    .max_operands = 2,
    .summary = "continue a prompt, or talk with a model in the terminal",
    .description =
        "MODEL is an artifact that narrow wrote, or any checkpoint that it reads (GGUF, a Hugging "
        "Face folder, a llama2.c file). The text appears as it is made; tokens per second go to "
        "stderr, and with --json everything is one object at the end.\n"
        "\n"
        "The same model, prompt, options and seed give the same text, for any number of threads.",
};
