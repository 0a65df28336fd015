/* A study file (YAML): a model, the formats to compare, what is asked of them and how it is
 * measured. Every mistake is shown as path:line:column; unknown keys are mistakes.
 *
 *   study: demo                          # name, for the report
 *   model: models/smollm2-bf16           # checkpoint; --model replaces it
 *   work: build/study                    # artifacts, logs, record, report; --work replaces it
 *   policy: policies/demo.yaml
 *   baseline: {name: bf16, recipe: bf16}
 *   candidates:
 *     - {name: int4-g64, recipe: int4-g64}       # or artifact: FOLDER|URL; kv: int8; act: a8
 *   calibration: {log: FILE, by: intent, samples: 256, context: 512, seed: 1}  # or text: FILE; once,
 *                                      # for the recipes that name a folder of statistics
 *   quality: {text: FILE, context: 512, windows: 40, choice: SUITE, generate: SUITE, items: 0}
 *   batch1: {prompt: 1024, output: 128, requests: 30, warmup: 2, natural: 10}
 *   load: {prompt: [32, 96], output: [16, 48], requests: 300, files: 1, warmup_s: 3,
 *          rates: [0.5, 0.8, 1.1], slo_ttft_ms: 1000, slo_tpot_ms: 60, max_seqs: 48}
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STUDY_FILE_H
#define NW_STUDY_FILE_H

#include "base/arena.h"
#include "base/status.h"

#define NW_STUDY_MAX_CANDIDATES 64
#define NW_STUDY_MAX_RATES      16
#define NW_STUDY_MAX_FILES      32 /* as many windows as a run of narrow bench takes */

typedef struct {
    const char *name;
    const char *recipe;   /* made from the study's model; NULL when artifact is given */
    const char *artifact; /* folder, checkpoint or URL */
    const char *kv, *act; /* NULL: as the engine and the manifest say */
} nw_study_candidate;

typedef struct {
    const char *path; /* of the study file */
    const char *name, *model, *work, *policy;
    nw_study_candidate *candidates; /* [0] is the baseline */
    size_t n_candidates;
    struct {
        const char *log, *text, *by; /* one of log and text; both NULL: no statistics are made */
        uint32_t samples, n_ctx, seed;
    } calibration;
    struct {
        const char *text, *choice, *generate; /* NULL: that layer is not run */
        uint32_t n_ctx, stride, windows, items, seed;
    } quality;
    struct {
        uint32_t prompt, output, requests, warmup; /* tokens, tokens, counts; requests 0: not run */
        uint32_t natural; /* and so many whose answers end by themselves: is the service equal? */
    } batch1;
    struct {
        uint32_t prompt_lo, prompt_hi, output_lo, output_hi; /* tokens */
        uint32_t requests;                                   /* of one arrival file; 0: not run */
        uint32_t files;                                      /* arrival files at each rate */
        double warmup_s;
        double rates[NW_STUDY_MAX_RATES]; /* shares of the baseline's measured capacity */
        size_t n_rates;
        double slo_ttft_ms, slo_tpot_ms;
        uint32_t max_seqs;
    } load;
    nw_arena arena;
} nw_study;

NW_MUST_USE nw_status nw_study_load(const char *path, nw_study *out, nw_error *err);
void nw_study_release(nw_study *s);

#endif
