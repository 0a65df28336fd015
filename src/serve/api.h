/* The request bodies of the OpenAI API: hostile JSON in, a checked struct or an error that names the
 * parameter out. A parameter that is not honoured is refused by name, unless it asks for what happens
 * anyway (n: 1, presence_penalty: 0); null is "not given".
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_API_H
#define NW_SERVE_API_H

#include <jansson.h>

#include "base/status.h"
#include "engine/sampler.h"
#include "engine/textout.h"

typedef struct {
    bool chat;
    json_t *messages; /* chat: array of objects with string role and string content; owned */
    char *prompt;     /* completions: text, or ids */
    size_t n_prompt_bytes;
    int32_t *ids;
    size_t n_ids;
    char *model;         /* NULL: not given */
    uint32_t max_tokens; /* the lower of both names; 0: not given */
    nw_sampling sampling;
    bool has_seed;
    bool ignore_eos, stream;
    bool include_usage; /* a closing event with usage */
    bool event_usage;   /* usage in every event (continuous_usage_stats) */
    bool logprobs;
    uint32_t n_top_logprobs;
    char *stop[NW_STOP_MAX];
    size_t n_stop;
} nw_api_request; /* all zero may be released */

typedef struct {
    int http_status;
    const char *type; /* static: "invalid_request_error" ... */
    const char *code; /* static or NULL */
    char param[64];   /* "": none to blame */
    char message[512];
} nw_api_error;

/* Fills *e and returns NW_E_FORMAT. */
nw_status nw_api_fail(nw_api_error *e, const char *param, const char *fmt, ...) NW_PRINTF(3, 4);

/* On failure *out is empty and e->http_status is 400. */
NW_MUST_USE nw_status nw_api_parse(const char *body, size_t n, bool chat, uint32_t max_depth,
                                   nw_api_request *out, nw_api_error *e);
void nw_api_release(nw_api_request *r);

/* {"error": {"message", "type", "param", "code"}}; the caller frees it; NULL when out of memory. */
char *nw_api_error_json(const nw_api_error *e);

#endif
