/* The inside of an engine: everything is sized at open, so that a step allocates nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_STATE_H
#define NW_ENGINE_STATE_H

#include "artifact/kv_scales.h"
#include "base/pool.h"
#include "engine/ahead.h"
#include "engine/engine.h"
#include "engine/kv.h"
#include "engine/rope.h"
#include "engine/weights.h"
#include "kernels/kernels.h"
#include "model/tokenizer.h"

/* Panels of one work item of a linear: 64 rows, the widest tile of any kernel. */
#define NW_ITEM_PANELS 4u
#define NW_ITEM_ROWS   (NW_ITEM_PANELS * NW_PANEL_ROWS)
/* Panels of gate, then of up, of one work item: where one ends, reading starts anew elsewhere. */
#define NW_FFN_PANELS (2 * NW_ITEM_PANELS)
#define NW_FFN_ROWS   (NW_FFN_PANELS * NW_PANEL_ROWS)
/* Tokens of one work item of a norm or a packing, and queries of one item of attention. */
#define NW_ITEM_TOKENS  8u
#define NW_ITEM_QUERIES 16u

/* A run of tokens of one session within a step: positions pos.. are tokens t0.. of the step. */
typedef struct {
    const nw_session *session;
    uint32_t t0, n, pos;
} nw_run;

/* What one step computes, and the scratch it computes in; n_max is max_step_tokens. */
typedef struct {
    nw_phase phase;
    uint32_t n_tokens, n_pieces, n_chunks, n_rows;
    int32_t *ids;             /* [n_max] */
    nw_run *pieces;           /* [n_max] runs within one KV page: units of kv_put */
    nw_run *chunks;           /* [n_max] runs of at most NW_ITEM_QUERIES: units of attention */
    uint32_t *row_token;      /* [n_max] token of the step whose logits are wanted */
    float **row_out;          /* [n_max] where they go */
    uint64_t kv_tokens;       /* keys that the chunks read, each chunk once, for the ledger */
    uint64_t kv_tokens_local; /* the same in a layer with a sliding window */
    uint64_t kv_wide, kv_wide_local;   /* of these, from wide copies */
    uint64_t kv_pairs, kv_pairs_local; /* pairs of a query and a key it sees */
    float *x, *y, *h;        /* [n_max][d_model] residual, output of o and down, normed input */
    float *q, *k, *v;        /* [n_max][n_heads or n_kv_heads * d_head] */
    float *attn;             /* [n_max][n_heads * d_head] */
    float *gate;             /* [n_max][d_ff] */
    void *act[NW_ACT_KINDS]; /* packed activations of up to n_max tokens of max_cols columns */
    void **attn_scratch;     /* [n_threads] */
    float *attn_parts;       /* nw_attn.parts of up to 2 n_threads - 1 kv heads of single tokens,
                              * where threads share the keys of one (forward_attention.c) */
    float **tile_scratch;    /* [n_threads] of [n_max][NW_FFN_ROWS] */
    float *wide;             /* [n_max][n_wide] of an input (wide.h); NULL where nothing is wide */
    void *wide_act;          /* the same, packed */
    float **wide_out;        /* [n_threads] of [n_max][NW_FFN_ROWS] */
} nw_work;

struct nw_engine {
    nw_engine_options opt;
    nw_engine_facts facts;
    char asked[32]; /* of facts.threads_why */
    nw_artifact *artifact;
    const nw_artifact *embed; /* whose embedding is looked up: its own, but for nw_engine_swap */
    nw_tokenizer *tokenizer;
    const nw_model_config *config;
    const nw_kernels *kernels;
    bool a8;        /* facts.act is a8 */
    bool has_fixed; /* what the artifact fixes of inputs is of the rule in use */
    nw_pool *pool;
    nw_arena arena;
    nw_weights weights;
    nw_rope_table rope_global, rope_local;
    nw_kv_pool kv;
    const nw_artifact_kv *kv_said; /* of the artifact */
    nw_session *sessions;          /* [max_seqs + 1]; the last one is score's own */
    nw_session *free_sessions;     /* list */
    nw_ledger *ledger;
    nw_ahead ahead;
    nw_work work;
    float *score_logits; /* [score_rows][n_vocab], made by the first score */
    uint32_t score_rows;
    uint64_t step_no;
    bool is_moving;       /* weights may have to move into huge pages, a little before each step */
    double step_s;        /* of the last step while they do; 0: none has run */
    nw_input_fn on_input; /* NULL but within nw_engine_layer */
    void *on_input_ctx;
};

/* Sizes everything in e->work and e->sessions from options and config. */
NW_MUST_USE nw_status nw_work_open(nw_engine *e, nw_error *err);

/* Runs the step that e->work describes: writes KV, and logits where rows are wanted. */
void nw_forward(nw_engine *e);

/* Checks and lays out one step in e->work, as nw_engine_step does before it runs it. */
NW_MUST_USE nw_status nw_step_plan(nw_engine *e, const nw_step_item *items, size_t n_items,
                                   nw_error *err);

/* Names the kernels of every op in the ledger and builds facts.kernel_map. */
NW_MUST_USE nw_status nw_describe_kernels(nw_engine *e, nw_error *err);

#endif
