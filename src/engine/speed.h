/* Speed of an engine's own steps, without a service or a client around them: prefill of n tokens,
 * decoding of one or many sequences, both after `depth` tokens of context. Token ids are made from a
 * fixed seed; a decoding step samples greedily from one sequence's logits at a time, as a service does.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_SPEED_H
#define NW_ENGINE_SPEED_H

#include "engine/engine.h"

typedef struct nw_speed nw_speed;

/* n_seqs sessions, 1..max_seqs, each filled with `depth` tokens by prefill. Borrows the engine. */
NW_MUST_USE nw_status nw_speed_open(nw_engine *e, uint32_t n_seqs, uint32_t depth, nw_speed **out,
                                    nw_error *err);
void nw_speed_close(nw_speed *s); /* takes NULL */

/* Seconds to read n more tokens of the first sequence and give the logits of the last. The sequence
 * is cut back to `depth` afterwards. */
NW_MUST_USE nw_status nw_speed_prefill(nw_speed *s, uint32_t n, double *seconds, nw_error *err);
/* Seconds for n steps that bring each of the first n_seqs sequences one token further; cut back
 * likewise. */
NW_MUST_USE nw_status nw_speed_decode(nw_speed *s, uint32_t n, uint32_t n_seqs, double *seconds,
                                      nw_error *err);
/* Seconds for n products of the first layer's output matrix with one vector: a single small matrix out
 * of the cache, with nothing around it but the threads' meeting. After a prefill or a decode. */
double nw_speed_linear(nw_speed *s, uint32_t n);

#endif
