/* Public reports about GGUF readers (memory safety), each as a test. A child opens the file: it has
 * to end by itself with NW_E_FORMAT and a message that names file and subject, within one second and
 * 64 MiB of resident memory, whatever sanitizers think of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "gguf_bytes.h"
#include "model/checkpoint.h"
#include "table.h"
#include "tmpdir.h"

#define MAX_RSS_KIB  65536L
#define MAX_SECONDS  1.0
#define EXIT_REFUSED 42 /* of the child: refused with NW_E_FORMAT */

static nw_tmpdir dir;

static void write_file(const char *name, const nw_buf *b, char path[512])
{
    (void)nw_tmpdir_put(&dir, name, b->data, b->len, path, 512);
}

/* In a child: opens `path` as a checkpoint; 0 opened, EXIT_REFUSED refused, and the message goes
 * into the pipe. */
static void child(const char *path, int pipe_fd)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    const nw_status st = nw_checkpoint_open(path, &c, &err);

    if (st != NW_OK) {
        const size_t n = strlen(err.message);
        _exit(write(pipe_fd, err.message, n) == (ssize_t)n && st == NW_E_FORMAT ? EXIT_REFUSED : 1);
    }
    nw_checkpoint_close(c);
    _exit(0);
}

/* Exit code of the child; message[1024] gets what it said. */
static int open_in_child(const char *path, char message[1024])
{
    int fd[2];
    struct rusage use = {0};
    int status = 0;
    const double start = nw_thread_cpu_s();

    assert_int_equal(pipe(fd), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        child(path, fd[1]);
    }
    (void)close(fd[1]);
    const ssize_t n = read(fd[0], message, 1023);
    message[n > 0 ? n : 0] = '\0';
    (void)close(fd[0]);
    assert_int_equal(wait4(pid, &status, 0, &use), pid);
    assert_true(WIFEXITED(status));
    assert_true(nw_thread_cpu_s() - start < MAX_SECONDS);
    assert_true(use.ru_maxrss < MAX_RSS_KIB);
    return WEXITSTATUS(status);
}

static void a1(nw_buf *b)
{
    gb_head(b, 3, (uint64_t)1 << 59, 0);
}

static void a1_keys(nw_buf *b)
{
    gb_head(b, 3, 0, (uint64_t)1 << 60);
}

static void a2(nw_buf *b)
{
    const uint64_t big = (uint64_t)1 << 61;
    gb_head(b, 3, 3, 0);
    gb_info(b, "t0", 1, &big, 0, 0);
    gb_info(b, "t1", 1, &big, 0, (uint64_t)1 << 63);
    gb_info(b, "t2", 1, (uint64_t[]){8}, 0, 0);
    gb_zeros(b, 64);
}

static void a3(nw_buf *b)
{
    gb_head(b, 3, 1, 0);
    gb_info(b, "t", 2, (uint64_t[]){INT64_MAX, 2}, 24, 0);
    gb_zeros(b, 64);
}

static void a5_dims(nw_buf *b)
{
    gb_head(b, 3, 1, 0);
    gb_info(b, "t", 5, (uint64_t[]){1, 1, 1, 1, 4}, 0, 0);
    gb_zeros(b, 64);
}

static void a5_dims_max(nw_buf *b)
{
    gb_head(b, 3, 1, 0);
    gb_str(b, "t");
    gb_u32(b, UINT32_MAX);
    gb_zeros(b, 64);
}

static void a5_type_200(nw_buf *b)
{
    gb_head(b, 3, 1, 0);
    gb_info(b, "t", 1, (uint64_t[]){4}, 200, 0);
    gb_zeros(b, 64);
}

static void a5_type_minus_1(nw_buf *b)
{
    gb_head(b, 3, 1, 0);
    gb_info(b, "t", 1, (uint64_t[]){4}, UINT32_MAX, 0);
    gb_zeros(b, 64);
}

static void a6(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_u64(b, (uint64_t)1 << 48);
    gb_zeros(b, 16);
}

static void a7_array(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_kv_arr(b, "k", NW_GGUF_U8, (uint64_t)1 << 30);
    gb_zeros(b, 64);
}

static void a7_string(nw_buf *b)
{
    gb_head(b, 3, 0, 1);
    gb_key(b, "k", NW_GGUF_STR);
    gb_u64(b, (uint64_t)1 << 30);
    gb_zeros(b, 64);
}

static void a9(nw_buf *b)
{
    gb_tiny_llama(b, &(gb_tiny){.cut = 100});
}

static void a10(nw_buf *b)
{
    gb_head(b, 3, 1, 0);
    gb_info(b, "t", 2, (uint64_t[]){4096, 4096}, 1, 0);
    gb_pad(b, 32);
    gb_zeros(b, 1000);
}

static void a11_tensor(nw_buf *b)
{
    gb_head(b, 3, 2, 0);
    gb_info(b, "x", 1, (uint64_t[]){8}, 0, 0);
    gb_info(b, "x", 1, (uint64_t[]){8}, 0, 32);
    gb_pad(b, 32);
    gb_zeros(b, 64);
}

static void a11_key(nw_buf *b)
{
    gb_head(b, 3, 0, 2);
    gb_kv_u32(b, "k", 1);
    gb_kv_u32(b, "k", 2);
}

static void a13(nw_buf *b)
{
    gb_tiny_llama(b, &(gb_tiny){.drop = "blk.0.attn_k.weight"});
}

static struct row {
    const char *name;
    void (*build)(nw_buf *b);
    const char *says; /* part of the message; the file's name is always looked for */
} rows[] = {
    {"A1_tensor_count_past_the_file", a1, "576460752303423488 tensors announced, 0 bytes are left"},
    {"A1_key_count_past_the_file", a1_keys, "1152921504606846976 keys announced"},
    {"A2_sum_of_sizes_wraps", a2, "tensor 't1': 9223372036854775808 bytes"},
    {"A3_signed_product", a3, "tensor 't': dims 9223372036854775807 x 2"},
    {"A5_five_dims", a5_dims, "tensor 't': 5 dims, at most 4"},
    {"A5_dims_all_ones", a5_dims_max, "tensor 't': 4294967295 dims, at most 4"},
    {"A5_type_200", a5_type_200, "tensor 't': type 200 is unknown"},
    {"A5_type_minus_1", a5_type_minus_1, "tensor 't': type -1 is unknown"},
    {"A6_key_length_2_48", a6, "a key of 281474976710656 bytes at byte 32, 16 bytes are left"},
    {"A7_array_of_2_30", a7_array, "key 'k': array of 1073741824 u8, 64 bytes are left"},
    {"A7_string_of_2_30", a7_string, "key 'k'"},
    {"A9_truncated_data", a9, "100 bytes are missing"},
    {"A10_dims_larger_than_data", a10, "tensor 't' is cut off"},
    {"A11_two_tensors_of_one_name", a11_tensor, "tensor 'x' occurs twice"},
    {"A11_two_keys_of_one_name", a11_key, "key 'k' occurs twice"},
    {"A13_missing_tensor", a13, "1 tensor is missing: blk.0.attn_k.weight"},
};

static void hostile_file_is_refused_cleanly(void **state)
{
    const struct row *r = *state;
    nw_buf b;
    char path[512];
    char message[1024];

    nw_buf_init(&b, 1 << 20);
    r->build(&b);
    write_file("hostile.gguf", &b, path);
    nw_buf_release(&b);
    const int code = open_in_child(path, message);
    if (code != EXIT_REFUSED || strstr(message, r->says) == NULL) {
        print_message("code %d, message: %s\n", code, message);
    }
    assert_int_equal(code, EXIT_REFUSED);
    assert_non_null(strstr(message, path));
    assert_non_null(strstr(message, r->says));
}

/* A4: a zero dim makes an empty tensor; nothing is divided by it. */
static void a4_zero_dims_make_empty_tensors(void **state)
{
    nw_buf b;
    nw_gguf *g = NULL;
    nw_error err = {0};

    (void)state;
    nw_buf_init(&b, 4096);
    gb_head(&b, 3, 3, 0);
    gb_info(&b, "a", 2, (uint64_t[]){8, 0}, 0, 0);
    gb_info(&b, "b", 1, (uint64_t[]){0}, 0, 0);
    gb_info(&b, "c", 3, (uint64_t[]){INT64_MAX, 0, INT64_MAX / 2}, 24, 0);
    const nw_status st = nw_gguf_read("zero.gguf", (const uint8_t *)b.data, b.len, &g, &err);
    /* c: the product of its other dims is past 2^63; that it is empty does not excuse them */
    assert_int_equal(st, NW_E_FORMAT);
    assert_non_null(strstr(err.message, "tensor 'c'"));
    nw_buf_clear(&b);
    gb_head(&b, 3, 2, 0);
    gb_info(&b, "a", 2, (uint64_t[]){8, 0}, 0, 0);
    gb_info(&b, "b", 1, (uint64_t[]){0}, 0, 0);
    assert_int_equal(nw_gguf_read("zero.gguf", (const uint8_t *)b.data, b.len, &g, &err), NW_OK);
    assert_int_equal(nw_gguf_tensor_find(g, "a")->n_elems, 0);
    assert_int_equal(nw_gguf_tensor_find(g, "b")->n_bytes, 0);
    nw_gguf_close(g);
    nw_buf_release(&b);
}

/* A8: half a million tokens open in less than a second, sanitizers included. */
static void a8_large_vocabulary_opens_fast(void **state)
{
    nw_buf b;
    nw_gguf *g = NULL;
    nw_error err = {0};
    const char *s = NULL;
    size_t cursor = 0;
    size_t len = 0;
    size_t n = 0;

    (void)state;
    nw_buf_init(&b, 64 << 20);
    gb_head(&b, 3, 0, 1);
    gb_kv_arr(&b, "tokenizer.ggml.tokens", NW_GGUF_STR, 500000);
    for (int i = 0; i < 500000; i++) {
        char token[32];
        (void)snprintf(token, sizeof token, "token%d", i);
        gb_str(&b, token);
    }
    const double start = nw_thread_cpu_s();
    assert_int_equal(nw_gguf_read("vocab.gguf", (const uint8_t *)b.data, b.len, &g, &err), NW_OK);
    assert_true(nw_thread_cpu_s() - start < MAX_SECONDS);
    while (nw_gguf_next_str(nw_gguf_find(g, "tokenizer.ggml.tokens"), &cursor, &s, &len)) {
        n++;
    }
    assert_int_equal(n, 500000);
    assert_memory_equal(s, "token499999", len);
    nw_gguf_close(g);
    nw_buf_release(&b);
}

static void shard(nw_buf *b, uint32_t no, uint32_t count, const char *tensor)
{
    nw_buf_clear(b);
    gb_head(b, 3, 1, 3);
    gb_kv_u32(b, "split.no", no);
    gb_kv_u32(b, "split.count", count);
    gb_kv_u32(b, "split.tensors.count", count);
    gb_info(b, tensor, 1, (uint64_t[]){8}, 0, 0);
    gb_pad(b, 32);
    gb_zeros(b, 32);
}

/* A12: any shard opens the set; a missing one is named; a stray set beside it is not looked at. */
static void a12_split_files_open_whole_or_not_at_all(void **state)
{
    nw_buf b;
    char one[512];
    char two[512];
    char stray[512];
    nw_gguf *g = NULL;
    nw_error err = {0};

    (void)state;
    nw_buf_init(&b, 4096);
    shard(&b, 0, 2, "a");
    write_file("model-00001-of-00002.gguf", &b, one);
    shard(&b, 1, 2, "b");
    write_file("model-00002-of-00002.gguf", &b, two);
    shard(&b, 0, 2, "z");
    write_file("model-2-00001-of-00002.gguf", &b, stray);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nw_gguf_open(i == 0 ? one : two, &g, &err), NW_OK);
        assert_int_equal(nw_gguf_n_tensors(g), 2);
        assert_int_equal(nw_gguf_tensor_find(g, "b")->file, 1);
        assert_null(nw_gguf_tensor_find(g, "z"));
        nw_gguf_close(g);
    }
    shard(&b, 1, 2, "a");
    write_file("model-00002-of-00002.gguf", &b, two);
    assert_int_equal(nw_gguf_open(one, &g, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "tensor 'a' is in another shard too"));
    shard(&b, 0, 2, "b"); /* says it is shard 0 */
    write_file("model-00002-of-00002.gguf", &b, two);
    assert_int_equal(nw_gguf_open(one, &g, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "its split keys say otherwise"));
    assert_int_equal(unlink(two), 0);
    assert_int_equal(nw_gguf_open(one, &g, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "model-00002-of-00002.gguf"));
    write_file("renamed.gguf", &b, two);
    assert_int_equal(nw_gguf_open(two, &g, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "expected a name that ends in -00001-of-00002.gguf"));
    assert_int_equal(unlink(one) + unlink(two) + unlink(stray), 0);
    nw_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a4_zero_dims_make_empty_tensors),
        cmocka_unit_test(a8_large_vocabulary_opens_fast),
        cmocka_unit_test(a12_split_files_open_whole_or_not_at_all),
    };

    dir = nw_tmpdir_make();
    const int failed = NW_RUN_TABLE("reports A", rows, hostile_file_is_refused_cleanly) +
                       cmocka_run_group_tests(tests, NULL, NULL);
    nw_tmpdir_remove(&dir);
    return failed;
}
