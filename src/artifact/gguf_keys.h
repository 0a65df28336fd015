/* Keys of a GGUF source on their way through a native artifact: metadata.gguf, a GGUF file with keys and no
 * tensor, from which `convert -f gguf` writes them again. Nothing else reads it: config.json and the tokenizer files
 * say what the model is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_GGUF_KEYS_H
#define NW_ARTIFACT_GGUF_KEYS_H

#include "model/checkpoint.h"
#include "model/gguf_writer.h"

#define NW_GGUF_KEYS_FILE "metadata.gguf"

/* Into the folder, where the source is a GGUF file; the keys of split sets and alignment are left out. */
NW_MUST_USE nw_status nw_gguf_keys_write(const nw_checkpoint *source, const char *dir,
                                         nw_error *err);
/* The file of an artifact's folder; *out is NULL where there is none. Close it. */
NW_MUST_USE nw_status nw_gguf_keys_open(const char *dir, nw_gguf **out, nw_error *err);
/* All keys of g. same_types: the tensors are those that g speaks of; otherwise keys about types and how codes
 * were chosen are left out. */
void nw_gguf_keys_put(nw_gguf_writer *w, const nw_gguf *g, bool same_types);

#endif
