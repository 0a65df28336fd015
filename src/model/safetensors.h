/* safetensors: reader (one file, or a set joined by *.index.json) and streaming writer.
 *
 *   u64 N | N bytes of JSON | data
 *   {"__metadata__": {str: str}, "name": {"dtype", "shape", "data_offsets": [begin, end]}}
 *
 * The reader refuses what the reference refuses (holes, overlaps, trailing bytes, unknown dtypes,
 * sizes that disagree with shapes) and duplicate names as well, which the reference lets pass.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_SAFETENSORS_H
#define NW_MODEL_SAFETENSORS_H

#include "base/pool.h"
#include "formats/format.h"

#define NW_ST_MAX_DIMS   8
#define NW_ST_MAX_HEADER 100000000U /* bytes of JSON, as the reference */

typedef struct nw_safetensors nw_safetensors;

typedef struct {
    const char *name; /* NUL-terminated; dies with the nw_safetensors */
    nw_format_id format;
    uint32_t n_dims;
    uint64_t dims[NW_ST_MAX_DIMS]; /* C order: the last is contiguous */
    uint64_t n_elems;
    size_t n_bytes;
    const uint8_t *data; /* inside the mapping; unaligned unless the writer aligned it */
    uint32_t file;
} nw_st_tensor;

/* path: a .safetensors file, an index (*.json), or a folder holding model.safetensors.index.json or
 * model.safetensors. With an index every tensor of weight_map must be in the file it names, and
 * every tensor of those files in the map. */
NW_MUST_USE nw_status nw_st_open(const char *path, nw_safetensors **out, nw_error *err);
/* One file in memory: bytes are borrowed until close; `name` stands in messages. */
NW_MUST_USE nw_status nw_st_read(const char *name, const uint8_t *bytes, size_t n,
                                 nw_safetensors **out, nw_error *err);
void nw_st_close(nw_safetensors *s);
/* Files of at least min_bytes into huge pages, at the same addresses, where that pays, for about so many
 * seconds; whether more is left (base/huge.h). */
bool nw_st_to_huge(nw_safetensors *s, size_t min_bytes, double seconds, nw_pool *pool);

size_t nw_st_n_tensors(const nw_safetensors *s);
const nw_st_tensor *nw_st_at(const nw_safetensors *s, size_t i);           /* sorted by name */
const nw_st_tensor *nw_st_find(const nw_safetensors *s, const char *name); /* NULL: absent */
uint32_t nw_st_n_files(const nw_safetensors *s);
const char *nw_st_path(const nw_safetensors *s, uint32_t file);
const uint8_t *nw_st_bytes(const nw_safetensors *s, uint32_t file); /* of the whole file */
/* Value of a __metadata__ key of the first file; NULL: absent. */
const char *nw_st_metadata(const nw_safetensors *s, const char *key);

/* ---- writer ---- */
typedef struct nw_st_writer nw_st_writer;

typedef struct {
    const char *name;
    nw_format_id format; /* one that has a safetensors dtype */
    uint32_t n_dims;
    uint64_t dims[NW_ST_MAX_DIMS];
} nw_st_decl;

/* The file of one shard, from 0, of n, as Hugging Face names them; alone it has no number. */
void nw_st_shard_name(size_t shard, size_t n_shards, char buf[64]);

/* Declares all tensors and writes the header. Data starts at a multiple of `alignment` (a power of
 * two, 8 or more; spaces pad the header) and is then streamed in the declared order, without gaps.
 * metadata: NULL or key, value, key, value, NULL; "format": "pt" is always there. Nothing exists
 * under `path` before commit. */
NW_MUST_USE nw_status nw_st_writer_open(const char *path, const nw_st_decl *tensors, size_t n,
                                        const char *const *metadata, size_t alignment,
                                        nw_st_writer **out, nw_error *err);
/* The same through the temporary file path + NW_ST_PART. Where an earlier writer of the same
 * declarations left one, its first n_done tensors stay, and writing goes on with the next. */
#define NW_ST_PART ".part"
NW_MUST_USE nw_status nw_st_writer_resume(const char *path, const nw_st_decl *tensors, size_t n,
                                          const char *const *metadata, size_t alignment,
                                          size_t n_done, nw_st_writer **out, nw_error *err);
/* Appends bytes of the current tensor, in pieces of any size; `name` must be the tensor whose turn
 * it is, and n_bytes no more than what is left of it. */
NW_MUST_USE nw_status nw_st_writer_write(nw_st_writer *w, const char *name, const void *bytes,
                                         size_t n_bytes, nw_error *err);
/* Refuses while declared bytes are missing; then fsync and rename. */
NW_MUST_USE nw_status nw_st_writer_commit(nw_st_writer *w, nw_error *err);
/* The same in two halves: see nw_writer_place. */
NW_MUST_USE nw_status nw_st_writer_place(nw_st_writer *w, nw_error *err);
NW_MUST_USE nw_status nw_st_writer_sync(nw_st_writer *w, nw_error *err);
void nw_st_writer_close(nw_st_writer *w); /* without commit: removes what was written */
void nw_st_writer_keep(nw_st_writer *w);  /* leaves it to a later resume; takes NULL */

#endif
