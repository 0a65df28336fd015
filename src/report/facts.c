/* Loading what a page shows: candidates, runs, conclusions, then the parts for quality and speed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "report/facts.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/yaml.h"
#include "report/html.h"

#define POLICY_NAME_MIN 8 /* characters that may stand for a hash */

void *nw_facts_grow(nw_facts *f, void *old, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) {
        return old;
    }
    const size_t more = *cap == 0 ? 16 : *cap * 2;
    void *grown = more < *cap ? NULL : nw_arena_array(&f->arena, more, size);
    if (grown != NULL && n > 0) {
        memcpy(grown, old, n * size);
    }
    *cap = grown != NULL ? more : *cap;
    return grown;
}

static nw_status load_policy(nw_record *r, const char *hash, nw_facts *f, nw_error *err)
{
    nw_rec_policy *all = NULL;
    size_t n = 0;
    const bool newest = hash == NULL || strcmp(hash, "newest") == 0;

    if (nw_record_policies(r, &f->arena, &all, &n, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < n && f->policy == NULL; i++) {
        const size_t len = newest ? 0 : strlen(hash);
        if (newest || (len >= POLICY_NAME_MIN && strncmp(all[i].policy_hash, hash, len) == 0)) {
            f->policy = &all[i];
        }
    }
    if (!newest && f->policy == NULL) {
        return nw_fail(err, NW_E_RANGE,
                       "%s: no policy with a hash that begins with '%s' (%zu are decided; at least "
                       "%d characters)",
                       nw_record_path(r), hash, n, POLICY_NAME_MIN);
    }
    return NW_OK;
}

/* The service level of the saturated regime, from the text of the policy. A text that cannot be read
 * any more leaves no limits, and the page says so. */
static void read_service_level(nw_facts *f)
{
    nw_error ignored = {0};
    nw_yaml *doc = NULL;

    if (nw_yaml_parse("policy", f->policy->text, strlen(f->policy->text), &doc, &ignored) !=
        NW_OK) {
        return;
    }
    const json_t *rule = json_object_get(nw_yaml_root(doc), "saturated");
    if (json_is_object(rule)) {
        (void)(nw_json_opt_double(rule, "policy", "ttft_ms", 0, 1e9, &f->slo_ttft_ms, &ignored) ==
                   NW_OK &&
               nw_json_opt_double(rule, "policy", "tpot_ms", 0, 1e9, &f->slo_tpot_ms, &ignored) ==
                   NW_OK &&
               nw_json_opt_double(rule, "policy", "attainment", 0, 1, &f->attainment, &ignored) ==
                   NW_OK);
    }
    nw_yaml_close(doc);
}

static nw_status load_conclusions(nw_record *r, nw_facts *f, nw_error *err)
{
    if (f->policy == NULL) {
        return NW_OK;
    }
    read_service_level(f);
    const nw_status st =
        nw_record_verdicts(r, f->policy->policy_hash, &f->arena, &f->verdicts, &f->n_verdicts, err);
    return st != NW_OK ? st
                       : nw_record_decisions(r, f->policy->policy_hash, &f->arena, &f->decisions,
                                             &f->n_decisions, err);
}

static nw_status load_candidates(nw_record *r, nw_facts *f, nw_error *err)
{
    nw_rec_candidate *rows = NULL;

    if (nw_record_candidates(r, &f->arena, &rows, &f->n, err) != NW_OK) {
        return err->code;
    }
    if (f->n == 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: the record has no candidates yet", nw_record_path(r));
    }
    f->c = nw_arena_array(&f->arena, f->n, sizeof *f->c);
    if (f->c == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu candidates", f->n);
    }
    const nw_estimate none = {(double)NAN, (double)NAN, (double)NAN};
    for (size_t i = 0; i < f->n; i++) {
        f->c[i] = (nw_facts_candidate){.row = rows[i],
                                       .baseline = strcmp(rows[i].role, "baseline") == 0,
                                       .text = {.ppl = none,
                                                .ln_ratio = none,
                                                .kl_mean = none,
                                                .top1 = none,
                                                .bits_per_byte = (double)NAN},
                                       .decode_tps = none,
                                       .prefill_tps = none,
                                       .natural = {.mean_tokens = (double)NAN},
                                       .peak_rss_bytes = (double)NAN,
                                       .weight_bytes = (double)NAN,
                                       .kv_bytes_per_token = (double)NAN,
                                       .workspace_bytes = (double)NAN,
                                       .load_s = (double)NAN};
        f->c[i].label = nw_text_clean(&f->arena, rows[i].name);
        if (f->c[i].label == NULL) {
            return nw_fail(err, NW_E_NOMEM, "no memory for a candidate's name");
        }
    }
    return NW_OK;
}

nw_status nw_facts_load(nw_record *r, const char *policy_hash, nw_facts *out, nw_error *err)
{
    *out = (nw_facts){.n = 0};
    nw_status st = load_candidates(r, out, err);

    st = st == NW_OK
             ? nw_record_runs(r, NULL, NULL, NULL, NULL, &out->arena, &out->runs, &out->n_runs, err)
             : st;
    st = st == NW_OK ? load_policy(r, policy_hash, out, err) : st;
    st = st == NW_OK ? load_conclusions(r, out, err) : st;
    st = st == NW_OK ? nw_facts_quality(r, out, err) : st;
    st = st == NW_OK ? nw_facts_speed(r, out, err) : st;
    if (st != NW_OK) {
        nw_facts_release(out);
    }
    return st;
}

void nw_facts_release(nw_facts *f)
{
    nw_arena_release(&f->arena);
    *f = (nw_facts){.n = 0};
}

const nw_rec_run *nw_facts_run(const nw_facts *f, const char *candidate, const char *stage,
                               const char *suite)
{
    for (size_t i = f->n_runs; i-- > 0;) {
        const nw_rec_run *run = &f->runs[i];
        if (strcmp(run->candidate, candidate) == 0 && strcmp(run->stage, stage) == 0 &&
            strcmp(run->status, "done") == 0 && (suite == NULL || strcmp(run->suite, suite) == 0)) {
            return run;
        }
    }
    return NULL;
}

const nw_load_point *nw_facts_point(const nw_facts *f, const nw_facts_candidate *c)
{
    const nw_load_point *base = f->has_load ? &f->c[0].load[f->operating] : NULL;

    for (size_t i = 0; base != NULL && i < c->n_load; i++) {
        const nw_load_point *p = &c->load[i];
        const bool known = base->data_hash != NULL && p->data_hash != NULL;
        if ((!known || strcmp(p->data_hash, base->data_hash) == 0) &&
            fabs(p->offered_rps - base->offered_rps) <= 0.02 * base->offered_rps) {
            return p;
        }
    }
    return NULL;
}

static nw_stand worse(nw_stand a, const char *verdict)
{
    if (a == NW_STAND_FAIL || strcmp(verdict, "FAIL") == 0) {
        return NW_STAND_FAIL;
    }
    if (a == NW_STAND_OPEN || strcmp(verdict, "PASS") != 0) {
        return NW_STAND_OPEN;
    }
    return NW_STAND_PASS;
}

static bool is_speed(const nw_rec_verdict *v)
{
    static const char *const kinds[] = {"ttft", "tpot", "attainment", "metric"};

    for (size_t i = 0; i < NW_COUNT(kinds); i++) {
        if (strcmp(v->metric, kinds[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* {"quality": {candidate: verdict}} of the first decision. */
static json_t *read_decision(const nw_facts *f)
{
    nw_error ignored = {0};
    json_t *doc = NULL;

    if (f->n_decisions == 0 || f->decisions[0].json == NULL ||
        nw_json_parse("decision", f->decisions[0].json, strlen(f->decisions[0].json), &doc,
                      &ignored) != NW_OK) {
        return NULL;
    }
    return doc;
}

nw_stand nw_facts_stand(const nw_facts *f, const char *candidate)
{
    json_t *doc = read_decision(f);
    const char *quality =
        json_string_value(json_object_get(json_object_get(doc, "quality"), candidate));
    nw_stand stand = NW_STAND_NONE;

    for (size_t i = 0; i < f->n_verdicts; i++) {
        const nw_rec_verdict *v = &f->verdicts[i];
        if (!v->advisory && strcmp(v->candidate, candidate) == 0) {
            stand = worse(stand, quality != NULL && !is_speed(v) ? quality : v->verdict);
        }
    }
    json_decref(doc);
    return stand;
}
