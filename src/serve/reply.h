/* The JSON of answers, whole and event by event, written straight into a buffer: a list of
 * log-probabilities may be many times longer than all else. Inside src/serve.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_REPLY_H
#define NW_SERVE_REPLY_H

#include "serve/logprobs.h"

/* What is the same in every event of an answer. */
typedef struct {
    bool chat;
    const char *id, *model; /* "chatcmpl-1", "cmpl-1" */
    int64_t created;
    bool include_usage, event_usage;
    const nw_tokenizer *tok; /* for log-probabilities */
} nw_reply_head;

/* What one event says. */
typedef struct {
    const char *text; /* NULL: none */
    size_t n_text;
    bool role;                       /* the opening event of a chat */
    const nw_logprob_list *logprobs; /* NULL: not asked for */
    size_t *offset;     /* completions: characters of the answer told before; NULL: 0 */
    const char *finish; /* NULL: not yet */
    uint32_t n_prompt, n_output;
} nw_reply_delta;

/* Each appends to *out; what does not fit, or finds no memory, leaves out->failed set. */

/* "data: {...}\n\n" */
void nw_reply_event(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d);
/* The closing event with usage and no choices. */
void nw_reply_usage_event(nw_buf *out, const nw_reply_head *h, uint32_t n_prompt,
                          uint32_t n_output);

/* A whole answer: its beginning, its choices from index 0 on, its end. */
void nw_reply_begin(nw_buf *out, const nw_reply_head *h);
void nw_reply_choice(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d, size_t index);
void nw_reply_end(nw_buf *out, uint32_t n_prompt, uint32_t n_output);

#endif
