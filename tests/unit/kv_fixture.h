/* A tiny model with statistics of its keys and values, for the tests of their scales.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_KV_FIXTURE_H
#define NW_TESTS_KV_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "quant/calibrate.h"
#include "quant/quantize.h"
#include "suite_dir.h"
#include "tiny_model.h"

#define N_IDS   90 /* a page and a part of the next */
#define TARGETS "targets: [{match: '.*_proj', weights: bf16}]\n"

static char text_path[512];

static inline int setup(void **state)
{
    const nw_model_config c = nw_tiny_wide();
    char text[8192];
    nw_error err = {0};

    (void)state;
    dir = nw_tmpdir_make();
    nw_tiny_write(&c, 3, in_dir("model"));
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(' ' + (int)(i * i / 3 % 95));
    }
    nw_tmpdir_put(&dir, "text.txt", text, sizeof text, text_path, sizeof text_path);
    const nw_calibrate_options o = {
        .model = in_dir("model"),
        .out = in_dir("stats"),
        .sample = {.text = text_path, .n_samples = 8, .seed = 1, .n_ctx = 64},
        .n_threads = 2};
    must(nw_calibrate(&o, NULL, &err), &err);
    return 0;
}

static inline nw_status quantize(const char *yaml, const char *out, bool with_stats, nw_error *err)
{
    static char path[512];
    static char stats[512];
    (void)snprintf(stats, sizeof stats, "%s", in_dir("stats"));
    const nw_quantize_options o = {.source = in_dir("model"),
                                   .recipe = path,
                                   .out = in_dir(out),
                                   .replace = true,
                                   .calibration = with_stats ? stats : NULL,
                                   .n_threads = 2};

    nw_tmpdir_put(&dir, "recipe.yaml", yaml, strlen(yaml), path, sizeof path);
    return nw_quantize(&o, NULL, err);
}

static inline nw_engine *open_engine(const char *model, const char *kv)
{
    nw_engine_options o = nw_engine_options_default();
    nw_engine *e = NULL;
    nw_error err = {0};

    o.n_threads = 1;
    o.max_seqs = 1;
    o.n_ctx = N_IDS;
    o.max_step_tokens = 32;
    if (kv != NULL) {
        must(nw_engine_kv_parse(kv, &o, &err), &err);
    }
    must(nw_engine_open(in_dir(model), &o, &e, &err), &err);
    return e;
}

#endif
