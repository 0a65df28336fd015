/* One evaluation: the layers asked for, on a target, paired with a baseline, into a record.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_EVALUATE_H
#define NW_EVAL_EVALUATE_H

#include <jansson.h>

#include "base/status.h"

#define NW_EVAL_LAYER_MAP(X)       \
    X(PERPLEXITY, 0, "perplexity") \
    X(CHOICE, 1, "choice")         \
    X(GENERATE, 2, "generate")

typedef enum {
#define NW_EVAL_LAYER_ENUM(name, bit, text) NW_EVAL_##name = 1 << (bit),
    NW_EVAL_LAYER_MAP(NW_EVAL_LAYER_ENUM)
#undef NW_EVAL_LAYER_ENUM
} nw_eval_layer;

/* Strings are borrowed; NULL and 0 mean the default in brackets. */
typedef struct {
    const char *target;   /* artifact, checkpoint, or URL of a server */
    const char *baseline; /* artifact or checkpoint for KL and agreement (none) */
    unsigned layers;      /* nw_eval_layer bits (all that have their input) */
    const char *text;     /* perplexity: the text */
    uint32_t n_ctx;       /* perplexity: tokens of a window (512) */
    uint32_t stride;      /* perplexity: 0 for llama-perplexity's chunks */
    uint32_t max_windows; /* perplexity (all) */
    const char *choice;   /* suite (builtin:basics) */
    const char *generate; /* suite (builtin:assistant) */
    uint32_t max_items;   /* of each suite (all, or the generator's own number) */
    uint64_t seed;        /* of the generators */
    unsigned n_parallel;  /* generate, and all layers on a server: requests in flight (16) */
    unsigned n_threads;   /* engine (by affinity and quota) */
    const char *tier, *kv, *act, *api_key, *model;
    const char *tokenizer; /* server: model whose tokenizer gives its ids (the server's own) */
    unsigned max_retries;  /* server: of a request it had no room for (none) */
    unsigned timeout_s;    /* server: for an answer (600) */
    double max_rate;       /* server: requests/s at most (no limit) */
    const char *record, *candidate, *role; /* record file, name and role of the target in it */
} nw_eval_options;

/* *out: what was measured, for the terminal and --json; owned by the caller. A layer already done
 * in the record with the same settings and artifact is not run again and says "reused". What a server
 * cannot give stands under "not_measured", with the reason, here and in the candidate's row; it is an
 * error only where nothing at all could be measured. */
NW_MUST_USE nw_status nw_evaluate(const nw_eval_options *o, json_t **out, nw_error *err);

#endif
