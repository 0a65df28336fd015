/* Pages of a large source: what the hash and the driver have both read leaves memory, and nothing else does.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "quant/source_pages.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

#define PATH_IN_DIR "model/model.safetensors"

static nw_checkpoint *ckpt;
static nw_recipe_choice *choices;
static size_t n_choices;

/* An embedding of 16 MiB, larger than several chunks, and a layer. */
static int setup(void **state)
{
    nw_tiny t = nw_tiny_llama();
    nw_error err = {0};

    (void)state;
    dir = nw_tmpdir_make();
    t.config.n_layers = 1;
    t.config.d_model = 512;
    t.config.d_head = 128;
    t.config.d_ff = 1024;
    t.config.n_vocab = 1 << 14;
    t.dtype = NW_FMT_BF16;
    nw_tiny_write(&t, in_dir("model"));
    must(nw_checkpoint_open(in_dir("model"), &ckpt, &err), &err);
    n_choices = nw_checkpoint_n_tensors(ckpt);
    choices = calloc(n_choices, sizeof *choices);
    assert_non_null(choices);
    for (size_t i = 0; i < n_choices; i++) {
        choices[i].tensor = nw_checkpoint_at(ckpt, i);
    }
    return 0;
}

static int end(void **state)
{
    nw_checkpoint_close(ckpt);
    free(choices);
    return teardown(state);
}

/* Pages of the file that are in memory. */
static size_t n_resident(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    nw_file f = {0};
    nw_error err = {0};
    size_t n = 0;

    must(nw_file_map(in_dir(PATH_IN_DIR), &f, &err), &err);
    const size_t n_pages = (f.size + page - 1) / page;
    unsigned char *in = calloc(n_pages, 1);
    void *map = NULL;
    assert_non_null(in);
    memcpy(&map, &f.data, sizeof map);
    assert_int_equal(mincore(map, f.size, in), 0);
    for (size_t i = 0; i < n_pages; i++) {
        n += in[i] & 1U;
    }
    free(in);
    nw_file_unmap(&f);
    return n;
}

static uint64_t read_all(void)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n_choices; i++) {
        const nw_ckpt_tensor *t = choices[i].tensor;
        for (uint64_t at = 0; at < t->n_bytes; at += 512) {
            sum += t->data[at];
        }
    }
    return sum;
}

/* Whether this file system lets pages go at all; one in memory does not. */
static bool lets_go(void)
{
    for (size_t i = 0; i < n_choices; i++) {
        nw_file_leave(choices[i].tensor->data, choices[i].tensor->n_bytes);
    }
    nw_file_forget(in_dir(PATH_IN_DIR), 0, nw_source_pages_sum(ckpt));
    return n_resident() == 0;
}

static nw_source_pages *open_pages(void)
{
    nw_source_pages *p = NULL;
    nw_error err = {0};

    must(nw_source_pages_open(ckpt, choices, n_choices, 1 << 20, &p, &err), &err);
    assert_non_null(p);
    return p;
}

static void a_source_that_memory_holds_stays(void **state)
{
    const uint64_t sum = nw_source_pages_sum(ckpt);
    nw_source_pages *p = NULL;
    nw_error err = {0};

    (void)state;
    must(nw_source_pages_open(ckpt, choices, n_choices, 2 * sum, &p, &err), &err);
    assert_null(p);
    must(nw_source_pages_open(ckpt, choices, n_choices, 2 * sum - 2, &p, &err), &err);
    assert_non_null(p);
    nw_source_pages_close(p);
}

static void only_what_both_have_read_leaves(void **state)
{
    const uint64_t sum = nw_source_pages_sum(ckpt);

    (void)state;
    if (!lets_go()) {
        print_message("skipped: the file system of the temporary folder keeps its pages\n");
        skip();
    }
    for (int hash_first = 0; hash_first < 2; hash_first++) {
        nw_source_pages *p = open_pages();
        const uint64_t before = read_all();
        const size_t all = n_resident();
        assert_true(all > 0);
        for (size_t i = 0; hash_first == 0 && i < n_choices; i++) {
            nw_source_pages_used(p, choices[i].tensor);
        }
        for (uint64_t at = 0; hash_first == 1 && at < sum; at += 1000003) {
            nw_source_pages_hashed(p, 0, at);
        }
        assert_int_equal(n_resident(), all);
        for (size_t i = 0; hash_first == 1 && i < n_choices; i++) {
            nw_source_pages_used(p, choices[i].tensor);
        }
        nw_source_pages_hashed(p, 0, sum / 2);
        assert_true(n_resident() < all);
        assert_true(n_resident() > 0);
        nw_source_pages_hashed(p, 0, sum);
        assert_int_equal(n_resident(), 0);
        assert_int_equal(read_all(), before);
        nw_source_pages_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_that_memory_holds_stays),
        cmocka_unit_test(only_what_both_have_read_leaves),
    };
    return cmocka_run_group_tests(tests, setup, end);
}
