/* A folder of calibration statistics, as `narrow calibrate` writes and `narrow quantize` reads it:
 *
 *   manifest.json            model, data, strata, counts, and the SHA-256 of every other file
 *   layer-00000.safetensors  for each input of the layer: <input>.absmax, <input>.mean_abs [n] and
 *                            <input>.moments [n (n + 1) / 2], the upper triangle row by row, F32
 *   head.safetensors         the same of what the head reads
 *   kv.safetensors           keys and values of all layers (kv_stats.h)
 *
 * A file holds one layer, so that neither side ever needs more than one in memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_STATS_FOLDER_H
#define NW_QUANT_STATS_FOLDER_H

#include "base/json.h"
#include "model/safetensors.h"
#include "quant/input_stats.h"

/* Statistics of one input, for writing. */
typedef struct {
    nw_input input;
    const nw_input_stats *stats;
} nw_stats_entry;

/* Writes dir/<file of the layer> (layer -1: the head) and appends the file and its inputs to the
 * arrays "files" and "inputs" of `manifest`. Statistics are checked first. */
NW_MUST_USE nw_status nw_stats_write(const char *dir, int32_t layer, const nw_stats_entry *entries,
                                     size_t n, json_t *manifest, nw_error *err);
/* Appends dir/file, which is whole, to "files" of the manifest. */
NW_MUST_USE nw_status nw_stats_note_file(const char *dir, const char *file, json_t *manifest,
                                         nw_error *err);
/* Adds "hash", over the canonical text, and writes dir/manifest.json. */
NW_MUST_USE nw_status nw_stats_seal(const char *dir, json_t *manifest, nw_error *err);

typedef struct nw_stats nw_stats;

/* Reads the manifest: unknown versions, missing keys and a hash that does not fit are refused. */
NW_MUST_USE nw_status nw_stats_open(const char *dir, nw_stats **out, nw_error *err);
void nw_stats_close(nw_stats *s); /* takes NULL */
const char *nw_stats_hash(const nw_stats *s);
const json_t *nw_stats_manifest(const nw_stats *s);

/* Holds the folder to a model, by counts: inputs that are there with the model's width, missing
 * ones, those of another width. Any of the last two is NW_E_FORMAT with all three counts. */
NW_MUST_USE nw_status nw_stats_fit(const nw_stats *s, const nw_model_config *c, nw_error *err);
/* False where the manifest names another model's weights than this digest. */
bool nw_stats_is_of(const nw_stats *s, const nw_digest *model);

/* Opens one of the folder's files, held to its hash. */
NW_MUST_USE nw_status nw_stats_open_file(const nw_stats *s, const char *file, nw_safetensors **out,
                                         nw_error *err);

/* The statistics of one input (layer -1: the head); the file's hash and every number are checked.
 * Release *out. */
NW_MUST_USE nw_status nw_stats_load(const nw_stats *s, int32_t layer, nw_input input,
                                    nw_input_stats *out, nw_error *err);

#endif
