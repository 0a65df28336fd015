/* Writes a native artifact: tensors are declared first (their sizes are known from shape and
 * layout), then streamed in that order, so that memory does not grow with the model. The same
 * inputs give the same bytes. Nothing stands under the final name before commit. A writer that was
 * killed leaves its partial folder with a journal of the tensors it finished, and the
 * next one of the same result goes on behind them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_WRITER_H
#define NW_ARTIFACT_WRITER_H

#include "artifact/folder.h"
#include "artifact/manifest.h"

/* The journal in a partial folder (base/journal.h): of tool, source, calibration and recipe; a line is
 * {"tensor": <its row of the manifest>, "note": <what the maker said of it, or null>}. A line may reach
 * the disk where the tensor's bytes do not: whoever goes on holds each tensor to its hash. */
#define NW_ARTIFACT_JOURNAL NW_FOLDER_JOURNAL

typedef struct nw_artifact_writer nw_artifact_writer;

typedef struct {
    const char *path;  /* folder to be made */
    bool inside;       /* path is there, empty, and its maker gives it its name: no journal */
    bool replace;      /* an earlier result of that name is replaced, and an unfinished
                                  * one of something else is removed; otherwise it is refused */
    bool no_tokenizer; /* the model has none; otherwise a missing tokenizer is an error */
    const nw_checkpoint *source; /* gives config and tokenizer files; borrowed */
    const char *source_is;       /* what an unfinished result must have been made from; NULL: the
                                  * manifest says it */
} nw_artifact_target;

/* `manifest` is taken over (and zeroed): its tensors give names, types and shapes (and the
 * bytes of packed ones), matrices before vectors; bytes, hashes and errors are filled in while writing. */
NW_MUST_USE nw_status nw_artifact_writer_open(const nw_artifact_target *target,
                                              nw_manifest *manifest, nw_artifact_writer **out,
                                              nw_error *err);
/* Tensors that stand, the first ones of the manifest; after open those of an earlier writer, and writing
 * begins behind them. And what that one noted of the i-th; NULL: nothing. */
size_t nw_artifact_writer_n_done(const nw_artifact_writer *w);
const json_t *nw_artifact_writer_note(const nw_artifact_writer *w, size_t i);
/* The next bytes of the tensor being written; tensors follow one another in manifest order. */
NW_MUST_USE nw_status nw_artifact_writer_add(nw_artifact_writer *w, const void *bytes, size_t n,
                                             nw_error *err);
/* The same, hashed and written behind the caller, who leaves the bytes alone until the next call that ends
 * well, or nw_artifact_writer_settle. A failure is told by the next call. */
NW_MUST_USE nw_status nw_artifact_writer_hand(nw_artifact_writer *w, const void *bytes, size_t n,
                                              nw_error *err);
NW_MUST_USE nw_status nw_artifact_writer_settle(nw_artifact_writer *w, nw_error *err);
/* Who hashes what is handed over, beside something else: lay gives it the next bytes of h's message, collect
 * waits until they are in. Without one the writer does. */
typedef struct {
    void (*lay)(void *ctx, nw_sha256 *h, const void *bytes, size_t n);
    void (*collect)(void *ctx);
    void *ctx; /* outlives the last hand, settled */
} nw_artifact_hasher;
void nw_artifact_writer_hasher(nw_artifact_writer *w, nw_artifact_hasher hasher);
/* Ends a tensor: its byte count must be complete, and values must not have become all zeros. `note`
 * (may be NULL) is kept for a writer that goes on. */
NW_MUST_USE nw_status nw_artifact_writer_end_tensor(nw_artifact_writer *w, const nw_tensor_error *e,
                                                    const json_t *note, nw_error *err);
/* The partial folder; inputs.safetensors is put there before the commit, which is told what it is. */
const char *nw_artifact_writer_dir(const nw_artifact_writer *w);
void nw_artifact_writer_inputs(nw_artifact_writer *w, const nw_digest *hash, uint64_t n_bytes);
/* The hash of the source, where the manifest did not have it at open. */
void nw_artifact_writer_source(nw_artifact_writer *w, const nw_digest *hash);
/* Computes bits, seals and writes the manifest, re-opens and verifies the whole folder, and only
 * then renames it. */
NW_MUST_USE nw_status nw_artifact_writer_commit(nw_artifact_writer *w, nw_error *err);
/* After commit: hands the manifest over; nw_manifest_release frees it. */
nw_manifest nw_artifact_writer_take_manifest(nw_artifact_writer *w);
void nw_artifact_writer_close(nw_artifact_writer *w); /* takes NULL; removes what is unfinished */
/* As close, but what is unfinished stays for a later writer: puts its folder's name, cut to n, into
 * `where`. */
void nw_artifact_writer_keep(nw_artifact_writer *w, char *where, size_t n);

#endif
