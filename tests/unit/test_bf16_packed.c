/* BF16 on disk: the prefix code against optima known by hand and against the entropy, panels through it
 * and back bit for bit, and damaged bytes, which are refused or decode inside their buffers.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "formats/bf16_packed.h"
#include "formats/bf16_stored.h"
#include "formats/half.h"
#include "table.h"

static void lengths_are_the_best(void **state)
{
    uint64_t n[256] = {[5] = 45, [6] = 13, [7] = 12, [8] = 16, [9] = 9, [10] = 5};
    static const uint8_t want[] = {1, 3, 3, 3, 4, 4}; /* the textbook's example of Huffman codes */
    uint8_t lengths[256];

    (void)state;
    nw_code_lengths(n, lengths);
    assert_memory_equal(lengths + 5, want, sizeof want);
    assert_int_equal(lengths[0], 0);
}

static double kraft(const uint8_t lengths[256])
{
    double sum = 0;
    for (int s = 0; s < 256; s++) {
        sum += lengths[s] > 0 ? ldexp(1, -lengths[s]) : 0;
    }
    return sum;
}

/* Counts that ask for longer codes than there are: 1, 1, 2, 3, 5, ... and all 256 symbols. */
static void lengths_are_limited_and_complete(void **state)
{
    uint64_t n[256] = {1, 1};
    uint8_t lengths[256];

    (void)state;
    for (int s = 2; s < 60; s++) {
        n[s] = n[s - 1] + n[s - 2];
    }
    nw_code_lengths(n, lengths);
    assert_true(kraft(lengths) == 1);
    assert_int_equal(lengths[0], 11);
    assert_true(lengths[59] <= 2);
    for (int s = 1; s < 60; s++) {
        assert_true(lengths[s] <= lengths[s - 1]);
    }
    for (int s = 0; s < 256; s++) {
        n[s] = s == 77 ? UINT64_C(1) << 40 : 1;
    }
    nw_code_lengths(n, lengths);
    assert_true(kraft(lengths) == 1);
    assert_int_equal(lengths[77], 1);
}

static void one_symbol_or_none_has_a_code(void **state)
{
    uint64_t n[256] = {[9] = 100};
    uint8_t lengths[256];

    (void)state;
    nw_code_lengths(n, lengths);
    assert_int_equal(lengths[9], 1);
    assert_true(kraft(lengths) == 1);
    n[9] = 0;
    nw_code_lengths(n, lengths);
    assert_true(kraft(lengths) == 1);
}

typedef struct {
    uint32_t n_rows, n_cols; /* of the panel that is packed */
    uint16_t *w;
    nw_bf16_packed_head head;
    nw_bf16_packer packer;
    nw_bf16_unpacker unpacker;
    uint8_t *out, *scratch, *panel;
    size_t n_out, n_panel;
} job;

static void job_pack(job *j, uint32_t escapes)
{
    nw_exponent_counts counts = {{0}};
    size_t bound = 0;

    nw_exponent_count(&counts, j->w, (size_t)j->n_rows * j->n_cols);
    nw_bf16_packed_head_make(&counts, escapes, &j->head);
    nw_bf16_packer_init(&j->packer, &j->head);
    assert_true(nw_bf16_unpacker_init(&j->unpacker, &j->head));
    assert_true(nw_bf16_packed_bound(j->n_cols, &bound));
    uint8_t *room = malloc(bound);
    j->scratch = malloc(nw_bf16_packed_scratch(j->n_cols));
    assert_true(nw_panel_bytes(nw_bf16_unpacked_type(&j->unpacker), j->n_cols, &j->n_panel));
    j->panel = aligned_alloc(64, j->n_panel);
    assert_true(room != NULL && j->scratch != NULL && j->panel != NULL);
    memset(j->panel, 0xEE, j->n_panel);
    j->n_out = nw_bf16_pack(&j->packer, j->w, j->n_cols, j->n_rows, j->n_cols, room, j->scratch);
    assert_true(j->n_out <= bound);
    j->out = malloc(j->n_out); /* just as large, so that ASan guards its end */
    assert_non_null(j->out);
    memcpy(j->out, room, j->n_out);
    free(room);
}

static void job_release(job *j)
{
    free(j->out);
    free(j->scratch);
    free(j->panel);
}

static bool job_unpack(job *j)
{
    return nw_bf16_unpack(&j->unpacker, j->out, j->n_out, j->n_cols, j->panel, j->scratch);
}

/* The panel that the packer of the layout makes of the same rows. */
static void check_panel(job *j)
{
    uint8_t *want = aligned_alloc(64, j->n_panel);

    assert_non_null(want);
    if (j->unpacker.type.kind == NW_PANEL_BF16) {
        nw_panel_pack_bf16(j->w, j->n_cols, j->n_rows, j->n_cols, want);
    } else {
        assert_true(nw_panel_pack_bf16_12(j->unpacker.type, j->head.exponents, j->w, j->n_cols,
                                          j->n_rows, j->n_cols, want));
    }
    assert_memory_equal(j->panel, want, j->n_panel);
    free(want);
}

static struct shape {
    const char *name;
    uint32_t n_rows, n_cols;
    double spread; /* 0: any bits at all */
    uint32_t escapes;
} shapes[] = {
    {"gauss_16x576", 16, 576, 0.02, 63},
    {"gauss_16x4096", 16, 4096, 0.02, 511},
    {"gauss_5x37", 5, 37, 1, 63},
    {"one_value", 1, 1, 1, 7},
    {"any_bits_16x64", 16, 64, 0, 1023},
    {"any_bits_3x7", 3, 7, 0, 63},
    {"to_bf16_16x64", 16, 64, 0, NW_BF16_12_END},
    {"to_bf16_4x33", 4, 33, 1, NW_BF16_12_END},
};

static void fill(const struct shape *s, nw_rng *rng, uint16_t *w)
{
    for (size_t i = 0; i < (size_t)s->n_rows * s->n_cols; i++) {
        w[i] = s->spread > 0 ? nw_bf16_from_f32((float)(s->spread * nw_rng_normal(rng)))
                             : (uint16_t)nw_rng_below(rng, 65536);
    }
}

static void panels_come_back_bit_for_bit(void **state)
{
    const struct shape *s = *state;
    nw_rng rng = nw_rng_seed(s->n_cols);
    job *j = calloc(1, sizeof *j);

    assert_non_null(j);
    j->n_rows = s->n_rows;
    j->n_cols = s->n_cols;
    j->w = malloc((size_t)s->n_rows * s->n_cols * sizeof *j->w);
    assert_non_null(j->w);
    for (int i = 0; i < 5; i++) {
        fill(s, &rng, j->w);
        job_pack(j, s->escapes);
        assert_true(job_unpack(j));
        check_panel(j);
        job_release(j);
    }
    free(j->w);
    free(j);
}

/* Each byte in turn is changed; and the end is cut off. Signs and mantissas may be anything, the rest is
 * refused or decodes to other values: ASan sees to the buffers. */
static void damage_stays_inside(void **state)
{
    const struct shape *s = *state;
    nw_rng rng = nw_rng_seed(3);
    job *j = calloc(1, sizeof *j);

    assert_non_null(j);
    j->n_rows = s->n_rows;
    j->n_cols = s->n_cols > 64 ? 64 : s->n_cols;
    j->w = malloc((size_t)j->n_rows * j->n_cols * sizeof *j->w);
    assert_non_null(j->w);
    fill(&(struct shape){"", j->n_rows, j->n_cols, s->spread, 0}, &rng, j->w);
    job_pack(j, s->escapes);
    for (size_t i = 0; i < j->n_out; i++) {
        const uint8_t was = j->out[i];
        j->out[i] ^= (uint8_t)(1U << i % 8);
        const bool ok = job_unpack(j);
        assert_true(i >= 16 || !ok); /* sizes that do not add up */
        j->out[i] = was;
    }
    assert_false(
        nw_bf16_unpack(&j->unpacker, j->out, j->n_out - 1, j->n_cols, j->panel, j->scratch));
    assert_false(nw_bf16_unpack(&j->unpacker, j->out, 15, j->n_cols, j->panel, j->scratch));
    assert_true(job_unpack(j));
    job_release(j);
    free(j->w);
    free(j);
}

static void a_head_from_a_file_is_checked(void **state)
{
    nw_exponent_counts counts = {{[100] = 5, [101] = 9, [102] = 1}};
    nw_bf16_packed_head head;
    nw_bf16_unpacker *u = malloc(sizeof *u);

    (void)state;
    assert_non_null(u);
    nw_bf16_packed_head_make(&counts, 7, &head);
    assert_true(nw_bf16_unpacker_init(u, &head));
    head.escapes = 65536;
    assert_false(nw_bf16_unpacker_init(u, &head));
    head.escapes = 7;
    head.exponents[1] = head.exponents[0];
    assert_false(nw_bf16_unpacker_init(u, &head));
    nw_bf16_packed_head_make(&counts, 7, &head);
    head.lengths[50]++; /* not complete */
    assert_false(nw_bf16_unpacker_init(u, &head));
    nw_bf16_packed_head_make(&counts, 7, &head);
    head.lengths[51] |= 0x10; /* too many */
    assert_false(nw_bf16_unpacker_init(u, &head));
    memset(head.lengths, 0xFF, sizeof head.lengths);
    assert_false(nw_bf16_unpacker_init(u, &head));
    memset(head.lengths, 0, sizeof head.lengths);
    assert_false(nw_bf16_unpacker_init(u, &head));
    free(u);
}

/* A head may ask for as many escapes as the columns could need, and no more: the room for them is taken
 * before a panel is read. */
static void escapes_are_bounded_by_the_columns(void **state)
{
    enum { COLS = 64, SIZE = 4096 };
    nw_exponent_counts counts = {{[100] = 5, [101] = 9, [102] = 1}};
    const uint32_t most = nw_bf16_12_most(COLS);
    uint8_t *bytes = calloc(1, SIZE);
    nw_bf16_stored s;

    (void)state;
    assert_non_null(bytes);
    assert_true(most > 0 && most < COLS * 16);
    for (uint32_t more = 0; more < 2; more++) {
        nw_bf16_packed_head head;
        const uint32_t size = SIZE - sizeof head - sizeof(uint32_t);
        nw_bf16_packed_head_make(&counts, most + more, &head);
        memcpy(bytes, &head, sizeof head);
        memcpy(bytes + sizeof head, &size, sizeof size);
        assert_int_equal(nw_bf16_stored_open(&s, bytes, SIZE, 16, COLS), more == 0);
        if (more == 0) {
            assert_int_equal(s.type.escapes, most);
            nw_bf16_stored_close(&s);
        }
    }
    free(bytes);
}

/* On gaussian weights: within 0.1 bit of the entropy of the exponents, and below 68 % of BF16. */
static void gaussian_weights_take_less_than_11_bits(void **state)
{
    enum { ROWS = 16, COLS = 16384 };
    nw_exponent_counts counts = {{0}};
    nw_rng rng = nw_rng_seed(1);
    job *j = calloc(1, sizeof *j);
    double entropy = 0;

    (void)state;
    assert_non_null(j);
    j->n_rows = ROWS;
    j->n_cols = COLS;
    j->w = malloc((size_t)ROWS * COLS * sizeof *j->w);
    assert_non_null(j->w);
    fill(&(struct shape){"", ROWS, COLS, 0.02, 0}, &rng, j->w);
    job_pack(j, 511);
    nw_exponent_count(&counts, j->w, (size_t)ROWS * COLS);
    for (int e = 0; e < 256; e++) {
        const double p = (double)counts.n[e] / (ROWS * COLS);
        entropy -= p > 0 ? p * log2(p) : 0;
    }
    const double bits = 8.0 * (double)j->n_out / (ROWS * COLS);
    print_message("%.3f bits a weight, entropy of exponents %.3f\n", bits, entropy);
    assert_true(bits >= 8 + entropy && bits <= 8 + entropy + 0.1);
    assert_true(bits / 16 < 0.68);
    assert_true(job_unpack(j));
    check_panel(j);
    job_release(j);
    free(j->w);
    free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_the_best),
        cmocka_unit_test(lengths_are_limited_and_complete),
        cmocka_unit_test(one_symbol_or_none_has_a_code),
        cmocka_unit_test(a_head_from_a_file_is_checked),
        cmocka_unit_test(escapes_are_bounded_by_the_columns),
        cmocka_unit_test(gaussian_weights_take_less_than_11_bits),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    failed += NW_RUN_TABLE("panels", shapes, panels_come_back_bit_for_bit);
    failed += NW_RUN_TABLE("damage", shapes, damage_stays_inside);
    return failed;
}
