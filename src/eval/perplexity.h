/* Perplexity, KL divergence and top-1 agreement over the windows of a text, token by token.
 *   perplexity = exp( mean nll ),  ln ratio = mean (nll - nll of the baseline), paired
 * Baseline and candidate run side by side on the same chunk of the same window, so that no logits
 * are kept.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_PERPLEXITY_H
#define NW_EVAL_PERPLEXITY_H

#include "engine/engine.h"
#include "eval/divergence.h"
#include "eval/windows.h"

/* Called in order of window and position, from the calling thread. */
typedef nw_status (*nw_token_fn)(void *ctx, size_t window, uint32_t pos, const nw_divergence *d,
                                 nw_error *err);

/* base may be NULL; both need the same n_vocab. NW_E_CANCELLED on ^C; NW_E_FORMAT, with window and
 * position, at the first non-finite figure. */
NW_MUST_USE nw_status nw_perplexity_run(nw_engine *e, nw_engine *base, const nw_windows *w,
                                        nw_token_fn each, void *ctx, nw_error *err);

#endif
