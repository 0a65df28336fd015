/* A policy: which gates a candidate must pass, by how much it may be worse, and what is chosen among
 * those that pass. Read from YAML and hashed before any data is seen; every mistake is shown as
 * path:line:column.
 *
 *   policy: default
 *   alpha: 0.05            # each gate, one-sided
 *   holm: true             # over candidates, and over the slices of a FAIL
 *   draws: 10000           # bootstrap of the gates
 *   gates:
 *     - {name: accuracy, kind: accuracy, suites: "choice:*",
 *        margin: {int4: 0.01, w8a8: 0.005, int4_kv: 0.01}, advice: "more bits"}
 *   batch1: {ttft_ms: 0, tpot_ms: 0}
 *   saturated: {ttft_ms: 1000, tpot_ms: 60, attainment: 0.9}
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_DECIDE_POLICY_H
#define NW_DECIDE_POLICY_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"

/* kind in YAML, what it bounds, unit of what is printed */
#define NW_GATE_MAP(X)                                                                            \
    X(ACCURACY, "accuracy", "pp")     /* mean score, difference */                                \
    X(RELATIVE, "relative", "%")      /* mean score, ratio */                                     \
    X(PERPLEXITY, "perplexity", "ln") /* ln of the ratio of perplexities */                       \
    X(KL, "kl", "nats")               /* mean KL to the baseline, at most the margin */           \
    X(TOP1, "top1", "%")              /* share of tokens with another most likely one, at most */ \
    X(LENGTH, "length", "%")          /* tokens and stops a reply, within 1 +- margin */          \
    X(TTFT, "ttft", "ms")             /* q-th percentile under limit_ms */                        \
    X(TPOT, "tpot", "ms")                                                                         \
    X(ATTAINMENT, "attainment", "%") /* share of requests inside the SLO, at least min */         \
    X(SCALAR, "metric", "")          /* a metric of the record, min and/or max */

typedef enum {
#define NW_GATE_ENUM(name, text, unit) NW_GATE_##name,
    NW_GATE_MAP(NW_GATE_ENUM)
#undef NW_GATE_ENUM
        NW_GATE_COUNT
} nw_gate_kind;

typedef enum { NW_REGIME_BATCH1, NW_REGIME_SATURATED, NW_REGIME_COUNT } nw_regime;
const char *nw_regime_name(nw_regime r); /* "batch1" "saturated" */

/* What a candidate is, for its margins; several may hold at once. */
typedef enum {
    NW_CLASS_INT4,    /* 4-bit weights */
    NW_CLASS_W8A8,    /* 8-bit weights, FP8 or INT8 */
    NW_CLASS_INT4_KV, /* 4-bit keys or values */
    NW_CLASS_COUNT
} nw_class;

typedef struct {
    const char *name;
    nw_gate_kind kind;
    bool advisory;                   /* printed, never decides */
    bool optional;                   /* no suite of this name in the record: not missing */
    const char *suites;              /* globs with '*', separated by commas */
    double margin[NW_CLASS_COUNT];   /* NaN: does not apply to the class */
    double increase[NW_CLASS_COUNT]; /* of perplexity, the common rule; printed beside; NaN: none */
    double q, limit_ms;              /* TTFT, TPOT */
    double min, max;                 /* ATTAINMENT, SCALAR; NaN: none */
    const char *metric;              /* SCALAR */
    nw_regime regime;                /* TTFT, TPOT, ATTAINMENT, SCALAR */
    const char *advice;              /* what to do when it fails; NULL */
} nw_gate;

typedef struct {
    double ttft_ms, tpot_ms; /* SLO of goodput; 0: no such limit */
    double attainment;       /* of the baseline at the operating point */
    double eps;              /* share below which a difference does not count */
} nw_regime_rule;

typedef struct {
    const char *name;
    char *text; /* as it was hashed */
    nw_digest hash;
    double alpha, power;
    bool holm;
    size_t draws, frontier_draws;
    uint64_t seed;
    double floor; /* a baseline whose lower bound is not this far above chance decides nothing */
    double dominated; /* share of draws from which a point is called dominated */
    nw_gate *gates;
    size_t n_gates;
    nw_regime_rule regimes[NW_REGIME_COUNT];
    nw_arena arena;
} nw_policy;

/* path NULL: policies/default.yaml as it was when the program was built. */
NW_MUST_USE nw_status nw_policy_load(const char *path, nw_policy *out, nw_error *err);
void nw_policy_release(nw_policy *p); /* takes an all-zero one */

const char *nw_gate_kind_name(nw_gate_kind k);
const char *nw_gate_unit(nw_gate_kind k);
bool nw_gate_is_speed(nw_gate_kind k); /* measured under load or at batch 1, not quality */

/* "choice:*,*tool*" against "choice:basics". */
bool nw_glob_match(const char *globs, const char *name);

/* policies/default.yaml, put into the program by the build; NUL-terminated. */
extern const char nw_policy_default[];

#endif
