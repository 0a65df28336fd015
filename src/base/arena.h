/* Arena: memory with one lifetime. Three lifetimes exist: model (load to close), session (sized at
 * open) and step (reset each step). All zero is a valid, empty arena.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_ARENA_H
#define NW_BASE_ARENA_H

#include <stddef.h>

typedef struct nw_arena_block nw_arena_block;

typedef struct {
    nw_arena_block *head;
    size_t used_bytes; /* handed out since init, rounded to 64 */
} nw_arena;

/* Zeroed memory aligned to 64 bytes, valid until release; NULL when there is none. */
void *nw_arena_alloc(nw_arena *a, size_t n_bytes);

/* n * size zeroed bytes; NULL also where the product overflows. */
void *nw_arena_array(nw_arena *a, size_t n, size_t size);

/* A copy of n bytes with a NUL after them. */
char *nw_arena_strndup(nw_arena *a, const char *s, size_t n);

void nw_arena_release(nw_arena *a);

#endif
