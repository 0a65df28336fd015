/* Large mapped files in huge pages. What the page cache holds of a file in small pages is mapped in
 * small pages, and one thread then reads it at two thirds of the speed (docs/speed.md): the tables of
 * addresses do not stay in the processor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_HUGE_H
#define NW_BASE_HUGE_H

#include "base/file.h"
#include "base/pool.h"

/* Where the copying of one mapped file stands; all zero before the first call. */
typedef struct {
    uint8_t *begin; /* of the whole huge pages of the mapping */
    size_t n_pages; /* of 2 MiB */
    size_t next;    /* the page where it goes on; n_pages: nothing is left to do */
    bool decided;
} nw_huge;

/* Puts memory of huge pages with the same bytes in place of the mapping, 2 MiB by 2 MiB, at the same
 * addresses, read-only, for about so many seconds; whether more is left. To be called between two uses
 * of the file and after the first of them, so that the first need not wait: what has been read tells how
 * the file is mapped. Whether a mapping is one is nobody's business: nw_file_unmap ends it as before.
 *
 * It does so only where that pays and costs nothing: the file has min_bytes, of what the page cache holds
 * less than three quarters is mapped by huge pages, a quarter more than its size is left of memory, and
 * the kernel has huge pages to give. Nobody may unmap the file meanwhile; reading it is allowed. pool
 * may be NULL. */
bool nw_huge_go_on(nw_huge *h, const nw_file *f, size_t min_bytes, double seconds, nw_pool *pool);

#endif
