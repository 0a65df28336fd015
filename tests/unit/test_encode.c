/* Encoders: plain ones byte for byte against what gguf-py writes (tests/golden/encode/NAME.bin: 16 blocks
 * of 32 float32 values, then their bytes); all of them within the derived bounds of formats/bound.h on
 * blocks of every kind; searched ones never worse than plain ones, and better where weights ask.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "formats/bound.h"
#include "formats/encode.h"
#include "formats/half.h"
#include "table.h"

#define MOST 256 /* elements of a block */

static struct row {
    const char *name;
} golden[] = {{"Q4_0"}, {"Q4_1"}, {"Q5_0"}, {"Q5_1"}, {"Q8_0"}, {"MXFP4"}};

static void plain_encoders_write_the_reference_bytes(void **state)
{
    enum { BLOCKS = 16, VALUES = BLOCKS * 32 };
    const struct row *r = *state;
    const nw_format *f = nw_format_by_name(r->name);
    const size_t n_bytes = (size_t)BLOCKS * f->block_bytes;
    nw_file file = {0};
    nw_error err = {0};
    char path[512];
    float x[VALUES];
    uint8_t got[BLOCKS * 34 + 1];

    (void)snprintf(path, sizeof path, "%s/tests/golden/encode/%s.bin", NW_SOURCE_DIR, r->name);
    assert_int_equal(nw_file_map(path, &file, &err), NW_OK);
    assert_int_equal(file.size, sizeof x + n_bytes);
    nw_format_get(NW_FMT_F32)->decode(file.data, x, VALUES);
    got[n_bytes] = 0xEE;
    f->encode(x, got, BLOCKS);
    assert_int_equal(got[n_bytes], 0xEE);
    for (size_t i = 0; i < n_bytes; i++) {
        if (got[i] != file.data[sizeof x + i]) {
            print_error("block %zu byte %zu\n", i / f->block_bytes, i % f->block_bytes);
        }
        assert_int_equal(got[i], file.data[sizeof x + i]);
    }
    nw_file_unmap(&file);
}

/* Blocks of one kind; every value within what the narrowest format holds (6, E2M1). */
typedef enum { GAUSS, TAILS, SPARSE, EQUAL, POSITIVE, TINY, ON_GRID, ONE_SIGN_TAIL, N_KINDS } kind;

static float draw(kind k, nw_rng *rng, size_t i)
{
    const double g = nw_rng_normal(rng);

    switch (k) {
    case GAUSS:
        return (float)(0.02 * g);
    case TAILS:
        return (float)fmax(fmin(0.05 * g * g * g, 5), -5);
    case SPARSE:
        return i % 29 == 3 ? (float)(0.5 * g) : 0;
    case EQUAL:
        return -0.7F;
    case POSITIVE:
        return (float)(0.3 + 0.1 * fabs(g));
    case TINY:
        return (float)(1e-6 * g);
    case ON_GRID:
        return (float)((double)nw_rng_below(rng, 13) / 4 - 1.5);
    case ONE_SIGN_TAIL:
        return i % 32 == 9 ? 3.0F : (float)(0.1 * g);
    case N_KINDS:
        break;
    }
    return 0;
}

/* What bound.h promises for a block. */
static void check_bound(const nw_format *f, const nw_error_bound *b, const float *x, const float *y)
{
    double peak = 0;
    double lo = 0;
    double hi = 0;
    double sum = 0;

    for (size_t i = 0; i < f->block_elems; i++) {
        peak = fmax(peak, fabs((double)x[i]));
        lo = fmin(lo, (double)x[i]);
        hi = fmax(hi, (double)x[i]);
    }
    const double block = b->of_peak * peak + b->of_range * (hi - lo) + b->floor;
    for (size_t i = 0; i < f->block_elems; i++) {
        const double e = fabs((double)x[i] - (double)y[i]);
        sum += e * e;
        assert_true(b->rms || e <= block + b->of_value * fabs((double)x[i]));
    }
    assert_true(sqrt(sum / f->block_elems) <= block + b->of_value * peak);
}

static struct row encoders[] = {{"F32"},  {"F16"},  {"BF16"},  {"F8_E4M3"}, {"F8_E5M2"}, {"F4"},
                                {"Q4_0"}, {"Q4_1"}, {"Q5_0"},  {"Q5_1"},    {"Q8_0"},    {"Q4_K"},
                                {"Q5_K"}, {"Q6_K"}, {"MXFP4"}, {"NVFP4"}};

static void every_block_is_within_its_bound(void **state)
{
    const struct row *r = *state;
    const nw_format *f = nw_format_by_name(r->name);
    const nw_error_bound *b = nw_format_bound(f->id);
    nw_rng rng = nw_rng_seed(7);
    float x[MOST];
    float y[MOST];
    uint8_t bytes[MOST * 4 + 1];

    assert_non_null(b);
    for (int i = 0; i < 25 * N_KINDS; i++) {
        for (size_t j = 0; j < f->block_elems; j++) {
            x[j] = draw((kind)(i % N_KINDS), &rng, j);
        }
        bytes[f->block_bytes] = 0xEE;
        f->encode(x, bytes, 1);
        assert_int_equal(bytes[f->block_bytes], 0xEE);
        f->decode(bytes, y, 1);
        check_bound(f, b, x, y);
    }
}

static void every_encoder_has_a_bound(void **state)
{
    (void)state;
    for (int i = 0; i < NW_FMT_COUNT; i++) {
        const nw_format *f = nw_format_get((nw_format_id)i);
        assert_int_equal(f->encode != NULL, nw_format_bound(f->id) != NULL);
    }
}

/* Zeros stay zeros; what a scale of binary16 cannot reach stays finite. */
static void ends_of_the_range_are_harmless(void **state)
{
    const struct row *r = *state;
    const nw_format *f = nw_format_by_name(r->name);
    const nw_encode_search_fn search = nw_encode_search(f->id);
    const bool overflows = f->id == NW_FMT_F16; /* which has infinities of its own */
    static const float values[] = {0, 1e30F, -3e38F, 1e-40F, 0x1p-149F};
    float x[MOST];
    float y[MOST];
    uint8_t bytes[MOST * 4];

    for (size_t v = 0; v < NW_COUNT(values); v++) {
        for (size_t j = 0; j < f->block_elems; j++) {
            x[j] = j % 3 == 0 ? values[v] : -values[v];
        }
        for (int s = 0; s < (search != NULL ? 2 : 1); s++) {
            if (s == 0) {
                f->encode(x, bytes, 1);
            } else {
                search(x, NULL, bytes, 1);
            }
            f->decode(bytes, y, 1);
            for (size_t j = 0; j < f->block_elems; j++) {
                assert_true(isfinite(y[j]) || overflows);
                assert_true(v > 0 || y[j] == 0);
            }
        }
    }
}

static struct row searched[] = {{"Q4_0"}, {"Q4_1"}, {"Q5_0"}, {"Q5_1"},  {"Q8_0"},
                                {"Q4_K"}, {"Q5_K"}, {"Q6_K"}, {"MXFP4"}, {"NVFP4"}};

static double weighted(const nw_format *f, const float *x, const float *w, const uint8_t *bytes)
{
    float y[MOST];
    double sum = 0;

    f->decode(bytes, y, 1);
    for (size_t j = 0; j < f->block_elems; j++) {
        const double e = (double)x[j] - (double)y[j];
        sum += (w != NULL ? (double)w[j] : 1) * e * e;
    }
    return sum;
}

/* Never above the plain encoder's error; below the search's without weights, over all blocks. */
static void a_search_serves_its_weights(void **state)
{
    const struct row *r = *state;
    const nw_format *f = nw_format_by_name(r->name);
    const nw_encode_search_fn search = nw_encode_search(f->id);
    nw_rng rng = nw_rng_seed(11);
    double with = 0;
    double without = 0;
    float x[MOST];
    float w[MOST];
    uint8_t plain[MOST];
    uint8_t even[MOST];
    uint8_t best[MOST];

    assert_non_null(search);
    for (int i = 0; i < 40 * N_KINDS; i++) {
        for (size_t j = 0; j < f->block_elems; j++) {
            x[j] = draw((kind)(i % N_KINDS), &rng, j);
            w[j] = (float)nw_rng_exponential(&rng);
            w[j] *= w[j];
        }
        f->encode(x, plain, 1);
        search(x, NULL, even, 1);
        search(x, w, best, 1);
        /* a search sums its errors in float32: 256 terms, each rounded a few times */
        assert_true(weighted(f, x, NULL, even) <= weighted(f, x, NULL, plain) * (1 + 0x1p-14));
        with += weighted(f, x, w, best);
        without += weighted(f, x, w, even);
    }
    assert_true(with < without);
    memset(w, 0, sizeof w); /* no weight at all is as good as none given */
    search(x, w, best, 1);
    assert_memory_equal(best, even, f->block_bytes);
}

/* Signal to noise on gaussian values, sigma 0.02, in dB. Floors: what ggml's own encoders reach on such
 * values (searched: those with flat importance; MXFP4: the best of three exponents, published), less
 * 0.05 for the sampling error of 2^18 values, some 0.02. */
static struct quality {
    const char *name;
    bool search;
    double floor_db;
} qualities[] = {
    {"Q4_0", false, 21.25}, {"Q4_0", true, 21.69},  {"Q4_1", true, 23.04},   {"Q5_0", true, 27.80},
    {"Q5_1", true, 29.37},  {"Q8_0", false, 45.36}, {"Q8_0", true, 45.36},   {"Q4_K", true, 22.94},
    {"Q5_K", true, 28.98},  {"Q6_K", true, 35.16},  {"MXFP4", false, 18.81}, {"MXFP4", true, 19.00},
    {"NVFP4", true, 19.67},
};

static void gaussian_values_keep_their_quality(void **state)
{
    const struct quality *q = *state;
    const nw_format *f = nw_format_by_name(q->name);
    nw_rng rng = nw_rng_seed(3);
    double signal = 0;
    double noise = 0;
    float x[MOST];
    uint8_t bytes[MOST];

    for (size_t i = 0; i < (1U << 18) / f->block_elems; i++) {
        for (size_t j = 0; j < f->block_elems; j++) {
            x[j] = (float)(0.02 * nw_rng_normal(&rng));
            signal += (double)x[j] * (double)x[j];
        }
        if (q->search) {
            nw_encode_search(f->id)(x, NULL, bytes, 1);
        } else {
            f->encode(x, bytes, 1);
        }
        noise += weighted(f, x, NULL, bytes);
    }
    const double db = 10 * log10(signal / noise);
    print_message("%s %s: %.2f dB\n", q->name, q->search ? "searched" : "plain", db);
    assert_true(db >= q->floor_db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_encoder_has_a_bound)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    failed += NW_RUN_TABLE("golden", golden, plain_encoders_write_the_reference_bytes);
    failed += NW_RUN_TABLE("bounds", encoders, every_block_is_within_its_bound);
    failed += NW_RUN_TABLE("ends", encoders, ends_of_the_range_are_harmless);
    failed += NW_RUN_TABLE("search", searched, a_search_serves_its_weights);
    failed += NW_RUN_TABLE("quality", qualities, gaussian_values_keep_their_quality);
    return failed;
}
