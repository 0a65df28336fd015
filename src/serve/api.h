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

#define NW_API_MAX_PROMPTS 1024

/* One prompt of a completion: text, or ids. */
typedef struct {
    char *text; /* NULL: ids */
    size_t n_bytes;
    int32_t *ids;
    size_t n_ids;
} nw_api_prompt;

typedef struct {
    bool chat;
    json_t *messages;       /* chat: array of objects with string role and string content; owned */
    nw_api_prompt *prompts; /* completions */
    size_t n_prompts;
    char *model;         /* NULL: not given */
    bool has_max_tokens; /* otherwise max_tokens is 0 */
    uint32_t max_tokens; /* the lower of both names; 0 only with echo */
    bool echo;           /* the answer begins with the prompt */
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

/* "NAME: VALUE is given, WANTED is expected"; found NULL: nothing was. */
nw_status nw_api_wrong(nw_api_error *e, const char *param, const json_t *found, const char *wanted);
/* Status 503; param "": for the answer. Returns NW_E_NOMEM. */
nw_status nw_api_no_memory(nw_api_error *e, const char *param);

/* Status 404 where the client wants another model than there is. */
NW_MUST_USE nw_status nw_api_check_model(const char *asked, const char *served, nw_api_error *e);

/* On failure *out is empty and e->http_status is 400, or 503 without memory. */
NW_MUST_USE nw_status nw_api_parse(const char *body, size_t n, bool chat, uint32_t max_depth,
                                   nw_api_request *out, nw_api_error *e);
void nw_api_release(nw_api_request *r);

/* A copy of the request with prompt i alone (i is 0 for a chat). False: no memory, *out is empty. */
NW_MUST_USE bool nw_api_one_prompt(const nw_api_request *all, size_t i, nw_api_request *out);

/* The body of another route: an object none of whose keys is unknown. The caller owns *out. */
NW_MUST_USE nw_status nw_api_parse_object(const char *body, size_t n, uint32_t max_depth,
                                          const char *const *keys, size_t n_keys, json_t **out,
                                          nw_api_error *e);

/* {"error": {"message", "type", "param", "code"}}; the caller frees it; NULL when out of memory. */
char *nw_api_error_json(const nw_api_error *e);

#endif
