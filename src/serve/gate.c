/* A counter under a lock: see gate.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/gate.h"

void nw_gate_init(nw_gate *g, unsigned room)
{
    *g = (nw_gate){.room = room};
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_cond_init(&g->changed, NULL);
}

void nw_gate_release(nw_gate *g)
{
    (void)pthread_cond_destroy(&g->changed);
    (void)pthread_mutex_destroy(&g->lock);
}

void nw_gate_enter(nw_gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->n_waiting++;
    while (g->n_inside == g->room) {
        pthread_cond_wait(&g->changed, &g->lock);
    }
    g->n_waiting--;
    g->n_inside++;
    pthread_mutex_unlock(&g->lock);
}

void nw_gate_leave(nw_gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->n_inside--;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void nw_gate_count(nw_gate *g, unsigned *n_inside, unsigned *n_waiting)
{
    pthread_mutex_lock(&g->lock);
    *n_inside = g->n_inside;
    *n_waiting = g->n_waiting;
    pthread_mutex_unlock(&g->lock);
}
