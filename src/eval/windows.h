/* How a text is cut for perplexity, and which tokens of each window are scored. Three ways, since
 * figures of different ways cannot be compared:
 *   chunks    llama-perplexity's: windows of n_ctx tokens side by side, the first token of each
 *             replaced by BOS where the model wants one, the second half scored
 *   stride    transformers' documentation's: windows of n_ctx that step by `stride`, each token
 *             scored once, with as much context as its window has
 *   documents each document alone (a JSON list of strings, or JSONL with "text"), BOS first where
 *             the model wants one, cut at n_ctx, every token after the first scored
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_WINDOWS_H
#define NW_EVAL_WINDOWS_H

#include "base/hash.h"
#include "model/tokenizer.h"

typedef enum { NW_CUT_CHUNKS, NW_CUT_STRIDE, NW_CUT_DOCUMENTS } nw_cut;

typedef struct {
    const char *path;   /* text file; .json and .jsonl are documents */
    uint32_t n_ctx;     /* 2.. */
    uint32_t stride;    /* 0: chunks (or documents by the file's name) */
    size_t max_windows; /* 0: all */
} nw_window_options;

/* ids [n]: scored are the tokens first..n-1, each from the logits at the position before it. */
typedef struct {
    const int32_t *ids;
    uint32_t n, first; /* 1 <= first < n */
} nw_window;

typedef struct {
    nw_cut cut;
    nw_window *items;
    size_t n;
    uint64_t n_scored;       /* tokens, all windows */
    uint64_t n_scored_bytes; /* of the text that they are */
    uint64_t n_bytes;        /* of the text file */
    nw_digest data_hash;     /* of the file */
    int32_t *ids;            /* owned storage of all windows */
} nw_windows;

const char *nw_cut_name(nw_cut cut);

/* NW_E_RANGE when the text is shorter than one window, with both numbers. */
NW_MUST_USE nw_status nw_windows_open(const nw_tokenizer *tok, const nw_window_options *o,
                                      nw_windows *out, nw_error *err);
void nw_windows_release(nw_windows *w);

#endif
