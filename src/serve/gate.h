/* At most so many threads at a time: what clients let a connection thread compute by itself, which is
 * tokenizing, must not take the processors from the engine. Inside src/serve.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_GATE_H
#define NW_SERVE_GATE_H

#include <pthread.h>

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned room, n_inside, n_waiting;
} nw_gate;

void nw_gate_init(nw_gate *g, unsigned room);
void nw_gate_release(nw_gate *g);
void nw_gate_enter(nw_gate *g); /* waits for room */
void nw_gate_leave(nw_gate *g);
void nw_gate_count(nw_gate *g, unsigned *n_inside, unsigned *n_waiting);

#endif
