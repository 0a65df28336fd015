/* One generation on its way: what both implementations of a target fill in as tokens arrive, and the
 * place where results are made, so that times and counts mean the same for both.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TARGET_GEN_H
#define NW_TARGET_GEN_H

#include "base/buf.h"
#include "target/target.h"

typedef struct nw_tokenizer nw_tokenizer; /* model/tokenizer.h */

typedef struct {
    uint64_t id;
    nw_gen_callbacks cb;
    const nw_tokenizer *recount; /* NULL: no recount */
    nw_gen_result r;             /* pointers are set at the end */
    int64_t created_ns;
    nw_buf text;
    nw_gen_mark *marks;
    size_t n_marks, cap_marks;
    int32_t *ids; /* with logprobs: one entry a token; NULL for an endpoint */
    float *logprobs;
    size_t n_ids, cap_ids;
    bool no_memory; /* sticky */
    bool ended;
} nw_gen;

#define NW_GEN_TEXT_MAX ((size_t)64 << 20)

/* Checks what no target can run: NW_E_RANGE, NW_E_USAGE. */
NW_MUST_USE nw_status nw_gen_check(const nw_gen_request *req, nw_error *err);
void nw_gen_init(nw_gen *g, uint64_t id, const nw_gen_request *req, const nw_gen_callbacks *cb,
                 const nw_tokenizer *recount);
void nw_gen_dispatched(nw_gen *g, int64_t t_ns); /* the first call counts */
/* A receipt of n bytes and n_tokens tokens (0: not said). Nothing of both is no receipt. */
void nw_gen_receive(nw_gen *g, const char *text, size_t n, uint32_t n_tokens, int64_t t_ns);
void nw_gen_token(nw_gen *g, int32_t id, float logprob);
/* Calls on_done, once; later calls do nothing. `why` may be NULL when status is NW_OK. */
void nw_gen_end(nw_gen *g, nw_status status, nw_gen_finish finish, const char *why);
void nw_gen_release(nw_gen *g);

#endif
