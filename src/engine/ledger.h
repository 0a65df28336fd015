/* Kernel ledger: for each (op, layer, phase) which kernel was intended, which one ran, how often,
 * how long, how many bytes it read and converted and how many multiply-adds it did, so that a slow
 * path or a copy is a fact of the record and not a guess. Always on: two clock reads an op. On demand
 * it also keeps every single op as an event of a trace.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_LEDGER_H
#define NW_ENGINE_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* name of the enumerator, text */
#define NW_OP_MAP(X)                   \
    X(EMBED, "embed")                  \
    X(ATTN_NORM, "residual_attn_norm") \
    X(QKV, "qkv")                      \
    X(ROPE_KV, "rope_kv_put")          \
    X(ATTENTION, "attention")          \
    X(O_PACK, "o_pack")                \
    X(O, "o")                          \
    X(FFN_NORM, "residual_ffn_norm")   \
    X(GATE_UP, "gate_up_act")          \
    X(DOWN_PACK, "down_pack")          \
    X(DOWN, "down")                    \
    X(OUT_NORM, "residual_out_norm")   \
    X(HEAD, "head")

typedef enum {
#define NW_OP_ENUM(name, text) NW_OP_##name,
    NW_OP_MAP(NW_OP_ENUM)
#undef NW_OP_ENUM
        NW_OP_COUNT
} nw_op;

/* A step where every item brings one token is decode, where every item brings more is prefill; a
 * step of both kinds is mixed: its time belongs to no single one of them. */
typedef enum { NW_PHASE_PREFILL, NW_PHASE_DECODE, NW_PHASE_MIXED, NW_PHASE_COUNT } nw_phase;

typedef struct {
    nw_op op;
    const char *op_name;
    int32_t layer;  /* -1: not in a layer */
    char shape[32]; /* "576x1536": rows x cols of the weight, heads x d_head of attention */
    nw_phase phase;
    const char *phase_name; /* "prefill" "decode" "mixed" */
    const char *intended;   /* kernel the picked tier means for these kinds */
    const char *used;       /* kernel that ran; differs on a fallback */
    uint64_t calls, tokens, ns;
    uint64_t bytes;           /* weights or KV read */
    uint64_t bytes_converted; /* activations written in another kind for this op */
    uint64_t macs;            /* multiply-adds of its matrices, or of attention */
} nw_ledger_row;

typedef struct nw_ledger nw_ledger;

/* One op of one layer (layer -1: of none) that ran. */
typedef struct {
    nw_op op;
    int32_t layer;
    nw_phase phase;
    uint64_t tokens, ns, bytes, bytes_converted, macs;
    int64_t start_ns; /* CLOCK_MONOTONIC */
} nw_ledger_entry;

/* Tables for n_layers layers, in one allocation; NULL without memory. */
nw_ledger *nw_ledger_new(uint32_t n_layers);
void nw_ledger_free(nw_ledger *l);
/* Names are borrowed and outlive the ledger; `shape` is copied and may be cut. */
void nw_ledger_describe(nw_ledger *l, nw_op op, int32_t layer, const char *shape,
                        const char *intended, const char *used);
void nw_ledger_add(nw_ledger *l, const nw_ledger_entry *e);

/* Copies the rows that ran at least once into rows[cap]; returns how many there are. Called by the
 * engine's user; strings live as long as the engine. */
size_t nw_ledger_snapshot(const nw_ledger *l, nw_ledger_row *rows, size_t cap);
void nw_ledger_reset(nw_ledger *l);

/* Keeps the next `cap` ops as events, in one allocation made here; what follows is only counted. */
NW_MUST_USE nw_status nw_ledger_trace(nw_ledger *l, size_t cap, nw_error *err);
/* Writes the events as a Chrome trace ("traceEvents", complete events, microseconds), which Perfetto
 * and chrome://tracing open: a track a phase, an event an op with its layer, bytes and kernel. */
NW_MUST_USE nw_status nw_ledger_trace_write(const nw_ledger *l, const char *path, nw_error *err);

#endif
