/* safetensors: every row of the reference's behaviour (accepted, rejected), shards through an index,
 * and the writer read back.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "model/safetensors.h"
#include "table.h"
#include "tmpdir.h"

static nw_tmpdir dir;

/* 8 bytes of n, the header, data_bytes zeros. n < 0: the length of the header. */
static void build(nw_buf *b, const char *header, size_t n_header, long long n, size_t data_bytes)
{
    const uint64_t v = n < 0 ? n_header : (uint64_t)n;

    nw_buf_init(b, 1 << 20);
    for (int i = 0; i < 8; i++) {
        const uint8_t byte = (uint8_t)(v >> (8 * i) & 255);
        (void)nw_buf_add(b, &byte, 1);
    }
    (void)nw_buf_add(b, header, n_header);
    for (size_t i = 0; i < data_bytes; i++) {
        (void)nw_buf_add(b, "", 1);
    }
}

#define T(name, dtype, shape, begin, end)                                                   \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin \
    "," #end "]}"

static struct row {
    const char *name;
    const char *header;
    size_t data_bytes;
    const char *says; /* NULL: accepted */
} rows[] = {
    {"padded_header", "{" T("a", "F32", "2", 0, 8) "}   ", 8, NULL},
    {"leading_spaces", "   {" T("a", "F32", "2", 0, 8) "}", 8, NULL},
    {"order_of_header_is_not_order_of_data",
     "{" T("b", "F32", "1", 4, 8) "," T("a", "BF16", "2", 0, 4) "}", 8, NULL},
    {"no_tensors", "{}", 0, NULL},
    {"scalar", "{" T("s", "I64", "", 0, 8) "}", 8, NULL},
    {"dim_of_zero", "{" T("z", "F32", "4,0", 0, 0) "," T("a", "U8", "3", 0, 3) "}", 3, NULL},
    {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}," T("a", "U8", "1", 0, 1) "}", 1, NULL},
    {"unknown_extra_field",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1, NULL},
    {"sub_byte_type", "{" T("f", "F4", "4", 0, 2) "}", 2, NULL},
    {"sub_byte_type_inside_a_byte", "{" T("f", "F4", "3", 0, 2) "}", 2, "tensor 'f': 3 elements"},
    {"trailing_byte", "{" T("a", "U8", "1", 0, 1) "}", 2, "1 bytes after the last tensor"},
    {"data_missing", "{" T("a", "F32", "2", 0, 8) "}", 3, "5 bytes are missing"},
    {"hole", "{" T("a", "U8", "1", 0, 1) "," T("b", "U8", "1", 2, 3) "}", 3,
     "tensor 'b': begins at byte 2 of the data, expected 1: a hole"},
    {"overlap", "{" T("a", "U8", "2", 0, 2) "," T("b", "U8", "2", 1, 3) "}", 3, "overlaps"},
    {"first_offset_not_0", "{" T("a", "U8", "1", 1, 2) "}", 2, "expected 0"},
    {"begin_after_end", "{" T("a", "U8", "1", 2, 1) "}", 2, "is no [begin, end]"},
    {"negative_offset", "{" T("a", "U8", "1", -1, 0) "}", 2, "is no [begin, end]"},
    {"float_offset", "{" T("a", "U8", "1", 0.0, 1.0) "}", 1, "is no [begin, end]"},
    {"three_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
     "is no [begin, end]"},
    {"size_is_not_shape", "{" T("a", "F32", "3", 0, 8) "}", 8, "3 elements of F32 do not take"},
    {"product_overflows", "{" T("a", "U8", "4294967296,4294967296", 0, 1) "}", 1, "overflows"},
    {"offset_past_int64", "{" T("a", "U8", "1", 0, 18446744073709551616) "}", 1,
     "is no [begin, end]"},
    {"unknown_dtype", "{" T("a", "FP9", "1", 0, 1) "}", 1, "tensor 'a': dtype 'FP9' is unknown"},
    {"missing_dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype '(none)'"},
    {"missing_shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "'shape' is no list"},
    {"missing_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "is no [begin, end]"},
    {"entry_is_no_object", "{\"a\":7}", 0, "tensor 'a'"},
    {"metadata_value_is_no_string", "{\"__metadata__\":{\"n\":1}}", 0, "value of 'n' is no string"},
    {"metadata_is_no_object", "{\"__metadata__\":\"pt\"}", 0, "is no object"},
    {"list", "[]", 0, "the header is no object"},
    {"invalid_utf8", "{\"\xFF\":1}", 0, "unable to decode byte 0xff"},
    {"duplicate_name", "{" T("a", "U8", "1", 0, 1) "," T("a", "U8", "1", 1, 2) "}", 2, "duplicate"},
    {"cut_json", "{" T("a", "U8", "1", 0, 1), 1, ":1:"},
};

static void header_is_accepted_or_refused(void **state)
{
    const struct row *r = *state;
    nw_buf b;
    nw_safetensors *s = NULL;
    nw_error err = {0};

    build(&b, r->header, strlen(r->header), -1, r->data_bytes);
    const nw_status st = nw_st_read("t.safetensors", (const uint8_t *)b.data, b.len, &s, &err);
    if (r->says == NULL) {
        assert_int_equal(st, NW_OK);
        nw_st_close(s);
    } else {
        if (st != NW_E_FORMAT || strstr(err.message, r->says) == NULL) {
            print_message("%d: %s\n", (int)st, err.message);
        }
        assert_int_equal(st, NW_E_FORMAT);
        assert_non_null(strstr(err.message, "t.safetensors"));
        assert_non_null(strstr(err.message, r->says));
    }
    nw_buf_release(&b);
}

static struct length {
    const char *name;
    size_t cut; /* bytes of the file */
    long long n;
    const char *says;
} lengths[] = {
    {"empty", 0, 2, "0 bytes are too short"},
    {"seven_bytes", 7, 2, "7 bytes are too short"},
    {"longer_than_the_file", 10, 3, "header of 3 bytes, 10 bytes in the file"},
    {"most_negative", 10, INT64_MAX, "header of 9223372036854775807 bytes"},
    {"header_of_0", 8, 0, ":1:"},
    {"nul_after_the_json", 11, 3, ":1:"},
};

static void length_is_checked(void **state)
{
    const struct length *r = *state;
    nw_buf b;
    nw_safetensors *s = NULL;
    nw_error err = {0};

    build(&b, "{}\0", 3, r->n, 0);
    assert_int_equal(nw_st_read("t", (const uint8_t *)b.data, r->cut, &s, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, r->says));
    nw_buf_release(&b);
}

static char *in_dir(const char *name)
{
    char *path = nw_path_join(dir.path, name);
    assert_non_null(path);
    return path;
}

static void put(const char *name, const char *bytes, size_t n)
{
    nw_error err = {0};
    char *path = in_dir(name);
    assert_int_equal(nw_file_write(path, bytes, n, &err), NW_OK);
    free(path);
}

static void put_shard(const char *name, const char *header, size_t data_bytes)
{
    nw_buf b;
    build(&b, header, strlen(header), -1, data_bytes);
    put(name, b.data, b.len);
    nw_buf_release(&b);
}

static struct index {
    const char *name;
    const char *index, *says;
} indexes[] = {
    {"two_shards", "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\"}}", NULL},
    {"tensor_in_the_wrong_file", "{\"weight_map\":{\"a\":\"s2\",\"b\":\"s1\"}}", "is not in s"},
    {"tensor_not_in_any_file", "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\",\"c\":\"s2\"}}",
     "tensor 'c' is not in s2"},
    {"tensor_not_in_the_map", "{\"weight_map\":{\"b\":\"s2\",\"x\":\"s1\"}}", "tensor 'x'"},
    {"missing_shard", "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s3\"}}", "s3"},
    {"path_out_of_the_folder", "{\"weight_map\":{\"a\":\"../s1\"}}", "names no plain file"},
    {"hidden_file", "{\"weight_map\":{\"a\":\"..\"}}", "names no plain file"},
    {"file_is_a_number", "{\"weight_map\":{\"a\":1}}", "names no plain file"},
    {"no_map", "{}", "no 'weight_map'"},
    {"same_tensor_in_two_shards", "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s4\"}}",
     "tensor 'a': is in another shard too"},
};

static void index_joins_shards_or_says_why_not(void **state)
{
    const struct index *r = *state;
    nw_safetensors *s = NULL;
    nw_error err = {0};

    put_shard("s1", "{" T("a", "U8", "1", 0, 1) "}", 1);
    put_shard("s2", "{" T("b", "U8", "1", 0, 1) "}", 1);
    put_shard("s4", "{" T("b", "U8", "1", 0, 1) "," T("a", "U8", "1", 1, 2) "}", 2);
    put("model.safetensors.index.json", r->index, strlen(r->index));
    const nw_status st = nw_st_open(dir.path, &s, &err);
    if (r->says == NULL) {
        assert_int_equal(st, NW_OK);
        assert_int_equal(nw_st_n_files(s), 2);
        assert_int_equal(nw_st_n_tensors(s), 2);
        assert_string_equal(nw_st_at(s, 0)->name, "a");
        assert_int_equal(nw_st_find(s, "b")->file, 1);
        nw_st_close(s);
    } else {
        assert_int_not_equal(st, NW_OK);
        assert_non_null(strstr(err.message, r->says));
    }
}

static const nw_st_decl decls[] = {
    {"w", NW_FMT_BF16, 2, {2, 3}},
    {"none", NW_FMT_F32, 2, {0, 7}},
    {"p", NW_FMT_U8, 1, {64}},
};

static void written_file_reads_back(void **state)
{
    const char *const meta[] = {"source", "a \"quoted\" name", NULL};
    const uint8_t w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const uint8_t p[64] = {77};
    nw_st_writer *out = NULL;
    nw_safetensors *s = NULL;
    nw_file f = {0};
    nw_error err = {0};
    char *path = in_dir("out.safetensors");

    (void)state;
    assert_int_equal(nw_st_writer_open(path, decls, 3, meta, 4096, &out, &err), NW_OK);
    assert_int_equal(nw_st_writer_write(out, "w", w, 5, &err), NW_OK);
    assert_int_equal(nw_st_writer_write(out, "w", w + 5, 7, &err), NW_OK);
    assert_int_equal(nw_st_writer_write(out, "p", p, 64, &err), NW_OK);
    assert_false(nw_file_exists(path)); /* nothing under the name before commit */
    assert_int_equal(nw_st_writer_commit(out, &err), NW_OK);
    nw_st_writer_close(out);

    assert_int_equal(nw_file_map(path, &f, &err), NW_OK);
    assert_int_equal(f.size, 4096 + 12 + 64);
    nw_file_unmap(&f);
    assert_int_equal(nw_st_open(path, &s, &err), NW_OK);
    assert_string_equal(nw_st_metadata(s, "format"), "pt");
    assert_string_equal(nw_st_metadata(s, "source"), meta[1]);
    const nw_st_tensor *t = nw_st_find(s, "w");
    assert_true(t->format == NW_FMT_BF16 && t->n_dims == 2 && t->dims[1] == 3);
    assert_memory_equal(t->data, w, sizeof w);
    assert_memory_equal(nw_st_find(s, "p")->data, p, sizeof p);
    assert_int_equal(nw_st_find(s, "none")->n_elems, 0);
    nw_st_close(s);
    free(path);
}

static void writer_holds_the_caller_to_the_declaration(void **state)
{
    const uint8_t bytes[64] = {0};
    const nw_st_decl twice[] = {{"x", NW_FMT_U8, 1, {1}}, {"x", NW_FMT_U8, 1, {1}}};
    const nw_st_decl no_dtype[] = {{"x", NW_FMT_Q4_0, 1, {32}}};
    nw_st_writer *out = NULL;
    nw_error err = {0};
    char *path = in_dir("bad.safetensors");

    (void)state;
    assert_int_equal(nw_st_writer_open(path, twice, 2, NULL, 8, &out, &err), NW_E_FORMAT);
    assert_int_equal(nw_st_writer_open(path, no_dtype, 1, NULL, 8, &out, &err), NW_E_UNSUPPORTED);
    assert_int_equal(nw_st_writer_open(path, decls, 3, NULL, 8, &out, &err), NW_OK);
    assert_int_equal(nw_st_writer_write(out, "p", bytes, 4, &err), NW_E_RANGE);
    assert_int_equal(nw_st_writer_write(out, "w", bytes, 13, &err), NW_E_RANGE);
    assert_int_equal(nw_st_writer_write(out, "w", bytes, 12, &err), NW_OK);
    assert_int_equal(nw_st_writer_commit(out, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "tensor 'p' is not complete: 0 of 64 bytes"));
    nw_st_writer_close(out);
    assert_false(nw_file_exists(path));
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_file_reads_back),
        cmocka_unit_test(writer_holds_the_caller_to_the_declaration),
    };

    dir = nw_tmpdir_make();
    int failed = NW_RUN_TABLE("headers", rows, header_is_accepted_or_refused);
    failed += NW_RUN_TABLE("lengths", lengths, length_is_checked);
    failed += NW_RUN_TABLE("index", indexes, index_joins_shards_or_says_why_not);
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    nw_tmpdir_remove(&dir);
    return failed;
}
