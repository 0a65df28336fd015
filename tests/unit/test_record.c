/* The record: what goes in comes out (NULLs too), runs resume, rows are all or none, and a file that
 * is not a sound record of this version is refused by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "record/fingerprint.h"
#include "record/record.h"
#include "table.h"

typedef struct {
    char dir[64];
    char path[96];
    nw_record *rec;
    nw_arena arena;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    nw_error err = {0};
    assert_non_null(f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/nw_record_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof f->path, "%s/study.db", f->dir);
    assert_int_equal(nw_record_open(f->path, NW_RECORD_WRITE, &f->rec, &err), NW_OK);
    const nw_rec_candidate base = {.name = "bf16",
                                   .role = "baseline",
                                   .artifact_hash = "aa",
                                   .file_bytes = -1,
                                   .weight_bytes = 269000000,
                                   .effective_bits = 16};
    const nw_rec_candidate int4 = {.name = "a-int4",
                                   .role = "candidate",
                                   .weights = "int4-g64",
                                   .kv = "bf16",
                                   .act = "a16",
                                   .file_bytes = 90,
                                   .weight_bytes = 80,
                                   .effective_bits = (double)NAN};
    assert_int_equal(nw_record_candidate_put(f->rec, &int4, &err), NW_OK);
    assert_int_equal(nw_record_candidate_put(f->rec, &base, &err), NW_OK);
    *state = f;
    return 0;
}

static void remove_file(const fixture *f, const char *suffix)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s%s", f->path, suffix);
    (void)unlink(path);
}

static int teardown(void **state)
{
    fixture *f = *state;
    nw_record_close(f->rec);
    nw_arena_release(&f->arena);
    remove_file(f, "");
    remove_file(f, "-wal");
    remove_file(f, "-shm");
    (void)rmdir(f->dir);
    free(f);
    return 0;
}

static int64_t begin(fixture *f, const char *stage, const char *suite, bool resume, bool *resumed)
{
    nw_error err = {0};
    int64_t id = 0;
    const nw_rec_run run = {.candidate = "a-int4",
                            .stage = stage,
                            .suite = suite,
                            .settings_hash = "s1",
                            .settings_json = "{}",
                            .data_hash = "d1",
                            .artifact_hash = "bb",
                            .kernel_map = "k",
                            .threads = 2,
                            .seed = -1};
    if (nw_record_run_begin(f->rec, &run, resume, &id, resumed, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    return id;
}

static void baseline_is_listed_first(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    nw_rec_candidate *c = NULL;
    size_t n = 0;
    assert_int_equal(nw_record_candidates(f->rec, &f->arena, &c, &n, &err), NW_OK);
    assert_int_equal(n, 2);
    assert_string_equal(c[0].name, "bf16");
    assert_true(c[0].file_bytes == -1 && c[0].artifact == NULL);
    assert_string_equal(c[1].weights, "int4-g64");
    assert_true(isnan(c[1].effective_bits));
    const nw_rec_candidate *none = c;
    assert_int_equal(nw_record_candidate_get(f->rec, "fp8", &f->arena, &none, &err), NW_OK);
    assert_null(none);
}

static void what_a_later_stage_does_not_know_stays(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    const nw_rec_candidate *c = NULL;
    nw_rec_candidate again = {.name = "a-int4",
                              .role = "candidate",
                              .artifact_hash = "h1",
                              .act = "a8",
                              .file_bytes = -1,
                              .weight_bytes = 81,
                              .effective_bits = (double)NAN};
    assert_int_equal(nw_record_candidate_put(f->rec, &again, &err), NW_OK);
    assert_int_equal(nw_record_candidate_get(f->rec, "a-int4", &f->arena, &c, &err), NW_OK);
    assert_true(c->file_bytes == 90 && c->weight_bytes == 81);
    assert_string_equal(c->weights, "int4-g64");
    assert_string_equal(c->act, "a8");
    again.artifact_hash = "h2"; /* another artifact: nothing of the old one is true of it */
    assert_int_equal(nw_record_candidate_put(f->rec, &again, &err), NW_OK);
    assert_int_equal(nw_record_candidate_get(f->rec, "a-int4", &f->arena, &c, &err), NW_OK);
    assert_true(c->file_bytes == -1 && c->weights == NULL);
}

static nw_status keep_item(void *ctx, const nw_rec_item *row, nw_error *err)
{
    char *text = ctx;
    (void)err;
    const size_t at = strlen(text);
    (void)snprintf(text + at, 256 - at, "%s/%d/%.2f/%d/%s;", row->item_id, (int)row->sample,
                   row->score, row->correct, row->output == NULL ? "-" : row->output);
    return NW_OK;
}

static void items_come_back_in_order_and_replace(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    char text[256] = "";
    const int64_t run = begin(f, "quality", "choice:a", false, NULL);
    const nw_rec_item rows[] = {
        {.item_id = "q2", .score = 1, .correct = 1, .n_prompt = 5, .n_output = -1, .output = "B"},
        {.item_id = "q1", .score = (double)NAN, .correct = -1, .n_prompt = 5, .n_output = 0},
    };
    assert_int_equal(nw_record_add_items(f->rec, run, rows, 2, &err), NW_OK);
    assert_int_equal(nw_record_add_items(f->rec, run, rows, 1, &err), NW_OK);
    assert_int_equal(nw_record_items(f->rec, run, keep_item, text, &err), NW_OK);
    assert_string_equal(text, "q1/0/nan/-1/-;q2/0/1.00/1/B;");
}

static void rows_are_all_or_none(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    char text[256] = "";
    const int64_t run = begin(f, "quality", "choice:a", false, NULL);
    const nw_rec_item rows[] = {{.item_id = "q1", .score = 0}, {.item_id = NULL, .score = 0}};
    assert_int_equal(nw_record_add_items(f->rec, run, rows, 2, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "row 1 of 2 for table item"));
    assert_non_null(strstr(err.message, f->path));
    assert_int_equal(nw_record_items(f->rec, run, keep_item, text, &err), NW_OK);
    assert_string_equal(text, "");
}

static void rows_of_an_unknown_run_are_refused(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    const nw_rec_item row = {.item_id = "q1"};
    assert_int_equal(nw_record_add_items(f->rec, 99, &row, 1, &err), NW_E_FORMAT);
    assert_int_equal(nw_record_run_end(f->rec, 99, "done", &err), NW_E_RANGE);
}

static nw_status keep_request(void *ctx, const nw_rec_request *row, nw_error *err)
{
    (void)err;
    nw_rec_request *out = ctx;
    assert_int_equal(row->n_events, 2);
    assert_true(row->events[1].t_ns == 9000000000123 && row->events[1].n_tokens == 3);
    *out = *row;
    return NW_OK;
}

static void request_keeps_events_and_missing_times(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    nw_rec_request out = {0};
    const int64_t run = begin(f, "load", "load", false, NULL);
    const nw_rec_event events[] = {{8000000000000, 1}, {9000000000123, 3}};
    const nw_rec_request row = {.idx = 0,
                                .s_ns = 0,
                                .d_ns = 5,
                                .f_ns = 8000000000000,
                                .l_ns = -1,
                                .n_prompt = 10,
                                .n_asked = 128,
                                .n_output = 4,
                                .status = "error",
                                .error = "reset",
                                .events = events,
                                .n_events = 2,
                                .correct = -1};
    assert_int_equal(nw_record_add_requests(f->rec, run, &row, 1, &err), NW_OK);
    assert_int_equal(nw_record_requests(f->rec, run, keep_request, &out, &err), NW_OK);
    assert_true(out.s_ns == 0 && out.l_ns == -1 && out.n_asked == 128 && out.correct == -1);
}

static nw_status stop_at_second(void *ctx, const nw_rec_token *row, nw_error *err)
{
    size_t *seen = ctx;
    (*seen)++;
    return row->pos == 1 ? nw_fail(err, NW_E_CANCELLED, "enough") : NW_OK;
}

static void a_callback_ends_the_reading(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    size_t seen = 0;
    const int64_t run = begin(f, "quality", "ppl", false, NULL);
    const nw_rec_token rows[] = {
        {0, 0, 1.5, (double)NAN, -1, -1}, {0, 1, 2, 0, 1, 0}, {0, 2, 3, 0, 1, 0}};
    assert_int_equal(nw_record_add_tokens(f->rec, run, rows, 3, &err), NW_OK);
    assert_int_equal(nw_record_tokens(f->rec, run, stop_at_second, &seen, &err), NW_E_CANCELLED);
    assert_int_equal(seen, 2);
}

static void metrics_windows_kernels_series(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    double v = 0;
    nw_rec_window *w = NULL;
    nw_rec_metric *m = NULL;
    size_t n = 0;
    const int64_t run = begin(f, "micro", "batch1", false, NULL);
    const nw_rec_metric metrics[] = {{"load_s", 0.5, "s", NULL},
                                     {"energy_j", (double)NAN, "J", "{\"why\":\"no counter\"}"}};
    const nw_rec_window windows[] = {{1, 100, 200, 4.0, -1, NULL},
                                     {0, 0, 90, (double)NAN, 1, NULL}};
    const nw_rec_sample series[] = {{"rss", 5, 1.0}};
    assert_int_equal(nw_record_add_metrics(f->rec, run, metrics, 2, &err), NW_OK);
    assert_int_equal(nw_record_add_windows(f->rec, run, windows, 2, &err), NW_OK);
    assert_int_equal(nw_record_add_series(f->rec, run, series, 1, &err), NW_OK);
    assert_int_equal(nw_record_metric(f->rec, run, "load_s", &v, &err), NW_OK);
    assert_true(v == 0.5);
    assert_int_equal(nw_record_metric(f->rec, run, "absent", &v, &err), NW_OK);
    assert_true(isnan(v));
    assert_int_equal(nw_record_metrics(f->rec, run, &f->arena, &m, &n, &err), NW_OK);
    assert_true(n == 2 && isnan(m[0].value) && strcmp(m[0].name, "energy_j") == 0);
    assert_int_equal(nw_record_windows(f->rec, run, &f->arena, &w, &n, &err), NW_OK);
    assert_true(n == 2 && w[0].file_no == 0 && w[0].steady == 1 && w[1].steady == -1);
}

/* A foreign record may hold any integers; spans of a window must be computable. */
static void a_window_that_ends_before_it_begins_is_refused(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    nw_rec_window *w = NULL;
    size_t n = 0;
    const int64_t run = begin(f, "load", "load", false, NULL);
    const nw_rec_window windows[] = {{0, INT64_MAX, INT64_MIN + 1, 4.0, -1, NULL}};
    assert_int_equal(nw_record_add_windows(f->rec, run, windows, 1, &err), NW_OK);
    assert_int_equal(nw_record_windows(f->rec, run, &f->arena, &w, &n, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "window 0"));
}

static void an_unfinished_run_is_resumed_with_its_rows(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    char text[256] = "";
    bool resumed = true;
    int64_t done = -1;
    const nw_rec_item row = {.item_id = "q1", .correct = -1};
    const int64_t first = begin(f, "quality", "choice:a", true, &resumed);
    assert_false(resumed);
    assert_int_equal(nw_record_add_items(f->rec, first, &row, 1, &err), NW_OK);
    assert_int_equal(nw_record_run_end(f->rec, first, "cancelled", &err), NW_OK);
    assert_int_equal(
        nw_record_run_done(f->rec, "a-int4", "quality", "choice:a", "s1", "bb", "k", &done, &err),
        NW_OK);
    assert_true(done == 0);
    assert_true(begin(f, "quality", "choice:a", true, &resumed) == first);
    assert_true(resumed);
    assert_int_equal(nw_record_items(f->rec, first, keep_item, text, &err), NW_OK);
    assert_string_equal(text, "q1/0/0.00/-1/-;");
    assert_int_equal(nw_record_run_end(f->rec, first, "done", &err), NW_OK);
    assert_int_equal(
        nw_record_run_done(f->rec, "a-int4", "quality", "choice:a", "s1", "bb", "k", &done, &err),
        NW_OK);
    assert_true(done == first);
    /* another KV format or tier under the same name was not measured yet */
    assert_int_equal(
        nw_record_run_done(f->rec, "a-int4", "quality", "choice:a", "s1", "bb", "k2", &done, &err),
        NW_OK);
    assert_true(done == 0);
}

static void without_resume_an_unfinished_run_goes_with_its_rows(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    char text[256] = "";
    nw_rec_run *runs = NULL;
    size_t n = 0;
    const nw_rec_item row = {.item_id = "q1"};
    const int64_t first = begin(f, "quality", "choice:a", false, NULL);
    assert_int_equal(nw_record_add_items(f->rec, first, &row, 1, &err), NW_OK);
    const int64_t second = begin(f, "quality", "choice:a", false, NULL);
    assert_int_equal(nw_record_items(f->rec, second, keep_item, text, &err), NW_OK);
    assert_string_equal(text, "");
    assert_int_equal(
        nw_record_runs(f->rec, NULL, "quality", NULL, "running", &f->arena, &runs, &n, &err),
        NW_OK);
    assert_int_equal(n, 1);
    assert_true(runs[0].seed == -1 && runs[0].threads == 2 && runs[0].started != NULL);
}

static void a_transaction_left_open_is_undone(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    const char *v = "x";
    assert_int_equal(nw_record_begin(f->rec, &err), NW_OK);
    assert_int_equal(nw_record_meta_put(f->rec, "k", "v", &err), NW_OK);
    nw_record_rollback(f->rec);
    assert_int_equal(nw_record_meta_get(f->rec, "k", &f->arena, &v, &err), NW_OK);
    assert_null(v);
    assert_int_equal(nw_record_meta_put(f->rec, "k", "v", &err), NW_OK);
    assert_int_equal(nw_record_meta_get(f->rec, "k", &f->arena, &v, &err), NW_OK);
    assert_string_equal(v, "v");
}

static void a_policy_replaces_its_own_conclusions_only(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    nw_rec_verdict *v = NULL;
    nw_rec_decision *d = NULL;
    size_t n = 0;
    for (int round = 0; round < 2; round++) {
        for (int p = 0; p < 2; p++) {
            const char *hash = p == 0 ? "p0" : "p1";
            const nw_rec_policy policy = {hash, "default", "gates: []", "2026-11-30T00:00:00Z"};
            const nw_rec_verdict verdict = {
                hash, "a-int4", "accuracy",     "accuracy", "choice:a", false,
                "pp", -0.1,     (double)NAN,    0.2,        1,          0.2,
                50,   3091,     "INCONCLUSIVE", "too few"};
            const nw_rec_decision decision = {hash, "batch1", "bf16", "nothing passed", "{}"};
            assert_int_equal(nw_record_policy_put(f->rec, &policy, &err), NW_OK);
            assert_int_equal(nw_record_add_verdicts(f->rec, &verdict, 1, &err), NW_OK);
            assert_int_equal(nw_record_add_decisions(f->rec, &decision, 1, &err), NW_OK);
        }
    }
    assert_int_equal(nw_record_verdicts(f->rec, "p0", &f->arena, &v, &n, &err), NW_OK);
    assert_true(n == 1 && isnan(v[0].lo) && v[0].n_needed == 3091 && !v[0].advisory);
    assert_int_equal(nw_record_decisions(f->rec, "p1", &f->arena, &d, &n, &err), NW_OK);
    assert_true(n == 1 && strcmp(d[0].candidate, "bf16") == 0);
}

/* ---- hostile and foreign files ---- */

static void sql(const fixture *f, const char *text)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
}

static void reopen_is_refused(fixture *f, nw_status want, const char *text)
{
    nw_error err = {0};
    nw_record *again = NULL;
    for (int mode = NW_RECORD_READ; mode <= NW_RECORD_WRITE; mode++) {
        assert_int_equal(nw_record_open(f->path, (nw_record_mode)mode, &again, &err), want);
        assert_null(again);
        assert_non_null(strstr(err.message, f->path));
        if (strstr(err.message, text) == NULL) {
            fail_msg("'%s' is not in '%s'", text, err.message);
        }
    }
}

static void close_record(fixture *f)
{
    nw_record_close(f->rec);
    f->rec = NULL;
}

static void a_newer_record_is_refused(void **state)
{
    fixture *f = *state;
    close_record(f);
    sql(f, "PRAGMA user_version = 7");
    reopen_is_refused(f, NW_E_UNSUPPORTED, "record version 7, this program reads version 1");
}

static void a_foreign_database_is_refused(void **state)
{
    fixture *f = *state;
    close_record(f);
    sql(f, "PRAGMA application_id = 5");
    reopen_is_refused(f, NW_E_FORMAT, "not a record of narrow");
}

/* What a full disk leaves: the file is there, in WAL mode, but no table was made. */
static void a_database_without_tables_becomes_a_record(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    size_t n = 9;
    nw_rec_candidate *c = NULL;
    close_record(f);
    assert_int_equal(unlink(f->path), 0);
    sql(f, "PRAGMA journal_mode = WAL");
    assert_int_equal(nw_record_open(f->path, NW_RECORD_WRITE, &f->rec, &err), NW_OK);
    assert_int_equal(nw_record_candidates(f->rec, &f->arena, &c, &n, &err), NW_OK);
    assert_int_equal(n, 0);
}

static void a_text_file_is_refused(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    static char text[9000];
    close_record(f);
    memset(text, 'x', sizeof text);
    assert_int_equal(nw_file_write(f->path, text, sizeof text, &err), NW_OK);
    reopen_is_refused(f, NW_E_FORMAT, "not a database");
}

static void a_damaged_page_is_refused(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    char *bytes = NULL;
    size_t n = 0;
    const int64_t run = begin(f, "quality", "choice:a", false, NULL);
    for (int i = 0; i < 200; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "q%d", i);
        const nw_rec_item row = {.item_id = id, .output = "some text that fills a page or two"};
        assert_int_equal(nw_record_add_items(f->rec, run, &row, 1, &err), NW_OK);
    }
    close_record(f);
    assert_int_equal(nw_file_read(f->path, (size_t)1 << 24, &bytes, &n, &err), NW_OK);
    memset(bytes + n - 4096, 0xA5, 64); /* header of the last page */
    assert_int_equal(nw_file_write(f->path, bytes, n, &err), NW_OK);
    free(bytes);
    reopen_is_refused(f, NW_E_FORMAT, "");
}

static void a_missing_file_is_not_made_by_reading(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    nw_record *none = NULL;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/none.db", f->dir);
    assert_int_equal(nw_record_open(path, NW_RECORD_READ, &none, &err), NW_E_IO);
    assert_false(nw_file_exists(path));
}

static void a_value_of_the_wrong_type_is_named(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    char text[256] = "";
    const int64_t run = begin(f, "quality", "choice:a", false, NULL);
    const nw_rec_item row = {.item_id = "q1"};
    assert_int_equal(nw_record_add_items(f->rec, run, &row, 1, &err), NW_OK);
    close_record(f);
    sql(f, "UPDATE item SET score = 'high'");
    assert_int_equal(nw_record_open(f->path, NW_RECORD_READ, &f->rec, &err), NW_OK);
    assert_int_equal(nw_record_items(f->rec, run, keep_item, text, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "table item, column score: not a number"));
}

static void events_that_are_not_pairs_are_named(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    nw_rec_request out;
    const int64_t run = begin(f, "load", "load", false, NULL);
    const nw_rec_request row = {.status = "ok"};
    assert_int_equal(nw_record_add_requests(f->rec, run, &row, 1, &err), NW_OK);
    close_record(f);
    sql(f, "UPDATE request SET events = '[[1,2],[3,-4]]'");
    assert_int_equal(nw_record_open(f->path, NW_RECORD_READ, &f->rec, &err), NW_OK);
    assert_int_equal(nw_record_requests(f->rec, run, keep_request, &out, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "event 1 of a request is not [t_ns, tokens]"));
}

static void triggers_of_a_stranger_do_not_run(void **state)
{
    fixture *f = *state;
    nw_error err = {0};
    const char *v = NULL;
    close_record(f);
    sql(f, "CREATE TRIGGER evil AFTER INSERT ON meta BEGIN DELETE FROM candidate; END");
    assert_int_equal(nw_record_open(f->path, NW_RECORD_WRITE, &f->rec, &err), NW_OK);
    assert_int_equal(nw_record_meta_put(f->rec, "k", "v", &err), NW_OK);
    const nw_rec_candidate *c = NULL;
    assert_int_equal(nw_record_candidate_get(f->rec, "bf16", &f->arena, &c, &err), NW_OK);
    assert_non_null(c);
    assert_int_equal(nw_record_meta_get(f->rec, "k", &f->arena, &v, &err), NW_OK);
}

static void the_same_machine_has_the_same_fingerprint(void **state)
{
    (void)state;
    nw_error err = {0};
    nw_fingerprint a = {0};
    nw_fingerprint b = {0};
    assert_int_equal(nw_fingerprint_take(&a, &err), NW_OK);
    assert_int_equal(nw_fingerprint_take(&b, &err), NW_OK);
    assert_string_equal(a.hash.hex, b.hash.hex);
    assert_non_null(strstr(a.json, "\"memory_bytes\":"));
    nw_fingerprint_release(&a);
    nw_fingerprint_release(&b);
    nw_fingerprint_release(&b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(baseline_is_listed_first),
        TEST(what_a_later_stage_does_not_know_stays),
        TEST(items_come_back_in_order_and_replace),
        TEST(rows_are_all_or_none),
        TEST(rows_of_an_unknown_run_are_refused),
        TEST(request_keeps_events_and_missing_times),
        TEST(a_callback_ends_the_reading),
        TEST(metrics_windows_kernels_series),
        TEST(a_window_that_ends_before_it_begins_is_refused),
        TEST(an_unfinished_run_is_resumed_with_its_rows),
        TEST(without_resume_an_unfinished_run_goes_with_its_rows),
        TEST(a_transaction_left_open_is_undone),
        TEST(a_policy_replaces_its_own_conclusions_only),
        TEST(a_newer_record_is_refused),
        TEST(a_foreign_database_is_refused),
        TEST(a_database_without_tables_becomes_a_record),
        TEST(a_text_file_is_refused),
        TEST(a_damaged_page_is_refused),
        TEST(a_missing_file_is_not_made_by_reading),
        TEST(a_value_of_the_wrong_type_is_named),
        TEST(events_that_are_not_pairs_are_named),
        TEST(triggers_of_a_stranger_do_not_run),
        cmocka_unit_test(the_same_machine_has_the_same_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
