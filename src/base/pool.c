/* Fork-join threads: see pool.h. A run is published by a new generation number. Workers that wake in
 * time enter it by adding themselves to `inside`; the caller works too, then closes the door and
 * waits only for those that are inside. A worker that a busy machine wakes late finds the door shut
 * and waits for the next run, so it holds nobody up.
 *
 *   inside: bit 31 = closed, the rest = workers inside
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"

#define CLOSED      0x80000000U
#define SPIN_NS     30000 /* a futex wake-up costs about as much */
#define SPIN_PAUSES 32    /* between two looks at the clock */
#define MAX_THREADS 1024
#define CACHE_LINE  64

/* Items of a run that one worker begins with; anyone may take from it. */
typedef struct {
    _Alignas(CACHE_LINE) atomic_size_t next;
    size_t end;
} share;

typedef struct {
    nw_pool *pool;
    pthread_t thread;
    unsigned index;
} worker;

struct nw_pool {
    unsigned n_threads;
    unsigned n_started; /* workers whose thread runs; the caller is not among them */
    worker *workers;    /* [n_threads - 1] */
    share *shares;      /* [n_threads] */
    nw_pool_fn fn;
    void *ctx;
    const nw_pool_ahead *ahead; /* [n_threads] of this run, or NULL */
    atomic_bool quit;
    _Alignas(CACHE_LINE) atomic_uint generation;
    atomic_uint sleepers; /* workers asleep on generation, or about to be */
    _Alignas(CACHE_LINE) atomic_uint inside;
};

/* What a waiting thread has still to fetch. */
typedef struct {
    nw_pool_ahead what;
    size_t done; /* bytes of each stretch */
} fetching;

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns at once when *word differs from `value`, and for no reason now and then. */
static void futex_wait(atomic_uint *word, unsigned value)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake_all(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* A line of each stretch on its way into this core's cache. */
static void fetch_some(fetching *f)
{
    for (uint32_t i = 0; i < f->what.n; i++) {
        __builtin_prefetch(f->what.begin + i * f->what.stride + f->done, 0, 2);
    }
    f->done += CACHE_LINE;
}

/* Spins until *word is no longer `value`, fetching meanwhile; false when the time is over. */
static bool spin_while(atomic_uint *word, unsigned value, fetching *f)
{
    while (f->done < f->what.bytes) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) {
            return true;
        }
        fetch_some(f);
    }
    const int64_t end = nw_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_PAUSES; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) {
                return true;
            }
            pause_cpu();
        }
    } while (nw_now_ns() < end);
    return false;
}

/* The next item of a share; false when there is none. */
static bool take(share *s, size_t *item)
{
    if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) {
        return false; /* so that the counter does not run away */
    }
    *item = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
    return *item < s->end;
}

static fetching work(nw_pool *p, unsigned index)
{
    size_t item = 0;

    for (unsigned i = 0; i < p->n_threads; i++) { /* its own share, then its neighbours' */
        share *s = &p->shares[(index + i) % p->n_threads];
        while (take(s, &item)) {
            p->fn(p->ctx, item, index);
        }
    }
    return (fetching){.what = p->ahead != NULL ? p->ahead[index] : (nw_pool_ahead){0}};
}

static bool enter(nw_pool *p)
{
    unsigned now = atomic_load(&p->inside);

    while ((now & CLOSED) == 0) {
        if (atomic_compare_exchange_weak(&p->inside, &now, now + 1)) {
            return true;
        }
    }
    return false;
}

static void *worker_main(void *arg)
{
    const worker *w = arg;
    nw_pool *p = w->pool;
    unsigned seen = 0;
    fetching ahead = {0};

    for (;;) {
        while (!spin_while(&p->generation, seen, &ahead)) {
            /* counted before the kernel compares: either it sees the new generation, or the caller
             * sees a sleeper */
            atomic_fetch_add(&p->sleepers, 1);
            futex_wait(&p->generation, seen);
            atomic_fetch_sub(&p->sleepers, 1);
        }
        seen = atomic_load(&p->generation);
        if (atomic_load(&p->quit)) {
            return NULL;
        }
        ahead = (fetching){0};
        if (enter(p)) {
            ahead = work(p, w->index);
            if (atomic_fetch_sub(&p->inside, 1) == (CLOSED | 1)) {
                futex_wake_all(&p->inside);
            }
        }
    }
}

static void announce(nw_pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleepers) > 0) {
        futex_wake_all(&p->generation);
    }
}

/* After it nobody is inside and nobody can enter. */
static void close_door(nw_pool *p, fetching *f)
{
    unsigned now = atomic_fetch_or(&p->inside, CLOSED) | CLOSED;

    while (now != CLOSED) {
        if (!spin_while(&p->inside, now, f)) {
            futex_wait(&p->inside, now);
        }
        now = atomic_load(&p->inside);
    }
}

size_t nw_pool_first_item(const nw_pool *p, size_t n, unsigned index)
{
    const unsigned n_threads = nw_pool_threads(p);
    return n / n_threads * index + n % n_threads * index / n_threads;
}

void nw_pool_run(nw_pool *p, size_t n, nw_pool_fn fn, void *ctx)
{
    nw_pool_run_ahead(p, n, fn, ctx, NULL);
}

void nw_pool_run_ahead(nw_pool *p, size_t n, nw_pool_fn fn, void *ctx, const nw_pool_ahead *next)
{
    if (p == NULL || p->n_threads == 1 || n <= 1) {
        for (size_t i = 0; i < n; i++) {
            fn(ctx, i, 0);
        }
        return;
    }
    assert(atomic_load(&p->inside) == CLOSED);
    p->fn = fn;
    p->ctx = ctx;
    p->ahead = next;
    for (unsigned i = 0; i < p->n_threads; i++) {
        atomic_store_explicit(&p->shares[i].next, nw_pool_first_item(p, n, i),
                              memory_order_relaxed);
        p->shares[i].end = nw_pool_first_item(p, n, i + 1);
    }
    atomic_store(&p->inside, 0);
    announce(p);
    fetching f = work(p, 0);
    close_door(p, &f);
}

unsigned nw_pool_threads(const nw_pool *p)
{
    return p == NULL ? 1 : p->n_threads;
}

nw_status nw_pool_open(unsigned n_threads, nw_pool **out, nw_error *err)
{
    const unsigned n = n_threads == 0 ? nw_cpu_threads(NULL) : n_threads;

    if (n > MAX_THREADS) {
        return nw_fail(err, NW_E_RANGE, "threads: %u, at most %d allowed", n, MAX_THREADS);
    }
    nw_pool *p = aligned_alloc(CACHE_LINE, sizeof *p);
    worker *workers = calloc(n, sizeof *workers);
    share *shares = aligned_alloc(CACHE_LINE, n * sizeof *shares);
    if (p == NULL || workers == NULL || shares == NULL) {
        free(p);
        free(workers);
        free(shares);
        return nw_fail(err, NW_E_NOMEM, "threads: no memory for a pool of %u", n);
    }
    memset(shares, 0, n * sizeof *shares);
    *p = (nw_pool){.n_threads = n, .workers = workers, .shares = shares, .inside = CLOSED};
    for (unsigned i = 0; i + 1 < n; i++) {
        workers[i] = (worker){.pool = p, .index = i + 1};
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0) {
            nw_pool_close(p);
            return nw_fail(err, NW_E_NOMEM, "threads: the system gives %u of %u", i + 1, n);
        }
        p->n_started++;
    }
    *out = p;
    return NW_OK;
}

void nw_pool_close(nw_pool *p)
{
    if (p == NULL) {
        return;
    }
    atomic_store(&p->quit, true);
    announce(p);
    for (unsigned i = 0; i < p->n_started; i++) {
        (void)pthread_join(p->workers[i].thread, NULL);
    }
    free(p->workers);
    free(p->shares);
    free(p);
}
