/* The texts that calibration runs over: drawn from a log of production traffic (JSONL), the same
 * number from each stratum of a field, or from a plain text cut into windows.
 *
 * A row of a log has "messages" (rendered by the model's chat template), "text", or "prompt" with
 * "completion" or "response". Rows that repeat an earlier one of their stratum are left out before
 * the draw. Strata are filled from the smallest: each gets an equal share of what is left, so that
 * the shortfall of a small one goes to the others. The draw depends on the seed, the stratum's name
 * and its rows alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_CALIB_SAMPLE_H
#define NW_QUANT_CALIB_SAMPLE_H

#include "base/json.h"
#include "model/tokenizer.h"

typedef struct {
    const char *log;      /* JSONL; or NULL */
    const char *text;     /* plain text; or NULL: one of the two */
    const char *stratify; /* field of the log, "a.b" inside an object; NULL: one stratum */
    size_t n_samples;
    uint64_t seed;
    uint32_t n_ctx; /* tokens of a sample at most; of a window exactly */
} nw_sample_options;

typedef struct {
    char *name;
    size_t n_seen, n_repeated, n_empty; /* rows; the last two are never drawn */
    size_t n_drawn, n_cut;              /* samples; those cut at n_ctx */
    uint64_t n_tokens;                  /* of the samples */
} nw_stratum;

typedef struct {
    size_t n;
    size_t *first;      /* [n + 1] of each sample in ids */
    uint32_t *stratum;  /* [n] */
    int32_t *ids;       /* of all samples, one after the other */
    nw_stratum *strata; /* [n_strata], by name */
    size_t n_strata;
    nw_digest data_hash; /* of the file */
    nw_digest ids_hash;  /* of the drawn ids */
} nw_samples;

/* *out is set on success; release it. NW_E_RANGE: more strata than samples, or nothing to draw;
 * NW_E_FORMAT: a row that is no such row, with its line. */
NW_MUST_USE nw_status nw_samples_draw(const nw_tokenizer *tok, const nw_sample_options *o,
                                      nw_samples *out, nw_error *err);
void nw_samples_release(nw_samples *s);
/* [{"name", "seen", "repeated", "empty", "drawn", "cut", "tokens"}]; owned by the caller. */
json_t *nw_samples_coverage(const nw_samples *s);

#endif
