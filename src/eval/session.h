/* What the layers of one evaluation share: the options, the engines opened so far, the record.
 * Internal to eval. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_SESSION_H
#define NW_EVAL_SESSION_H

#include "engine/engine.h"
#include "eval/evaluate.h"
#include "record/record.h"
#include "target/target.h"

typedef struct {
    const nw_eval_options *o;
    nw_record *record;         /* NULL: none asked for */
    nw_engine *engine;         /* NULL for a URL, or when no layer needs it */
    nw_engine *base;           /* NULL without a baseline */
    nw_target *remote;         /* a URL; NULL otherwise */
    nw_tokenizer *tokenizer;   /* of options.tokenizer, for a URL; NULL */
    uint32_t max_len;          /* context of a URL's server; 0: not known */
    json_t *absent;            /* {layer: why it is not measured}; NULL: nothing is missing */
    const char *artifact_hash; /* of the target; its URL where it is a server */
    const char *machine_hash;
    char hash_text[65], machine_text[65];
    json_t *out; /* summary, one key a layer */
} nw_eval_session;

/* One layer's run in the record. Without a record, or before begin, all calls do nothing. */
typedef struct {
    nw_eval_session *s;
    int64_t id;
    bool reused; /* done before: its rows are there */
} nw_eval_run;

/* settings: what must be equal for two runs to be compared; borrowed. data_hash: of the text or the
 * suite. */
NW_MUST_USE nw_status nw_eval_run_begin(nw_eval_session *s, const char *suite,
                                        const json_t *settings, const char *data_hash,
                                        nw_eval_run *run, nw_error *err);
/* Ends the run as st says ("done", "cancelled", "failed"); returns st, or what went wrong here. */
NW_MUST_USE nw_status nw_eval_run_end(nw_eval_run *run, nw_status st, nw_error *err);

/* The tokenizer whose ids are scored: the engine's, or that of options.tokenizer; NULL: the server's. */
const nw_tokenizer *nw_eval_tokenizer(const nw_eval_session *s);
unsigned nw_eval_parallel(const nw_eval_session *s);

/* Layers: each adds its summary to s->out. */
NW_MUST_USE nw_status nw_eval_perplexity(nw_eval_session *s, nw_error *err);
NW_MUST_USE nw_status nw_eval_choice(nw_eval_session *s, nw_error *err);
NW_MUST_USE nw_status nw_eval_generate(nw_eval_session *s, nw_error *err);

#endif
