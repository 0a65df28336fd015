/* What the engine's tests share: tiny models on disk, an engine with given options, random ids.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_ENGINE_FIXTURE_H
#define NW_TESTS_ENGINE_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "quant/quantize.h"
#include "table.h"
#include "tiny_model.h"
#include "tmpdir.h"

#define N_MODELS    2 /* 0: llama, 1: gemma3 */
#define N_ARTIFACTS 3 /* of a llama: 2: int8-w8a8, 3: int4-g32, 4: bf16 */
#define N_OTHERS    3 /* 5: qwen2, 6: qwen3, 7: mistral */
#define N_PATHS     (N_MODELS + N_ARTIFACTS + N_OTHERS)
static nw_tmpdir fixture_dir;
static char fixture_path[N_PATHS][300];

static inline int fixture_setup(void **state)
{
    (void)state;
    const nw_model_config c[] = {nw_tiny_llama(), nw_tiny_gemma3(), nw_tiny_qwen2(),
                                 nw_tiny_qwen3(), nw_tiny_mistral()};
    static const char *const names[] = {"llama", "gemma3", "qwen2", "qwen3", "mistral"};
    fixture_dir = nw_tmpdir_make();
    for (int i = 0; i < N_MODELS + N_OTHERS; i++) {
        char *path = fixture_path[i < N_MODELS ? i : i + N_ARTIFACTS];
        (void)nw_tmpdir_file(&fixture_dir, names[i], path, sizeof fixture_path[0]);
        nw_tiny_write(&c[i], 11, path);
    }
    return 0;
}

/* Makes the artifacts, for tests that use them. */
static inline void fixture_quantize(void)
{
    static const char *const recipes[N_ARTIFACTS] = {"int8-w8a8", "int4-g32", "bf16"};
    const nw_model_config c = nw_tiny_wide();
    char source[300];

    nw_tiny_write(&c, 12, nw_tmpdir_file(&fixture_dir, "wide", source, sizeof source));
    for (size_t i = 0; i < NW_COUNT(recipes); i++) {
        char *path = fixture_path[N_MODELS + i];
        nw_error err = {0};
        const nw_quantize_options o = {
            .source = source,
            .recipe = recipes[i],
            .out = nw_tmpdir_file(&fixture_dir, recipes[i], path, sizeof fixture_path[0]),
        };
        if (nw_quantize(&o, NULL, &err) != NW_OK) {
            (void)fprintf(stderr, "quantize %s: %s\n", recipes[i], err.message);
            exit(1);
        }
    }
}

static inline int fixture_teardown(void **state)
{
    (void)state;
    nw_tmpdir_remove(&fixture_dir);
    return 0;
}

/* Small steps, so that chunking happens; no tokenizer is needed to run ids. */
static inline nw_engine_options fixture_options(void)
{
    nw_engine_options o = nw_engine_options_default();
    o.n_threads = 2;
    o.max_step_tokens = 128;
    o.no_tokenizer = true;
    return o;
}

static inline nw_engine *fixture_engine(int model, const nw_engine_options *o)
{
    nw_error err = {0};
    nw_engine *e = NULL;
    if (nw_engine_open(fixture_path[model], o, &e, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

static inline void random_ids(uint64_t seed, int32_t *ids, size_t n)
{
    nw_rng rng = nw_rng_seed(seed);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)nw_rng_below(&rng, NW_TINY_VOCAB);
    }
}

static inline nw_session *open_session(nw_engine *e)
{
    nw_error err = {0};
    nw_session *s = NULL;
    assert_int_equal(nw_session_open(e, &s, &err), NW_OK);
    return s;
}

/* Feeds n ids in one step; logits [n][NW_TINY_VOCAB], or NULL for none. */
static inline void feed(nw_engine *e, nw_session *s, const int32_t *ids, size_t n, float *logits)
{
    nw_error err = {0};
    const nw_step_item it = {
        .session = s,
        .tokens = ids,
        .n_tokens = (uint32_t)n,
        .n_logits = logits != NULL ? (uint32_t)n : 0,
        .logits = logits,
    };
    if (nw_engine_step(e, &it, 1, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
}

static inline float *new_logits(size_t n)
{
    float *x = calloc(n * NW_TINY_VOCAB, sizeof *x);
    assert_non_null(x);
    return x;
}

#endif
