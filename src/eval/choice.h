/* Choice suites: the likelihood of each continuation after the prompt, by the local engine (remote.h: by a server).
 *
 *   context = ids of the prompt, whole = ids of prompt + choice; scored are exactly the tokens
 *   whole[len(context)..], as lm-evaluation-harness cuts them
 *   sum    argmax of sum ln p            ("acc")
 *   bytes  argmax of sum ln p / bytes    ("acc_norm")
 * An item that does not fit the context is not scored and says so; it is never cut (REPORTS H3).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_CHOICE_H
#define NW_EVAL_CHOICE_H

#include "engine/engine.h"
#include "eval/suite.h"

typedef struct {
    bool scored;              /* false: too long, see n_tokens */
    uint32_t n_tokens;        /* longest of its sequences */
    uint32_t n_context;       /* tokens of the prompt */
    int best_sum, best_bytes; /* index of the choice; -1 when not scored */
    double *logprob;          /* [n_choices] nats, owned by the answers */
} nw_choice_answer;

typedef struct {
    nw_choice_answer *items; /* [suite->n_items] */
    double *storage;
} nw_choice_answers;

NW_MUST_USE nw_status nw_choice_run(nw_engine *e, const nw_suite *suite, nw_choice_answers *out,
                                    nw_error *err);
void nw_choice_answers_release(nw_choice_answers *a);

/* Room for the answers of a suite, of *n choices together; and the choice that an item's scores make. */
NW_MUST_USE nw_status nw_choice_answers_open(const nw_suite *suite, nw_choice_answers *a, size_t *n,
                                             nw_error *err);
void nw_choice_pick(const nw_item *it, nw_choice_answer *a);

#endif
