/* A list of blocks, newest first; an allocation comes from the newest block or starts another. What
 * is not handed out is poisoned under ASan, with a gap between neighbours, so that an overrun inside
 * a block is caught like one of malloc.
 *
 *   block: | header | allocation | gap (ASan) | allocation | gap | free ... |
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/status.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif

#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#define GAP_BYTES 64
#else
#define GAP_BYTES 0
#endif

#define ALIGNMENT       64
#define HUGE_PAGE       ((size_t)2 << 20)
#define MIN_BLOCK_BYTES ((size_t)64 << 10)
#define MAX_BLOCK_BYTES ((size_t)4 << 20) /* larger allocations get a block of their own size */

struct nw_arena_block {
    nw_arena_block *next;
    uint8_t *data; /* aligned to 64 */
    size_t size;   /* bytes from data on */
    size_t used;   /* bytes, a multiple of 64 */
};

static void hide(const void *p, size_t n)
{
#ifdef HAVE_ASAN
    ASAN_POISON_MEMORY_REGION(p, n);
#else
    (void)p;
    (void)n;
#endif
}

static void show(const void *p, size_t n)
{
#ifdef HAVE_ASAN
    ASAN_UNPOISON_MEMORY_REGION(p, n);
#else
    (void)p;
    (void)n;
#endif
}

/* Weights that are packed at load, and activations: read with far fewer TLB misses in huge pages. */
static void ask_huge_pages(uint8_t *p, size_t n)
{
    const uintptr_t begin = ((uintptr_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const uintptr_t end = ((uintptr_t)p + n) / HUGE_PAGE * HUGE_PAGE;

    if (end > begin) {
        (void)madvise(p + (begin - (uintptr_t)p), end - begin, MADV_HUGEPAGE); /* only faster */
    }
}

/* Blocks double until MAX_BLOCK_BYTES: few blocks for large arenas, little waste for small ones.
 * calloc, because the kernel gives zeroed pages without touching them. */
static nw_arena_block *block_new(nw_arena *a, size_t need)
{
    size_t size = a->head == NULL ? MIN_BLOCK_BYTES : a->head->size * 2;
    size_t total = 0;

    size = size > MAX_BLOCK_BYTES ? MAX_BLOCK_BYTES : size;
    size = size < need ? need : size;
    if (!nw_size_add(size, sizeof(nw_arena_block) + ALIGNMENT, &total)) {
        return NULL;
    }
    nw_arena_block *b = calloc(1, total);
    if (b == NULL) {
        return NULL;
    }
    ask_huge_pages((uint8_t *)b, total);
    uint8_t *after = (uint8_t *)(b + 1);
    b->data = after + (ALIGNMENT - (uintptr_t)after % ALIGNMENT) % ALIGNMENT;
    b->size = size;
    b->next = a->head;
    a->head = b;
    hide(b->data, b->size);
    return b;
}

void *nw_arena_alloc(nw_arena *a, size_t n_bytes)
{
    size_t rounded = 0;
    size_t need = 0;

    if (!nw_size_add(n_bytes == 0 ? 1 : n_bytes, ALIGNMENT - 1, &rounded)) {
        return NULL;
    }
    rounded -= rounded % ALIGNMENT;
    if (!nw_size_add(rounded, GAP_BYTES, &need)) {
        return NULL;
    }
    nw_arena_block *b = a->head;
    if (b == NULL || b->size - b->used < need) {
        b = block_new(a, need);
        if (b == NULL) {
            return NULL;
        }
    }
    void *p = b->data + b->used;
    b->used += need;
    a->used_bytes += rounded;
    show(p, n_bytes);
    return p;
}

void *nw_arena_array(nw_arena *a, size_t n, size_t size)
{
    size_t bytes = 0;
    return nw_size_mul(n, size, &bytes) ? nw_arena_alloc(a, bytes) : NULL;
}

char *nw_arena_strndup(nw_arena *a, const char *s, size_t n)
{
    size_t bytes = 0;
    char *copy = nw_size_add(n, 1, &bytes) ? nw_arena_alloc(a, bytes) : NULL;

    if (copy != NULL && n > 0) {
        memcpy(copy, s, n);
    }
    return copy;
}

void nw_arena_release(nw_arena *a)
{
    nw_arena_block *b = a->head;

    while (b != NULL) {
        nw_arena_block *next = b->next;
        show(b->data, b->size);
        free(b);
        b = next;
    }
    *a = (nw_arena){0};
}
