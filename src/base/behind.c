/* See behind.h. `fn` is set while something is to be done or runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/behind.h"

#include <pthread.h>
#include <stdlib.h>

struct nw_behind {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    nw_behind_fn fn;
    void *ctx;
    nw_status status; /* of what was done last, until it is told */
    nw_error error;
    bool quit;
};

static void *run(void *arg)
{
    nw_behind *b = arg;

    (void)pthread_mutex_lock(&b->lock);
    for (;;) {
        while (b->fn == NULL && !b->quit) {
            (void)pthread_cond_wait(&b->changed, &b->lock);
        }
        if (b->fn == NULL) {
            break;
        }
        nw_error err = {.code = NW_OK};
        (void)pthread_mutex_unlock(&b->lock);
        const nw_status st = b->fn(b->ctx, &err);
        (void)pthread_mutex_lock(&b->lock);
        b->status = st;
        b->error = err;
        b->fn = NULL;
        (void)pthread_cond_broadcast(&b->changed);
    }
    (void)pthread_mutex_unlock(&b->lock);
    return NULL;
}

nw_status nw_behind_open(nw_behind **out, nw_error *err)
{
    nw_behind *b = calloc(1, sizeof *b);

    if (b == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a thread");
    }
    (void)pthread_mutex_init(&b->lock, NULL);
    (void)pthread_cond_init(&b->changed, NULL);
    if (pthread_create(&b->thread, NULL, run, b) != 0) {
        (void)pthread_cond_destroy(&b->changed);
        (void)pthread_mutex_destroy(&b->lock);
        free(b);
        return nw_fail(err, NW_E_NOMEM, "the system gives no other thread");
    }
    *out = b;
    return NW_OK;
}

/* Waits; the lock is held before and after. */
static nw_status settle(nw_behind *b, nw_error *err)
{
    while (b->fn != NULL) {
        (void)pthread_cond_wait(&b->changed, &b->lock);
    }
    const nw_status st = b->status;
    if (st != NW_OK) {
        *err = b->error;
    }
    b->status = NW_OK;
    return st;
}

nw_status nw_behind_wait(nw_behind *b, nw_error *err)
{
    (void)pthread_mutex_lock(&b->lock);
    const nw_status st = settle(b, err);
    (void)pthread_mutex_unlock(&b->lock);
    return st;
}

nw_status nw_behind_give(nw_behind *b, nw_behind_fn fn, void *ctx, nw_error *err)
{
    (void)pthread_mutex_lock(&b->lock);
    const nw_status st = settle(b, err);
    if (st == NW_OK) {
        b->fn = fn;
        b->ctx = ctx;
        (void)pthread_cond_broadcast(&b->changed);
    }
    (void)pthread_mutex_unlock(&b->lock);
    return st;
}

void nw_behind_close(nw_behind *b)
{
    if (b == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&b->lock);
    b->quit = true;
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->lock);
    (void)pthread_join(b->thread, NULL);
    (void)pthread_cond_destroy(&b->changed);
    (void)pthread_mutex_destroy(&b->lock);
    free(b);
}
