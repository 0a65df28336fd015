/* What the tests of the server share: one over a tiny model on a free port, and raw requests to it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_SERVER_FIXTURE_H
#define NW_TESTS_SERVER_FIXTURE_H

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine_fixture.h"
#include "serve/state.h"

#define PATIENT 20000 /* ms */

static nw_engine *engine;
static nw_server *server;

static inline int open_server(unsigned idle_s)
{
    nw_engine_options o = fixture_options();
    nw_server_options so = nw_server_options_default();
    nw_error err = {0};

    (void)fixture_setup(NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    o.no_tokenizer = false;
    engine = fixture_engine(0, &o);
    so.idle_timeout_s = idle_s;
    if (nw_server_open(engine, &so, &server, &err) != NW_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return 0;
}

static inline int close_server(void)
{
    nw_server_close(server);
    nw_engine_close(engine);
    return fixture_teardown(NULL);
}

/* A connection on which a request was sent: its first line, more header lines, a body; small: with room
 * for little of the answer. */
static inline int ask(const char *line, const char *more, const char *body, bool small)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int bytes = 1;
    char head[256];
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons(nw_server_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const size_t n_body = body != NULL ? strlen(body) : 0;

    assert_true(fd >= 0);
    if (small) {
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    }
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    const int n = snprintf(head, sizeof head, "%s\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n",
                           line, more, n_body);
    assert_int_equal(send(fd, head, (size_t)n, 0), n);
    (void)send(fd, body, n_body, MSG_DONTWAIT); /* refused before it is read, where too long */
    return fd;
}

/* Reads until the server closes; false when it is silent for `ms` first. */
static inline bool read_to_close(int fd, int ms, char *out, size_t n_out)
{
    size_t n = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, ms) <= 0) {
            return false;
        }
        const ssize_t got = recv(fd, out + n, n_out - 1 - n, 0);
        if (got <= 0) {
            return true;
        }
        n += (size_t)got;
        assert_true(n < n_out - 1);
        out[n] = '\0';
    }
}

#endif
