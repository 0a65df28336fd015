/* Log-probabilities as the two routes write them. What is kept while an answer is made is a list of a few
 * bytes a token; its JSON is written at the end, straight into the answer. Inside src/serve.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_LOGPROBS_H
#define NW_SERVE_LOGPROBS_H

#include <jansson.h>

#include "base/buf.h"
#include "engine/sampler.h"
#include "model/tokenizer.h"

typedef struct {
    int32_t id;
    float logprob;  /* nats */
    uint32_t n_top; /* entries of top */
    const nw_logprob
        *top; /* borrowed, most likely first; NULL: the first token of a prompt, which has
                              nothing before it: its log-probability and alternatives are null */
} nw_token_logprob;

typedef struct {
    nw_token_logprob *at; /* [n] */
    size_t n, cap;
} nw_logprob_list; /* all zero is empty */

/* False: no memory, and the list is as it was. */
NW_MUST_USE bool nw_logprob_add(nw_logprob_list *l, nw_token_logprob entry);
void nw_logprob_list_release(nw_logprob_list *l);

/* A chat's: [{"token", "logprob", "bytes", "top_logprobs"}]; a token that is no UTF-8 by itself shows
 * U+FFFD and its exact bytes. */
void nw_logprob_put_content(nw_buf *out, const nw_tokenizer *tok, const nw_logprob_list *l);
/* A completion's: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. top_logprobs hold the
 * token itself beside the most likely ones. Offsets count characters from *offset on, which is moved to
 * the end. A token that is no UTF-8 is written as "bytes:\xe2\x96". */
void nw_logprob_put_lists(nw_buf *out, const nw_tokenizer *tok, const nw_logprob_list *l,
                          size_t *offset);
/* A JSON value's text, appended; takes the value over. */
void nw_json_put(nw_buf *out, json_t *value);

#endif
