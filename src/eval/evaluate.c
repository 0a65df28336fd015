/* Opens what the layers need, in the order of what fails first, and runs them one after the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "eval/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/hash.h"
#include "base/log.h"
#include "eval/session.h"
#include "model/tokenizer.h"
#include "model/unicode.h"
#include "record/fingerprint.h"

enum { DEFAULT_PARALLEL = 16 };

static nw_status open_engine(const nw_eval_options *o, const char *path, bool is_base,
                             nw_engine **out, nw_error *err)
{
    nw_engine_options e = nw_engine_options_default();

    e.n_threads = o->n_threads;
    e.tier = o->tier;
    e.max_seqs = 64;
    if (is_base) { /* the model as it is: keys and values unquantized */
        e.kv_as_model = true;
    } else if ((o->act != NULL && nw_engine_act_parse(o->act, &e, err) != NW_OK) ||
               (o->kv != NULL && nw_engine_kv_parse(o->kv, &e, err) != NW_OK)) {
        return err->code;
    }
    return nw_engine_open(path, &e, out, err);
}

static nw_status put_candidate(nw_eval_session *s, nw_error *err)
{
    const nw_eval_options *o = s->o;
    nw_rec_candidate row = {.name = o->candidate,
                            .role = o->role != NULL ? o->role : "candidate",
                            .artifact = o->target,
                            .artifact_hash = s->artifact_hash,
                            .weights = NULL,
                            .kv = o->kv,
                            .act = o->act,
                            .file_bytes = -1,
                            .weight_bytes = -1,
                            .effective_bits = NAN};
    char *json = NULL;

    if (s->engine != NULL) {
        const nw_artifact *a = nw_engine_artifact(s->engine);
        const nw_artifact_facts *f = nw_artifact_get_facts(a);
        const nw_engine_facts *e = nw_engine_get_facts(s->engine);
        json_t *facts = json_pack("{s:s, s:s, s:f, s:f}", "note", nw_artifact_note(a), "recipe",
                                  nw_artifact_recipe(a), "nominal_bits", f->nominal_bits,
                                  "target_bits", f->target_bits);
        json = facts == NULL ? NULL : nw_json_canonical(facts);
        json_decref(facts);
        row.weights = nw_artifact_recipe(a);
        row.kv = e->kv;
        row.act = nw_act_rule_name(e->act);
        row.file_bytes = (int64_t)f->file_bytes;
        row.weight_bytes = (int64_t)f->weight_bytes;
        row.effective_bits = f->effective_bits;
        row.json = json;
    }
    if (s->absent != NULL) {
        json_t *missing = json_pack("{s:O}", "not_measured", s->absent);
        json = missing != NULL ? nw_json_canonical(missing) : NULL;
        row.json = json;
        json_decref(missing);
    }
    const nw_status st = nw_record_candidate_put(s->record, &row, err);
    free(json);
    return st;
}

static nw_status open_record(nw_eval_session *s, nw_error *err)
{
    nw_fingerprint machine = {.json = NULL};

    if (s->o->record == NULL) {
        return NW_OK;
    }
    if (nw_record_open(s->o->record, NW_RECORD_WRITE, &s->record, err) != NW_OK ||
        nw_fingerprint_take(&machine, err) != NW_OK) {
        return err->code;
    }
    const nw_status st = nw_record_machine_put(s->record, machine.hash.hex, machine.json, err);
    memcpy(s->machine_text, machine.hash.hex, sizeof s->machine_text);
    s->machine_hash = s->machine_text;
    nw_fingerprint_release(&machine);
    return st == NW_OK ? put_candidate(s, err) : st;
}

/* The server, and the hash of what it runs where it is one of narrow's. */
static nw_status open_remote(nw_eval_session *s, nw_error *err)
{
    const nw_eval_options *o = s->o;
    const nw_target_options t = {.tokenizer = o->tokenizer,
                                 .api_key = o->api_key,
                                 .model = o->model,
                                 .max_retries = o->max_retries,
                                 .timeout_s = o->timeout_s,
                                 .max_rate = o->max_rate};
    nw_status st = nw_target_open(o->target, &t, &s->remote, err);

    if (st == NW_OK && o->tokenizer != NULL) {
        st = nw_tokenizer_open(o->tokenizer, &s->tokenizer, err);
        st = st == NW_OK ? nw_target_check_tokenizer(s->remote, err) : st;
    }
    if (st == NW_OK) {
        json_t *facts = nw_target_facts(s->remote);
        const char *hash = json_string_value(json_object_get(facts, "artifact_hash"));
        (void)snprintf(s->hash_text, sizeof s->hash_text, "%.64s",
                       hash != NULL ? hash : nw_target_model(s->remote));
        nw_utf8_mend(s->hash_text);
        s->artifact_hash = s->hash_text;
        s->max_len = nw_target_max_len(s->remote);
        json_decref(facts);
    }
    return st;
}

const nw_tokenizer *nw_eval_tokenizer(const nw_eval_session *s)
{
    return s->engine != NULL ? nw_engine_tokenizer(s->engine) : s->tokenizer;
}

unsigned nw_eval_parallel(const nw_eval_session *s)
{
    return s->o->n_parallel > 0 ? s->o->n_parallel : DEFAULT_PARALLEL;
}

static nw_status open_engines(nw_eval_session *s, unsigned layers, nw_error *err)
{
    const nw_eval_options *o = s->o;
    const bool url = nw_target_spec_is_url(o->target);

    s->artifact_hash = o->target;
    if (url) {
        return open_remote(s, err);
    }
    nw_status st = open_engine(o, o->target, false, &s->engine, err);
    if (st == NW_OK) {
        (void)snprintf(s->hash_text, sizeof s->hash_text, "%s",
                       nw_artifact_hash(nw_engine_artifact(s->engine)));
        s->artifact_hash = s->hash_text;
    }
    if (st == NW_OK && o->baseline != NULL && (layers & NW_EVAL_PERPLEXITY) != 0) {
        st = open_engine(o, o->baseline, true, &s->base, err);
    }
    return st;
}

nw_status nw_eval_run_begin(nw_eval_session *s, const char *suite, const json_t *settings,
                            const char *data_hash, nw_eval_run *run, nw_error *err)
{
    nw_digest digest;
    bool resumed = false;

    *run = (nw_eval_run){.s = s};
    if (s->record == NULL) {
        return NW_OK;
    }
    char *text = nw_json_canonical(settings);
    if (text == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its settings", suite);
    }
    const nw_engine_facts *f = s->engine != NULL ? nw_engine_get_facts(s->engine) : NULL;
    nw_status st = nw_digest_bytes(text, strlen(text), &digest, err);
    const nw_rec_run row = {.candidate = s->o->candidate,
                            .stage = "quality",
                            .suite = suite,
                            .settings_hash = digest.hex,
                            .settings_json = text,
                            .data_hash = data_hash,
                            .artifact_hash = s->artifact_hash,
                            .machine_hash = s->machine_hash,
                            .kernel_map = f != NULL ? f->kernel_map : NULL,
                            .threads = f != NULL ? (int64_t)f->n_threads : -1,
                            .seed = (int64_t)s->o->seed,
                            .tool_version = NW_VERSION};
    st = st == NW_OK ? nw_record_run_done(s->record, row.candidate, row.stage, suite, digest.hex,
                                          s->artifact_hash, row.kernel_map, &run->id, err)
                     : st;
    run->reused = st == NW_OK && run->id != 0;
    if (st == NW_OK && run->id == 0) {
        st = nw_record_run_begin(s->record, &row, false, &run->id, &resumed, err);
    }
    free(text);
    return st;
}

nw_status nw_eval_run_end(nw_eval_run *run, nw_status st, nw_error *err)
{
    const char *how = st == NW_OK ? "done" : st == NW_E_CANCELLED ? "cancelled" : "failed";
    nw_error second = {.code = NW_OK};

    if (run->s == NULL || run->s->record == NULL || run->id == 0 || run->reused) {
        return st;
    }
    if (nw_record_run_end(run->s->record, run->id, how, &second) != NW_OK && st == NW_OK) {
        *err = second;
        return second.code;
    }
    return st;
}

static unsigned default_layers(const nw_eval_options *o)
{
    if (o->layers != 0) {
        return o->layers;
    }
    return (o->text != NULL ? NW_EVAL_PERPLEXITY : 0U) | NW_EVAL_CHOICE | NW_EVAL_GENERATE;
}

static nw_status check_options(const nw_eval_options *o, unsigned layers, nw_error *err)
{
    if ((layers & NW_EVAL_PERPLEXITY) != 0 && o->text == NULL) {
        return nw_fail(err, NW_E_USAGE, "perplexity needs a text: --text FILE");
    }
    if ((o->record == NULL) != (o->candidate == NULL)) {
        return nw_fail(err, NW_E_USAGE, "--record and --candidate go together");
    }
    return NW_OK;
}

/* Layers that a server has to give log-probabilities for. */
#define BY_LIKELIHOOD (NW_EVAL_PERPLEXITY | NW_EVAL_CHOICE)

/* NW_E_UNSUPPORTED: the layer is left out, with the reason. Any other failure is of the moment. */
static nw_status can_score(const nw_eval_session *s, unsigned layer, nw_error *why)
{
    int32_t *ids = NULL;
    size_t n = 0;

    if (nw_target_can_score(s->remote, why) != NW_OK) {
        return why->code;
    }
    if (layer == NW_EVAL_PERPLEXITY && s->tokenizer == NULL) {
        return nw_fail(why, NW_E_UNSUPPORTED,
                       "windows are cut by a tokenizer here: give --tokenizer MODEL");
    }
    const nw_status st = nw_target_tokenize(s->remote, "a", 1, true, &ids, &n, why);
    free(ids);
    return st;
}

/* The reason holds text of a server, and may be cut. */
static nw_status put_absent(nw_eval_session *s, const char *layer, char *why, nw_error *err)
{
    nw_utf8_mend(why);
    nw_log(NW_LOG_WARN, "%s: not measured: %s", layer, why);
    if (s->absent == NULL) {
        s->absent = json_object();
    }
    return json_object_set_new(s->absent, layer, json_string(why)) == 0
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "no memory for why a layer was not measured");
}

static nw_status run_layers(nw_eval_session *s, unsigned layers, nw_error *err)
{
    static nw_status (*const run[])(nw_eval_session *, nw_error *) = {
        nw_eval_perplexity, nw_eval_choice, nw_eval_generate};
    static const char *const names[] = {
#define LAYER_NAME(name, bit, text) text,
        NW_EVAL_LAYER_MAP(LAYER_NAME)
#undef LAYER_NAME
    };

    for (size_t i = 0; i < NW_COUNT(run); i++) {
        nw_error why = {0};
        if ((layers & 1U << i) == 0) {
            continue;
        }
        const bool asks = s->remote != NULL && (1U << i & BY_LIKELIHOOD) != 0;
        nw_status st = asks ? can_score(s, 1U << i, &why) : NW_OK;
        if (st == NW_E_UNSUPPORTED) {
            st = put_absent(s, names[i], why.message, err);
            layers &= ~(1U << i);
        } else if (st == NW_OK) {
            st = run[i](s, err);
        } else {
            *err = why;
        }
        if (st != NW_OK) {
            return nw_context(err, "%s", names[i]);
        }
    }
    return layers != 0
               ? NW_OK
               : nw_fail(err, NW_E_UNSUPPORTED, "nothing could be measured: %s",
                         json_string_value(json_object_iter_value(json_object_iter(s->absent))));
}

nw_status nw_evaluate(const nw_eval_options *o, json_t **out, nw_error *err)
{
    nw_eval_session s = {.o = o, .out = json_object()};
    const unsigned layers = default_layers(o);
    nw_status st = check_options(o, layers, err);

    st = st == NW_OK ? open_engines(&s, layers, err) : st;
    st = st == NW_OK ? open_record(&s, err) : st;
    if (st == NW_OK) {
        (void)json_object_set_new(s.out, "target", json_string(o->target));
        (void)json_object_set_new(s.out, "artifact_hash", json_string(s.artifact_hash));
        st = run_layers(&s, layers, err);
    }
    if (st == NW_OK && s.absent != NULL) {
        (void)json_object_set(s.out, "not_measured", s.absent);
        st = s.record != NULL ? put_candidate(&s, err) : NW_OK;
    }
    json_decref(s.absent);
    nw_target_close(s.remote);
    nw_tokenizer_close(s.tokenizer);
    nw_engine_close(s.engine);
    nw_engine_close(s.base);
    nw_record_close(s.record);
    if (st != NW_OK) {
        json_decref(s.out);
        return st;
    }
    *out = s.out;
    return NW_OK;
}
