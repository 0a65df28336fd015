/* See source_digest.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/source_digest.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/behind.h"
#include "base/file.h"
#include "base/room.h"
#include "base/signal.h"

#define WINDOW ((uint64_t)1 << 30) /* bytes that the hash may be ahead; twice that beside others' */
#define STEP   ((size_t)2 << 20)

struct nw_source_digest {
    const nw_checkpoint *ckpt;
    nw_source_pages *pages;
    nw_behind *thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t n_hashed, n_used;
    bool all_used, stop;
    bool hashing; /* the thread neither waits nor is at its end */
    nw_sha256
        *beside; /* the other message, its bytes that are left, and whether somebody is at them */
    const uint8_t *bytes;
    size_t left;
    bool taken;
    nw_digest *files; /* of the checkpoint's */
    nw_digest digest;
};

/* A file that is being hashed. */
typedef struct {
    nw_file file;
    nw_sha256 h;
    size_t at;
    uint32_t which;
} stream;

static bool must_wait(const nw_source_digest *d)
{
    const bool laid = d->left > 0 && !d->taken;
    const uint64_t ahead = laid ? 2 * WINDOW : WINDOW;

    return !d->stop && !d->all_used && d->n_hashed > d->n_used + ahead;
}

/* Waits until n_bytes more may be hashed; false: not any more. */
static bool go_on(nw_source_digest *d, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&d->lock);
    while (must_wait(d)) {
        d->hashing = false;
        (void)pthread_cond_broadcast(&d->changed);
        (void)pthread_cond_wait(&d->changed, &d->lock);
    }
    d->hashing = true;
    d->n_hashed += n_bytes;
    const bool stop = d->stop || nw_stop_requested();
    (void)pthread_mutex_unlock(&d->lock);
    return !stop;
}

/* At most `most` bytes of what was laid down; the lock is held. How many. */
static size_t take(nw_source_digest *d, size_t most)
{
    const size_t n = d->taken ? 0 : d->left;

    d->taken = d->taken || n > 0;
    return n < most ? n : most;
}

static void give_back(nw_source_digest *d, size_t n_done)
{
    (void)pthread_mutex_lock(&d->lock);
    d->bytes += n_done;
    d->left -= n_done;
    d->taken = false;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

static size_t step_of(const stream *s)
{
    const size_t left = s->file.size - s->at;
    return left < STEP ? left : STEP;
}

/* A step of the first file, and of what there is to go beside it. */
static void add_step(nw_source_digest *d, stream s[2], unsigned n_open)
{
    const void *bytes[2] = {s[0].file.data + s[0].at, NULL};
    nw_sha256 *h[2] = {&s[0].h, NULL};
    size_t n[2] = {step_of(&s[0]), 0};

    (void)pthread_mutex_lock(&d->lock);
    const size_t laid = take(d, n[0]);
    if (laid > 0) {
        h[1] = d->beside;
        bytes[1] = d->bytes;
        n[1] = laid;
    } else if (n_open == 2) {
        h[1] = &s[1].h;
        bytes[1] = s[1].file.data + s[1].at;
        n[1] = step_of(&s[1]);
        d->n_hashed += n[1];
    }
    (void)pthread_mutex_unlock(&d->lock);
    if (h[1] == NULL) {
        nw_sha256_add(h[0], bytes[0], n[0]);
    } else {
        nw_sha256_add_two(h, bytes, n);
    }
    if (laid > 0) {
        give_back(d, laid);
    } else {
        s[1].at += n[1];
    }
    s[0].at += n[0];
    if (d->pages != NULL) {
        nw_file_leave(bytes[0], n[0]);
        nw_source_pages_hashed(d->pages, s[0].which, s[0].at);
    }
}

static nw_status open_stream(const nw_source_digest *d, uint32_t which, stream *s, nw_error *err)
{
    *s = (stream){.which = which};
    const nw_status st = nw_file_map(nw_checkpoint_file(d->ckpt, which), &s->file, err);
    return st == NW_OK ? nw_sha256_init(&s->h, err) : st;
}

static void close_stream(stream *s)
{
    nw_sha256_release(&s->h);
    nw_file_unmap(&s->file);
}

/* The hashes of files that are at their end; returns how many are open still, the first ones of s. */
static unsigned end_streams(nw_source_digest *d, stream s[2], unsigned n_open)
{
    unsigned n_left = 0;

    for (unsigned i = 0; i < n_open; i++) {
        if (s[i].at == s[i].file.size) {
            d->files[s[i].which] = nw_sha256_end(&s[i].h);
            close_stream(&s[i]);
        } else {
            s[n_left++] = s[i];
        }
    }
    return n_left;
}

/* How many files at a time: the driver comes to the second of two only when it is through with the first. */
static unsigned together(const nw_source_digest *d)
{
    const bool stays = d->pages == NULL && nw_room_memory() / 5 * 4 >= nw_source_pages_sum(d->ckpt);
    return stays ? 2 : 1;
}

static nw_status hash_files(nw_source_digest *d, nw_error *err)
{
    const uint32_t n_files = nw_checkpoint_n_files(d->ckpt);
    const unsigned most = together(d);
    stream s[2] = {0};
    unsigned n_open = 0;
    uint32_t next = 0;
    nw_status st = NW_OK;

    while (st == NW_OK && (next < n_files || n_open > 0)) {
        if (next < n_files && n_open < most) {
            st = open_stream(d, next++, &s[n_open++], err);
        } else if (go_on(d, step_of(&s[0]))) {
            add_step(d, s, n_open);
            n_open = end_streams(d, s, n_open);
        } else {
            st = nw_fail(err, NW_E_CANCELLED, "%s: its hash was given up", s[0].file.path);
        }
    }
    for (unsigned i = 0; i < n_open; i++) {
        close_stream(&s[i]);
    }
    return st == NW_OK ? nw_checkpoint_digest_join(d->ckpt, d->files, &d->digest, err) : st;
}

static nw_status run(void *ctx, nw_error *err)
{
    nw_source_digest *d = ctx;
    const nw_status st = hash_files(d, err);

    (void)pthread_mutex_lock(&d->lock);
    d->hashing = false;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
    return st;
}

nw_status nw_source_digest_start(const nw_checkpoint *c, nw_source_pages *pages,
                                 nw_source_digest **out, nw_error *err)
{
    nw_source_digest *d = calloc(1, sizeof *d);
    nw_digest *files = calloc((size_t)nw_checkpoint_n_files(c) + 1, sizeof *files);

    if (d == NULL || files == NULL) {
        free(d);
        free(files);
        return nw_fail(err, NW_E_NOMEM, "no memory to hash the source");
    }
    d->ckpt = c;
    d->pages = pages;
    d->files = files;
    d->hashing = true;
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_cond_init(&d->changed, NULL);
    nw_status st = nw_behind_open(&d->thread, err);
    st = st == NW_OK ? nw_behind_give(d->thread, run, d, err) : st;
    if (st != NW_OK) {
        nw_source_digest_close(d);
        return st;
    }
    *out = d;
    return NW_OK;
}

void nw_source_digest_used(nw_source_digest *d, const nw_ckpt_tensor *t)
{
    if (d->pages != NULL) {
        nw_source_pages_used(d->pages, t);
    }
    (void)pthread_mutex_lock(&d->lock);
    d->n_used += t->n_bytes;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

void nw_source_digest_lay(nw_source_digest *d, nw_sha256 *h, const void *bytes, size_t n)
{
    (void)pthread_mutex_lock(&d->lock);
    assert(d->left == 0);
    d->beside = h;
    d->bytes = bytes;
    d->left = n;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

void nw_source_digest_collect(nw_source_digest *d)
{
    (void)pthread_mutex_lock(&d->lock);
    while (d->left > 0 && (d->taken || d->hashing)) {
        (void)pthread_cond_wait(&d->changed, &d->lock);
    }
    const size_t n = take(d, d->left);
    (void)pthread_mutex_unlock(&d->lock);
    if (n > 0) {
        nw_sha256_add(d->beside, d->bytes, n);
        give_back(d, n);
    }
}

nw_status nw_source_digest_end(nw_source_digest *d, nw_digest *out, nw_error *err)
{
    (void)pthread_mutex_lock(&d->lock);
    d->all_used = true;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
    const nw_status st = nw_behind_wait(d->thread, err);
    if (st == NW_OK) {
        *out = d->digest;
    }
    return st;
}

void nw_source_digest_close(nw_source_digest *d)
{
    if (d == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&d->lock);
    d->stop = true;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
    nw_behind_close(d->thread);
    (void)pthread_cond_destroy(&d->changed);
    (void)pthread_mutex_destroy(&d->lock);
    free(d->files);
    free(d);
}
