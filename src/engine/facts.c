/* Facts of an engine and rows of its ledger as JSON objects: see facts.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "artifact/artifact.h"

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static bool put_artifact(json_t *o, const nw_artifact *a)
{
    const nw_artifact_facts *f = nw_artifact_get_facts(a);

    return json_object_set_new(o, "model", json_string(nw_artifact_path(a))) == 0 &&
           json_object_set_new(o, "artifact_hash", json_string(nw_artifact_hash(a))) == 0 &&
           json_object_set_new(o, "recipe", json_string(nw_artifact_recipe(a))) == 0 &&
           json_object_set_new(o, "note", json_string(nw_artifact_note(a))) == 0 &&
           json_object_set_new(o, "file_bytes", number(f->file_bytes)) == 0 &&
           json_object_set_new(o, "effective_bits", json_real(f->effective_bits)) == 0;
}

json_t *nw_engine_facts_json(const nw_engine *e)
{
    const nw_engine_facts *f = nw_engine_get_facts(e);
    const struct {
        const char *key;
        json_t *value;
    } rows[] = {
        {"tier", json_string(f->tier)},
        {"threads", number(f->n_threads)},
        {"threads_why", json_string(f->threads_why)},
        {"act", json_string(nw_act_rule_name(f->act))},
        {"kv", json_string(f->kv)},
        {"kv_scales", json_string(f->kv_scales)},
        {"n_ctx", number(f->n_ctx)},
        {"max_seqs", number(f->max_seqs)},
        {"weight_bytes", number(f->weight_bytes)},
        {"embed_bytes", number(f->embed_bytes)},
        {"kv_bytes_per_token", number(f->kv_bytes_per_token)},
        {"kv_capacity_tokens", number(f->kv_capacity_tokens)},
        {"kv_bytes", number(f->kv_pool_bytes)},
        {"kv_wide_bytes", number(f->kv_wide_bytes)},
        {"workspace_bytes", number(f->workspace_bytes)},
        {"load_s", json_real(f->load_s)},
        {"kernel_map", json_string(f->kernel_map)},
        {"pid", json_integer((json_int_t)getpid())},
    };
    json_t *o = json_object();
    bool ok = o != NULL && put_artifact(o, nw_engine_artifact(e));

    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        ok = json_object_set_new(o, rows[i].key, rows[i].value) == 0 && ok;
    }
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *rows_json(const nw_ledger_row *rows, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        const nw_ledger_row *r = &rows[i];
        json_t *o = json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "op",
                              r->op_name, "layer", r->layer, "shape", r->shape, "phase",
                              r->phase_name, "intended", r->intended, "used", r->used, "calls",
                              (json_int_t)r->calls, "tokens", (json_int_t)r->tokens, "ns",
                              (json_int_t)r->ns, "bytes", (json_int_t)r->bytes, "bytes_converted",
                              (json_int_t)r->bytes_converted, "macs", (json_int_t)r->macs);
        if (o == NULL || json_array_append_new(list, o) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *nw_engine_ledger_json(nw_engine *e)
{
    const nw_ledger *l = nw_engine_ledger(e);
    const size_t n = nw_ledger_snapshot(l, NULL, 0);
    nw_ledger_row *rows = calloc(n > 0 ? n : 1, sizeof *rows);
    json_t *list = NULL;

    if (rows != NULL) {
        (void)nw_ledger_snapshot(l, rows, n);
        list = rows_json(rows, n);
    }
    free(rows);
    return list;
}
