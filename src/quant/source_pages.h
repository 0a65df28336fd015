/* What of a large source is done with, read by the hash and by the driver: it leaves memory, so that the pages
 * that come next are the same few over again. A source that fills memory would be dropped by the
 * system in any case, at the price of looking for what to drop; and a virtual machine gets pages that
 * it has not had in use at several times the price of reading them (docs/testing.md has figures).
 * Threads: one of the hash and one of the driver.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_SOURCE_PAGES_H
#define NW_QUANT_SOURCE_PAGES_H

#include "quant/recipe.h"

typedef struct nw_source_pages nw_source_pages;

/* The driver takes the tensors of choices [n], in any order. *out is NULL where nothing is to leave: where the
 * source is no more than half of the memory that is left (memory_bytes), so that another run finds it
 * there, and where matrices consist of several tensors. c is borrowed. */
NW_MUST_USE nw_status nw_source_pages_open(const nw_checkpoint *c, const nw_recipe_choice *choices,
                                           size_t n, uint64_t memory_bytes, nw_source_pages **out,
                                           nw_error *err);
/* The driver is through with a tensor. */
void nw_source_pages_used(nw_source_pages *p, const nw_ckpt_tensor *t);
/* The hash has read the first n_bytes of a file. */
void nw_source_pages_hashed(nw_source_pages *p, uint32_t file, uint64_t n_bytes);
void nw_source_pages_close(nw_source_pages *p); /* takes NULL */

/* Bytes of the files together. */
uint64_t nw_source_pages_sum(const nw_checkpoint *c);

#endif
