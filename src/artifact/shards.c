/* See shards.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/shards.h"

#include <stdlib.h>

#include "artifact/hf_files.h"
#include "base/file.h"

#define NAME_BYTES 64

static uint64_t bytes_of(const nw_st_decl *d)
{
    uint64_t n = nw_format_get(d->format)->block_bytes;

    for (uint32_t i = 0; i < d->n_dims; i++) {
        n *= d->dims[i];
    }
    return n;
}

nw_status nw_shards_plan(const nw_st_decl *decls, size_t n, uint64_t most, nw_shards *out,
                         nw_error *err)
{
    const uint64_t limit = most > 0 ? most : UINT64_MAX;
    nw_shards s = {.decls = decls, .n = n, .n_shards = 1};
    uint64_t used = 0;

    s.shard_of = calloc(n + 1, sizeof *s.shard_of);
    if (s.shard_of == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", n);
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t bytes = bytes_of(&decls[i]);
        if (used > 0 && bytes > limit - (used < limit ? used : limit)) {
            s.n_shards++;
            used = 0;
        }
        s.shard_of[i] = s.n_shards - 1;
        used += bytes;
        s.total_bytes += bytes;
    }
    *out = s;
    return NW_OK;
}

void nw_shards_release(nw_shards *s)
{
    free(s->shard_of);
    *s = (nw_shards){0};
}

static nw_status open_shard(const nw_shards *s, const char *dir, size_t shard, nw_st_writer **out,
                            nw_error *err)
{
    nw_st_decl *decls = calloc(s->n + 1, sizeof *decls);
    char name[NAME_BYTES];
    size_t k = 0;

    nw_st_shard_name(shard, s->n_shards, name);
    char *path = nw_path_join(dir, name);
    nw_status st = NW_OK;
    if (decls == NULL || path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", name, s->n);
        goto out;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->shard_of[i] == shard) {
            decls[k++] = s->decls[i];
        }
    }
    st = nw_st_writer_open(path, decls, k, NULL, 8, out, err);
out:
    free(decls);
    free(path);
    return st;
}

static nw_status write_shard(const nw_shards *s, const char *dir, size_t shard, nw_shards_fn write,
                             void *ctx, nw_error *err)
{
    nw_st_writer *w = NULL;
    nw_status st = open_shard(s, dir, shard, &w, err);

    for (size_t i = 0; st == NW_OK && i < s->n; i++) {
        if (s->shard_of[i] == shard) {
            st = write(ctx, i, w, err);
        }
    }
    if (st == NW_OK) {
        st = nw_st_writer_commit(w, err);
    }
    nw_st_writer_close(w);
    return st;
}

static nw_status write_index(const nw_shards *s, const char *dir, nw_error *err)
{
    json_t *map = json_object();
    char name[NAME_BYTES];

    for (size_t i = 0; i < s->n; i++) {
        nw_st_shard_name(s->shard_of[i], s->n_shards, name);
        (void)json_object_set_new(map, s->decls[i].name, json_string(name));
    }
    return nw_hf_json_write(dir, "model.safetensors.index.json",
                            json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                                      (json_int_t)s->total_bytes, "weight_map", map),
                            err);
}

nw_status nw_shards_write(const nw_shards *s, const char *dir, nw_shards_fn write, void *ctx,
                          nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < s->n_shards; i++) {
        st = write_shard(s, dir, i, write, ctx, err);
    }
    return st == NW_OK && s->n_shards > 1 ? write_index(s, dir, err) : st;
}
