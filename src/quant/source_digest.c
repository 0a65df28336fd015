/* See source_digest.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/source_digest.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/behind.h"
#include "base/signal.h"

#define WINDOW ((uint64_t)1 << 30) /* bytes that the hash may be ahead */

struct nw_source_digest {
    const nw_checkpoint *ckpt;
    nw_behind *thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t n_hashed, n_used;
    bool all_used, stop;
    nw_digest digest;
};

static bool go_on(void *ctx, uint64_t n_bytes)
{
    nw_source_digest *d = ctx;

    (void)pthread_mutex_lock(&d->lock);
    while (!d->stop && !d->all_used && d->n_hashed > d->n_used + WINDOW) {
        (void)pthread_cond_wait(&d->changed, &d->lock);
    }
    d->n_hashed += n_bytes;
    const bool stop = d->stop || nw_stop_requested();
    (void)pthread_mutex_unlock(&d->lock);
    return !stop;
}

static nw_status hash_files(void *ctx, nw_error *err)
{
    nw_source_digest *d = ctx;
    const nw_digest_watch watch = {.go_on = go_on, .ctx = d};

    return nw_checkpoint_digest_watched(d->ckpt, &watch, &d->digest, err);
}

nw_status nw_source_digest_start(const nw_checkpoint *c, nw_source_digest **out, nw_error *err)
{
    nw_source_digest *d = calloc(1, sizeof *d);

    if (d == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory to hash the source");
    }
    d->ckpt = c;
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_cond_init(&d->changed, NULL);
    nw_status st = nw_behind_open(&d->thread, err);
    st = st == NW_OK ? nw_behind_give(d->thread, hash_files, d, err) : st;
    if (st != NW_OK) {
        nw_source_digest_close(d);
        return st;
    }
    *out = d;
    return NW_OK;
}

void nw_source_digest_used(nw_source_digest *d, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&d->lock);
    d->n_used += n_bytes;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
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
    free(d);
}
