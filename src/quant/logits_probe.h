/* Logits of one model on a small built-in prompt, kept to hold other forms of the same model to
 * them. Both are run by the reference tier with F32 activations and F32 KV, so that only weights
 * differ.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_LOGITS_PROBE_H
#define NW_QUANT_LOGITS_PROBE_H

#include "base/status.h"

typedef struct nw_logits_probe nw_logits_probe;

/* Runs the model at path over the prompt (through its tokenizer, or ids spread over the vocabulary
 * where with_tokenizer is false). Holds n_positions * n_vocab floats. */
NW_MUST_USE nw_status nw_logits_probe_open(const char *path, bool with_tokenizer,
                                           unsigned n_threads, nw_logits_probe **out,
                                           nw_error *err);
void nw_logits_probe_close(nw_logits_probe *p); /* takes NULL */
size_t nw_logits_probe_positions(const nw_logits_probe *p);

/* KL(probe || model at path) in nats over the positions: largest and mean. */
NW_MUST_USE nw_status nw_logits_probe_compare(const nw_logits_probe *p, const char *path,
                                              double *max_kl, double *mean_kl, nw_error *err);

/* KL(p || q) of two rows of logits [n], summed in double; never below 0 by rounding. */
double nw_logits_kl(const float *p, const float *q, size_t n);

#endif
