/* The layers of eval on tiny models against sums made here from nw_engine_score: what is scored, and
 * that cutting, packing and pairing change no figure.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/file.h"
#include "base/signal.h"
#include "engine_fixture.h"
#include "eval/choice.h"
#include "eval/evaluate.h"
#include "eval/generate.h"
#include "eval/perplexity.h"
#include "record/record.h"
#include "target/target.h"

#define MAX_TOKENS 1024

static nw_engine *open_engine(int model, uint32_t max_step, uint32_t n_ctx)
{
    nw_engine_options o = fixture_options();
    o.no_tokenizer = false;
    o.max_step_tokens = max_step;
    o.n_ctx = n_ctx;
    return fixture_engine(model, &o);
}

static double log_sum_exp(const float *l)
{
    double max = (double)l[0];
    double sum = 0;
    for (int i = 1; i < NW_TINY_VOCAB; i++) {
        max = fmax(max, (double)l[i]);
    }
    for (int i = 0; i < NW_TINY_VOCAB; i++) {
        sum += exp((double)l[i] - max);
    }
    return max + log(sum);
}

typedef struct {
    float *rows; /* [n][NW_TINY_VOCAB] */
} row_store;

static bool keep_row(void *ctx, size_t pos, const float *logits)
{
    memcpy(((row_store *)ctx)->rows + pos * NW_TINY_VOCAB, logits, NW_TINY_VOCAB * sizeof *logits);
    return true;
}

/* Logits after each of n ids, in one pass over the whole; the caller frees them. */
static float *whole_pass(nw_engine *e, const int32_t *ids, size_t n)
{
    nw_error err = {0};
    row_store s = {new_logits(n)};
    if (nw_engine_score(e, ids, n, 0, keep_row, &s, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    return s.rows;
}

/* ---- perplexity ---- */

typedef struct {
    nw_divergence d[MAX_TOKENS];
    size_t window[MAX_TOKENS];
    uint32_t pos[MAX_TOKENS];
    size_t n;
} collected;

static nw_status collect(void *ctx, size_t window, uint32_t pos, const nw_divergence *d,
                         nw_error *err)
{
    collected *c = ctx;
    (void)err;
    assert_true(c->n < MAX_TOKENS);
    c->window[c->n] = window;
    c->pos[c->n] = pos;
    c->d[c->n++] = *d;
    return NW_OK;
}

/* Two windows of 150 tokens, scored from token 20 and from token 1. */
static int32_t text_ids[300];
static nw_window text_windows[] = {{text_ids, 150, 20}, {text_ids + 150, 150, 1}};
static const nw_windows text = {.items = text_windows, .n = 2, .n_scored = 130 + 149};

static void perplexity_is_the_sum_over_a_whole_pass(void **state)
{
    static collected c;
    nw_engine *e = open_engine(0, 16, 0); /* steps of 16 tokens: windows are cut in chunks */
    nw_engine *base = open_engine(1, 128, 0);
    nw_error err = {0};
    size_t at = 0;

    (void)state;
    c.n = 0;
    random_ids(5, text_ids, NW_COUNT(text_ids));
    assert_int_equal(nw_perplexity_run(e, base, &text, collect, &c, &err), NW_OK);
    assert_true(c.n == text.n_scored);
    for (size_t w = 0; w < text.n; w++) {
        const nw_window *x = &text_windows[w];
        float *l = whole_pass(e, x->ids, x->n);
        float *b = whole_pass(base, x->ids, x->n);
        for (uint32_t k = x->first; k < x->n; k++, at++) {
            const float *p = l + (k - 1) * (size_t)NW_TINY_VOCAB;
            const float *q = b + (k - 1) * (size_t)NW_TINY_VOCAB;
            const double zp = log_sum_exp(p);
            const double zq = log_sum_exp(q);
            double kl = 0;
            for (int i = 0; i < NW_TINY_VOCAB; i++) {
                const double lp = (double)p[i] - zp;
                const double lq = (double)q[i] - zq;
                kl += exp(lq) * (lq - lp);
            }
            /* double sums of 260 terms near 1: 1e-12 leaves room for their order */
            assert_true(c.window[at] == w && c.pos[at] == k);
            assert_true(fabs(c.d[at].nll - (zp - (double)p[x->ids[k]])) < 1e-12);
            assert_true(fabs(c.d[at].nll_base - (zq - (double)q[x->ids[k]])) < 1e-12);
            assert_true(fabs(c.d[at].kl - kl) < 1e-12);
        }
        free(l);
        free(b);
    }
    nw_engine_close(e);
    nw_engine_close(base);
}

/* REPORTS H6; the two engines cut the windows differently and the bits are the same. */
static void a_model_against_itself_is_exactly_zero(void **state)
{
    static collected c;
    nw_engine *e = open_engine(0, 128, 0);
    nw_engine *same = open_engine(0, 9, 0);
    nw_error err = {0};

    (void)state;
    c.n = 0;
    random_ids(6, text_ids, NW_COUNT(text_ids));
    assert_int_equal(nw_perplexity_run(e, same, &text, collect, &c, &err), NW_OK);
    assert_true(c.n == text.n_scored);
    for (size_t i = 0; i < c.n; i++) {
        assert_true(c.d[i].kl == 0 && c.d[i].top1 == 1 && c.d[i].rank_base == 0);
        assert_true(c.d[i].nll == c.d[i].nll_base);
    }
    nw_engine_close(e);
    nw_engine_close(same);
}

static void other_vocabulary_is_refused(void **state)
{
    nw_model_config config = nw_tiny_llama();
    nw_engine_options o = fixture_options();
    nw_engine *e = open_engine(0, 128, 0);
    nw_engine *other = NULL;
    char path[300];
    nw_error err = {0};
    static collected c;

    (void)state;
    config.n_vocab = 272;
    nw_tiny_write(&config, 3, nw_tmpdir_file(&fixture_dir, "more_words", path, sizeof path));
    assert_int_equal(nw_engine_open(path, &o, &other, &err), NW_OK);
    assert_int_equal(nw_perplexity_run(e, other, &text, collect, &c, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "vocabulary of 260 tokens, the baseline has 272"));
    nw_engine_close(e);
    nw_engine_close(other);
}

/* ---- choice ---- */

/* ln p of ids[from..n-1], by hand. */
static double continuation(nw_engine *e, const char *whole, size_t from)
{
    int32_t ids[256];
    const size_t n = strlen(whole);
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        ids[i] = (uint8_t)whole[i];
    }
    float *l = whole_pass(e, ids, n);
    for (size_t i = from; i < n; i++) {
        const float *row = l + (i - 1) * NW_TINY_VOCAB;
        sum += (double)row[ids[i]] - log_sum_exp(row);
    }
    free(l);
    return sum;
}

static void open_suite(const char *lines, nw_item_kind kind, nw_suite *suite)
{
    char path[300];
    nw_error err = {0};
    (void)nw_tmpdir_put(&fixture_dir, "suite.jsonl", lines, strlen(lines), path, sizeof path);
    if (nw_suite_open(path, kind, 0, 0, suite, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
}

/* REPORTS H4: `abc` + `de` scores d and e, each after all that stands before it, and nothing else.
 * The choices differ in length, so that sums and means by byte can disagree. */
static void exactly_the_continuation_is_scored(void **state)
{
    static const char *const whole[2][3] = {{"abcde", "abcdefgh", "abcz"}, {"x y", "x yy", "x  "}};
    static const size_t from[2] = {3, 2};
    nw_engine *e = open_engine(0, 128, 0);
    nw_suite suite;
    nw_choice_answers a;
    nw_error err = {0};

    (void)state;
    open_suite(
        "{\"id\":\"1\",\"prompt\":\"abc\",\"choices\":[\"de\",\"defgh\",\"z\"],\"answer\":0}\n"
        "{\"id\":\"2\",\"prompt\":\"x \",\"choices\":[\"y\",\"yy\",\" \"],\"answer\":1}\n",
        NW_ITEM_CHOICE, &suite);
    assert_int_equal(nw_choice_run(e, &suite, &a, &err), NW_OK);
    for (size_t i = 0; i < 2; i++) {
        int sum = 0;
        int bytes = 0;
        double want[3];
        assert_true(a.items[i].scored && a.items[i].n_context == from[i]);
        for (int c = 0; c < 3; c++) {
            want[c] = continuation(e, whole[i][c], from[i]);
            assert_true(fabs(a.items[i].logprob[c] - want[c]) < 1e-11);
        }
        for (int c = 1; c < 3; c++) {
            const double len = (double)(strlen(whole[i][c]) - from[i]);
            sum = want[c] > want[sum] ? c : sum;
            bytes = want[c] / len > want[bytes] / (double)(strlen(whole[i][bytes]) - from[i])
                        ? c
                        : bytes;
        }
        assert_int_equal(a.items[i].best_sum, sum);
        assert_int_equal(a.items[i].best_bytes, bytes);
    }
    nw_choice_answers_release(&a);
    nw_suite_release(&suite);
    nw_engine_close(e);
}

/* REPORTS H3: an item longer than the context is not cut and not scored; the others are. Sequences
 * longer than a step go alone, with the same figures. */
static void items_longer_than_the_context_are_not_scored(void **state)
{
    nw_engine *e = open_engine(0, 128, 32);
    nw_engine *steps = open_engine(0, 8, 32);
    nw_suite suite;
    nw_choice_answers a;
    nw_choice_answers b;
    nw_error err = {0};

    (void)state;
    open_suite("{\"id\":\"short\",\"prompt\":\"abc\",\"choices\":[\"de\",\"fg\"],\"answer\":0}\n"
               "{\"id\":\"long\",\"prompt\":\"abcdefghijklmnopqrstuvwxyz\",\"choices\":[\"a\","
               "\"0123456\"],\"answer\":0}\n"
               "{\"id\":\"full\",\"prompt\":\"abcdefghijklmnopqrstuvwxyz\",\"choices\":[\"a\","
               "\"012345\"],\"answer\":0}\n",
               NW_ITEM_CHOICE, &suite);
    assert_int_equal(nw_choice_run(e, &suite, &a, &err), NW_OK);
    assert_int_equal(nw_choice_run(steps, &suite, &b, &err), NW_OK);
    assert_true(a.items[0].scored && !a.items[1].scored && a.items[2].scored);
    assert_int_equal(a.items[1].n_tokens, 33);
    assert_int_equal(a.items[1].best_sum, -1);
    assert_int_equal(a.items[1].best_bytes, -1);
    for (int i = 0; i < 3; i += 2) {
        for (int c = 0; c < 2; c++) {
            assert_true(a.items[i].logprob[c] == b.items[i].logprob[c]);
        }
    }
    nw_choice_answers_release(&a);
    nw_choice_answers_release(&b);
    nw_suite_release(&suite);
    nw_engine_close(e);
    nw_engine_close(steps);
}

/* ---- generate ---- */

static void generate_answers_grade_and_refuse_by_item(void **state)
{
    static const char lines[] =
        "{\"id\":\"any\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],"
        "\"grader\":\"contains\",\"answer\":\"never in it\",\"max_tokens\":5}\n"
        "{\"id\":\"too long\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],"
        "\"grader\":\"exact\",\"answer\":\"x\",\"max_tokens\":4000}\n"
        "{\"id\":\"again\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],"
        "\"grader\":\"exact\",\"answer\":\"x\",\"max_tokens\":5}\n";
    nw_target *t = NULL;
    nw_suite suite;
    nw_gen_answer *a = NULL;
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_target_open(fixture_path[0],
                                    &(nw_target_options){.n_threads = 1, .max_seqs = 2}, &t, &err),
                     NW_OK);
    open_suite(lines, NW_ITEM_GENERATE, &suite);
    for (unsigned parallel = 1; parallel <= 3; parallel += 2) {
        assert_int_equal(nw_generate_run(t, &suite, parallel, 1, &a, &err), NW_OK);
        assert_true(a[0].answered && !a[0].correct && a[0].n_output <= 5 && a[0].n_prompt > 0);
        assert_true(!a[1].answered && !a[1].correct && a[1].finish == NW_GEN_ERROR);
        assert_non_null(strstr(a[1].error, "4000"));
        assert_true(a[2].answered);
        assert_string_equal(a[0].text, a[2].text);
        nw_gen_answers_free(a, suite.n_items);
    }
    nw_suite_release(&suite);
    open_suite("{\"id\":\"too long\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],"
               "\"grader\":\"exact\",\"answer\":\"x\",\"max_tokens\":4000}\n",
               NW_ITEM_GENERATE, &suite);
    assert_int_equal(nw_generate_run(t, &suite, 1, 1, &a, &err), NW_E_NETWORK);
    assert_non_null(strstr(err.message, "none of 1 items was answered"));
    nw_suite_release(&suite);
    nw_target_close(t);
}

/* ---- settings ---- */

static void settings_hash(const char *model, const char *record, char hash[65])
{
    const nw_eval_options o = {.target = model,
                               .record = record,
                               .candidate = "a",
                               .layers = NW_EVAL_GENERATE,
                               .max_items = 1,
                               .n_threads = 1};
    json_t *out = NULL;
    nw_record *r = NULL;
    nw_arena arena = {0};
    nw_rec_run *runs = NULL;
    size_t n = 0;
    nw_error err = {0};

    if (nw_evaluate(&o, &out, &err) != NW_OK ||
        nw_record_open(record, NW_RECORD_READ, &r, &err) != NW_OK ||
        nw_record_runs(r, NULL, NULL, NULL, "done", &arena, &runs, &n, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(n > 0);
    (void)snprintf(hash, 65, "%s", runs[n - 1].settings_hash);
    json_decref(out);
    nw_record_close(r);
    nw_arena_release(&arena);
}

/* REPORTS H5: a template moves scores by more than quantization does, so two templates are two
 * settings and their scores are never compared. */
static void another_chat_template_is_another_setting(void **state)
{
    const nw_model_config c = nw_tiny_llama();
    char record[300];
    char path[300];
    char config[400];
    char one[65];
    char two[65];
    char *json = NULL;
    size_t n = 0;
    nw_error err = {0};

    (void)state;
    (void)nw_tmpdir_file(&fixture_dir, "study.db", record, sizeof record);
    nw_tiny_write(&c, 11, nw_tmpdir_file(&fixture_dir, "template", path, sizeof path));
    settings_hash(path, record, one);
    settings_hash(path, record, two);
    assert_string_equal(one, two);
    (void)snprintf(config, sizeof config, "%s/tokenizer_config.json", path);
    assert_int_equal(nw_file_read(config, 1 << 20, &json, &n, &err), NW_OK);
    char *at = strstr(json, "<|end|>{%");
    assert_non_null(at);
    memcpy(at, "<|END|>", 7);
    assert_int_equal(nw_file_write(config, json, n, &err), NW_OK);
    free(json);
    settings_hash(path, record, two);
    assert_string_not_equal(one, two);
}

static void stopping_ends_every_layer(void **state)
{
    nw_engine *e = open_engine(0, 128, 0);
    nw_suite suite;
    nw_choice_answers a;
    static collected c;
    nw_error err = {0};

    (void)state;
    nw_stop_request(); /* for good: the last test */
    assert_int_equal(nw_perplexity_run(e, NULL, &text, collect, &c, &err), NW_E_CANCELLED);
    open_suite("{\"id\":\"1\",\"prompt\":\"abc\",\"choices\":[\"de\",\"f\"],\"answer\":0}\n",
               NW_ITEM_CHOICE, &suite);
    assert_int_equal(nw_choice_run(e, &suite, &a, &err), NW_E_CANCELLED);
    nw_suite_release(&suite);
    nw_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perplexity_is_the_sum_over_a_whole_pass),
        cmocka_unit_test(a_model_against_itself_is_exactly_zero),
        cmocka_unit_test(other_vocabulary_is_refused),
        cmocka_unit_test(exactly_the_continuation_is_scored),
        cmocka_unit_test(items_longer_than_the_context_are_not_scored),
        cmocka_unit_test(generate_answers_grade_and_refuse_by_item),
        cmocka_unit_test(another_chat_template_is_another_setting),
        cmocka_unit_test(stopping_ends_every_layer),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
