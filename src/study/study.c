/* The order of stages: every artifact, then the quality of every candidate, then speed: what quality
 * rules out is known before an hour of load is spent on it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "study/study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "study/stages.h"

/* One stage for every candidate that is still in; baseline first. */
static nw_status for_each(nw_stages *st, nw_status (*stage)(nw_stages *, size_t, nw_error *),
                          nw_error *err)
{
    for (size_t i = 0; i < st->study.n_candidates; i++) {
        if ((st->artifact[i] != NULL || stage == nw_stage_quantize) && stage(st, i, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

static bool any_calibrated(const nw_stages *st)
{
    bool any = false;

    for (size_t i = 0; i < st->study.n_candidates; i++) {
        any = any || st->calibrated[i];
    }
    return any;
}

static unsigned count_steps(const nw_stages *st)
{
    const nw_study *s = &st->study;
    const unsigned n = (unsigned)s->n_candidates;
    unsigned steps = 2 * n + 2; /* artifacts and quality; decide and report */

    steps += any_calibrated(st) ? 1 : 0;
    steps += nw_stages_batch1_steps(s) * n;
    steps += s->load.requests > 0 ? n * (unsigned)s->load.n_rates + 1 : 0;
    return steps + (st->stop_at_gate ? 1 : 0);
}

static void override(const nw_study_options *o, nw_study *s)
{
    s->model = o->model != NULL ? o->model : s->model;
    s->work = o->work != NULL ? o->work : s->work;
    s->policy = o->policy != NULL ? o->policy : s->policy;
    s->quality.text = o->text != NULL ? o->text : s->quality.text;
}

/* Drops the candidates that failed a quality gate, for --stop-at-gate. */
static nw_status drop_rejected(nw_stages *st, nw_error *err)
{
    nw_status status = nw_stage_decide(st, true, err);

    for (size_t i = 1; i < st->study.n_candidates && status == NW_OK; i++) {
        if (st->artifact[i] != NULL && st->rejected[i]) {
            nw_log(NW_LOG_INFO, "%s: failed a quality gate and is not benchmarked",
                   st->study.candidates[i].name);
            nw_stages_drop(st, i, false);
        }
    }
    return status;
}

static nw_status run_stages(nw_stages *st, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_status status = any_calibrated(st) ? nw_stage_calibrate(st, err) : NW_OK;

    status = status == NW_OK ? for_each(st, nw_stage_quantize, err) : status;
    status = status == NW_OK ? for_each(st, nw_stage_quality, err) : status;
    if (status == NW_OK && st->stop_at_gate) {
        status = drop_rejected(st, err);
    }
    if (status == NW_OK && s->batch1.requests > 0) {
        status = for_each(st, nw_stage_batch1, err);
    }
    if (status == NW_OK && s->load.requests > 0) {
        status = nw_stage_arrivals(st, err);
        status = status == NW_OK ? for_each(st, nw_stage_load, err) : status;
    }
    status = status == NW_OK ? nw_stage_decide(st, false, err) : status;
    return status == NW_OK ? nw_stage_report(st, err) : status;
}

nw_status nw_study_run(const nw_study_options *o, nw_error *err)
{
    nw_stages st = {.stop_at_gate = o->stop_at_gate, .json = o->json};

    if (nw_study_load(o->path, &st.study, err) != NW_OK) {
        return err->code;
    }
    override(o, &st.study);
    nw_status status = nw_stages_open(&st, err);
    st.n_steps = count_steps(&st);
    status = status == NW_OK ? run_stages(&st, err) : status;
    if (status == NW_OK && o->json) {
        nw_log(NW_LOG_INFO, "report: %s, record: %s", st.report, st.record);
    } else if (status == NW_OK) {
        (void)printf("\nreport: %s\nrecord: %s\n", st.report, st.record);
    } else if (st.log != NULL) {
        (void)nw_context(err, "study %s (results of its stages so far: %s)", st.study.name, st.log);
    }
    nw_stages_close(&st);
    return status;
}
