/* What a person wants to see of the rows just measured. decide computes its own from the record.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_SUMMARY_H
#define NW_EVAL_SUMMARY_H

#include <jansson.h>

#include "record/record.h"

/* Adds to `out`: perplexity with its 95 % interval (Student's t over windows), and, where rows
 * carry a baseline, its perplexity, ln ratio, KL (mean, median, p99, max) and top-1 agreement.
 * nll_base [n], NaN without a baseline. */
NW_MUST_USE nw_status nw_summary_tokens(const nw_rec_token *rows, const double *nll_base, size_t n,
                                        json_t *out, nw_error *err);

/* Adds accuracy with its Wilson interval, counts, finish reasons, mean output tokens. */
void nw_summary_items(const nw_rec_item *rows, size_t n, json_t *out);

#endif
