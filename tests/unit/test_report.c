/* The page as a whole: figures on it equal the rows of the record, hostile text stays text, tags are
 * balanced, tables have captions and heads, and without node the page keeps its tables.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "decide/data.h"
#include "report/facts.h"
#include "report/figures.h"
#include "report/html.h"
#include "report/report.h"
#include "stats/summary.h"
#include "study_record.h"
#include "table.h"
#include "tmpdir.h"

typedef struct {
    nw_tmpdir dir;
    char record[320], page[320];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->dir = nw_tmpdir_make();
    (void)nw_tmpdir_file(&f->dir, "study.db", f->record, sizeof f->record);
    (void)nw_tmpdir_file(&f->dir, "report.html", f->page, sizeof f->page);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    nw_tmpdir_remove(&f->dir);
    free(f);
    return 0;
}

/* The page of the record that is there, without node: the caller frees it. */
static char *page_again(const fixture *f, const char *title)
{
    const nw_report_options options = {
        .record = f->record, .out = f->page, .title = title, .render = "/nonexistent/render.mjs"};
    nw_report_result r;
    nw_error err = {0};
    char *text = NULL;
    size_t n = 0;

    if (nw_report_write(&options, &r, &err) != NW_OK ||
        nw_file_read(f->page, 64 << 20, &text, &n, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(r.n_figures, 0);
    assert_int_equal(r.n_bytes, n);
    assert_non_null(strstr(r.why_no_figures, "narrow-render.mjs"));
    return text;
}

static char *page_of(const fixture *f, const nw_study_record *o, const char *title)
{
    nw_study_record_make(f->record, o);
    return page_again(f, title);
}

static const nw_study_record small = {.decided = true, .n_micro = 30, .n_load = 40};

static size_t count(const char *text, const char *what)
{
    size_t n = 0;

    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) {
        n++;
    }
    return n;
}

static void tags_are_balanced_and_tables_described(void **state)
{
    static const char *const tags[] = {"table", "caption", "thead", "tbody", "tr",  "th",
                                       "td",    "section", "p",     "ul",    "li",  "dl",
                                       "dt",    "dd",      "h1",    "h2",    "h3",  "details",
                                       "span",  "small",   "pre",   "code",  "div", "article"};
    char *page = page_of(*state, &small, "A <title> & more");

    for (size_t i = 0; i < NW_COUNT(tags); i++) {
        char open[32];
        char with[32];
        char shut[32];
        (void)snprintf(open, sizeof open, "<%s>", tags[i]);
        (void)snprintf(with, sizeof with, "<%s ", tags[i]);
        (void)snprintf(shut, sizeof shut, "</%s>", tags[i]);
        if (count(page, open) + count(page, with) != count(page, shut)) {
            fail_msg("<%s>: %zu opened, %zu closed", tags[i], count(page, open) + count(page, with),
                     count(page, shut));
        }
    }
    assert_int_equal(count(page, "<h1>"), 1);
    assert_non_null(strstr(page, "<h1>A &lt;title&gt; &amp; more</h1>"));
    assert_true(count(page, "<table") > 8);
    assert_int_equal(count(page, "<table"), count(page, "<caption>"));
    assert_int_equal(count(page, "<th>"), 0); /* every head has a scope */
    assert_null(strstr(page, "http://"));
    assert_null(strstr(page, "https://"));
    assert_null(strstr(page, ">nan"));
    assert_null(strstr(page, ":nan"));
    free(page);
}

static void hostile_text_stays_text(void **state)
{
    const nw_study_record o = {.name = "<script>alert(1)</script>\xff",
                               .hostile = true,
                               .decided = true,
                               .n_micro = 30,
                               .n_load = 40};
    char *page = page_of(*state, &o, "\"><svg onload=alert(4)>");

    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<b onclick"));
    assert_null(strstr(page, "<img"));
    assert_null(strstr(page, "<svg onload"));
    assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert_non_null(
        strstr(page, "]]&gt; &quot;quoted&quot; &#39;single&#39; &amp; &lt;b onclick=x&gt;"));
    free(page);
}

static void the_answer_is_said_with_its_reason(void **state)
{
    char *page = page_of(*state, &small, NULL);

    assert_int_equal(count(page, "<strong>int8-w8a8</strong>") >= 2, 1);
    assert_non_null(strstr(page, "fewer bytes of weights are read for each token."));
    assert_non_null(strstr(page, "passes every gate and costs least."));
    assert_non_null(strstr(page, "About the baseline: BF16 made from published 4-bit weights."));
    assert_non_null(strstr(page, "? INCONCLUSIVE"));
    assert_non_null(strstr(page, "n = 48, <b>309 needed</b>"));
    assert_non_null(strstr(page, "261 more items needed (309 in all)"));
    free(page);
}

static void without_a_decision_it_says_so(void **state)
{
    const nw_study_record o = {.n_micro = 5, .n_load = 0};
    char *page = page_of(*state, &o, NULL);

    assert_non_null(strstr(page, "No policy has been applied to this record"));
    assert_non_null(strstr(page, "No gate has been evaluated"));
    assert_non_null(strstr(page, "No load run is in the record"));
    assert_non_null(strstr(page, "The frontier is drawn once a decision is made"));
    free(page);
}

static void p99_waits_for_299_requests(void **state)
{
    char *page = page_of(*state, &small, NULL);

    assert_non_null(strstr(page, "n = 30, 299 needed"));
    assert_non_null(strstr(page, "n = 40, 299 needed"));
    free(page);
}

typedef struct {
    double ms[64];
    size_t n;
} latencies;

static nw_status keep_ttft(void *ctx, const nw_rec_request *q, nw_error *err)
{
    latencies *l = ctx;
    (void)err;
    l->ms[l->n++] = (double)(q->f_ns - q->s_ns) / 1e6;
    return NW_OK;
}

/* The median on the page is the median of the rows, computed here by counting. */
static void latencies_equal_the_rows(void **state)
{
    const fixture *f = *state;
    char *page = page_of(f, &small, NULL);
    latencies l = {.n = 0};
    nw_record *rec = NULL;
    nw_error err = {0};
    char want[64];
    double median = 0;
    nw_num num;

    assert_int_equal(nw_record_open(f->record, NW_RECORD_READ, &rec, &err), NW_OK);
    assert_int_equal(nw_record_requests(rec, 3, keep_ttft, &l, &err), NW_OK); /* bf16, batch 1 */
    nw_record_close(rec);
    assert_int_equal(l.n, 30);
    for (size_t i = 0; i < l.n; i++) {
        size_t below = 0;
        for (size_t k = 0; k < l.n; k++) {
            below += l.ms[k] < l.ms[i];
        }
        median = below == 14 ? l.ms[i] : median; /* rank 15 of 30 */
    }
    (void)snprintf(want, sizeof want, "TTFT p50 <small>ms</small></th><td>%s <small>",
                   nw_sig(median, &num));
    assert_non_null(strstr(page, want));
    free(page);
}

typedef struct {
    double sum, kl;
    size_t n;
} text_sums;

static nw_status keep_nll(void *ctx, const nw_rec_token *t, nw_error *err)
{
    text_sums *s = ctx;
    (void)err;
    s->sum += t->nll;
    s->kl += t->kl;
    s->n++;
    return NW_OK;
}

static void perplexity_equals_the_rows(void **state)
{
    const fixture *f = *state;
    char *page = page_of(f, &small, NULL);
    text_sums base = {0, 0, 0};
    text_sums cand = {0, 0, 0};
    nw_record *rec = NULL;
    nw_error err = {0};
    char want[96];
    nw_num num;

    assert_int_equal(nw_record_open(f->record, NW_RECORD_READ, &rec, &err), NW_OK);
    assert_int_equal(nw_record_tokens(rec, 1, keep_nll, &base, &err), NW_OK);
    assert_int_equal(nw_record_tokens(rec, 19, keep_nll, &cand, &err), NW_OK); /* int4-g32 */
    nw_record_close(rec);
    (void)snprintf(want, sizeof want, "perplexity</th><td>%s <small>",
                   nw_sig(exp(base.sum / (double)base.n), &num));
    assert_non_null(strstr(page, want));
    (void)snprintf(want, sizeof want, "<td>%s <small>",
                   nw_sig((cand.sum - base.sum) / (double)cand.n, &num));
    const char *row = strstr(page, "ln of the ratio to the baseline");
    assert_non_null(row);
    assert_non_null(strstr(row, want));
    (void)snprintf(want, sizeof want, "<td>%s <small>", nw_sig(cand.kl / (double)cand.n, &num));
    row = strstr(page, "mean KL divergence of a token");
    assert_non_null(row);
    assert_non_null(strstr(row, want));
    free(page);
}

typedef struct {
    size_t n, good;
} goods;

static nw_status count_good(void *ctx, const nw_rec_request *q, nw_error *err)
{
    goods *g = ctx;
    (void)err;
    const double ttft = (double)(q->f_ns - q->s_ns) / 1e6;
    const double tpot = (double)(q->l_ns - q->f_ns) / 1e6 / (double)(q->n_output - 1);
    g->n++;
    g->good += strcmp(q->status, "ok") == 0 && ttft <= 1000 && tpot <= 60;
    return NW_OK;
}

/* Goodput of the baseline at its middle rate: good requests of the window over its length. */
static void goodput_equals_the_rows(void **state)
{
    const fixture *f = *state;
    goods g = {0, 0};
    nw_record *rec = NULL;
    nw_error err = {0};
    nw_facts facts;

    nw_study_record_make(f->record, &small);
    assert_int_equal(nw_record_open(f->record, NW_RECORD_READ, &rec, &err), NW_OK);
    assert_int_equal(nw_record_requests(rec, 5, count_good, &g, &err), NW_OK);
    assert_int_equal(nw_facts_load(rec, NULL, &facts, &err), NW_OK);
    const nw_load_point *p = &facts.c[0].load[1];
    assert_int_equal(p->run, 5);
    assert_true(p->n == g.n && p->n_good == g.good && g.good > 0 && g.good < g.n);
    assert_true(fabs(p->goodput_rps.value - (double)g.good / p->window_s) < 1e-9);
    assert_true(p->goodput_rps.lo < p->goodput_rps.value);
    assert_true(p->goodput_rps.hi > p->goodput_rps.value);
    const nw_regime_rule slo = {.ttft_ms = 1000, .tpot_ms = 60};
    nw_dec_speed decided; /* decide reads the same rows on its own */
    size_t good = 0;
    assert_int_equal(nw_data_speed(rec, &facts.runs[4], &facts.arena, &decided, &err), NW_OK);
    for (size_t i = 0; i < decided.n; i++) {
        good += nw_request_good(&decided.requests[i], &slo);
    }
    assert_true(decided.n == p->n && good == p->n_good);
    assert_int_equal(facts.operating, 0); /* at 1.8/s it misses the limit for most */
    nw_facts_release(&facts);
    nw_record_close(rec);
}

/* One run may hold arrival files of several rates, and several files of one rate. */
static void rates_of_a_run_are_points_of_the_curve(void **state)
{
    static const nw_rec_window windows[] = {
        {.file_no = 0, .start_ns = 0, .end_ns = 1000000000, .offered_rps = 9, .steady = 1},
        {.file_no = 1, .start_ns = 0, .end_ns = 1000000000, .offered_rps = 5, .steady = -1},
        {.file_no = 2, .start_ns = 0, .end_ns = 1000000000, .offered_rps = 5.1, .steady = 0},
    };
    const fixture *f = *state;
    const nw_rec_run run = {.candidate = "bf16",
                            .stage = "load",
                            .suite = "load",
                            .settings_hash = "three",
                            .artifact_hash = "bf16"};
    nw_record *rec = NULL;
    nw_error err = {0};
    nw_facts facts;
    int64_t id = 0;
    bool resumed = false;

    nw_study_record_make(f->record, &small);
    assert_int_equal(nw_record_open(f->record, NW_RECORD_WRITE, &rec, &err), NW_OK);
    assert_int_equal(nw_record_run_begin(rec, &run, false, &id, &resumed, &err), NW_OK);
    assert_int_equal(nw_record_add_windows(rec, id, windows, NW_COUNT(windows), &err), NW_OK);
    for (int64_t file = 0; file < 3; file++) {
        const nw_rec_request q = {.file_no = file,
                                  .s_ns = 1,
                                  .d_ns = 2,
                                  .f_ns = 3,
                                  .l_ns = 4,
                                  .n_output = 2,
                                  .status = "ok",
                                  .correct = -1};
        assert_int_equal(nw_record_add_requests(rec, id, &q, 1, &err), NW_OK);
    }
    assert_int_equal(nw_record_run_end(rec, id, "done", &err), NW_OK);
    assert_int_equal(nw_facts_load(rec, NULL, &facts, &err), NW_OK);
    assert_int_equal(facts.c[0].n_load, 5); /* 0.9, 1.8, 3.6, and these two */
    const nw_load_point *p = &facts.c[0].load[3];
    assert_true(p->run == id && p[1].run == id);
    assert_true(fabs(p[0].offered_rps - 5.05) < 1e-9 && p[0].n_files == 2 && p[0].n == 2);
    assert_true(p[0].steady == 0 && p[1].steady == 1);
    assert_true(fabs(p[1].offered_rps - 9) < 1e-9 && p[1].n_files == 1 && p[1].n == 1);
    nw_facts_release(&facts);
    nw_record_close(rec);
}

/* Dates of runs and the version differ from day to day: their digits become '#'. */
static void blank_dates(char *page)
{
    for (char *at = strstr(page, "<td>20"); at != NULL; at = strstr(at + 1, "<td>20")) {
        if (at[14] == 'T' && at[23] == 'Z') {
            memset(at + 4, '#', 19);
        }
    }
    for (char *at = strstr(page, "narrow " NW_VERSION); at != NULL;
         at = strstr(at + 1, "narrow " NW_VERSION)) {
        memset(at + 7, '#', strlen(NW_VERSION));
    }
}

/* The whole page, byte for byte, without figures; NW_UPDATE_GOLDEN=1 writes it anew. */
static void the_page_is_as_it_was(void **state)
{
    static const char path[] = NW_SOURCE_DIR "/tests/golden/report/small.html";
    const char *update = getenv("NW_UPDATE_GOLDEN");
    char *page = page_of(*state, &small, "A small study");
    char *golden = NULL;
    size_t n = 0;
    nw_error err = {0};

    blank_dates(page);
    if (update != NULL && strcmp(update, "1") == 0 &&
        nw_file_write(path, page, strlen(page), &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    if (nw_file_read(path, 64 << 20, &golden, &n, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    for (size_t i = 0, line = 1; i <= n; i++) {
        if (page[i] != golden[i]) {
            fail_msg("%s:%zu: not as it was: '%.60s' is now '%.60s'", path, line, golden + i,
                     page + i);
        }
        line += golden[i] == '\n';
    }
    free(golden);
    free(page);
}

/* A candidate whose rows all pass and which the decision holds open, by Holm over candidates, does not
 * count as passed. */
static void the_count_of_candidates_is_the_decisions(void **state)
{
    const fixture *f = *state;
    nw_record *rec = NULL;
    nw_error err = {0};
    const nw_rec_decision row = {"policyhash0", "batch1", "int8-w8a8", "why",
                                 "{\"quality\":{\"int8-w8a8\":\"INCONCLUSIVE\"}}"};
    char *page = page_of(f, &small, NULL);

    assert_non_null(strstr(page, "<strong>1</strong> with every deciding gate passed; "
                                 "<strong>1</strong> with a failed gate; <strong>1</strong> not "
                                 "decided yet"));
    free(page);
    assert_int_equal(nw_record_open(f->record, NW_RECORD_WRITE, &rec, &err), NW_OK);
    assert_int_equal(nw_record_add_decisions(rec, &row, 1, &err), NW_OK);
    nw_record_close(rec);
    page = page_again(f, NULL);
    assert_non_null(strstr(page, "Candidates: <strong>1</strong> with a failed gate; "
                                 "<strong>2</strong> not decided yet"));
    free(page);
}

/* Lengths are 16 + i mod 9 of 30 requests, mean 19.7; half as long again for int4-g64. */
static void answers_that_end_by_themselves_are_shown(void **state)
{
    char *page = page_of(*state, &small, NULL);

    assert_non_null(strstr(page, "answers that end by themselves, n = 30</h3>"));
    assert_non_null(strstr(page, "<td>19.7</td><td>90</td><td class=\"t\">"));
    assert_non_null(strstr(page, "<td>19.7 <small>100% of the baseline's</small></td><td>90</td>"
                                 "<td class=\"t\">yes</td>"));
    assert_non_null(strstr(page, "<td>29.3 <small>149% of the baseline's</small></td><td>90</td>"
                                 "<td class=\"t\"><b>no</b></td>"));
    free(page);
}

/* What a column or a row is called stands among the terms. */
static void every_term_is_explained(void **state)
{
    static const char *const terms[] = {
        "TTFT",      "TPOT",      "goodput",       "perplexity",   "nats", "KL",
        "pp",        "INCONCL",   "advisory",      "Holm",         "draw", "a16",
        "dominated", "effective", "workspace",     "in flight",    "p90",  "n needed",
        "fallback",  "top-1",     "bits per byte", "design effect"};
    char *page = page_of(*state, &small, NULL);
    const char *at = strstr(page, "<section id=\"terms\"");

    assert_non_null(at);
    for (size_t i = 0; i < NW_COUNT(terms); i++) {
        bool found = false;
        for (const char *dt = strstr(at, "<dt>"); dt != NULL && !found;
             dt = strstr(dt + 1, "<dt>")) {
            const char *end = strstr(dt, "</dt>");
            const char *hit = strstr(dt, terms[i]);
            found = hit != NULL && hit < end;
        }
        if (!found) {
            fail_msg("'%s' is not explained", terms[i]);
        }
    }
    free(page);
}

static void a_server_is_named_and_a_path_is_not(void **state)
{
    const fixture *f = *state;
    static const char *const shown[] = {"http://10.0.0.7:8000", NULL};
    static const char *const artifacts[] = {"http://10.0.0.7:8000", "/home/somebody/int4"};
    nw_record *rec = NULL;
    nw_error err = {0};

    nw_study_record_make(f->record, &small);
    for (size_t i = 0; i < NW_COUNT(artifacts); i++) {
        const nw_rec_candidate c = {.name = "bf16",
                                    .role = "baseline",
                                    .artifact = artifacts[i],
                                    .artifact_hash = "model",
                                    .file_bytes = -1,
                                    .weight_bytes = -1,
                                    .effective_bits = NAN};
        assert_int_equal(nw_record_open(f->record, NW_RECORD_WRITE, &rec, &err), NW_OK);
        assert_int_equal(nw_record_candidate_put(rec, &c, &err), NW_OK);
        nw_record_close(rec);
        char *text = page_again(f, "t");
        assert_int_equal(strstr(text, "http://10.0.0.7:8000") != NULL, shown[i] != NULL);
        assert_null(strstr(text, "/home/somebody"));
        free(text);
    }
}

static void an_unknown_policy_is_refused(void **state)
{
    const fixture *f = *state;
    const nw_report_options o = {.record = f->record, .out = f->page, .policy = "feedfacecafe"};
    nw_report_result r;
    nw_error err = {0};

    nw_study_record_make(f->record, &small);
    assert_int_equal(nw_report_write(&o, &r, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "feedfacecafe"));
    assert_false(nw_file_exists(f->page));
}

static void labels_are_moved_apart(void **state)
{
    double y[] = {100, 101, 99, 10, 240};

    (void)state;
    nw_figure_spread(y, NW_COUNT(y), 14);
    assert_true(fabs(y[2] - 86) < 1e-9 && fabs(y[0] - 100) < 1e-9 && fabs(y[1] - 114) < 1e-9);
    assert_true(y[3] == 10 && y[4] == 240);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(tags_are_balanced_and_tables_described),
        TEST(hostile_text_stays_text),
        TEST(the_answer_is_said_with_its_reason),
        TEST(without_a_decision_it_says_so),
        TEST(p99_waits_for_299_requests),
        TEST(latencies_equal_the_rows),
        TEST(perplexity_equals_the_rows),
        TEST(goodput_equals_the_rows),
        TEST(rates_of_a_run_are_points_of_the_curve),
        TEST(the_page_is_as_it_was),
        TEST(the_count_of_candidates_is_the_decisions),
        TEST(answers_that_end_by_themselves_are_shown),
        TEST(every_term_is_explained),
        TEST(a_server_is_named_and_a_path_is_not),
        TEST(an_unknown_policy_is_refused),
        TEST(labels_are_moved_apart),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
