/* The GGUF reader: what it gives for a sound file, and what it refuses beside the reports of
 * test_reports_a.c: the rules llama.cpp's reader enforces.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gguf_bytes.h"
#include "table.h"

static nw_status read_buf(const nw_buf *b, nw_gguf **g, nw_error *err)
{
    return nw_gguf_read("t.gguf", (const uint8_t *)b->data, b->len, g, err);
}

static void sound(nw_buf *b, uint32_t version, uint32_t alignment, size_t missing_padding)
{
    gb_head(b, version, 3, 6);
    gb_kv_u32(b, "general.alignment", alignment);
    gb_kv_str(b, "s", "text");
    gb_kv_f32(b, "f", 0.5F);
    gb_key(b, "yes", NW_GGUF_BOOL);
    (void)nw_buf_add(b, "\1", 1);
    gb_kv_arr(b, "words", NW_GGUF_STR, 3);
    gb_str(b, "one");
    gb_str(b, "");
    gb_str(b, "three");
    gb_kv_arr(b, "ints", NW_GGUF_I32, 2);
    gb_u32(b, 7);
    gb_u32(b, UINT32_MAX);
    gb_info(b, "q", 2, (uint64_t[]){32, 2}, 2, 0); /* Q4_0: 2 rows of 18 bytes */
    gb_info(b, "scalar", 0, NULL, 0, 64);
    gb_info(b, "v", 1, (uint64_t[]){3}, 0, 64 + alignment);
    gb_pad(b, alignment);
    gb_zeros(b, 64);
    gb_u32(b, nw_f32_bits(2.0F));
    gb_zeros(b, alignment - 4);
    gb_u32(b, nw_f32_bits(1.0F));
    gb_zeros(b, alignment - 4 - missing_padding);
}

static struct good {
    const char *name;
    uint32_t version, alignment;
    size_t missing_padding;
} good[] = {
    {"version_2", 2, 32, 0},
    {"version_3", 3, 32, 0},
    {"alignment_64", 3, 64, 0},
    {"last_padding_missing", 3, 32, 20},
};

static void sound_file_opens(void **state)
{
    const struct good *r = *state;
    nw_buf b;
    nw_gguf *g = NULL;
    nw_error err = {0};

    nw_buf_init(&b, 4096);
    sound(&b, r->version, r->alignment, r->missing_padding);
    assert_int_equal(read_buf(&b, &g, &err), NW_OK);
    assert_int_equal(nw_gguf_version(g), r->version);
    assert_int_equal(nw_gguf_n_tensors(g), 3);
    const nw_gguf_tensor *q = nw_gguf_tensor_find(g, "q");
    assert_int_equal(q->format, NW_FMT_Q4_0);
    assert_int_equal(q->n_bytes, 36);
    assert_true(q->ne[0] == 32 && q->ne[1] == 2 && q->ne[2] == 1);
    const nw_gguf_tensor *s = nw_gguf_tensor_find(g, "scalar");
    assert_true(s->n_dims == 0 && s->n_elems == 1 && s->data == q->data + 64);
    assert_memory_equal(nw_gguf_tensor_find(g, "v")->data, "\0\0\x80\x3F", 4);
    assert_null(nw_gguf_tensor_find(g, "w"));
    nw_gguf_close(g);
    nw_buf_release(&b);
}

static void keys_are_read_by_type(void **state)
{
    nw_buf b;
    nw_gguf *g = NULL;
    nw_error err = {0};
    uint32_t u = 9;
    float f = 0;
    bool yes = false;
    const char *s = NULL;
    size_t len = 0;
    size_t cursor = 0;

    (void)state;
    nw_buf_init(&b, 4096);
    sound(&b, 3, 32, 0);
    assert_int_equal(read_buf(&b, &g, &err), NW_OK);
    assert_int_equal(nw_gguf_u32(g, "general.alignment", &u, &err), NW_OK);
    assert_int_equal(u, 32);
    assert_int_equal(nw_gguf_f32(g, "f", &f, &err), NW_OK);
    assert_true(f == 0.5F);
    assert_int_equal(nw_gguf_opt_bool(g, "yes", &yes, &err), NW_OK);
    assert_true(yes);
    assert_int_equal(nw_gguf_str(g, "s", &s, &len, &err), NW_OK);
    assert_memory_equal(s, "text", len);
    assert_int_equal(nw_gguf_opt_u32(g, "absent", &u, &err), NW_OK);
    assert_int_equal(u, 32);
    assert_int_equal(nw_gguf_u32(g, "f", &u, &err), NW_E_FORMAT);
    assert_string_equal(err.message, "t.gguf: key 'f' has type f32, expected u32");
    assert_int_equal(nw_gguf_u32(g, "absent", &u, &err), NW_E_FORMAT);
    assert_string_equal(err.message, "t.gguf: key 'absent' is missing");
    const nw_gguf_kv *words = nw_gguf_find(g, "words");
    assert_int_equal(words->n, 3);
    assert_true(nw_gguf_next_str(words, &cursor, &s, &len) && len == 3);
    assert_true(nw_gguf_next_str(words, &cursor, &s, &len) && len == 0);
    assert_true(nw_gguf_next_str(words, &cursor, &s, &len) && memcmp(s, "three", len) == 0);
    assert_false(nw_gguf_next_str(words, &cursor, &s, &len));
    cursor = 0;
    assert_false(nw_gguf_next_str(nw_gguf_find(g, "ints"), &cursor, &s, &len));
    nw_gguf_close(g);
    nw_buf_release(&b);
}

static void one_tensor(nw_buf *b, const char *name, uint64_t cols, uint32_t type, uint64_t offset)
{
    gb_head(b, 3, 1, 0);
    gb_info(b, name, 1, &cols, type, offset);
    gb_pad(b, 32);
    gb_zeros(b, 4096);
}

static void bad_magic(nw_buf *b)
{
    (void)nw_buf_puts(b, "GGML is another format of old");
}
static void empty(nw_buf *b)
{
    (void)nw_buf_add(b, "", 0);
}
static void version_1(nw_buf *b)
{
    gb_head(b, 1, 0, 0);
}
static void version_4(nw_buf *b)
{
    gb_head(b, 4, 0, 0);
}
static void big_endian(nw_buf *b)
{
    gb_head(b, 0x03000000, 0, 0);
}
static void nested_array(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_kv_arr(b, "k", NW_GGUF_ARR, 0);
    gb_zeros(b, 16);
}
static void unknown_value_type(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_key(b, "k", 13);
    gb_zeros(b, 16);
}
static void empty_key(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_kv_u32(b, "", 1);
}
static void nul_in_key(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_u64(b, 3);
    (void)nw_buf_add(b, "a\0b", 3);
    gb_u32(b, NW_GGUF_U32);
    gb_u32(b, 0);
}
static void escape_in_key(nw_buf *b)
{
    gb_head(b, 3, 0, 2);
    gb_kv_u32(b, "\x1b[2J", 1);
    gb_kv_u32(b, "\x1b[2J", 1);
}
static void alignment_48(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_kv_u32(b, "general.alignment", 48);
}
static void alignment_0(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_kv_u32(b, "general.alignment", 0);
}
static void alignment_u64(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_key(b, "general.alignment", NW_GGUF_U64);
    gb_u64(b, 32);
}
static void name_of_64(nw_buf *b)
{
    one_tensor(b, "0123456789012345678901234567890123456789012345678901234567890123", 4, 0, 0);
}
static void removed_type(nw_buf *b)
{
    one_tensor(b, "t", 32, 4, 0);
}
static void half_a_block(nw_buf *b)
{
    one_tensor(b, "t", 48, 2, 0);
}
static void shifted(nw_buf *b)
{
    one_tensor(b, "t", 4, 0, 32);
}
static void gap(nw_buf *b)
{
    gb_head(b, 3, 2, 0);
    gb_info(b, "a", 1, (uint64_t[]){4}, 0, 0);
    gb_info(b, "b", 1, (uint64_t[]){4}, 0, 64);
    gb_pad(b, 32);
    gb_zeros(b, 128);
}
static void split_in_memory(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_kv_u32(b, "split.count", 2);
}
static void string_in_array_past_end(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_kv_arr(b, "k", NW_GGUF_STR, 2);
    gb_str(b, "fits");
    gb_u64(b, 5);
    gb_zeros(b, 4);
}

static struct bad {
    const char *name;
    void (*build)(nw_buf *b);
    nw_status code;
    const char *says;
} bad[] = {
    {"bad_magic", bad_magic, NW_E_FORMAT, "t.gguf: does not begin with \"GGUF\""},
    {"empty_file", empty, NW_E_FORMAT, "does not begin"},
    {"version_1", version_1, NW_E_UNSUPPORTED, "GGUF version 1, expected 2 or 3"},
    {"version_4", version_4, NW_E_UNSUPPORTED, "GGUF version 4, expected 2 or 3"},
    {"big_endian", big_endian, NW_E_UNSUPPORTED, "(a big-endian file)"},
    {"nested_array", nested_array, NW_E_FORMAT, "key 'k': array of arrays"},
    {"unknown_value_type", unknown_value_type, NW_E_FORMAT, "key 'k': unknown value type 13"},
    {"empty_key", empty_key, NW_E_FORMAT, "a key at byte 24 is empty"},
    {"nul_in_key", nul_in_key, NW_E_FORMAT, "a key at byte 24 holds a NUL byte"},
    {"control_bytes_are_shown_harmless", escape_in_key, NW_E_FORMAT, "key '\\x1B[2J' occurs"},
    {"alignment_48", alignment_48, NW_E_FORMAT, "is 48, expected a power of two"},
    {"alignment_0", alignment_0, NW_E_FORMAT, "is 0, expected a power of two"},
    {"alignment_of_another_type", alignment_u64, NW_E_FORMAT, "has type u64, expected u32"},
    {"tensor_name_of_64_bytes", name_of_64, NW_E_FORMAT, "of 64 bytes, at most 63"},
    {"removed_type", removed_type, NW_E_FORMAT, "tensor 't': type 4 is unknown or removed"},
    {"columns_of_half_a_block", half_a_block, NW_E_FORMAT, "48 columns, Q4_0 needs a multiple"},
    {"offset_shifted", shifted, NW_E_FORMAT, "offset 32, expected 0"},
    {"gap_between_tensors", gap, NW_E_FORMAT, "tensor 'b': offset 64, expected 32"},
    {"split_without_its_folder", split_in_memory, NW_E_UNSUPPORTED, "one of 2 shards"},
    {"string_in_array_past_end", string_in_array_past_end, NW_E_FORMAT, "5 bytes at byte"},
};

static void broken_file_is_refused(void **state)
{
    const struct bad *r = *state;
    nw_buf b;
    nw_gguf *g = NULL;
    nw_error err = {0};

    nw_buf_init(&b, 1 << 16);
    r->build(&b);
    const nw_status st = read_buf(&b, &g, &err);
    if (st != r->code || strstr(err.message, r->says) == NULL) {
        print_message("%d: %s\n", (int)st, err.message);
    }
    assert_int_equal(st, r->code);
    assert_non_null(strstr(err.message, r->says));
    assert_null(g);
    nw_buf_release(&b);
}

/* Every prefix of a sound file is refused, and none of them is read past its end: the bytes are in a
 * heap block of just that size, watched by ASan. */
static void every_prefix_is_refused(void **state)
{
    nw_buf b;

    (void)state;
    nw_buf_init(&b, 4096);
    sound(&b, 3, 32, 20);
    for (size_t n = 0; n < b.len; n++) {
        uint8_t *copy = malloc(n + 1);
        nw_gguf *g = NULL;
        nw_error err = {0};
        assert_non_null(copy);
        memcpy(copy, b.data, n);
        uint8_t *exact = realloc(copy, n > 0 ? n : 1);
        assert_non_null(exact);
        assert_int_not_equal(nw_gguf_read("t.gguf", exact, n, &g, &err), NW_OK);
        assert_true(err.message[0] != '\0');
        free(exact);
    }
    nw_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_read_by_type),
        cmocka_unit_test(every_prefix_is_refused),
    };
    int failed = NW_RUN_TABLE("sound", good, sound_file_opens);

    failed += NW_RUN_TABLE("broken", bad, broken_file_is_refused);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
