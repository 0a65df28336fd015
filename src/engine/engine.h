/* Engine: a model opened for this machine (weights mapped, kernels picked, threads and KV pages
 * ready), sessions (one timeline of tokens with its KV) and the ragged step that runs the new
 * tokens of many sessions in one pass over the weights.
 *
 * Threads: an engine has one user at a time (a scheduler, or a command that calls step or score).
 * Bits: the logits of a token depend on the weights, the options and the tokens before it in its
 * session, never on the thread count, the other items of a step, or how a prompt was cut in chunks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_ENGINE_H
#define NW_ENGINE_ENGINE_H

#include "base/status.h"
#include "engine/ledger.h"
#include "formats/act_rule.h"

typedef struct nw_model_config nw_model_config; /* model/config.h */
typedef struct nw_tokenizer nw_tokenizer;       /* model/tokenizer.h */
typedef struct nw_artifact nw_artifact;         /* artifact/artifact.h */
typedef struct nw_engine nw_engine;
typedef struct nw_session nw_session;

#define NW_ENGINE_MAX_SEQS 256

typedef struct {
    unsigned n_threads; /* 0: what affinity and the cgroup quota allow */
    const char *tier;   /* kernel tier by name; NULL: the best this CPU can run */
    int act;            /* -1: as the artifact says, else an nw_act_rule */
    int kv_k, kv_v;   /* nw_kv_kind of kernels/attention.h; -1: the artifact's, or as wide as it */
    bool kv_as_model; /* with -1: as wide as the model, whatever the artifact says */
    uint32_t kv_window; /* newest tokens and first tokens that are kept in BF16 beside packed */
    uint32_t kv_sinks;  /* pages (kv_wide.h): multiples of page_tokens, 0: none */
    bool kv_channel;    /* keys scaled by channel, as the artifact's calibration says */
    bool kv_dynamic;    /* FP8: a scale a token, though the artifact has calibrated ones */
    uint32_t n_ctx;     /* longest session in tokens; 0: the model's, at most 8192 */
    uint32_t max_seqs;  /* 1..NW_ENGINE_MAX_SEQS sessions with KV at one time */
    uint32_t max_step_tokens; /* capacity of one ragged step */
    size_t kv_bytes;          /* size of the page pool; 0: max_seqs x n_ctx, capped by memory */
    bool no_tokenizer;        /* open a model that has none (nw_engine_tokenizer is then NULL) */
    bool swaps;               /* nw_engine_swap may be called: room for every kind of activation */
} nw_engine_options;

/* Auto threads and tier, activations as the manifest says, F32 KV, 8 sequences, 512 tokens. */
nw_engine_options nw_engine_options_default(void);

/* One of NW_ACT_RULE_NAMES. */
NW_MUST_USE nw_status nw_engine_act_parse(const char *name, nw_engine_options *o, nw_error *err);

/* KIND or KIND/KIND (keys/values), then any of +windowN, +sinksN, +channel, +dynamic, such as
 * "int4+window128+sinks64", into the KV fields. */
#define NW_ENGINE_KV_NAMES "f32, bf16, fp8, int8, int4, nor two of them as K/V"
NW_MUST_USE nw_status nw_engine_kv_parse(const char *name, nw_engine_options *o, nw_error *err);
/* The same of options, in its shortest form; out [NW_ENGINE_KV_TEXT], which it returns. */
#define NW_ENGINE_KV_TEXT 64
const char *nw_engine_kv_text(const nw_engine_options *o, char *out);
/* Whether the format wants what calibration found: scales of FP8, unless +dynamic, or key channels. */
bool nw_engine_kv_needs_numbers(const nw_engine_options *o);
/* F32, whatever the artifact says: the model as it is. */
void nw_engine_kv_plain(nw_engine_options *o);

/* What the engine is, for reports. Strings live as long as the engine. */
typedef struct {
    const char *tier; /* kernel tier in use */
    unsigned n_threads;
    const char *threads_why; /* "2 by affinity", "2 as asked" */
    nw_act_rule act;         /* of the inputs of quantized matrices */
    const char *kv_k, *kv_v; /* names of the KV kinds */
    const char *kv;          /* all of it: nw_engine_kv_text */
    const char
        *kv_scales; /* where scales come from: "none", "per token", "calibrated per tensor", .. */
    uint32_t n_ctx, max_seqs, max_step_tokens, page_tokens;
    uint64_t weight_bytes;       /* read for one decoded token: all matrices but the embedding, or
                                  * with it where the head is tied to it */
    uint64_t embed_bytes;        /* embedding table when the head does not share it, 0 otherwise */
    uint64_t kv_bytes_per_token; /* all layers, K and V */
    uint64_t kv_capacity_tokens; /* whole pool */
    uint64_t kv_pool_bytes;      /* wide copies included */
    uint64_t kv_wide_bytes;      /* of them */
    uint64_t workspace_bytes;    /* activations and scratch, fixed at open */
    double load_s;
    const char *kernel_map; /* "linear int8 avx512; attention int8 avx512; ..." */
} nw_engine_facts;

/* path: a native artifact folder, or any checkpoint. Opens its tokenizer too. Non-finite weights
 * are refused, naming the tensor. On failure *out is NULL. */
NW_MUST_USE nw_status nw_engine_open(const char *path, const nw_engine_options *o, nw_engine **out,
                                     nw_error *err);
/* Every session must be closed before. Takes NULL. */
void nw_engine_close(nw_engine *e);

const nw_model_config *nw_engine_config(const nw_engine *e);
const nw_tokenizer *nw_engine_tokenizer(const nw_engine *e);
const nw_artifact *nw_engine_artifact(const nw_engine *e);
const nw_engine_facts *nw_engine_get_facts(const nw_engine *e);
/* Cumulative; nw_ledger_reset clears it. */
nw_ledger *nw_engine_ledger(nw_engine *e);

/* A session is empty at first and takes KV pages as it grows. NW_E_BUSY when max_seqs are open. */
NW_MUST_USE nw_status nw_session_open(nw_engine *e, nw_session **out, nw_error *err);
void nw_session_close(nw_session *s); /* gives its pages back; takes NULL */
uint32_t nw_session_len(const nw_session *s);
/* For a session that holds the first tokens of ids[0..n), or none: takes over the KV pages that any
 * session computed for the tokens that follow, as long as they are still there; at least one token
 * is left to run. Returns how many tokens the session has then: they need not be fed. Logits that
 * follow have the same bits as without. len < n <= n_ctx. */
uint32_t nw_session_attach(nw_session *s, const int32_t *ids, uint32_t n);
/* Forgets the tokens from n on (n <= len); whole pages go back to the pool. Returns how many tokens
 * are left: n, or fewer where wide copies that the next query needs (kv_wide.h) are not there any more:
 * the rest must be fed again. 0 and len are always reached. */
uint32_t nw_session_truncate(nw_session *s, uint32_t n);

/* The pool, in pages of page_tokens tokens (all layers and heads of one page count as one). */
uint32_t nw_engine_pages_total(const nw_engine *e);
uint32_t nw_engine_pages_free(const nw_engine *e);
/* Pages that a session must still take to hold n_tokens tokens; free ones that are only remembered
 * count as free. */
uint32_t nw_session_pages_needed(const nw_session *s, uint32_t n_tokens);

typedef struct {
    nw_session *session;
    const int32_t *tokens; /* [n_tokens] ids in [0, n_vocab), appended to the session */
    uint32_t n_tokens;     /* 1.. */
    uint32_t n_logits;     /* logits wanted for the last n_logits of these tokens */
    float *logits;         /* [n_logits][n_vocab] out; NULL when n_logits is 0 */
} nw_step_item;

/* Runs all items in one pass. Each session at most once; the sum of n_tokens is at most
 * max_step_tokens. Allocates nothing.
 * Errors, before anything changes: NW_E_RANGE for an id, a count or a length out of range,
 * NW_E_BUSY when the page pool cannot hold the new tokens. */
NW_MUST_USE nw_status nw_engine_step(nw_engine *e, const nw_step_item *items, size_t n_items,
                                     nw_error *err);

/* What the matrices of a layer read: x [n_tokens][n_cols] in F32, before it is packed for a kernel.
 * `role` (an nw_role) is the first matrix that reads it: q (with k and v), o, gate (with up), down; or
 * k or v: then x is the keys or values of all kv heads as they are kept. */
typedef void (*nw_input_fn)(void *ctx, int role, uint32_t layer, const float *x, uint32_t n_tokens,
                            uint32_t n_cols);

/* Runs one layer alone over a sequence of its own (1 <= n <= n_ctx and max_step_tokens): x
 * [n][d_model] is the residual stream before the layer and becomes the one after it. For the first
 * layer it is the embedding times embed_scale. on_input (may be NULL) sees what each matrix reads.
 * A model can so be walked layer by layer, with many sequences a layer. Errors as of a step. */
NW_MUST_USE nw_status nw_engine_layer(nw_engine *e, uint32_t layer, const int32_t *ids, uint32_t n,
                                      float *x, nw_input_fn on_input, void *ctx, nw_error *err);

/* From the next step on the matrix of a role (an nw_role; layer -1 for those of no layer) is that of
 * `from`, an artifact of the same shape that stays open as long as it is used; NULL: the engine's own
 * again. A tied embedding is head and look-up. No session may hold tokens. */
NW_MUST_USE nw_status nw_engine_swap(nw_engine *e, const nw_artifact *from, int role, int32_t layer,
                                     nw_error *err);

/* Gets the logits [n_vocab] that follow ids[0..pos]; false stops the pass with NW_E_CANCELLED. */
typedef bool (*nw_logits_fn)(void *ctx, size_t pos, const float *logits);

/* Logits at the positions first..n-1 of a sequence of its own (1 <= n <= n_ctx), in order, by
 * chunked prefill through a session that is none of max_seqs. NW_E_BUSY when the page pool is dry. */
NW_MUST_USE nw_status nw_engine_score(nw_engine *e, const int32_t *ids, size_t n, size_t first,
                                      nw_logits_fn on_logits, void *ctx, nw_error *err);

#endif
