/* Generate suites: each item's chat is answered by the target, greedily, and graded by its rule.
 * What was generated, how long it was and why it stopped is kept for every item: a format that
 * answers longer or never stops is not serving the same (MEASURES section 5, length band).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_GENERATE_H
#define NW_EVAL_GENERATE_H

#include "eval/suite.h"
#include "target/target.h"

typedef struct {
    bool answered; /* false: see error; the item then counts as wrong */
    bool correct;
    uint32_t n_prompt, n_output;
    nw_gen_finish finish;
    char *text;  /* owned; NULL when not answered */
    char *error; /* owned; NULL when answered */
} nw_gen_answer;

/* At most n_parallel requests are under way at a time. *out [suite->n_items] is owned by the caller:
 * nw_gen_answers_free. A target that refuses every item is an error, not a score of zero. */
NW_MUST_USE nw_status nw_generate_run(nw_target *t, const nw_suite *suite, unsigned n_parallel,
                                      uint64_t seed, nw_gen_answer **out, nw_error *err);
void nw_gen_answers_free(nw_gen_answer *answers, size_t n);

#endif
