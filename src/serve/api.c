/* One table of parameters; each row has a function that reads its value. Order of the rows is the
 * order in which faults are found, so that a message does not depend on the order of keys.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/api.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/messages.h"

#define MAX_TOKENS_LIMIT 10000000

typedef nw_status (*read_fn)(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e);

static nw_status number(const char *name, const json_t *v, double lo, double hi, double *out,
                        nw_api_error *e)
{
    const double x = json_number_value(v);

    if (!json_is_number(v)) {
        return nw_api_wrong(e, name, v, "a number");
    }
    if (!(x >= lo && x <= hi)) {
        return nw_api_fail(e, name, "%s: %g is out of range, %g to %g is allowed", name, x, lo, hi);
    }
    *out = x;
    return NW_OK;
}

static nw_status boolean(const char *name, const json_t *v, bool *out, nw_api_error *e)
{
    if (!json_is_boolean(v)) {
        return nw_api_wrong(e, name, v, "true or false");
    }
    *out = json_is_true(v);
    return NW_OK;
}

static nw_status integer(const char *name, const json_t *v, json_int_t lo, json_int_t hi,
                         json_int_t *out, nw_api_error *e)
{
    const json_int_t x = json_integer_value(v);

    if (!json_is_integer(v)) {
        return nw_api_wrong(e, name, v, "a whole number");
    }
    if (x < lo || x > hi) {
        return nw_api_fail(e, name, "%s: %lld is out of range, %lld to %lld is allowed", name,
                           (long long)x, (long long)lo, (long long)hi);
    }
    *out = x;
    return NW_OK;
}

/* ---- one reader a parameter ----------------------------------------------------------------- */

static nw_status read_model(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    if (!json_is_string(v)) {
        return nw_api_wrong(e, name, v, "a string");
    }
    r->model = strdup(json_string_value(v));
    return r->model != NULL ? NW_OK : nw_api_no_memory(e, name);
}

static nw_status read_max_tokens(const char *name, const json_t *v, nw_api_request *r,
                                 nw_api_error *e)
{
    json_int_t n = 0;

    if (integer(name, v, r->chat ? 1 : 0, MAX_TOKENS_LIMIT, &n, e) != NW_OK) {
        return NW_E_FORMAT;
    }
    if (!r->has_max_tokens || (uint32_t)n < r->max_tokens) {
        r->max_tokens = (uint32_t)n;
    }
    r->has_max_tokens = true;
    return NW_OK;
}

static nw_status read_temperature(const char *name, const json_t *v, nw_api_request *r,
                                  nw_api_error *e)
{
    double x = 0;
    const nw_status st = number(name, v, 0, 100, &x, e);

    r->sampling.temperature = (float)x;
    return st;
}

static nw_status read_top_p(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    double x = 0;
    const nw_status st = number(name, v, 0, 1, &x, e);

    if (st == NW_OK && (float)x <= 0) {
        return nw_api_fail(e, name, "top_p: 0 leaves no token, above 0 to 1 is allowed");
    }
    r->sampling.top_p = (float)x;
    return st;
}

static nw_status read_min_p(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    double x = 0;
    const nw_status st = number(name, v, 0, 1, &x, e);

    r->sampling.min_p = (float)x;
    return st;
}

/* -1 is "off" to vLLM's clients. */
static nw_status read_top_k(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    json_int_t n = 0;
    const nw_status st = integer(name, v, -1, INT32_MAX, &n, e);

    r->sampling.top_k = n > 0 ? (uint32_t)n : 0;
    return st;
}

static nw_status read_penalty(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    double x = 1;
    const nw_status st = number(name, v, 0.01, 10, &x, e);

    r->sampling.repeat_penalty = (float)x;
    return st;
}

static nw_status read_seed(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    json_int_t n = 0;
    const nw_status st = integer(name, v, LLONG_MIN, LLONG_MAX, &n, e);

    r->sampling.seed = (uint64_t)n;
    r->has_seed = true;
    return st;
}

static nw_status read_ignore_eos(const char *name, const json_t *v, nw_api_request *r,
                                 nw_api_error *e)
{
    return boolean(name, v, &r->ignore_eos, e);
}

static nw_status read_stream(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    return boolean(name, v, &r->stream, e);
}

static nw_status read_stream_options(const char *name, const json_t *v, nw_api_request *r,
                                     nw_api_error *e)
{
    const char *key = NULL;
    json_t *value = NULL;

    if (!json_is_object(v)) {
        return nw_api_wrong(e, name, v, "an object");
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        nw_status st = NW_OK;
        char full[64];
        (void)snprintf(full, sizeof full, "stream_options.%.40s", key);
        if (strcmp(key, "include_usage") == 0) {
            st = boolean(full, value, &r->include_usage, e);
        } else if (strcmp(key, "continuous_usage_stats") == 0) {
            st = boolean(full, value, &r->event_usage, e);
        } else if (strcmp(key, "include_obfuscation") != 0) {
            st = nw_api_fail(e, full, "%s: not supported", full);
        }
        if (st != NW_OK) {
            return st;
        }
    }
    return NW_OK;
}

static nw_status add_stop(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    const size_t n = json_string_length(v);
    char found[NW_JSON_SHOWN];

    if (!json_is_string(v)) {
        return nw_api_fail(e, name, "stop[%zu]: %s is given, a string is expected", r->n_stop,
                           nw_json_show(v, found));
    }
    if (n == 0 || n > NW_STOP_MAX_BYTES) {
        return nw_api_fail(e, name, "stop: string %zu has %zu bytes, 1 to %d are allowed",
                           r->n_stop, n, NW_STOP_MAX_BYTES);
    }
    char *s = strdup(json_string_value(v));
    if (s == NULL) {
        return nw_api_no_memory(e, name);
    }
    r->stop[r->n_stop++] = s;
    return NW_OK;
}

static nw_status read_stop(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    if (json_is_string(v)) {
        return add_stop(name, v, r, e);
    }
    if (!json_is_array(v)) {
        return nw_api_wrong(e, name, v, "a string or a list of strings");
    }
    if (json_array_size(v) > NW_STOP_MAX) {
        return nw_api_fail(e, name, "stop: %zu strings, at most %d are allowed", json_array_size(v),
                           NW_STOP_MAX);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (add_stop(name, json_array_get(v, i), r, e) != NW_OK) {
            return NW_E_FORMAT;
        }
    }
    return NW_OK;
}

static nw_status read_logprobs(const char *name, const json_t *v, nw_api_request *r,
                               nw_api_error *e)
{
    json_int_t n = 0;

    if (r->chat) {
        return boolean(name, v, &r->logprobs, e);
    }
    r->logprobs =
        true; /* completions: a number, of the most likely tokens beside the one there is */
    const nw_status st = integer(name, v, 0, NW_TOP_LOGPROBS_MAX, &n, e);
    r->n_top_logprobs = (uint32_t)n;
    return st;
}

static nw_status read_echo(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    return boolean(name, v, &r->echo, e);
}

static nw_status read_top_logprobs(const char *name, const json_t *v, nw_api_request *r,
                                   nw_api_error *e)
{
    json_int_t n = 0;
    const nw_status st = integer(name, v, 0, NW_TOP_LOGPROBS_MAX, &n, e);

    r->n_top_logprobs = (uint32_t)n;
    return st;
}

static nw_status read_response_format(const char *name, const json_t *v, nw_api_request *r,
                                      nw_api_error *e)
{
    const json_t *found = json_object_get(v, "type");
    const char *type = json_string_value(found);

    (void)r;
    if (!json_is_object(v)) {
        return nw_api_wrong(e, name, v, "an object");
    }
    if (type == NULL) {
        return nw_api_wrong(e, "response_format.type", found, "a string");
    }
    if (strcmp(type, "text") != 0) {
        return nw_api_fail(e, "response_format.type",
                           "response_format.type: '%.60s' is not supported, 'text' is", type);
    }
    return NW_OK;
}

/* Parameters of the API that change nothing at this value, and are refused at any other. */
static nw_status only_neutral(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    const bool neutral = json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
                         (json_is_array(v) && json_array_size(v) == 0) ||
                         (json_is_object(v) && json_object_size(v) == 0) ||
                         (json_is_string(v) && json_string_length(v) == 0);
    char found[NW_JSON_SHOWN];

    (void)r;
    return neutral ? NW_OK
                   : nw_api_fail(e, name, "%s: %s is not supported", name, nw_json_show(v, found));
}

static nw_status only_one(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    char found[NW_JSON_SHOWN];

    (void)r;
    return json_is_integer(v) && json_integer_value(v) == 1
               ? NW_OK
               : nw_api_fail(e, name, "%s: %s is given, only 1 is supported", name,
                             nw_json_show(v, found));
}

static nw_status anything(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    (void)name;
    (void)v;
    (void)r;
    (void)e;
    return NW_OK;
}

enum { CHAT = 1, TEXT = 2, BOTH = 3 };

static const struct param {
    const char *name;
    int where;
    read_fn read;
} params[] = {
    {"model", BOTH, read_model},
    {"messages", CHAT, nw_api_read_messages},
    {"prompt", TEXT, nw_api_read_prompt},
    {"max_tokens", BOTH, read_max_tokens},
    {"max_completion_tokens", BOTH, read_max_tokens},
    {"temperature", BOTH, read_temperature},
    {"top_p", BOTH, read_top_p},
    {"top_k", BOTH, read_top_k},
    {"min_p", BOTH, read_min_p},
    {"repetition_penalty", BOTH, read_penalty},
    {"seed", BOTH, read_seed},
    {"ignore_eos", BOTH, read_ignore_eos},
    {"stop", BOTH, read_stop},
    {"stream", BOTH, read_stream},
    {"stream_options", BOTH, read_stream_options},
    {"logprobs", BOTH, read_logprobs},
    {"top_logprobs", CHAT, read_top_logprobs},
    {"response_format", BOTH, read_response_format},
    {"n", BOTH, only_one},
    {"best_of", TEXT, only_one},
    {"echo", TEXT, read_echo},
    {"suffix", TEXT, only_neutral},
    {"presence_penalty", BOTH, only_neutral},
    {"frequency_penalty", BOTH, only_neutral},
    {"logit_bias", BOTH, only_neutral},
    {"tools", CHAT, only_neutral},
    {"functions", CHAT, only_neutral},
    {"store", BOTH, only_neutral},
    {"user", BOTH, anything},             /* labels: nothing about the answer depends on them */
    {"metadata", BOTH, anything},         /* likewise */
    {"safety_identifier", BOTH, anything} /* likewise */
};

static nw_status known_keys(const json_t *root, int where, nw_api_error *e)
{
    const char *key = NULL;
    json_t *value = NULL;

    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        size_t i = 0;
        while (i < NW_COUNT(params) &&
               (strcmp(params[i].name, key) != 0 || (params[i].where & where) == 0)) {
            i++;
        }
        if (i == NW_COUNT(params) && !json_is_null(value)) {
            return nw_api_fail(e, key, "unknown or unsupported parameter '%.60s'", key);
        }
    }
    return NW_OK;
}

/* What no single parameter shows. */
static nw_status check_whole(const nw_api_request *r, nw_api_error *e)
{
    if (r->chat && r->messages == NULL) {
        return nw_api_fail(e, "messages", "messages: missing");
    }
    if (!r->chat && r->n_prompts == 0) {
        return nw_api_fail(e, "prompt", "prompt: missing");
    }
    if (r->stream && r->n_prompts > 1) {
        return nw_api_fail(e, "stream", "stream: takes one prompt, %zu are given", r->n_prompts);
    }
    if (r->has_max_tokens && r->max_tokens == 0 && !r->echo) {
        return nw_api_fail(e, "max_tokens", "max_tokens: 0 leaves no answer without echo");
    }
    if ((r->include_usage || r->event_usage) && !r->stream) {
        return nw_api_fail(e, "stream_options", "stream_options: needs stream to be true");
    }
    if (r->n_top_logprobs > 0 && !r->logprobs) {
        return nw_api_fail(e, "top_logprobs", "top_logprobs: needs logprobs to be true");
    }
    return NW_OK;
}

static uint32_t depth_of(const json_t *v, uint32_t limit)
{
    uint32_t deepest = 0;
    const char *key = NULL;
    json_t *value = NULL;
    size_t i = 0;

    if (limit == 0 || (!json_is_object(v) && !json_is_array(v))) {
        return 0;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        const uint32_t d = depth_of(value, limit - 1);
        deepest = d > deepest ? d : deepest;
    }
    json_array_foreach((json_t *)(uintptr_t)v, i, value)
    {
        const uint32_t d = depth_of(value, limit - 1);
        deepest = d > deepest ? d : deepest;
    }
    return deepest + 1;
}

static nw_status read_params(const json_t *root, nw_api_request *r, nw_api_error *e)
{
    const int where = r->chat ? CHAT : TEXT;

    if (known_keys(root, where, e) != NW_OK) {
        return NW_E_FORMAT;
    }
    for (size_t i = 0; i < NW_COUNT(params); i++) {
        const json_t *v = json_object_get(root, params[i].name);
        if ((params[i].where & where) != 0 && v != NULL && !json_is_null(v) &&
            params[i].read(params[i].name, v, r, e) != NW_OK) {
            return NW_E_FORMAT;
        }
    }
    return check_whole(r, e);
}

static nw_status parse_body(const char *body, size_t n, uint32_t max_depth, json_t **out,
                            nw_api_error *e)
{
    nw_error err = {0};
    nw_status st = NW_OK;

    if (nw_json_parse("body", body, n, out, &err) != NW_OK) {
        return nw_api_fail(e, "", "not JSON: %.400s", err.message);
    }
    if (!json_is_object(*out)) {
        st = nw_api_fail(e, "", "body: a JSON object is expected");
    } else if (depth_of(*out, max_depth + 1) > max_depth) {
        st = nw_api_fail(e, "", "body: nested deeper than %u levels", max_depth);
    }
    if (st != NW_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

nw_status nw_api_parse_object(const char *body, size_t n, uint32_t max_depth,
                              const char *const *keys, size_t n_keys, json_t **out, nw_api_error *e)
{
    const char *key = NULL;
    json_t *value = NULL;

    if (parse_body(body, n, max_depth, out, e) != NW_OK) {
        return NW_E_FORMAT;
    }
    json_object_foreach(*out, key, value)
    {
        size_t i = 0;
        while (i < n_keys && strcmp(keys[i], key) != 0) {
            i++;
        }
        if (i == n_keys && !json_is_null(value)) {
            (void)nw_api_fail(e, key, "unknown or unsupported parameter '%.60s'", key);
            json_decref(*out);
            *out = NULL;
            return NW_E_FORMAT;
        }
    }
    return NW_OK;
}

nw_status nw_api_parse(const char *body, size_t n, bool chat, uint32_t max_depth,
                       nw_api_request *out, nw_api_error *e)
{
    nw_api_request r = {.chat = chat};
    json_t *root = NULL;

    *out = (nw_api_request){0};
    r.sampling = nw_sampling_greedy();
    r.sampling.temperature = 1; /* the API's default */
    if (parse_body(body, n, max_depth, &root, e) != NW_OK) {
        return NW_E_FORMAT;
    }
    const nw_status st = read_params(root, &r, e);
    json_decref(root);
    if (st != NW_OK) {
        nw_api_release(&r);
        return st;
    }
    *out = r;
    return NW_OK;
}

void nw_api_release(nw_api_request *r)
{
    json_decref(r->messages);
    for (size_t i = 0; i < r->n_prompts; i++) {
        free(r->prompts[i].text);
        free(r->prompts[i].ids);
    }
    free(r->prompts);
    free(r->model);
    for (size_t i = 0; i < r->n_stop; i++) {
        free(r->stop[i]);
    }
    *r = (nw_api_request){0};
}

static bool copy_prompt(const nw_api_prompt *p, nw_api_prompt *out)
{
    *out = (nw_api_prompt){.n_bytes = p->n_bytes, .n_ids = p->n_ids};
    if (p->text != NULL) {
        out->text = strdup(p->text);
        return out->text != NULL;
    }
    out->ids = calloc(p->n_ids + 1, sizeof *out->ids);
    if (out->ids != NULL) {
        memcpy(out->ids, p->ids, p->n_ids * sizeof *out->ids);
    }
    return out->ids != NULL;
}

bool nw_api_one_prompt(const nw_api_request *all, size_t i, nw_api_request *out)
{
    nw_api_request r = *all;
    bool ok = true;

    r.messages = json_incref(all->messages);
    r.prompts = all->n_prompts > 0 ? calloc(1, sizeof *r.prompts) : NULL;
    r.n_prompts = r.prompts != NULL ? 1 : 0;
    if (r.n_prompts > 0) {
        ok = copy_prompt(&all->prompts[i], &r.prompts[0]);
    }
    r.model = all->model != NULL ? strdup(all->model) : NULL;
    ok = ok && (r.model != NULL) == (all->model != NULL) &&
         (r.prompts != NULL) == (all->n_prompts > 0);
    for (size_t k = 0; k < r.n_stop; k++) {
        r.stop[k] = strdup(all->stop[k]);
        ok = ok && r.stop[k] != NULL;
    }
    *out = r;
    if (!ok) {
        nw_api_release(out);
    }
    return ok;
}
