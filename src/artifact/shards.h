/* The safetensors of a folder, in model.safetensors or in shards with their index: which tensor stands in
 * which file, and the files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_SHARDS_H
#define NW_ARTIFACT_SHARDS_H

#include "model/safetensors.h"

typedef struct {
    const nw_st_decl *decls; /* [n], borrowed */
    size_t n, n_shards;
    size_t *shard_of; /* [n] */
    uint64_t total_bytes;
} nw_shards;

/* In the order given, a new shard where the next tensor would exceed `most` bytes (0: one file); a tensor
 * alone always fits. Release it. */
NW_MUST_USE nw_status nw_shards_plan(const nw_st_decl *decls, size_t n, uint64_t most,
                                     nw_shards *out, nw_error *err);
void nw_shards_release(nw_shards *s); /* all zero too */

/* Writes all bytes of the i-th tensor. */
typedef nw_status (*nw_shards_fn)(void *ctx, size_t i, nw_st_writer *w, nw_error *err);
/* Calls `write` for every tensor in order, shard by shard, and writes the index where there is more than
 * one. */
NW_MUST_USE nw_status nw_shards_write(const nw_shards *s, const char *dir, nw_shards_fn write,
                                      void *ctx, nw_error *err);

#endif
