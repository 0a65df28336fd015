/* The capability probe: one small request for each thing a measurement may need, and from that what can
 * be measured on this server and what cannot, with the reason. Nothing is taken from what a server is
 * called: each answer is looked at.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/unicode.h"
#include "target/endpoint.h"

typedef struct {
    nw_endpoint *ep;
    nw_target *t;
    json_t *caps, *measures;
} probe;

/* ok, and a sentence that says how it was seen, or why not; it may hold text of the server, cut. */
static bool note(probe *p, const char *name, bool ok, const char *how)
{
    char text[320];

    (void)snprintf(text, sizeof text, "%.319s", how);
    nw_utf8_mend(text);
    (void)json_array_append_new(
        p->caps, json_pack("{s:s, s:b, s:s}", "name", name, "ok", (int)ok, "how", text));
    return ok;
}

static void measure(probe *p, const char *name, bool ok, const char *why)
{
    (void)json_array_append_new(p->measures, json_pack("{s:s, s:b, s:s}", "name", name, "ok",
                                                       (int)ok, "why", ok ? "" : why));
}

/* A POST that has to give choices[0].<field> of the type of a string; why[] says why not. */
static bool answers(probe *p, const char *path, json_t *body, const char *field, char *why,
                    size_t n_why, json_t **reply)
{
    nw_error err = {0};
    long http = 0;
    json_t *out = NULL;
    const nw_status st = nw_ep_ask(p->ep, 0, path, body, &http, &out, &err);
    const json_t *choice = json_array_get(json_object_get(out, "choices"), 0);
    const char *m = nw_ep_error_message(out);
    const bool ok = st == NW_OK && http == 200 && json_object_get(choice, field) != NULL;

    if (st != NW_OK) {
        (void)snprintf(why, n_why, "%.*s", (int)n_why - 1, err.message);
    } else if (http != 200) {
        (void)snprintf(why, n_why, "%s: HTTP status %ld%s%.120s", path, http, m != NULL ? ": " : "",
                       m != NULL ? m : "");
    } else {
        (void)snprintf(why, n_why, ok ? "%s answers" : "%s: no choices[0].%s", path, field);
    }
    json_decref(body);
    if (reply != NULL) {
        *reply = out;
    } else {
        json_decref(out);
    }
    return ok;
}

static json_t *body_of(const probe *p, const char *key, json_t *value)
{
    return json_pack("{s:s, s:o, s:i, s:f}", "model", p->ep->model, key, value, "max_tokens", 4,
                     "temperature", 0.0);
}

/* A streamed answer: receipts, usage, tokens of each receipt. */
static bool stream_works(probe *p, bool *counted, bool *usage)
{
    nw_error err = {0};
    nw_gen_result r;
    char how[160];
    const nw_gen_request req = {.prompt = "One, two, three, four,",
                                .n_prompt_bytes = 22,
                                .max_tokens = 12,
                                .ignore_eos = true};

    *counted = *usage = false;
    if (nw_target_generate(p->t, &req, &r, &err) != NW_OK) {
        note(p, "stream", false, err.message);
        note(p, "usage in streams", false, "no stream");
        return false;
    }
    const bool many = r.n_events > 1;
    *usage = r.n_prompt > 0 && r.n_output > 0;
    uint32_t sum = 0;
    for (size_t i = 0; i < r.n_events; i++) {
        sum += r.events[i].n_tokens;
    }
    *counted =
        sum > 0 && sum == r.n_output; /* an event may hold the end of a character and no token */
    const char *end = many ? "" : ": the answer came at once";
    if (r.n_output > 0) {
        (void)snprintf(how, sizeof how, "%u tokens in %zu events%s", r.n_output, r.n_events, end);
    } else {
        (void)snprintf(how, sizeof how, "%zu events, their tokens not told%s", r.n_events, end);
    }
    note(p, "stream", many, how);
    (void)snprintf(how, sizeof how,
                   *usage ? "prompt %u, answer %u tokens; the tokens of each event are %sknown"
                          : "the last event holds no counts",
                   r.n_prompt, r.n_output, *counted ? "" : "not ");
    note(p, "usage in streams", *usage, how);
    note(p, "ignore_eos", r.n_output == 12,
         r.n_output == 12 ? "12 of 12 tokens came"
         : *usage         ? "the answer ended before its length"
                          : "not told: the answer came without counts");
    nw_gen_result_release(&r);
    return many;
}

static bool repeats_itself(probe *p)
{
    char text[2][256] = {"", ""};
    nw_error err = {0};
    const nw_gen_request req = {
        .prompt = "The sea was", .n_prompt_bytes = 11, .max_tokens = 16, .no_stream = true};

    for (int i = 0; i < 2; i++) {
        nw_gen_result r;
        if (nw_target_generate(p->t, &req, &r, &err) != NW_OK) {
            return note(p, "repeatable", false, err.message);
        }
        (void)snprintf(text[i], sizeof text[i], "%s", r.text);
        nw_gen_result_release(&r);
    }
    const bool same = strcmp(text[0], text[1]) == 0;
    return note(p, "repeatable", same,
                same ? "the same greedy request gave the same text twice"
                     : "the same greedy request gave two texts");
}

static bool has_facts(probe *p)
{
    json_t *facts = nw_target_facts(p->t);
    const bool ok = facts != NULL;

    json_decref(facts);
    return note(p, "kernel ledger", ok, ok ? "/narrow/facts" : "only narrow's server has one");
}

static bool tokenizes(probe *p)
{
    nw_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    const bool ok = nw_ep_tokenize(p->ep, "tokens", 6, true, &ids, &n, &err) == NW_OK;

    free(ids);
    note(p, "tokenize", ok,
         ok                             ? "POST /tokenize"
         : err.code == NW_E_UNSUPPORTED ? p->ep->tokens_why
                                        : err.message);
    if (p->t->own_tokenizer == NULL) {
        return ok;
    }
    const bool agrees = nw_ep_check_tokenizer(p->ep, p->t->own_tokenizer, &err) == NW_OK;
    note(p, "tokenizers agree", ok && agrees,
         !ok      ? "the server gives no ids to compare with"
         : agrees ? "the given tokenizer gives the server's ids for a fixed text"
                  : err.message);
    return agrees;
}

static void add_measures(probe *p, bool text, bool chat, bool score, bool tokens, bool stream,
                         bool counted, bool facts)
{
    char why[256] = "needs ids of a text: give --tokenizer MODEL";

    if (!score) {
        (void)snprintf(why, sizeof why, "needs log-probabilities of the prompt");
    }
    measure(p, "perplexity", score && tokens, why);
    measure(p, "choice suites", score && tokens, why);
    measure(p, "KL divergence, top-1 agreement", false,
            "needs all logits of every token, which no server gives");
    measure(p, "generate suites", chat, "needs /v1/chat/completions");
    measure(p, "batch 1: TTFT, decode rate", text && stream, "needs a stream of completions");
    measure(p, "load: TTFT, TPOT, goodput", text && stream, "needs a stream of completions");
    measure(p, "gaps between tokens", text && stream && counted,
            "needs the tokens of each event: gaps are of events");
    measure(p, "kernels and fallbacks", facts, "needs the engine's own ledger");
    measure(p, "memory, weight bytes", facts, "needs facts of the engine");
}

static void run_probe(probe *p)
{
    static const int32_t trial[] = {100, 101, 102};
    char why[200] = "";
    nw_error err = {0};
    json_t *reply = NULL;
    json_t *ids = json_array();
    bool counted = false;
    bool usage = false;

    for (size_t i = 0; i < NW_COUNT(trial); i++) {
        (void)json_array_append_new(ids, json_integer(trial[i]));
    }
    const bool text = answers(p, "/v1/completions", body_of(p, "prompt", json_string("The")),
                              "text", why, sizeof why, NULL);
    note(p, "completions", text, why);
    note(p, "prompts of ids",
         answers(p, "/v1/completions", body_of(p, "prompt", ids), "text", why, sizeof why, NULL),
         why);
    const bool chat = answers(
        p, "/v1/chat/completions",
        body_of(p, "messages", json_pack("[{s:s, s:s}]", "role", "user", "content", "Say yes.")),
        "message", why, sizeof why, NULL);
    note(p, "chat", chat, why);
    json_t *body = body_of(p, "prompt", json_string("The"));
    (void)json_object_set_new(body, "logprobs", json_integer(1));
    bool logprobs = answers(p, "/v1/completions", body, "logprobs", why, sizeof why, &reply) &&
                    json_is_object(json_object_get(
                        json_array_get(json_object_get(reply, "choices"), 0), "logprobs"));
    note(p, "log-probabilities of answers", logprobs, why);
    json_decref(reply);
    const bool score = nw_ep_score_ready(p->ep, &err) == NW_OK;
    note(p, "log-probabilities of prompts", score,
         !score && err.code == NW_E_UNSUPPORTED  ? p->ep->score_why
         : !score                                ? err.message
         : p->ep->score_kind == NW_EP_SCORE_ECHO ? "echo; other tokens give other numbers"
                                                 : "prompt_logprobs; other tokens give other "
                                                   "numbers");
    const bool tokens = tokenizes(p) || p->t->own_tokenizer != NULL;
    const bool stream = stream_works(p, &counted, &usage);
    (void)repeats_itself(p);
    add_measures(p, text, chat, score, tokens, stream, counted, has_facts(p));
}

nw_status nw_ep_probe(void *ep, nw_target *t, json_t **out, nw_error *err)
{
    probe p = {.ep = ep, .t = t, .caps = json_array(), .measures = json_array()};

    run_probe(&p);
    json_t *roots = json_array();
    for (size_t i = 0; i < p.ep->n_replicas; i++) {
        (void)json_array_append_new(roots, json_string(p.ep->roots[i]));
    }
    *out = json_pack("{s:o, s:s, s:s, s:I, s:o, s:o}", "replicas", roots, "model", p.ep->model,
                     "owner", p.ep->owner, "max_model_len", (json_int_t)p.ep->max_model_len,
                     "capabilities", p.caps, "measures", p.measures);
    return *out != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", p.ep->root);
}
