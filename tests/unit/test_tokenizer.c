/* The tokenizer: merging order, whole words, fallback to bytes and unknown, streaming decode at cut
 * characters, written files that read back to the same ids, cost of worst-case texts, and the shared
 * SentencePiece models against ids that SentencePiece 0.2 gave.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "shared.h"
#include "table.h"
#include "tmpdir.h"
#include "tokens.h"

static void expect_ids(const nw_tokenizer *t, const char *text, size_t n, const int32_t *want,
                       size_t n_want)
{
    nw_error err = {0};
    nw_ids ids = {0};

    assert_int_equal(nw_tokenizer_encode(t, text, n, 0, &ids, &err), NW_OK);
    assert_int_equal(ids.n, n_want);
    assert_memory_equal(ids.ids, want, n_want * sizeof *want);
    nw_ids_release(&ids);
}

static void bpe_merges_by_rank(void **state)
{
    const int32_t want[] = {259, ' ', 256, 257, 257};
    nw_error err = {0};
    nw_tokenizer *t = tk_bpe(TK_BYTE_LEVEL, "null", &err);

    (void)state;
    expect_ids(t, "hello", 5, want, 1);
    expect_ids(t, "llll", 4, want + 3, 2);
    const int32_t spaced[] = {' ', 259};
    expect_ids(t, " hello", 6, spaced, 2);
    nw_tokenizer_close(t);
}

static void invalid_bytes_count_as_replacement(void **state)
{
    const int32_t want[] = {'a', 0xEF, 0xBF, 0xBD, 'b'};
    nw_error err = {0};
    nw_tokenizer *t = tk_bpe(TK_BYTE_LEVEL, "null", &err);

    (void)state;
    expect_ids(t,
               "a\xFF"
               "b",
               3, want, 5);
    expect_ids(t,
               "a\xE2\x82"
               "b",
               4, want, 5); /* one maximal part, one U+FFFD */
    nw_tokenizer_close(t);
}

static void spm_bytes_and_unknown(void **state)
{
    const int32_t want[] = {20, 3, 0, 5}; /* U+2581 hello, byte 0A, one unknown for two, h */
    nw_error err = {0};
    nw_tokenizer *t = tk_spm(tk_pieces, NW_COUNT(tk_pieces), NULL, &err);

    (void)state;
    expect_ids(t, "hello\nzzh", 9, want, 4);
    nw_tokenizer_close(t);
}

static void cut_messages_are_mended(void **state)
{
    static const struct {
        const char *text, *want;
    } cuts[] = {{"", ""},
                {"caf\xC3\xA9", "caf\xC3\xA9"},
                {"caf\xC3", "caf"},
                {"\xF0\x9F\x91", ""},
                {"a\xE4\xBD; b\xFF.", "a?; b?."}};
    char text[16];

    (void)state;
    for (size_t i = 0; i < NW_COUNT(cuts); i++) {
        (void)snprintf(text, sizeof text, "%s", cuts[i].text);
        nw_utf8_mend(text);
        assert_string_equal(text, cuts[i].want);
    }
}

/* Every byte of a text as its own token: what comes out is the text, never a part of a character. */
static void detok_never_cuts(void **state)
{
    static const char text[] = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x91\xA9!";
    static const char broken[] = "x\xF0\x9F\xFF\xE4\xBDy\xC3";
    nw_error err = {0};
    nw_detok d;
    nw_buf out;
    nw_tokenizer *t = tk_bpe(TK_BYTE_LEVEL, "null", &err);

    (void)state;
    nw_buf_init(&out, 100);
    nw_detok_init(&d, t, 0);
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        assert_true(nw_detok_push(&d, (unsigned char)text[i], &out));
        assert_true(out.len == 0 || nw_utf8_valid(out.data, out.len));
    }
    assert_true(nw_detok_flush(&d, &out));
    assert_string_equal(out.data, text);
    nw_buf_clear(&out);
    for (size_t i = 0; i + 1 < sizeof broken; i++) {
        assert_true(nw_detok_push(&d, (unsigned char)broken[i], &out));
    }
    assert_true(nw_detok_flush(&d, &out));
    assert_string_equal(out.data, "x\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDy\xEF\xBF\xBD");
    assert_false(nw_detok_push(&d, 100000, &out));
    nw_detok_release(&d);
    nw_buf_release(&out);
    nw_tokenizer_close(t);
}

static void written_files_read_back(void **state)
{
    const nw_tmpdir dir = nw_tmpdir_make();
    nw_error err = {0};
    nw_tokenizer *again = NULL;
    nw_tokenizer *t = tk_spm(tk_pieces, NW_COUNT(tk_pieces), "{{ 1 }}", &err);

    (void)state;
    assert_int_equal(nw_tokenizer_write_hf(t, dir.path, &err), NW_OK);
    assert_int_equal(nw_tokenizer_open(dir.path, &again, &err), NW_OK);
    assert_string_equal(nw_tokenizer_hash(t).hex, nw_tokenizer_hash(again).hex);
    assert_string_equal(nw_tokenizer_chat_template(again), "{{ 1 }}");
    assert_true(nw_tokenizer_adds_bos(again));
    nw_tokenizer_close(again);
    nw_tokenizer_close(t);
    nw_tmpdir_remove(&dir);
}

static struct worst {
    const char *name, *unit;
} worst[] = {{"letters", "l"}, {"spaces", " "}, {"line_ends", "\n"}, {"marks", TK_MARK}};

static double encode_s(const nw_tokenizer *t, const char *unit, size_t n)
{
    nw_buf b;
    nw_ids ids = {0};
    nw_error err = {0};

    nw_buf_init(&b, n + 8);
    while (b.len < n) {
        (void)nw_buf_puts(&b, unit);
    }
    const double start = nw_thread_cpu_s();
    assert_int_equal(nw_tokenizer_encode(t, b.data, b.len, 0, &ids, &err), NW_OK);
    const double spent = nw_thread_cpu_s() - start;
    nw_ids_release(&ids);
    nw_buf_release(&b);
    return spent;
}

/* Sixteen times the text: n log n costs about 21 times as much, n^2 256 times. 100 leaves room for a
 * noisy machine and still tells the two apart. */
static void worst_case_is_near_linear(void **state)
{
    const struct worst *r = *state;
    nw_error err = {0};
    nw_tokenizer *bpe = tk_bpe(TK_BYTE_LEVEL, "null", &err);
    nw_tokenizer *spm = tk_spm(tk_pieces, NW_COUNT(tk_pieces), NULL, &err);

    (void)encode_s(bpe, r->unit, 1 << 14);
    assert_true(encode_s(bpe, r->unit, 1 << 20) < 100 * encode_s(bpe, r->unit, 1 << 16) + 0.05);
    assert_true(encode_s(spm, r->unit, 1 << 20) < 100 * encode_s(spm, r->unit, 1 << 16) + 0.05);
    nw_tokenizer_close(bpe);
    nw_tokenizer_close(spm);
}

static struct shared {
    const char *name, *path, *text;
    int32_t want[12];
    size_t n;
} shared[] = {
    {"tok512_model",
     "data/models/tiny1m/tok512.model",
     "Once upon a  time",
     {403, 407, 261, 378},
     4},
    {"tok512_bin",
     "data/models/stories260K/tok512.bin",
     "Once upon a time",
     {403, 407, 261, 378},
     4},
    {"tok105", "data/models/babyllama-tok105/tok105.model", "On \xE6\x97\xA5", {3, 34, 9, 3, 0}, 5},
};

static void shared_models(void **state)
{
    const struct shared *r = *state;
    char path[512];
    nw_error err = {0};
    nw_tokenizer *t = NULL;

    if (!nw_shared_path(r->path, path, sizeof path)) {
        skip();
    }
    assert_int_equal(nw_tokenizer_open(path, &t, &err), NW_OK);
    expect_ids(t, r->text, strlen(r->text), r->want, r->n);
    nw_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_by_rank),
        cmocka_unit_test(invalid_bytes_count_as_replacement),
        cmocka_unit_test(cut_messages_are_mended),
        cmocka_unit_test(spm_bytes_and_unknown),
        cmocka_unit_test(detok_never_cuts),
        cmocka_unit_test(written_files_read_back),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL) +
           NW_RUN_TABLE("worst_case", worst, worst_case_is_near_linear) +
           NW_RUN_TABLE("shared_models", shared, shared_models);
}
