/* What can be known to be wrong before a weight is read: gathered over all parts of a command, so that
 * one run names every mistake.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_PREFLIGHT_H
#define NW_QUANT_PREFLIGHT_H

#include "base/buf.h"
#include "quant/recipe.h"

/* Packed bytes of a tensor held at one time; large enough for every thread to have several panels. */
#define NW_QUANTIZE_BLOCK ((size_t)2 << 20)

typedef struct {
    nw_buf text; /* a line or more for each */
    size_t n;
    nw_error first;
} nw_preflight;

void nw_preflight_init(nw_preflight *p);
/* Takes st and err of a check; returns whether it passed. *err is clear afterwards. */
bool nw_preflight_check(nw_preflight *p, nw_status st, nw_error *err);
/* NW_OK without a mistake; with one, its own code and message; with several, the first one's code and
 * all messages, as far as they fit. *all (may be NULL) gets the text of all. Releases p. */
NW_MUST_USE nw_status nw_preflight_end(nw_preflight *p, nw_buf *all, nw_error *err);

/* Bytes a quantization writes, and the most memory it takes at one time besides mapped files. */
typedef struct {
    uint64_t disk, memory;
} nw_quantize_need;
nw_quantize_need nw_preflight_need(const nw_recipe_choice *choices, size_t n, unsigned n_threads);

/* Each fails with NW_E_IO or NW_E_NOMEM, naming both numbers. `left`: bytes that earlier attempts hold,
 * which are built on or removed. */
NW_MUST_USE nw_status nw_preflight_disk(const char *out, uint64_t need, uint64_t left,
                                        uint64_t have, nw_error *err);
NW_MUST_USE nw_status nw_preflight_memory(uint64_t need, uint64_t have, nw_error *err);

/* With --no-fallback: every matrix whose method its layout does not know, a line each. */
NW_MUST_USE nw_status nw_preflight_no_fallback(const nw_recipe_choice *choices, size_t n,
                                               nw_error *err);

#endif
