/* The driver of `narrow quantize`: finds everything that can be wrong before a weight is read
 * (preflight.h), then streams each matrix through its method into a native artifact, measuring the
 * error of every tensor. A run that was killed or stopped leaves what it finished, and the same
 * command goes on from there, to the same bytes.
 * Memory: a few MiB a thread, whatever the model, and for the methods that use them the statistics
 * of one input with their factor (12 n^2 bytes). Bytes do not depend on the thread count.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_QUANTIZE_H
#define NW_QUANT_QUANTIZE_H

#include "artifact/manifest.h"
#include "base/buf.h"
#include "quant/recipe.h"

typedef struct {
    const char *source;      /* checkpoint: GGUF, HF folder, llama2.c .bin */
    const char *recipe;      /* built-in name or YAML path */
    const char *out;         /* folder to be made */
    bool replace;            /* an existing folder of that name is replaced */
    bool no_tokenizer;       /* the model has none */
    bool no_fallback;        /* a method that does not fit its matrix ends the run (quantize.c) */
    unsigned n_threads;      /* 0: nw_cpu_threads */
    bool show_progress;      /* a line on stderr */
    bool bf16_scales;        /* as the recipe's scale_dtype: bf16 */
    const char *method;      /* of all targets, by name; NULL: as the recipe says */
    const char *kv;          /* format of keys and values; NULL: as the recipe says */
    const char *calibration; /* folder of statistics; NULL: as the recipe says */
    /* NULL, or is shown every choice before any weight is read; false ends there, with nothing written
     * and NW_E_CANCELLED. [n] in writing order. */
    bool (*on_resolved)(void *ctx, const nw_recipe_choice *choices, size_t n);
    void *on_resolved_ctx;
    nw_buf *mistakes;   /* NULL, or gets every mistake, a line each */
    size_t *n_taken_up; /* NULL, or gets how many tensors an earlier run had finished */
    uint64_t disk_bytes, memory_bytes; /* what may be taken; 0: what is free */
} nw_quantize_options;

/* *summary (may be NULL) gets the manifest; release it with nw_manifest_release. */
NW_MUST_USE nw_status nw_quantize(const nw_quantize_options *o, nw_manifest *summary,
                                  nw_error *err);

#endif
