/* Layers by likelihood on a server: each sequence is one request for the log-probabilities of its prompt,
 * several under way at a time. Figures mean what they mean on the engine; what needs all logits (KL,
 * top-1 agreement) is not measured.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_REMOTE_H
#define NW_EVAL_REMOTE_H

#include "eval/choice.h"
#include "eval/perplexity.h"
#include "target/target.h"

/* As nw_choice_run. Ids of prompts and choices come from the target's tokenizer. max_len: tokens of the
 * server's context; 0: not known. */
NW_MUST_USE nw_status nw_remote_choice(nw_target *t, const nw_suite *suite, unsigned n_parallel,
                                       uint32_t max_len, nw_choice_answers *out, nw_error *err);
/* As nw_perplexity_run without a baseline. */
NW_MUST_USE nw_status nw_remote_perplexity(nw_target *t, const nw_windows *w, unsigned n_parallel,
                                           nw_token_fn each, void *ctx, nw_error *err);

#endif
