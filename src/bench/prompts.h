/* Synthetic prompts of an exact number of tokens, by our tokenizer or by the usage a server reports,
 * made of common words drawn from a seed. Each differs from its first words on, so that a prefix
 * cache finds nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_PROMPTS_H
#define NW_BENCH_PROMPTS_H

#include "target/target.h"

/* *text is new, NUL-terminated, freed with free(). *n_tokens is the count reached: n_want, unless the
 * vocabulary makes that impossible; counts include what the model adds (BOS). `key` tells prompts of
 * one run apart. */
NW_MUST_USE nw_status nw_prompt_make(nw_target *t, uint32_t n_want, uint64_t seed, uint64_t key,
                                     char **text, uint32_t *n_tokens, nw_error *err);

#endif
