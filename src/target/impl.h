/* What stands behind a target: a table of functions and the state they work on. Inside src/target.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TARGET_IMPL_H
#define NW_TARGET_IMPL_H

#include "target/gen.h"

typedef struct {
    NW_MUST_USE nw_status (*start)(void *impl, const nw_gen_request *req,
                                   const nw_gen_callbacks *cb, uint64_t *id, nw_error *err);
    void (*cancel)(void *impl, uint64_t id);
    NW_MUST_USE nw_status (*score)(void *impl, const int32_t *ids, size_t n, size_t n_context,
                                   float *logprob, bool *greedy, nw_error *err);
    /* NW_OK, or NW_E_UNSUPPORTED with the reason; may ask a server */
    NW_MUST_USE nw_status (*can_score)(void *impl, nw_error *err);
    /* where the target has no tokenizer of its own here */
    NW_MUST_USE nw_status (*tokenize)(void *impl, const char *text, size_t n_bytes, bool add_bos,
                                      int32_t **ids, size_t *n, nw_error *err);
    NW_MUST_USE nw_status (*probe)(void *impl, nw_target *t, json_t **out, nw_error *err);
    NW_MUST_USE nw_status (*check_tokenizer)(void *impl, const nw_tokenizer *tok, nw_error *err);
    json_t *(*facts)(void *impl);
    void (*close)(void *impl); /* ends every request first */
} nw_target_ops;

struct nw_target {
    const nw_target_ops *ops;
    void *impl;
    nw_target_kind kind;
    char *model;
    uint32_t max_len;              /* as a server says; 0: not known */
    nw_tokenizer *own_tokenizer;   /* opened from options.tokenizer; NULL */
    const nw_tokenizer *tokenizer; /* own or the engine's; NULL: none */
};

/* Each fills in ops, impl, model and (local) tokenizer; on failure t is as it was. */
NW_MUST_USE nw_status nw_local_open(const char *path, const nw_target_options *opt, nw_target *t,
                                    nw_error *err);
NW_MUST_USE nw_status nw_endpoint_open(const char *url, const nw_target_options *opt, nw_target *t,
                                       nw_error *err);

#endif
