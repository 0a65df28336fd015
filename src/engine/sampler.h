/* Sampler: one token from one row of logits. The order is: repetition penalty, temperature, top-k,
 * top-p, min-p (each on what the one before left, renormalised), then one uniform draw. The draw for
 * output k of a request depends on (seed, k) only, so neither the batch nor a restart changes it.
 * The log-probability reported is of the model: natural log, before all of these.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_SAMPLER_H
#define NW_ENGINE_SAMPLER_H

#include "base/status.h"
#include "engine/logits.h"

#define NW_TOP_LOGPROBS_MAX 20

typedef struct {
    float temperature;    /* 0: greedy (the lowest id among equals); at most 100 */
    float top_p;          /* (0, 1]; 1: off */
    float min_p;          /* [0, 1]; 0: off. Share of the most likely token's probability */
    float repeat_penalty; /* > 0, at most 10; 1: off. Over prompt and output */
    uint32_t top_k;       /* 0: off */
    uint64_t seed;
} nw_sampling;

nw_sampling nw_sampling_greedy(void);
/* NW_E_RANGE naming the field, its value and the limit. */
NW_MUST_USE nw_status nw_sampling_check(const nw_sampling *s, nw_error *err);

typedef struct {
    int32_t id;
    float logprob; /* nats, <= 0 */
} nw_logprob;

typedef struct {
    int32_t id;
    float logprob;  /* nats, of the model, before sampling */
    uint32_t n_top; /* filled entries of top, most likely first */
    nw_logprob top[NW_TOP_LOGPROBS_MAX];
} nw_pick;

/* Scratch of one thread: n_vocab candidates. */
typedef struct nw_sampler_scratch nw_sampler_scratch;
NW_MUST_USE nw_status nw_sampler_scratch_open(uint32_t n_vocab, nw_sampler_scratch **out,
                                              nw_error *err);
void nw_sampler_scratch_close(nw_sampler_scratch *s);

/* State of one request: its settings and, with a repetition penalty, the set of ids seen. */
typedef struct nw_sampler nw_sampler;
NW_MUST_USE nw_status nw_sampler_open(const nw_sampling *s, uint32_t n_vocab, nw_sampler **out,
                                      nw_error *err);
void nw_sampler_close(nw_sampler *s);
void nw_sampler_saw(nw_sampler *s, const int32_t *ids, size_t n); /* prompt, then each output */

/* The log-probability of `id`, and the n_top most likely, in one row of logits [n_vocab]. NW_E_RANGE
 * for logits that are not finite. */
NW_MUST_USE nw_status nw_logits_score(const float *logits, uint32_t n_vocab, int32_t id,
                                      uint32_t n_top, nw_pick *out, nw_error *err);

/* Picks output number `index` (0, 1, ...) from logits [n_vocab]. Allocates nothing, changes nothing
 * in s: the caller calls nw_sampler_saw with the id. NW_E_RANGE for logits that are not finite. */
NW_MUST_USE nw_status nw_sampler_pick(const nw_sampler *s, nw_sampler_scratch *scratch,
                                      const float *logits, uint64_t index, uint32_t n_top,
                                      nw_pick *out, nw_error *err);

#endif
