/* The hash of a source beside the work on it: a thread reads the files in their order while the driver takes
 * tensors out of them, so that each byte comes from the disk once. It keeps no more than a window
 * ahead of what the driver has used, or the system would drop those bytes again before their turn. Two
 * messages are hashed at the price of one (base/hash.h): beside a file goes what the driver writes, or the next
 * file, where memory holds them all.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_SOURCE_DIGEST_H
#define NW_QUANT_SOURCE_DIGEST_H

#include "base/hash.h"
#include "quant/source_pages.h"

typedef struct nw_source_digest nw_source_digest;

/* c is borrowed until the end; so is pages, which may be NULL: what is done with stays in memory then. */
NW_MUST_USE nw_status nw_source_digest_start(const nw_checkpoint *c, nw_source_pages *pages,
                                             nw_source_digest **out, nw_error *err);
void nw_source_digest_used(nw_source_digest *d, const nw_ckpt_tensor *t); /* the driver is done */
/* n bytes of a message of another thread's, to be hashed beside the source; one lay, then one collect. */
void nw_source_digest_lay(nw_source_digest *d, nw_sha256 *h, const void *bytes, size_t n);
/* Waits until they are hashed; hashes them here where the source's hash waits or is over. */
void nw_source_digest_collect(nw_source_digest *d);
/* Waits for the end of the files; NW_E_CANCELLED when the process is asked to stop. */
NW_MUST_USE nw_status nw_source_digest_end(nw_source_digest *d, nw_digest *out, nw_error *err);
void nw_source_digest_close(nw_source_digest *d); /* gives up what is not done; takes NULL */

#endif
