/* What the tests of rounded inputs share: a model with planted outlier channels, norm gains 100 times as
 * large in a few channels, the columns that read them smaller by as much, the function unchanged; its
 * calibration; and the logits of what is made of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_PLANTED_FIXTURE_H
#define NW_TESTS_PLANTED_FIXTURE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/export.h"
#include "base/file.h"
#include "engine/engine.h"
#include "model/safetensors.h"
#include "quant/calibrate.h"
#include "quant/logits_probe.h"
#include "quant/quantize.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_model.h"

#define PLANTED       100.0F
#define N_IDS         48
#define TARGETS       "targets: [{match: '.*_proj', weights: int8}]\n"
#define D_MODEL       64
#define FP8_TARGETS   "targets: [{match: '.*_proj', weights: fp8-e4m3}]\n"
#define NVFP4_TARGETS "targets: [{match: '.*_proj', weights: nvfp4}]\n"

static inline bool is_planted(size_t channel)
{
    return channel == 5 || channel == 40;
}

/* Where a tensor's data stands in the bytes of its file: the first one follows the header. */
static inline char *data_of(const nw_safetensors *st, const char *name, char *bytes)
{
    const nw_st_tensor *t = nw_st_find(st, name);
    const uint8_t *first = nw_st_at(st, 0)->data;
    uint64_t header = 0;

    assert_non_null(t);
    for (size_t i = 0; i < nw_st_n_tensors(st); i++) {
        first = nw_st_at(st, i)->data < first ? nw_st_at(st, i)->data : first;
    }
    memcpy(&header, bytes, sizeof header);
    return bytes + sizeof header + header + (t->data - first);
}

/* Multiplies the planted channels of a tensor. */
static inline void scale_channels(const nw_safetensors *st, const char *name, float factor,
                                  char *bytes)
{
    char *data = data_of(st, name, bytes);

    for (size_t i = 0; i < nw_st_find(st, name)->n_elems; i++) {
        float w = 0;
        memcpy(&w, data + i * sizeof w, sizeof w);
        w *= is_planted(i % D_MODEL) ? factor : 1;
        memcpy(data + i * sizeof w, &w, sizeof w);
    }
}

/* The tiny model with its outliers planted, in place. */
static inline void plant(const char *model, uint32_t n_layers)
{
    static const char *const gains[] = {"input_layernorm", "post_attention_layernorm"};
    static const char *const readers[] = {"self_attn.q_proj", "self_attn.k_proj",
                                          "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"};
    char path[512];
    char name[128];
    char *bytes = NULL;
    size_t n = 0;
    nw_safetensors *st = NULL;
    nw_error err = {0};

    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir(model));
    must(nw_file_read(path, 1 << 24, &bytes, &n, &err), &err);
    must(nw_st_open(path, &st, &err), &err);
    for (uint32_t l = 0; l < n_layers; l++) {
        for (size_t i = 0; i < NW_COUNT(gains); i++) {
            (void)snprintf(name, sizeof name, "model.layers.%u.%s.weight", l, gains[i]);
            scale_channels(st, name, PLANTED, bytes);
        }
        for (size_t i = 0; i < NW_COUNT(readers); i++) {
            (void)snprintf(name, sizeof name, "model.layers.%u.%s.weight", l, readers[i]);
            scale_channels(st, name, 1 / PLANTED, bytes);
        }
    }
    nw_st_close(st);
    must(nw_file_write(path, bytes, n, &err), &err);
    free(bytes);
}

static inline void calibrate(const char *model, const char *stats)
{
    nw_error err = {0};
    const nw_calibrate_options o = {
        .model = in_dir(model),
        .out = in_dir(stats),
        .sample = {.text = in_dir("text.txt"), .n_samples = 8, .seed = 1, .n_ctx = 64},
        .n_threads = 2};

    must(nw_calibrate(&o, NULL, &err), &err);
}

static inline int setup(void **state)
{
    const nw_model_config c = nw_tiny_wide();
    char text[8192];
    char path[512];

    (void)state;
    assert_int_equal(c.d_model, D_MODEL);
    dir = nw_tmpdir_make();
    nw_tiny_write(&c, 3, in_dir("plain"));
    nw_tiny_write(&c, 3, in_dir("planted"));
    plant("planted", c.n_layers);
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(' ' + (int)(i * i / 3 % 95));
    }
    nw_tmpdir_put(&dir, "text.txt", text, sizeof text, path, sizeof path);
    calibrate("planted", "stats");
    return 0;
}

static inline nw_status quantize_from(const char *model, const char *of, const char *yaml,
                                      const char *out, nw_error *err)
{
    static char path[512];
    static char stats[512];
    (void)snprintf(stats, sizeof stats, "%s", in_dir(of));
    const nw_quantize_options o = {.source = in_dir(model),
                                   .recipe = path,
                                   .out = in_dir(out),
                                   .replace = true,
                                   .calibration = stats,
                                   .n_threads = 2};

    nw_tmpdir_put(&dir, "recipe.yaml", yaml, strlen(yaml), path, sizeof path);
    return nw_quantize(&o, NULL, err);
}

static inline nw_status quantize(const char *yaml, const char *out, nw_error *err)
{
    return quantize_from("planted", "stats", yaml, out, err);
}

/* ---- logits with the activations that an artifact asks for ---- */

typedef struct {
    float *keep;
    uint32_t n_vocab;
    double sum_kl;
    bool compare;
} scored;

static inline bool take(void *ctx, size_t pos, const float *logits)
{
    scored *s = ctx;
    float *row = s->keep + pos * s->n_vocab;

    if (s->compare) {
        s->sum_kl += nw_logits_kl(row, logits, s->n_vocab);
    } else {
        memcpy(row, logits, s->n_vocab * sizeof *row);
    }
    return true;
}

/* tier NULL: the best there is. */
static inline void score_on(const char *tier, const char *model, unsigned n_threads, uint32_t chunk,
                            scored *s)
{
    nw_engine_options o = nw_engine_options_default();
    nw_engine *e = NULL;
    nw_error err = {0};
    int32_t ids[N_IDS];

    for (int32_t i = 0; i < N_IDS; i++) {
        ids[i] = i * 37 % 256;
    }
    o.n_threads = n_threads;
    o.max_seqs = 1;
    o.n_ctx = N_IDS;
    o.max_step_tokens = chunk;
    o.tier = tier;
    nw_engine_kv_plain(&o);
    must(nw_engine_open(in_dir(model), &o, &e, &err), &err);
    s->n_vocab = nw_engine_config(e)->n_vocab;
    if (s->keep == NULL) {
        s->keep = calloc((size_t)N_IDS * s->n_vocab, sizeof *s->keep);
        assert_non_null(s->keep);
    }
    must(nw_engine_score(e, ids, N_IDS, 0, take, s, &err), &err);
    nw_engine_close(e);
}

static inline void score(const char *model, unsigned n_threads, uint32_t chunk, scored *s)
{
    score_on(NULL, model, n_threads, chunk, s);
}

/* The first n values of a tensor of the file. */
static inline void put(const char *path, const char *tensor, size_t n_values, float value)
{
    char *bytes = NULL;
    size_t n = 0;
    nw_safetensors *st = NULL;
    nw_error err = {0};

    must(nw_file_read(path, 1 << 24, &bytes, &n, &err), &err);
    must(nw_st_open(path, &st, &err), &err);
    for (size_t i = 0; i < n_values; i++) {
        memcpy(data_of(st, tensor, bytes) + i * sizeof value, &value, sizeof value);
    }
    nw_st_close(st);
    must(nw_file_write(path, bytes, n, &err), &err);
    free(bytes);
}

/* ---- other formats ---- */

static inline size_t export_as(const char *format, const char *from, const char *to)
{
    nw_export_options o = {.source = in_dir(from),
                           .out = in_dir(to),
                           .replace = true,
                           .has_dtype = true,
                           .dtype = NW_FMT_F32,
                           .n_threads = 2};
    nw_export_report r = {0};
    nw_error err = {0};

    must(nw_export_format_find(format, "", &o.format, &err), &err);
    must(nw_export(&o, &r, &err), &err);
    const size_t n_inexact = r.loss.n_tensors - r.loss.n_exact;
    nw_export_report_release(&r);
    return n_inexact;
}

/* Mean KL between two models in the reference tier, each with the activations it asks for. */
static inline double apart(const char *a, const char *b)
{
    scored s = {0};

    score_on("ref", a, 1, N_IDS, &s);
    s.compare = true;
    score_on("ref", b, 1, N_IDS, &s);
    free(s.keep);
    return s.sum_kl / N_IDS;
}

#endif
