/* What an engine is, as JSON: for /narrow/facts of the server and for the facts of a local target, so
 * that a record says the same whichever way an artifact was run.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_FACTS_H
#define NW_ENGINE_FACTS_H

#include <jansson.h>

#include "engine/engine.h"

/* {"model", "artifact_hash", "recipe", "note", "tier", "threads", "threads_why", "act", "kv",
 * "kv_scales", "kv_wide_bytes",
 * "n_ctx", "max_seqs", "weight_bytes", "embed_bytes", "file_bytes", "effective_bits",
 * "kv_bytes_per_token", "kv_capacity_tokens", "kv_bytes", "workspace_bytes", "load_s", "kernel_map",
 * "pid"}. New reference; NULL when there is no memory. */
json_t *nw_engine_facts_json(const nw_engine *e);

/* The ledger as an array of objects with the columns of the record's table "kernel". Call it from the
 * engine's user. */
json_t *nw_engine_ledger_json(nw_engine *e);

#endif
