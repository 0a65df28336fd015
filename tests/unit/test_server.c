/* The server's clock: who neither sends nor takes a byte is let go of, and who waits for an answer is
 * not. What it answers is the matter of tests/server/server_test.py.
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine_fixture.h"
#include "serve/state.h"

#define IDLE_S  1    /* of the server */
#define LONG_MS 2500 /* past it, with a second to spare for the poll's own clock */
#define PATIENT 20000

static nw_engine *engine;
static nw_server *server;

static int open_server(void **state)
{
    nw_engine_options o = fixture_options();
    nw_server_options so = nw_server_options_default();
    nw_error err = {0};

    (void)fixture_setup(state);
    (void)signal(SIGPIPE, SIG_IGN);
    o.no_tokenizer = false;
    engine = fixture_engine(0, &o);
    so.idle_timeout_s = IDLE_S;
    if (nw_server_open(engine, &so, &server, &err) != NW_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return 0;
}

static int close_server(void **state)
{
    nw_server_close(server);
    nw_engine_close(engine);
    return fixture_teardown(state);
}

/* A connection on which `body` was posted; small: with room for little of the answer. */
static int post(const char *path, const char *body, bool small)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int bytes = 1;
    char text[1024];
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons(nw_server_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    assert_true(fd >= 0);
    if (small) {
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    }
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    const int n =
        snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
                 path, strlen(body), body);
    assert_int_equal(send(fd, text, (size_t)n, 0), n);
    return fd;
}

/* Reads until the server closes; false when it is silent for `ms` first. */
static bool read_to_close(int fd, int ms, char *out, size_t n_out)
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

/* A client that has its answer keeps a thread of the server no longer than one that never asked. */
static void an_answered_connection_is_closed_when_idle(void **state)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"a\",\"max_tokens\":2}",
        "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}",
    };
    (void)state;
    for (size_t i = 0; i < NW_COUNT(bodies); i++) {
        char answer[8192] = "";
        const int fd = post("/v1/completions", bodies[i], false);
        assert_true(read_to_close(fd, PATIENT, answer, sizeof answer));
        assert_int_equal(strncmp(answer, "HTTP/1.1 200", 12), 0);
        (void)close(fd);
    }
}

typedef struct {
    atomic_bool held;
} hold;

static void hold_worker(void *ctx, nw_engine *e)
{
    hold *h = ctx;
    (void)e;
    atomic_store(&h->held, true);
    nw_sleep_until_ns(nw_now_ns() + (int64_t)LONG_MS * 1000000);
}

static void *hold_thread(void *ctx)
{
    nw_scheduler_call(server->sched, hold_worker, ctx);
    return NULL;
}

/* The engine is busy with something else for longer than the timeout. */
static void a_client_that_waits_for_its_answer_gets_it(void **state)
{
    hold h = {false};
    pthread_t t;
    char whole[8192] = "";
    char stream[8192] = "";

    (void)state;
    assert_int_equal(pthread_create(&t, NULL, hold_thread, &h), 0);
    while (!atomic_load(&h.held)) {
        nw_sleep_until_ns(nw_now_ns() + 1000000);
    }
    const int a = post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2}", false);
    const int b =
        post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}", false);
    assert_true(read_to_close(a, PATIENT, whole, sizeof whole));
    assert_true(read_to_close(b, PATIENT, stream, sizeof stream));
    (void)pthread_join(t, NULL);
    assert_non_null(strstr(whole, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(stream, "[DONE]"));
    (void)close(a);
    (void)close(b);
}

/* One that takes nothing of a stream: its request ends, and its place is free again. */
static void a_reader_that_stands_still_is_let_go(void **state)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_LISTEN_FD);
    const int bytes = 4096; /* of the server's side: what it accepts has as much */
    const int64_t end = nw_now_ns() + (int64_t)PATIENT * 1000000;

    (void)state;
    assert_int_equal(setsockopt(info->listen_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    const int fd = post("/v1/chat/completions",
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true,"
                        "\"ignore_eos\":true,\"logprobs\":true,\"top_logprobs\":20}",
                        true);
    while (atomic_load(&server->n_jobs) == 0 && nw_now_ns() < end) {
        nw_sleep_until_ns(nw_now_ns() + 1000000);
    }
    while (atomic_load(&server->n_jobs) > 0 && nw_now_ns() < end) {
        nw_sleep_until_ns(nw_now_ns() + 10000000);
    }
    assert_int_equal(atomic_load(&server->n_jobs), 0);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answered_connection_is_closed_when_idle),
        cmocka_unit_test(a_client_that_waits_for_its_answer_gets_it),
        cmocka_unit_test(a_reader_that_stands_still_is_let_go),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
