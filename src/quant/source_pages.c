/* See source_pages.h. Files in chunks, each of which counts the bytes that the driver has not used yet.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/source_pages.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/file.h"

#define CHUNK \
    ((uint64_t)4 << 20) /* small, since one with a vector stays to the end, where vectors come */

typedef struct {
    uint64_t left; /* bytes of tensors that the driver takes yet */
    bool hashed;
} chunk;

typedef struct {
    uint64_t size;
    uint64_t n_hashed; /* chunks */
    chunk *chunks;
} file;

struct nw_source_pages {
    const nw_checkpoint *ckpt;
    pthread_mutex_t lock;
    uint32_t n_files;
    file files[];
};

static uint64_t size_of(const nw_checkpoint *c, uint32_t which)
{
    nw_file_stamp stamp = {0};
    nw_error ignored = {0};

    return nw_file_stamp_of(nw_checkpoint_file(c, which), &stamp, &ignored) == NW_OK ? stamp.size
                                                                                     : 0;
}

uint64_t nw_source_pages_sum(const nw_checkpoint *c)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < nw_checkpoint_n_files(c); i++) {
        sum += size_of(c, i);
    }
    return sum;
}

static uint64_t end_of(const file *f, uint64_t i)
{
    const uint64_t end = (i + 1) * CHUNK;
    return end < f->size ? end : f->size;
}

/* Bytes of [at, at + n) in chunk i. */
static uint64_t part(const file *f, uint64_t i, uint64_t at, uint64_t n)
{
    const uint64_t begin = at > i * CHUNK ? at : i * CHUNK;
    const uint64_t end = at + n < end_of(f, i) ? at + n : end_of(f, i);
    return end > begin ? end - begin : 0;
}

static uint64_t place(const nw_source_pages *p, const nw_ckpt_tensor *t)
{
    return (uint64_t)(t->data - nw_checkpoint_bytes(p->ckpt, t->file));
}

static void count(nw_source_pages *p, const nw_ckpt_tensor *t)
{
    file *f = &p->files[t->file];
    const uint64_t at = place(p, t);

    for (uint64_t i = at / CHUNK; i * CHUNK < at + t->n_bytes; i++) {
        f->chunks[i].left += part(f, i, at, t->n_bytes);
    }
}

static bool is_wanted(const nw_checkpoint *c, const nw_recipe_choice *choices, size_t n,
                      uint64_t memory_bytes)
{
    for (size_t i = 0; i < n; i++) {
        if (choices[i].tensor->quant != NULL) {
            return false;
        }
    }
    return nw_source_pages_sum(c) > memory_bytes / 2;
}

nw_status nw_source_pages_open(const nw_checkpoint *c, const nw_recipe_choice *choices, size_t n,
                               uint64_t memory_bytes, nw_source_pages **out, nw_error *err)
{
    const uint32_t n_files = nw_checkpoint_n_files(c);
    nw_source_pages *p = NULL;

    *out = NULL;
    if (!is_wanted(c, choices, n, memory_bytes)) {
        return NW_OK;
    }
    p = calloc(1, sizeof *p + n_files * sizeof p->files[0]);
    if (p == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory to follow the source");
    }
    p->ckpt = c;
    p->n_files = n_files;
    (void)pthread_mutex_init(&p->lock, NULL);
    for (uint32_t i = 0; i < n_files; i++) {
        p->files[i].size = size_of(c, i);
        p->files[i].chunks = calloc(p->files[i].size / CHUNK + 1, sizeof(chunk));
        if (p->files[i].chunks == NULL) {
            nw_source_pages_close(p);
            return nw_fail(err, NW_E_NOMEM, "no memory to follow the source");
        }
    }
    for (size_t i = 0; i < n; i++) {
        count(p, choices[i].tensor);
    }
    *out = p;
    return NW_OK;
}

static void forget(const nw_source_pages *p, uint32_t which, uint64_t i)
{
    nw_file_forget(nw_checkpoint_file(p->ckpt, which), i * CHUNK,
                   end_of(&p->files[which], i) - i * CHUNK);
}

void nw_source_pages_used(nw_source_pages *p, const nw_ckpt_tensor *t)
{
    file *f = &p->files[t->file];
    const uint64_t at = place(p, t);

    nw_file_leave(t->data, t->n_bytes);
    for (uint64_t i = at / CHUNK; i * CHUNK < at + t->n_bytes; i++) {
        (void)pthread_mutex_lock(&p->lock);
        f->chunks[i].left -= part(f, i, at, t->n_bytes);
        const bool done = f->chunks[i].left == 0 && f->chunks[i].hashed;
        (void)pthread_mutex_unlock(&p->lock);
        if (done) {
            forget(p, t->file, i);
        }
    }
}

void nw_source_pages_hashed(nw_source_pages *p, uint32_t which, uint64_t n_bytes)
{
    file *f = &p->files[which];

    while (f->n_hashed * CHUNK < f->size && end_of(f, f->n_hashed) <= n_bytes) {
        const uint64_t i = f->n_hashed++;
        (void)pthread_mutex_lock(&p->lock);
        f->chunks[i].hashed = true;
        const bool done = f->chunks[i].left == 0;
        (void)pthread_mutex_unlock(&p->lock);
        if (done) {
            forget(p, which, i);
        }
    }
}

void nw_source_pages_close(nw_source_pages *p)
{
    if (p == NULL) {
        return;
    }
    for (uint32_t i = 0; i < p->n_files; i++) {
        free(p->files[i].chunks);
    }
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}
