/* What a decision says with several gates, slices and candidates: the shipped margins, corrections for
 * several of them, the objectives of the frontier, ties, and the words about the choice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "decide_fixture.h"

#define TASK "gates:\n  - {name: task, kind: relative, suites: 'generate:*', margin: 0.1}\n"

/* ---- GUIDE section 5: the default gates ---- */

static const nw_gate *gate_of(const nw_policy *p, const char *name)
{
    for (size_t i = 0; i < p->n_gates; i++) {
        if (strcmp(p->gates[i].name, name) == 0) {
            return &p->gates[i];
        }
    }
    fail_msg("no gate %s", name);
    return NULL;
}

static void expect_cells(const char *name, const double got[NW_CLASS_COUNT],
                         const double want[NW_CLASS_COUNT])
{
    for (size_t i = 0; i < NW_CLASS_COUNT; i++) {
        const bool none = isnan(want[i]) && isnan(got[i]);
        if (!none && !(got[i] == want[i])) {
            fail_msg("%s, class %zu: %g, want %g", name, i, got[i], want[i]);
        }
    }
}

static void default_gates_are_those_of_the_guide(void **state)
{
    (void)state;
    const double none = (double)NAN;
    const struct {
        const char *name;
        nw_gate_kind kind;
        bool advisory;
        double margin[NW_CLASS_COUNT]; /* int4, w8a8, int4_kv */
        const char *advice;
    } t[] = {
        {"accuracy", NW_GATE_ACCURACY, false, {0.01, 0.005, 0.01}, "sensitive layers in BF16"},
        {"task score", NW_GATE_RELATIVE, false, {0.02, 0.01, 0.03}, "layers unquantized"},
        {"long-context recall", NW_GATE_RELATIVE, false, {none, none, 0.05}, "FP8 (INT8 on CPU)"},
        {"tool use", NW_GATE_ACCURACY, false, {0.005, 0.005, 0.005}, "layers unquantized"},
        {"perplexity", NW_GATE_PERPLEXITY, true, {0.03, 0.015, 0.06}, "better data"},
    };
    nw_policy p;
    nw_error err = {0};
    syn_ok(nw_policy_load(NULL, &p, &err), &err);
    for (size_t i = 0; i < NW_COUNT(t); i++) {
        const nw_gate *g = gate_of(&p, t[i].name);
        assert_int_equal(g->kind, t[i].kind);
        assert_int_equal(g->advisory, t[i].advisory);
        assert_non_null(strstr(g->advice, t[i].advice));
        expect_cells(t[i].name, g->margin, t[i].margin);
    }
    expect_cells("increase", gate_of(&p, "perplexity")->increase, (double[]){0.1, 0.05, 0.2});
    assert_true(p.alpha == 0.05 && p.power == 0.8 && p.holm && p.draws == 10000);
    nw_policy_release(&p);
}

/* ---- GUIDE section 8: big and quantized, or small and exact ---- */

/* Two models with a tokenizer and a template each, at equal memory: tasks pair by item, and what is
 * counted in tokens is not compared. The larger one's replies take half the tokens and the same bytes. */
static void two_models_pair_by_task_and_not_by_token(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "big-int4", "int4-g64", 269, 4.3);
    for (size_t i = 0; i < 2; i++) {
        const char *name = i == 0 ? "bf16" : "big-int4";
        f->s.settings = i == 0 ? "{\"items\":\"q\",\"tokenizer\":\"small\",\"template\":\"s\"}"
                               : "{\"items\":\"q\",\"tokenizer\":\"big\",\"template\":\"b\"}";
        const char *hash = i == 0 ? "small" : "big";
        nw_error err = {0};
        syn_items_of(&f->s, name, "generate:a", hash, 2000, 1000, 300 * i, 100 * i, 30);
        const int64_t id = syn_begin(&f->s, name, "quality", "perplexity", hash);
        const nw_rec_token row = {.nll = 2, .kl = (double)NAN, .top1 = -1, .rank_base = -1};
        syn_ok(nw_record_add_tokens(f->s.rec, id, &row, 1, &err), &err);
        syn_metric(&f->s, id, "bits_per_byte", i == 0 ? 1.05 : 0.98);
        syn_end(&f->s, id);
    }
    decide(f,
           "policy: p\n" SHORT TASK
           "  - {name: ppl, kind: perplexity, suites: perplexity, margin: 0.03, advisory: true}\n"
           "  - {name: kl, kind: kl, suites: perplexity, margin: 0.1, advisory: true}\n"
           "  - {name: length, kind: length, suites: 'generate:*', margin: 0.1}\n");
    expect(f, "big-int4", "task", NW_VERDICT_PASS, "100 lost and 300 gained of 2000");
    expect(f, "big-int4", "ppl", NW_VERDICT_INCONCLUSIVE,
           "not comparable across two tokenizers: bits per byte 1.0500 to 0.9800 (-0.0700)");
    expect(f, "big-int4", "kl", NW_VERDICT_INCONCLUSIVE, "not comparable across two tokenizers");
    expect(f, "big-int4", "length", NW_VERDICT_PASS, "bytes 132 to 132 a reply");
    assert_int_equal(f->d.quality[1], NW_VERDICT_PASS);
}

/* Other text is no matter of tokenizers. */
static void two_models_on_two_texts_are_refused(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "big-int4", "int4-g64", 269, 4.3);
    for (size_t i = 0; i < 2; i++) {
        nw_error err = {0};
        f->s.settings = i == 0 ? "{\"tokenizer\":\"small\"}" : "{\"tokenizer\":\"big\"}";
        const int64_t id =
            syn_begin_on(&f->s, i == 0 ? "bf16" : "big-int4", "quality", "perplexity",
                         i == 0 ? "small" : "big", i == 0 ? "text" : "other");
        const nw_rec_token row = {.nll = 2, .kl = (double)NAN, .top1 = -1, .rank_base = -1};
        syn_ok(nw_record_add_tokens(f->s.rec, id, &row, 1, &err), &err);
        syn_end(&f->s, id);
    }
    decide(f, "policy: p\n" SHORT
              "gates:\n  - {name: ppl, kind: perplexity, suites: perplexity, margin: 0.03}\n");
    expect(f, "big-int4", "ppl", NW_VERDICT_INCONCLUSIVE, "refused: different data");
}

/* With one tokenizer another template is another setting: it moves scores by more than bits do. */
static void another_template_of_one_model_is_refused(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    f->s.settings = "{\"tokenizer\":\"t\",\"template\":\"a\"}";
    syn_items_of(&f->s, "bf16", "generate:a", "one", 2000, 1000, 0, 0, 30);
    f->s.settings = "{\"tokenizer\":\"t\",\"template\":\"b\"}";
    syn_items_of(&f->s, "int4", "generate:a", "two", 2000, 1000, 0, 0, 30);
    decide(f, "policy: p\n" SHORT TASK);
    expect(f, "int4", "task", NW_VERDICT_INCONCLUSIVE, "refused: different settings");
}

/* ---- several gates, several slices ---- */

/* The bound of one slice of eight lies outside its margin, with a p that eight slices explain. */
static void a_regression_is_claimed_after_holm_over_slices(void **state)
{
    fixture *f = *state;
    char suite[16];
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    for (size_t i = 0; i < 8; i++) {
        (void)snprintf(suite, sizeof suite, "choice:%zu", i);
        syn_items(&f->s, "bf16", suite, 1000, 600, 0, 0, 1);
        syn_items(&f->s, "int4", suite, 1000, 600, 30, i == 3 ? 92 : 30, 1);
    }
    static const char gates[] =
        "gates:\n  - {name: acc, kind: accuracy, suites: 'choice:*', margin: 0.04}\n";
    char yaml[256];
    (void)snprintf(yaml, sizeof yaml, "policy: p\nholm: false\n" SHORT "%s", gates);
    decide(f, yaml);
    assert_int_equal(f->d.verdicts[3].verdict, NW_VERDICT_FAIL);
    assert_true(f->d.verdicts[3].p_fail > 0.05 / 8 && f->d.verdicts[3].p_fail < 0.05);
    assert_int_equal(f->d.quality[1], NW_VERDICT_FAIL);
    (void)snprintf(yaml, sizeof yaml, "policy: p\n" SHORT "%s", gates);
    decide(f, yaml);
    assert_int_equal(f->d.verdicts[3].verdict, NW_VERDICT_FAIL); /* its bound says so */
    assert_non_null(strstr(f->d.verdicts[3].row.why, "after Holm over 8 gates and slices"));
    assert_true(fabs(f->d.verdicts[3].p_regressed - 8 * f->d.verdicts[3].p_fail) < 1e-12);
    assert_int_equal(f->d.quality[1], NW_VERDICT_INCONCLUSIVE);
}

/* Every item of one slice of sixty is lost: 1,000 draws allow no p below 1/1001, times 60. */
static void draws_too_few_for_holm_are_told(void **state)
{
    fixture *f = *state;
    char suite[16];
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    for (size_t i = 0; i < 60; i++) {
        (void)snprintf(suite, sizeof suite, "choice:%zu", i);
        syn_items(&f->s, "bf16", suite, 200, 100, 0, 0, 1);
        syn_items(&f->s, "int4", suite, 200, 100, 0, i == 3 ? 100 : 0, 1);
    }
    decide(f, "policy: p\n" SHORT
              "gates:\n  - {name: acc, kind: accuracy, suites: 'choice:*', margin: 0.04}\n");
    assert_int_equal(f->d.verdicts[3].verdict, NW_VERDICT_FAIL);
    assert_non_null(strstr(f->d.verdicts[3].row.why,
                           ", and 1000 draws allow none below 0.06: at least 1199 are needed"));
    char buf[128];
    assert_string_equal(nw_decision_coarse(&f->policy, 50, buf), "");
}

static void a_missing_slice_fails_whatever_holm_says(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 1000, 600, 0, 0, 1);
    syn_items(&f->s, "int4", "choice:a", 1000, 600, 0, 0, 1);
    syn_items(&f->s, "bf16", "choice:b", 1000, 600, 0, 0, 1);
    decide(f, "policy: p\n" SHORT
              "gates:\n  - {name: acc, kind: accuracy, suites: 'choice:*', margin: 0.04}\n");
    assert_int_equal(f->d.verdicts[1].verdict, NW_VERDICT_FAIL);
    assert_int_equal(f->d.quality[1], NW_VERDICT_FAIL);
}

/* 65 lost and 30 gained of 1000 against 5 points: no loss could be told from the margin with these items,
 * 3.5 points cannot. */
static void an_open_gate_says_what_would_decide_it(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 1000, 600, 0, 0, 1);
    syn_items(&f->s, "int4", "choice:a", 1000, 600, 30, 65, 1);
    decide(f, "policy: p\n" SHORT
              "gates:\n  - {name: acc, kind: accuracy, suites: 'choice:*', margin: 0.05}\n");
    /* n = 6.1826 * 0.095 / (0.05 - 0.035)^2 = 2610, times a design effect of about 1 */
    const nw_dec_verdict *v = verdict(f, "int4", "acc");
    const char *about = strstr(v->row.why, "too close to it: about ");
    assert_int_equal(v->verdict, NW_VERDICT_INCONCLUSIVE);
    assert_non_null(about);
    const double n = strtod(about + strlen("too close to it: about "), NULL);
    assert_true(fabs(n / 2610 - 1) < 0.2);
}

/* ---- the frontier ---- */

/* A choice suite that loses 30 of 500 and a task that loses 12 of 400: the worst slice is the ratio
 * 470/500 - 1 = -6%, where the difference of the suite is -3 points of 1000. */
static void the_worst_slice_is_one_statistic(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", "choice:a", 1000, 500, 0, 0, 1);
    syn_items(&f->s, "int4", "choice:a", 1000, 500, 0, 30, 1);
    syn_items(&f->s, "bf16", "generate:a", 800, 400, 0, 0, 1);
    syn_items(&f->s, "int4", "generate:a", 800, 400, 0, 12, 1);
    (void)syn_requests(&f->s, "bf16", "micro", "batch1", 30, 200, 40);
    (void)syn_requests(&f->s, "int4", "micro", "batch1", 30, 200, 20);
    decide(f, "policy: p\n" SHORT
              "gates:\n  - {name: acc, kind: accuracy, suites: 'choice:*', margin: 0.06}\n"
              "  - {name: task, kind: relative, suites: 'generate:*', margin: 0.1}\n");
    const nw_dec_objective *o = &f->d.regimes[NW_REGIME_BATCH1].points[1].objectives[4];
    assert_string_equal(o->name, "worst slice");
    assert_true(fabs(o->value - -6) < 1e-9);
    assert_true(o->lo < o->value && o->value < o->hi);
}

/* Every request is good, so that what varies is the success rate that is multiplied in: 2000 of 3000
 * right, standard error sqrt(2/9 / 3000), at 10 requests a second. */
static void an_imputed_rate_has_its_uncertainty(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "int8", "int8", 139, 8.1);
    for (size_t i = 0; i < 2; i++) {
        const char *name = i == 0 ? "bf16" : "int8";
        syn_items(&f->s, name, "generate:chat", 3000, 2000, 0, 0, 30);
        (void)syn_requests(&f->s, name, "load", "load", 400, 300, 40);
    }
    decide(f, "policy: p\n" SHORT TASK "saturated: {ttft_ms: 1000, tpot_ms: 100}\n");
    const nw_dec_objective *o = &f->d.regimes[NW_REGIME_SATURATED].points[1].objectives[0];
    const double half = 1.96 * 10 * sqrt(2.0 / 9 / 3000);
    assert_string_equal(o->name, "useful goodput (imputed)");
    assert_true(fabs(o->value - 20.0 / 3) < 1e-9);
    assert_true(fabs((o->hi - o->lo) / (2 * half) - 1) < 0.15);
}

/* One window was not steady, one too short to tell: the first decides, and the note claims no more. */
static void an_unsteady_window_outweighs_one_not_told(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    const int64_t id = syn_requests(&f->s, "bf16", "load", "load", 400, 300, 40);
    const nw_rec_window windows[] = {
        {.file_no = 0, .end_ns = 40000 * SYN_MS, .offered_rps = 10, .steady = -1},
        {.file_no = 1, .end_ns = 40000 * SYN_MS, .offered_rps = 10, .steady = 0},
    };
    syn_ok(nw_record_add_windows(f->s.rec, id, windows, NW_COUNT(windows), &err), &err);
    decide(f, "policy: p\n" SHORT TASK "saturated: {ttft_ms: 1000, tpot_ms: 100}\n");
    const char *note = f->d.regimes[NW_REGIME_SATURATED].note;
    assert_non_null(note);
    assert_non_null(
        strstr(note, "not all steady: it may not hold for longer, or they were too short"));
}

static void no_bytes_of_weights_are_no_memory_known(void **state)
{
    fixture *f = *state;
    syn_candidate(&f->s, "served", "int8", 0, 8);
    (void)syn_requests(&f->s, "bf16", "micro", "batch1", 30, 200, 40);
    (void)syn_requests(&f->s, "served", "micro", "batch1", 30, 200, 20);
    decide(f, "policy: p\n" SHORT TASK);
    const nw_dec_point *p = f->d.regimes[NW_REGIME_BATCH1].points;
    assert_true(fabs(p[0].objectives[3].value - 269) < 1e-9);
    assert_true(isnan(p[1].objectives[3].value));
}

/* A record may come from anywhere, and the worst slice is found again by its name. */
static void a_suite_with_a_long_name_is_a_suite(void **state)
{
    fixture *f = *state;
    char suite[2000] = "choice:";
    memset(suite + 7, 'x', sizeof suite - 8);
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    syn_items(&f->s, "bf16", suite, 1000, 500, 0, 0, 1);
    syn_items(&f->s, "int4", suite, 1000, 500, 0, 5, 1);
    (void)syn_requests(&f->s, "bf16", "micro", "batch1", 30, 200, 40);
    (void)syn_requests(&f->s, "int4", "micro", "batch1", 30, 200, 20);
    decide(f, "policy: p\n" SHORT
              "gates:\n  - {name: acc, kind: accuracy, suites: 'choice:*', margin: 0.06}\n");
    assert_string_equal(verdict(f, "int4", "acc")->row.slice, suite);
    assert_true(fabs(f->d.regimes[NW_REGIME_BATCH1].points[1].objectives[4].value - -1) < 1e-9);
}

/* ---- the choice ---- */

static void the_mechanism_is_told_of_the_cheapest_candidate(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *name;
        double tpot;
    } c[] = {{"bf16", 40}, {"int4-a", 39}, {"int4-b", 20}, {"int4-c", 30}};
    for (size_t i = 0; i < NW_COUNT(c); i++) {
        if (i > 0) {
            syn_candidate(&f->s, c[i].name, "int4-g64", 79, 4.3);
        }
        syn_items(&f->s, c[i].name, "generate:a", 1000, 500, 0, i == 0 ? 0 : 300, 1);
        (void)syn_requests(&f->s, c[i].name, "micro", "batch1", 30, 200, c[i].tpot);
    }
    decide(f, "policy: p\n" SHORT TASK);
    assert_string_equal(chosen(f, NW_REGIME_BATCH1), "bf16"); /* all lose */
    assert_non_null(strstr(f->d.regimes[NW_REGIME_BATCH1].mechanism, "int4-b holds 79.0 MB"));
}

static void one_token_has_no_time_per_token_to_tell_of(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    syn_candidate(&f->s, "int4", "int4-g64", 79, 4.3);
    for (size_t i = 0; i < 2; i++) {
        const char *name = i == 0 ? "bf16" : "int4";
        syn_items(&f->s, name, "generate:a", 1000, 500, 0, 0, 1);
        const int64_t id = syn_begin(&f->s, name, "micro", "batch1", "s");
        const nw_rec_request row = {
            .f_ns = 5 * SYN_MS, .l_ns = 5 * SYN_MS, .n_output = 1, .status = "ok", .correct = -1};
        syn_ok(nw_record_add_requests(f->s.rec, id, &row, 1, &err), &err);
        syn_end(&f->s, id);
    }
    decide(f, "policy: p\n" SHORT TASK);
    const char *words = f->d.regimes[NW_REGIME_BATCH1].mechanism;
    assert_non_null(strstr(words, "TPOT is not measured and TTFT 1.00"));
}

/* Equal cost; 0, 5 and 12 lost of 2000 leave headroom that falls by less than the zone from each to the
 * next and by more over all. The first two tie, and of them the one with more bits wins, whatever the
 * names, and so the order, are. */
static void a_tie_does_not_depend_on_the_order(void **state)
{
    static const struct {
        size_t loss;
        double bits;
    } c[] = {{0, 4}, {5, 5}, {12, 8}};
    static const char *const orders[] = {"abc", "acb", "bac", "bca", "cab", "cba"};
    (void)state;
    for (size_t k = 0; k < NW_COUNT(orders); k++) {
        void *fresh = NULL;
        assert_int_equal(setup(&fresh), 0);
        fixture *f = fresh;
        syn_items(&f->s, "bf16", "generate:a", 4000, 2000, 0, 0, 1);
        (void)syn_requests(&f->s, "bf16", "micro", "batch1", 30, 200, 40);
        for (size_t i = 0; i < NW_COUNT(c); i++) {
            const char name[2] = {orders[k][i], '\0'};
            syn_candidate(&f->s, name, "int4-g64", 79, c[i].bits);
            syn_items(&f->s, name, "generate:a", 4000, 2000, 0, c[i].loss, 1);
            (void)syn_requests(&f->s, name, "micro", "batch1", 30, 200, 20);
        }
        decide(f, "policy: p\n" SHORT TASK);
        const char want[2] = {orders[k][1], '\0'};
        assert_string_equal(chosen(f, NW_REGIME_BATCH1), want);
        assert_int_equal(teardown(&fresh), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_gates_are_those_of_the_guide),
        TEST(two_models_pair_by_task_and_not_by_token),
        TEST(two_models_on_two_texts_are_refused),
        TEST(another_template_of_one_model_is_refused),
        TEST(a_regression_is_claimed_after_holm_over_slices),
        TEST(draws_too_few_for_holm_are_told),
        TEST(a_missing_slice_fails_whatever_holm_says),
        TEST(an_open_gate_says_what_would_decide_it),
        TEST(the_worst_slice_is_one_statistic),
        TEST(an_imputed_rate_has_its_uncertainty),
        TEST(an_unsteady_window_outweighs_one_not_told),
        TEST(no_bytes_of_weights_are_no_memory_known),
        TEST(a_suite_with_a_long_name_is_a_suite),
        TEST(the_mechanism_is_told_of_the_cheapest_candidate),
        TEST(one_token_has_no_time_per_token_to_tell_of),
        cmocka_unit_test(a_tie_does_not_depend_on_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
