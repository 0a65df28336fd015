/* The JSON of answers: whole, and event by event. Inside src/serve.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_REPLY_H
#define NW_SERVE_REPLY_H

#include <jansson.h>

#include "base/buf.h"

/* What is the same in every event of an answer. */
typedef struct {
    bool chat;
    const char *id, *model; /* "chatcmpl-1", "cmpl-1" */
    int64_t created;
    bool include_usage, event_usage;
} nw_reply_head;

/* Builders return new references, NULL when there is no memory. */
json_t *nw_reply_usage(uint32_t n_prompt, uint32_t n_output);

/* What one event says. */
typedef struct {
    const char *text; /* NULL: none */
    size_t n_text;
    bool role;          /* the opening event of a chat */
    json_t *logprobs;   /* entries (logprobs.h); taken over; NULL: not asked for */
    size_t *offset;     /* completions: characters of the answer told before; NULL: 0 */
    const char *finish; /* NULL: not yet */
    uint32_t n_prompt, n_output;
} nw_reply_delta;

/* Appends "data: {...}\n\n". */
void nw_reply_event(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d);
/* The closing event with usage and no choices. */
void nw_reply_usage_event(nw_buf *out, const nw_reply_head *h, uint32_t n_prompt,
                          uint32_t n_output);
/* One choice of a whole answer. */
json_t *nw_reply_choice(const nw_reply_head *h, const nw_reply_delta *d, size_t index);
/* The whole answer; takes choices over; freed by the caller; NULL without memory. */
char *nw_reply_whole(const nw_reply_head *h, json_t *choices, uint32_t n_prompt, uint32_t n_output);

#endif
