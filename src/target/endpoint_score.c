/* Log-probabilities of prompt tokens from a server. There are two ways in use:
 *   echo            {"echo": true, "logprobs": 1}: choices[0].logprobs.token_logprobs, one number a token,
 *                   null for the first; top_logprobs beside them
 *   prompt_logprobs {"prompt_logprobs": 1}: choices[0].prompt_logprobs, an object a token, keyed by id
 * Many servers take either parameter and ignore it, or answer with the numbers of something else: lengths
 * are held against the prompt, values against what a log-probability can be, and once, before anything
 * is believed, other tokens have to give other numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/unicode.h"
#include "target/endpoint.h"

/* ln 1, and what float and a printed decimal add to it. */
#define MAX_LOGPROB 1e-4

static json_t *id_list(const int32_t *ids, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(list, json_integer(ids[i]));
    }
    return list;
}

json_t *nw_ep_score_body(const nw_endpoint *ep, const nw_ep_score *s)
{
    /* narrow generates nothing when asked so; elsewhere 0 is often no valid number */
    const int max_tokens = strcmp(ep->owner, "narrow") == 0 ? 0 : 1;
    json_t *o = json_pack("{s:s, s:o, s:i, s:f}", "model", ep->model, "prompt",
                          id_list(s->ids, s->n), "max_tokens", max_tokens, "temperature", 0.0);

    if (s->kind == NW_EP_SCORE_ECHO) {
        (void)json_object_set_new(o, "max_tokens", json_integer(max_tokens));
        (void)json_object_set_new(o, "echo", json_true());
        (void)json_object_set_new(o, "logprobs", json_integer(1));
    } else {
        (void)json_object_set_new(o, "max_tokens", json_integer(1));
        (void)json_object_set_new(o, "prompt_logprobs", json_integer(1));
    }
    return o;
}

/* The largest number of an object of numbers, or of {"logprob": number}; -inf for none. */
static double largest(const json_t *o)
{
    const char *key = NULL;
    json_t *v = NULL;
    double most = -HUGE_VAL;

    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        const json_t *x = json_is_object(v) ? json_object_get(v, "logprob") : v;
        most = json_is_number(x) ? fmax(most, json_number_value(x)) : most;
    }
    return most;
}

/* Number and the best alternative at token i; false where there is none. */
static bool value_at(const nw_ep_score *s, const json_t *list, const json_t *tops, size_t i,
                     double *lp, double *best)
{
    const json_t *v = json_array_get(list, i);

    if (s->kind == NW_EP_SCORE_PROMPT) {
        char key[16];
        (void)snprintf(key, sizeof key, "%" PRId32, s->ids[i]);
        *best = largest(v);
        v = json_object_get(json_object_get(v, key), "logprob");
    } else {
        *best = largest(json_array_get(tops, i));
    }
    *lp = json_number_value(v);
    return json_is_number(v) && isfinite(*lp) && *lp <= MAX_LOGPROB;
}

bool nw_ep_score_read(const json_t *reply, nw_ep_score *s, char *why, size_t n_why)
{
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    const json_t *lists = json_object_get(choice, "logprobs");
    const json_t *tops = json_object_get(lists, "top_logprobs");
    const json_t *list = s->kind == NW_EP_SCORE_PROMPT ? json_object_get(choice, "prompt_logprobs")
                                                       : json_object_get(lists, "token_logprobs");
    const json_t *counted = json_object_get(json_object_get(reply, "usage"), "prompt_tokens");

    if (json_is_integer(counted) && json_integer_value(counted) != (json_int_t)s->n) {
        (void)snprintf(why, n_why, "the server counts %lld prompt tokens, %zu were sent",
                       (long long)json_integer_value(counted), s->n);
        return false;
    }
    if (json_array_size(list) < s->n || json_array_size(list) > s->n + 1) {
        (void)snprintf(why, n_why, "%zu log-probabilities for a prompt of %zu tokens",
                       json_array_size(list), s->n);
        return false;
    }
    s->greedy = true;
    for (size_t i = s->n_context; i < s->n; i++) {
        double lp = 0;
        double best = 0;
        if (!value_at(s, list, tops, i, &lp, &best)) {
            (void)snprintf(why, n_why, "no log-probability for prompt token %zu", i);
            return false;
        }
        s->logprob[i - s->n_context] = (float)lp;
        s->greedy = s->greedy && isfinite(best) && lp >= best; /* unknown: not greedy */
    }
    return true;
}

#define N_TRIAL 8

/* Whether the same prompt is answered where nothing but an answer is asked for. */
static bool answers_plainly(const nw_endpoint *ep, const nw_ep_score *s)
{
    json_t *reply = NULL;
    nw_error ignored = {0};
    long http = 0;
    json_t *body = json_pack("{s:s, s:o, s:i}", "model", ep->model, "prompt", id_list(s->ids, s->n),
                             "max_tokens", 1);
    const bool ok = body != NULL &&
                    nw_ep_ask_again(ep, "/v1/completions", body, &http, &reply, &ignored) == NW_OK;

    json_decref(reply);
    json_decref(body);
    return ok && http == 200;
}

/* One trial: NW_OK with the numbers; NW_E_UNSUPPORTED: the server answers, but not with them; anything
 * else says nothing of what it can. llama.cpp refuses parameters with status 500, as others fail. */
static nw_status try_kind(const nw_endpoint *ep, nw_ep_score *s, nw_error *err)
{
    json_t *reply = NULL;
    long http = 0;
    char why[200] = "";
    json_t *body = nw_ep_score_body(ep, s);
    nw_status st = body != NULL ? nw_ep_ask_again(ep, "/v1/completions", body, &http, &reply, err)
                                : nw_fail(err, NW_E_NOMEM, "%s: no memory for a request", ep->root);

    if (st == NW_E_NETWORK && http == 500 && answers_plainly(ep, s)) {
        err->code = st = NW_E_UNSUPPORTED;
    } else if (st == NW_OK && http != 200) {
        const char *m = nw_ep_error_message(reply);
        st = nw_fail(err, NW_E_UNSUPPORTED, "HTTP status %ld: %.120s", http,
                     m != NULL ? m : "no reason");
    } else if (st == NW_OK && !nw_ep_score_read(reply, s, why, sizeof why)) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "%s", why);
    }
    json_decref(reply);
    json_decref(body);
    return st;
}

/* Ids that any vocabulary has; the second list differs in its last two. */
static nw_status learn(nw_endpoint *ep, nw_error *err)
{
    static const struct {
        nw_ep_score_kind kind;
        const char *name;
    } ways[] = {{NW_EP_SCORE_ECHO, "echo"}, {NW_EP_SCORE_PROMPT, "prompt_logprobs"}};
    static const int32_t trial[2][N_TRIAL] = {{100, 101, 102, 103, 104, 105, 106, 107},
                                              {100, 101, 102, 103, 104, 105, 112, 121}};
    float lp[2][N_TRIAL];
    char why[NW_COUNT(ways)][160] = {""};
    nw_error fault = {0};

    for (size_t w = 0; w < NW_COUNT(ways); w++) {
        nw_status st = NW_OK;
        for (size_t k = 0; k < 2 && st == NW_OK; k++) {
            nw_ep_score s = {.kind = ways[w].kind,
                             .ids = trial[k],
                             .n = N_TRIAL,
                             .n_context = 1,
                             .logprob = lp[k]};
            st = try_kind(ep, &s, &fault);
        }
        if (st != NW_OK && st != NW_E_UNSUPPORTED) {
            *err = fault;
            return nw_context(err, "asking for log-probabilities of a prompt");
        }
        if (st == NW_OK && memcmp(lp[0], lp[1], (N_TRIAL - 1) * sizeof(float)) != 0) {
            ep->score_kind = ways[w].kind;
            return NW_OK;
        }
        (void)snprintf(why[w], sizeof why[w], "%.159s",
                       st == NW_OK ? "other tokens get the same numbers" : fault.message);
    }
    if (strcmp(why[0], why[1]) == 0) {
        (void)snprintf(ep->score_why, sizeof ep->score_why, "echo and prompt_logprobs: %.160s",
                       why[0]);
    } else {
        (void)snprintf(ep->score_why, sizeof ep->score_why, "%s: %.90s; %s: %.90s", ways[0].name,
                       why[0], ways[1].name, why[1]);
    }
    nw_utf8_mend(ep->score_why);
    return NW_OK;
}

nw_status nw_ep_score_ready(nw_endpoint *ep, nw_error *err)
{
    nw_status st = NW_OK;

    pthread_mutex_lock(&ep->learn_lock);
    if (!ep->score_known) {
        st = learn(ep, err);
        ep->score_known = st == NW_OK;
    }
    if (st == NW_OK && ep->score_kind == NW_EP_SCORE_NONE) {
        st = nw_fail(err, NW_E_UNSUPPORTED,
                     "the server gives no log-probabilities of prompt tokens (%s)", ep->score_why);
    }
    pthread_mutex_unlock(&ep->learn_lock);
    return st;
}
