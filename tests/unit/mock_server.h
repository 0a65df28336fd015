/* A server of our own that answers what a test prescribes: one thread a connection, one scripted answer
 * a request, picked by the prompt's text. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_MOCK_SERVER_H
#define NW_TESTS_MOCK_SERVER_H

#include <stddef.h>

typedef struct {
    const char *prompt;        /* the answer to bodies that contain this text */
    const char *const *pieces; /* raw bytes, sent one after the other; NULL ends */
    unsigned pause_ms;         /* before each piece but the first */
    unsigned n_refusals;       /* answered with 429 this often first */
} mock_answer;

typedef struct mock_server mock_server;

/* What a server says of itself. */
typedef struct {
    const char *owner;
    const char *more;        /* of its first model: ",\"max_model_len\":7" */
    const char *facts;       /* body of GET /narrow/facts; NULL: there is none */
    const char *retry_after; /* of refusals; NULL: "0" */
} mock_identity;

mock_server *mock_open_as(const mock_answer *answers, size_t n, mock_identity who);
/* Answers GET /v1/models with this owner. Ends the test program where it cannot start. */
mock_server *mock_open(const mock_answer *answers, size_t n, const char *owner);
const char *mock_url(const mock_server *m); /* "http://127.0.0.1:PORT" */
unsigned mock_requests(mock_server *m);     /* POSTs seen */
void mock_close(mock_server *m);

#endif
