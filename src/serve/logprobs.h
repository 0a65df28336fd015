/* Log-probabilities as the two routes write them. A chat's "content" entries are what is kept while an
 * answer is made; a completion's four parallel lists are made from them at the end. Inside src/serve.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_LOGPROBS_H
#define NW_SERVE_LOGPROBS_H

#include <jansson.h>

#include "engine/sampler.h"
#include "model/tokenizer.h"

/* One entry: {"token", "logprob", "bytes", "top_logprobs"}; tokens that are no UTF-8 by themselves show
 * U+FFFD and exact bytes. top NULL: the first token of a prompt, which has nothing before it: both are
 * null. New references, NULL without memory. */
json_t *nw_logprob_entry(const nw_tokenizer *tok, int32_t id, float logprob, const nw_logprob *top,
                         uint32_t n_top);

/* {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of a list of entries. top_logprobs hold
 * the token itself beside the most likely ones. Offsets count characters from *offset on, which is
 * moved to the end. Tokens that are no UTF-8 are written as "bytes:\xE2\x96". */
json_t *nw_logprob_lists(const json_t *entries, size_t *offset);

#endif
