/* Large mapped files in huge pages. What the page cache holds of a file in small pages is mapped in
 * small pages, and one thread then reads it at two thirds of the speed (docs/speed.md): the tables of
 * addresses do not stay in the processor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_HUGE_H
#define NW_BASE_HUGE_H

#include "base/file.h"
#include "base/pool.h"

/* Puts memory of huge pages with the same bytes in place of the mapping, 2 MiB by 2 MiB, at the same
 * addresses, read-only. Whether a mapping is one is nobody's business: nw_file_unmap ends it as before.
 *
 * It does so only where that pays and costs nothing: the file has min_bytes, is in the page cache, is
 * mapped in small pages for more than a tenth, and a quarter more than its size is left of memory. The
 * bytes that were copied; 0 where nothing changed. Nobody may unmap the file meanwhile; reading it is
 * allowed. pool may be NULL. */
size_t nw_file_to_huge(const nw_file *f, size_t min_bytes, nw_pool *pool);

#endif
