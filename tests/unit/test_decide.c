/* Decisions over records with known truths: the worked cases of the guide, and what must never pass.
 * SPDX-License-Identifier: Apache-2.0 */
#include "decide_fixture.h"

/* ---- GUIDE section 8: select a format ---- */

#define SELECT_GATES                                                                             \
    "  - {name: p99 TPOT, kind: tpot, regime: saturated, limit_ms: 70}\n"                        \
    "  - {name: concurrency, kind: metric, metric: stable_concurrency, regime: saturated, min: " \
    "32}\n"

static void make_select(fixture *f)
{
    static const struct {
        const char *name, *weights;
        double mb, bits;
        size_t gain, loss;
        double tpot;
    } c[] = {{"bf16", "bf16", 269, 16, 0, 0, 60},
             {"int8", "int8", 139, 8.1, 100, 100, 40},
             {"int4", "int4-g64", 79, 4.3, 100, 400, 25}};
    for (size_t i = 0; i < NW_COUNT(c); i++) {
        syn_candidate(&f->s, c[i].name, c[i].weights, c[i].mb, c[i].bits);
        syn_items(&f->s, c[i].name, "generate:tool", 10000, 8000, c[i].gain, c[i].loss, 30);
        (void)syn_requests(&f->s, c[i].name, "micro", "batch1", 30, 200, c[i].tpot / 2);
        const int64_t load = syn_requests(&f->s, c[i].name, "load", "load", 1000, 300, c[i].tpot);
        syn_metric(&f->s, load, "stable_concurrency", 48);
    }
}

/* Times of two machines are not held against each other: quality decides, speed is refused. */
static void another_machine_is_refused(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int8", "int8", 139, 8.1);
    for (size_t i = 0; i < 2; i++) {
        const char *name = i == 0 ? "bf16" : "int8";
        f->s.machine = i == 0 ? "machine-a" : "machine-b";
        syn_items(&f->s, name, "generate:chat", 3000, 2000, 0, 0, 30);
        (void)syn_requests(&f->s, name, "micro", "batch1", 30, 200, i == 0 ? 40 : 10);
    }
    f->s.machine = NULL;
    decide(f, "policy: machines\n" SHORT
              "gates:\n  - {name: task, kind: relative, suites: 'generate:*', margin: 0.02}\n"
              "  - {name: time per token, kind: tpot, regime: batch1, limit_ms: 100}\n");
    expect(f, "int8", "task", NW_VERDICT_PASS, "");
    expect(f, "int8", "time per token", NW_VERDICT_INCONCLUSIVE,
           "refused: measured on another machine than the baseline's run");
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "bf16");
    assert_false(f->d.regimes[NW_REGIME_BATCH1].points[1].measured);
}

static void select_a_format(void **state)
{
    fixture *f = *state;
    make_select(f);
    decide(f, "policy: select\n" SHORT "gates:\n  - {name: tool use, kind: accuracy, suites: "
              "'*tool*', margin: 0.005}\n" SELECT_GATES "saturated: {tpot_ms: 70}\n");
    expect(f, "int4", "tool use", NW_VERDICT_FAIL, "400 lost and 100 gained of 10000");
    expect(f, "int8", "tool use", NW_VERDICT_PASS, "100 lost and 100 gained");
    expect(f, "int8", "p99 TPOT", NW_VERDICT_PASS, "0 of 1000 requests over 70 ms");
    expect(f, "bf16", "p99 TPOT", NW_VERDICT_PASS, "0 of 1000");
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "int8");
    assert_true(nw_decision_eligible(&f->d, NW_REGIME_BATCH1, 0));  /* the dearer fallback */
    assert_false(nw_decision_eligible(&f->d, NW_REGIME_BATCH1, 1)); /* int4: by name after bf16 */
    const nw_dec_frontier *one = &f->d.regimes[NW_REGIME_BATCH1];
    assert_true(one->points[0].cost > one->points[2].cost);
    assert_true(one->points[0].dominated_by == 2 && one->points[0].p_dominated > 0.95);
    assert_true(isnan(one->points[1].p_frontier)); /* rejected: drawn, never ranked */
    assert_false(f->d.all_pass);
}

static void another_policy_is_another_decision(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    nw_arena arena = {0};
    nw_rec_policy *policies = NULL;
    nw_rec_verdict *rows = NULL;
    nw_rec_decision *decisions = NULL;
    size_t n = 0;
    make_select(f);
    decide(f, "policy: strict\n" SHORT
              "gates:\n  - {name: tool use, kind: accuracy, suites: '*tool*', margin: 0.005}\n");
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "int8");
    syn_ok(nw_decision_store(f->s.rec, &f->d, &err), &err);
    decide(f, "policy: loose\n" SHORT
              "gates:\n  - {name: tool use, kind: accuracy, suites: '*tool*', margin: 0.05}\n");
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "int4");
    assert_true(f->d.all_pass);
    syn_ok(nw_decision_store(f->s.rec, &f->d, &err), &err);
    syn_ok(nw_decision_store(f->s.rec, &f->d, &err), &err); /* again: replaced, not doubled */
    syn_ok(nw_record_policies(f->s.rec, &arena, &policies, &n, &err), &err);
    assert_int_equal(n, 2);
    syn_ok(nw_record_verdicts(f->s.rec, f->policy.hash.hex, &arena, &rows, &n, &err), &err);
    assert_int_equal(n, 2);
    syn_ok(nw_record_decisions(f->s.rec, f->policy.hash.hex, &arena, &decisions, &n, &err), &err);
    assert_int_equal(n, 2);
    assert_string_equal(decisions[0].regime, "batch1");
    assert_string_equal(decisions[0].candidate, "int4");
    nw_arena_release(&arena);
}

static void a_failed_speed_gate_counts_in_its_regime_only(void **state)
{
    fixture *f = *state;
    make_select(f);
    decide(f, "policy: slow\n" SHORT
              "gates:\n  - {name: tool use, kind: accuracy, suites: '*tool*', margin: 0.005}\n"
              "  - {name: p99 TPOT, kind: tpot, regime: saturated, limit_ms: 30}\n");
    expect(f, "int8", "p99 TPOT", NW_VERDICT_FAIL, "1000 of 1000 requests over 30 ms");
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "int8");
    assert_string_equal(chosen(f, NW_REGIME_SATURATED), "bf16");
    assert_true(f->d.regimes[NW_REGIME_SATURATED].fallback);
    assert_non_null(strstr(f->d.regimes[NW_REGIME_SATURATED].why, "fallback: baseline"));
}

static void a_policy_without_quality_gates_judges_none(void **state)
{
    fixture *f = *state;
    nw_buf out;

    nw_buf_init(&out, (size_t)1 << 20);
    make_select(f);
    decide(f, "policy: speed\n" SHORT
              "gates:\n  - {name: p99 TPOT, kind: tpot, regime: saturated, limit_ms: 30}\n");
    nw_decision_print(&f->d, &out);
    assert_non_null(strstr(out.data, "int8: quality not judged (the policy has no gate of it)"));
    assert_null(strstr(out.data, "quality PASS"));
    nw_buf_release(&out);
}

/* ---- two 4-bit artifacts that both fit ---- */

static void two_4bit_artifacts(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    syn_candidate(&f->s, "a", "int4-g64", 75, 4.25);
    syn_candidate(&f->s, "b", "int4-g32", 79, 4.5);
    syn_items(&f->s, "bf16", "generate:json", 4000, 3800, 0, 0, 30);
    syn_items(&f->s, "a", "generate:json", 4000, 3800, 0, 200, 30); /* fails twice as often */
    syn_items(&f->s, "b", "generate:json", 4000, 3800, 20, 20, 30);
    (void)syn_requests(&f->s, "bf16", "micro", "batch1", 30, 200, 40);
    (void)syn_requests(&f->s, "a", "micro", "batch1", 30, 200, 33);
    const int64_t b = syn_requests(&f->s, "b", "micro", "batch1", 30, 200, 38);
    const nw_rec_kernel kernels[] = {
        {"qkv", 0, "576x960", "decode", "int4_vnni", "bf16_gemv", 10, 3000, 1, 1},
        {"down", 0, "1536x576", "decode", "int4_vnni", "int4_vnni", 10, 7000, 1, 0},
        {"attention", 0, "-", "decode", "kv_bf16", "kv_f32", 10, 90000, 1, 0},
    };
    syn_ok(nw_record_add_kernels(f->s.rec, b, kernels, 3, &err), &err);
    decide(
        f,
        "policy: two\n" SHORT
        "gates:\n  - {name: structured output, kind: relative, suites: '*json*', margin: 0.02}\n");
    expect(f, "a", "structured output", NW_VERDICT_FAIL, "200 lost and 0 gained");
    expect(f, "b", "structured output", NW_VERDICT_PASS, "");
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "b"); /* not the smaller file */
    const nw_dec_point *p = &f->d.regimes[NW_REGIME_BATCH1].points[2];
    assert_true(fabs(p->fallback_share - 0.3) < 1e-12);
    assert_non_null(strstr(f->d.regimes[NW_REGIME_BATCH1].mechanism,
                           "fallback: qkv by bf16_gemv, 30% of the time in matrix kernels"));
}

/* ---- two regimes ---- */

static void two_regimes_two_conclusions(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    for (size_t i = 0; i < 2; i++) {
        const char *name = i == 0 ? "bf16" : "int4";
        syn_items(&f->s, name, "generate:chat", 3000, 2000, 10 * i, 10 * i, 30);
        (void)syn_requests(&f->s, name, "micro", "batch1", 30, i == 0 ? 400 : 380,
                           i == 0 ? 40 : 18);
        (void)syn_requests(&f->s, name, "load", "load", 400, 300, i == 0 ? 60 : 60.5);
    }
    decide(f, "policy: regimes\n" SHORT
              "gates:\n  - {name: task, kind: relative, suites: 'generate:*', margin: 0.02}\n"
              "saturated: {ttft_ms: 1000, tpot_ms: 100, eps: 0.03}\n");
    const nw_dec_frontier *one = &f->d.regimes[NW_REGIME_BATCH1];
    const nw_dec_frontier *many = &f->d.regimes[NW_REGIME_SATURATED];
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "int4");
    assert_string_equal(chosen(f, NW_REGIME_SATURATED), "bf16");
    assert_non_null(strstr(one->mechanism, "79.0 MB (4.30 bits a weight) against 269.0 MB"));
    assert_non_null(strstr(many->mechanism, "one read of the weights serves many requests"));
    assert_non_null(strstr(many->why, "do nothing"));
    assert_false(many->fallback); /* the candidate passes, it is only not cheaper */
    assert_string_equal(many->points[1].objectives[1].name, "p99 TTFT"); /* 400 requests */
}

/* At the rate that the baseline can serve all are equally good; the candidate earns more at a rate
 * where the baseline no longer meets its service level. */
static void goodput_is_taken_at_each_ones_best_rate(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int8", "int8", 139, 8.1);
    for (size_t i = 0; i < 2; i++) {
        const char *name = i == 0 ? "bf16" : "int8";
        syn_items(&f->s, name, "generate:chat", 3000, 2000, 0, 0, 30);
        (void)syn_requests(&f->s, name, "load", "load", 400, 300, i == 0 ? 60 : 40);
        (void)syn_requests_at(&f->s, name, "load", "load", 400, i == 0 ? 5000 : 600, 60, "fast",
                              50);
    }
    decide(f, "policy: rates\n" SHORT
              "gates:\n  - {name: task, kind: relative, suites: 'generate:*', margin: 0.02}\n"
              "saturated: {ttft_ms: 1000, tpot_ms: 100}\n");
    const nw_dec_frontier *many = &f->d.regimes[NW_REGIME_SATURATED];
    assert_string_equal(chosen(f, NW_REGIME_SATURATED), "int8");
    assert_true(many->points[0].goodput_at_rps == 10 && many->points[1].goodput_at_rps == 20);
    /* two thirds of 10 and of 20 requests a second, by the success rate of the task */
    assert_true(fabs(many->points[0].objectives[0].value - 10 * 2.0 / 3) < 1e-9);
    assert_true(fabs(many->points[1].objectives[0].value - 20 * 2.0 / 3) < 1e-9);
    assert_true(many->points[1].objectives[1].value < 320); /* latency at the common rate */
}

/* ---- what must never pass ---- */

#define ONE_GATE "gates:\n  - {name: acc, kind: accuracy, suites: 'choice:*', margin: 0.05}\n"

static void a_missing_slice_fails(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    decide(f, "policy: p\n" SHORT ONE_GATE);
    expect(f, "int4", "acc", NW_VERDICT_FAIL, "missing: no run of such a suite");
    syn_items(&f->s, "bf16", "choice:a", 500, 300, 0, 0, 1);
    decide(f, "policy: p\n" SHORT ONE_GATE);
    expect(f, "int4", "acc", NW_VERDICT_FAIL, "missing: the candidate was not measured");
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "bf16");
}

/* A server that gives no log-probabilities: neither side has such a run, and both say why. */
static void what_could_not_be_measured_says_why(void **state)
{
    static const char *const sides[] = {"int4", "bf16"};
    fixture *f = *state;
    nw_error err = {0};

    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    for (size_t i = 0; i < NW_COUNT(sides); i++) {
        nw_rec_candidate c = {.name = sides[i],
                              .role = i == 0 ? "candidate" : "baseline",
                              .file_bytes = -1,
                              .weight_bytes = -1,
                              .effective_bits = NAN,
                              .json = "{\"not_measured\":{\"choice\":\"no log-probabilities\"}}"};
        syn_ok(nw_record_candidate_put(f->s.rec, &c, &err), &err);
        decide(f, "policy: p\n" SHORT ONE_GATE);
        expect(f, "int4", "acc", NW_VERDICT_FAIL, "missing: not measured: no log-probabilities");
        c.json = "{}";
        syn_ok(nw_record_candidate_put(f->s.rec, &c, &err), &err);
        decide(f, "policy: p\n" SHORT ONE_GATE);
        expect(f, "int4", "acc", NW_VERDICT_FAIL, "missing: no run of such a suite");
    }
}

static void an_unfinished_run_is_not_data(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 500, 300, 0, 0, 1);
    (void)syn_begin(&f->s, "int4", "quality", "choice:a", "settings");
    decide(f, "policy: p\n" SHORT ONE_GATE);
    expect(f, "int4", "acc", NW_VERDICT_FAIL, "missing: the candidate was not measured");
}

static void different_items_are_refused(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 500, 300, 0, 0, 1);
    syn_items(&f->s, "int4", "choice:a", 499, 300, 0, 0, 1);
    decide(f, "policy: p\n" SHORT ONE_GATE);
    expect(f, "int4", "acc", NW_VERDICT_INCONCLUSIVE, "refused: the item sets differ ('q000499'");
}

static void different_settings_are_refused(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 500, 300, 0, 0, 1);
    syn_end(&f->s, syn_begin(&f->s, "int4", "quality", "choice:a", "other template"));
    decide(f, "policy: p\n" SHORT ONE_GATE);
    expect(f, "int4", "acc", NW_VERDICT_INCONCLUSIVE, "refused: different settings");
}

static void a_baseline_at_floor_decides_nothing(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 2000, 10, 0, 0, 1);
    syn_items(&f->s, "int4", "choice:a", 2000, 10, 0, 0, 1);
    decide(f, "policy: p\n" SHORT ONE_GATE);
    expect(f, "int4", "acc", NW_VERDICT_INCONCLUSIVE, "baseline at chance");
}

static void too_few_items_say_how_many_are_lacking(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 40, 30, 0, 0, 1);
    syn_items(&f->s, "int4", "choice:a", 40, 30, 0, 0, 1);
    decide(f, "policy: p\n" SHORT ONE_GATE);
    expect(f, "int4", "acc", NW_VERDICT_INCONCLUSIVE, "12 more items needed (52 in all)");
    assert_int_equal(verdict(f, "int4", "acc")->row.n_needed, 52); /* floor(2.7055 * 19) + 1 */
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "bf16");
}

static void advisory_gates_never_decide(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_text(&f->s, "bf16", 40, 0, 0);
    syn_text(&f->s, "int4", 40, 0.2, 0.5);
    decide(f, "policy: p\n" SHORT "gates:\n"
              "  - {name: ppl, kind: perplexity, suites: perplexity, margin: 0.03, increase: 0.1, "
              "advisory: true}\n"
              "  - {name: kl, kind: kl, suites: perplexity, margin: 0.1, advisory: true}\n"
              "  - {name: top1, kind: top1, suites: perplexity, margin: 0.15, advisory: true}\n");
    expect(f, "int4", "ppl", NW_VERDICT_FAIL, "the common rule allows +0.10: not met");
    expect(f, "int4", "kl", NW_VERDICT_FAIL, "2560 tokens in 40 windows");
    expect(f, "int4", "top1", NW_VERDICT_PASS, "");
    assert_true(fabs(verdict(f, "int4", "ppl")->row.estimate - 0.2) < 0.01);
    assert_true(fabs(verdict(f, "int4", "top1")->row.estimate - 6.25) < 1e-9);
    assert_int_equal(f->d.quality[1], NW_VERDICT_PASS);
}

static void longer_replies_are_not_equal_service(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "generate:a", 600, 300, 0, 0, 30);
    syn_items(&f->s, "int4", "generate:a", 600, 300, 0, 0, 60);
    decide(f, "policy: p\n" SHORT
              "gates:\n  - {name: length, kind: length, suites: 'generate:*', margin: 0.1}\n");
    expect(f, "int4", "length", NW_VERDICT_FAIL, "tokens 33 to 63 a reply");
    assert_string_equal(f->d.verdicts[1].row.slice, "generate:a stops");
    assert_int_equal(f->d.verdicts[1].verdict, NW_VERDICT_PASS);
}

static void speed_gates_before_any_run_are_open_not_failed(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 500, 300, 0, 0, 1);
    syn_items(&f->s, "int4", "choice:a", 500, 300, 0, 0, 1);
    decide(f, "policy: p\n" SHORT ONE_GATE
              "  - {name: slo, kind: attainment, regime: saturated, min: 0.9}\n");
    expect(f, "int4", "slo", NW_VERDICT_INCONCLUSIVE, "not measured yet: no saturated run");
    assert_int_equal(f->d.quality[1], NW_VERDICT_PASS);
    assert_true(json_array_size(f->d.regimes[NW_REGIME_SATURATED].missing) > 0);
}

static void p99_needs_299_requests(void **state)
{
    fixture *f = *state;
    (void)syn_requests(&f->s, "bf16", "load", "load", 200, 300, 50);
    decide(f, "policy: p\n" SHORT
              "gates:\n  - {name: p99, kind: tpot, regime: saturated, limit_ms: 70}\n");
    expect(f, "bf16", "p99", NW_VERDICT_INCONCLUSIVE, "99 more requests needed (299 in all)");
    assert_true(isnan(verdict(f, "bf16", "p99")->row.estimate));
    assert_string_equal(f->d.regimes[NW_REGIME_SATURATED].points[0].objectives[2].name, "p90 TPOT");
}

/* With p just under alpha for each of three candidates, Holm leaves none. */
static void holm_guards_against_the_lucky_one(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"c1", "c2", "c3"};
    syn_items(&f->s, "bf16", "choice:a", 1000, 600, 0, 0, 1);
    for (size_t i = 0; i < 3; i++) {
        syn_candidate(&f->s, names[i], "int4-g64", 79, 4.3);
        syn_items(&f->s, names[i], "choice:a", 1000, 600, 30, 60, 1);
    }
    decide(f, "policy: p\nholm: false\n" SHORT ONE_GATE);
    assert_int_equal(f->d.quality[1], NW_VERDICT_PASS);
    const double p = verdict(f, "c1", "acc")->row.p;
    assert_true(p > 0.0167 && p < 0.05);
    decide(f, "policy: p\n" SHORT ONE_GATE);
    expect(f, "c1", "acc", NW_VERDICT_PASS, "");
    assert_int_equal(f->d.quality[1], NW_VERDICT_INCONCLUSIVE);
    assert_true(fabs(f->d.p_holm[1] - 3 * p) < 1e-12);
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "bf16");
}

static void the_text_and_the_json_hold_the_decision(void **state)
{
    fixture *f = *state;
    nw_buf out;
    make_select(f);
    decide(f, "policy: select\n" SHORT "gates:\n  - {name: tool use, kind: accuracy, suites: "
              "'*tool*', margin: 0.005}\n" SELECT_GATES);
    nw_buf_init(&out, (size_t)1 << 20);
    nw_decision_print(&f->d, &out);
    assert_false(out.failed);
    static const char *const want[] = {"int4: quality FAIL", "Recommendation, batch1: int8",
                                       "Recommendation, saturated: ", "> -0.50 pp", "rejected"};
    for (size_t i = 0; i < NW_COUNT(want); i++) {
        if (strstr(out.data, want[i]) == NULL) {
            fail_msg("'%s' is not in:\n%s", want[i], out.data);
        }
    }
    nw_buf_release(&out);
    json_t *j = nw_decision_json(&f->d);
    assert_non_null(j);
    const json_t *one = json_object_get(json_object_get(j, "regimes"), "batch1");
    assert_string_equal(json_string_value(json_object_get(one, "recommended")), "int8");
    assert_int_equal(json_array_size(json_object_get(one, "points")), 3);
    assert_int_equal(json_array_size(json_object_get(j, "verdicts")), 2 + 3 * 2);
    json_decref(j);
}

static void two_baselines_are_refused(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    nw_decision d;
    syn_candidate(&f->s, "other", "bf16", 1, 16);
    syn_ok(load_policy(f, "policy: p\n" ONE_GATE, &err), &err);
    assert_int_equal(nw_decide(f->s.rec, &f->policy, &d, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "2 baselines in the record, one is wanted"));
    nw_policy_release(&f->policy);
}

/* ---- policies ---- */

static void policy_mistakes_are_shown_where_they_stand(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *yaml, *want;
    } t[] = {
        {"policy: p\ngates:\n  - {name: a, kind: accuracy, suites: x, margin: 0.1, colour: 1}\n",
         "policy.yaml:3:63: unknown key"},
        {"policy: p\nalpha: 0.5\ngates: []\n", "policy.yaml:2:8: alpha is 0.5, allowed are"},
        {"policy: p\ngates: []\n", "policy.yaml:2:8: a list of 1 to 64 gates"},
        {"policy: p\ngates:\n  - {name: a, kind: taste, suites: x, margin: 0.1}\n",
         "policy.yaml:3:21: not one of the known names"},
        {"policy: p\ngates:\n  - {name: a, kind: accuracy, suites: x, margin: {fp4: 0.1}}\n",
         "not one of the known names"},
        {"policy: p\ngates:\n  - {name: a, kind: accuracy, margin: 0.1}\n",
         "needs suites and a margin"},
        {"policy: p\ngates:\n  - {name: a, kind: tpot, limit_ms: 70}\n", "needs a regime"},
        {"policy: p\ngates:\n  - {name: a, kind: kl, suites: x, margin: 1}\n"
         "  - {name: a, kind: kl, suites: x, margin: 1}\n",
         "policy.yaml:4:5: a second gate of the same name"},
        {"gates: []\n", "a policy needs its name"},
        {"[1, 2]\n", "a mapping is wanted"},
    };
    for (size_t i = 0; i < NW_COUNT(t); i++) {
        nw_error err = {0};
        assert_int_not_equal(load_policy(f, t[i].yaml, &err), NW_OK);
        if (strstr(err.message, t[i].want) == NULL) {
            fail_msg("row %zu: '%s' is not in '%s'", i, t[i].want, err.message);
        }
    }
}

static void policies_that_ship_load(void **state)
{
    (void)state;
    nw_policy p;
    nw_policy built_in;
    nw_error err = {0};
    syn_ok(nw_policy_load(NULL, &built_in, &err), &err);
    syn_ok(nw_policy_load(NW_SOURCE_DIR "/policies/default.yaml", &p, &err), &err);
    assert_string_equal(p.hash.hex, built_in.hash.hex);
    nw_policy_release(&p);
    nw_policy_release(&built_in);
    syn_ok(nw_policy_load(NW_SOURCE_DIR "/policies/demo.yaml", &p, &err), &err);
    nw_policy_release(&p);
}

static void globs(void **state)
{
    (void)state;
    assert_true(nw_glob_match("choice:*", "choice:basics"));
    assert_true(nw_glob_match("*recall*,*passkey*", "generate:passkey-8k"));
    assert_false(nw_glob_match("choice:*", "generate:choice:x"));
    assert_true(nw_glob_match("a*b*c", "aXbbXc"));
    assert_false(nw_glob_match("a*b*c", "aXc"));
    assert_true(nw_glob_match("*", ""));
    assert_false(nw_glob_match("perplexity", "perplexity2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_machine_is_refused),
        TEST(select_a_format),
        TEST(another_policy_is_another_decision),
        TEST(a_failed_speed_gate_counts_in_its_regime_only),
        TEST(a_policy_without_quality_gates_judges_none),
        TEST(two_4bit_artifacts),
        TEST(two_regimes_two_conclusions),
        TEST(goodput_is_taken_at_each_ones_best_rate),
        TEST(a_missing_slice_fails),
        TEST(what_could_not_be_measured_says_why),
        TEST(an_unfinished_run_is_not_data),
        TEST(different_items_are_refused),
        TEST(different_settings_are_refused),
        TEST(a_baseline_at_floor_decides_nothing),
        TEST(too_few_items_say_how_many_are_lacking),
        TEST(advisory_gates_never_decide),
        TEST(longer_replies_are_not_equal_service),
        TEST(speed_gates_before_any_run_are_open_not_failed),
        TEST(p99_needs_299_requests),
        TEST(holm_guards_against_the_lucky_one),
        TEST(the_text_and_the_json_hold_the_decision),
        TEST(two_baselines_are_refused),
        TEST(policy_mistakes_are_shown_where_they_stand),
        cmocka_unit_test(policies_that_ship_load),
        cmocka_unit_test(globs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
