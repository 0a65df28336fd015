/* The scripted server of mock_server.h. SPDX-License-Identifier: Apache-2.0 */
#include "mock_server.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_ANSWERS 32
#define MAX_CONNS   64

struct mock_server {
    const mock_answer *answers;
    size_t n;
    mock_identity who;
    char url[64];
    int fd;
    pthread_t thread;
    pthread_t conns[MAX_CONNS];
    size_t n_conns;
    atomic_uint n_posts;
    atomic_uint refused[MAX_ANSWERS];
};

typedef struct {
    mock_server *m;
    int fd;
} conn;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static bool send_text(int fd, const char *s)
{
    return send(fd, s, strlen(s), MSG_NOSIGNAL) == (ssize_t)strlen(s);
}

static void send_json(int fd, const char *body)
{
    char head[80];

    (void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                   strlen(body));
    (void)(send_text(fd, head) && send_text(fd, body));
}

static void send_models(mock_server *m, int fd)
{
    char body[500];
    (void)snprintf(body, sizeof body,
                   "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"owned_by\":\"%s\"%s},"
                   "{\"id\":\"second\",\"owned_by\":\"%s\",\"max_model_len\":77}]}",
                   m->who.owner, m->who.more != NULL ? m->who.more : "", m->who.owner);
    send_json(fd, body);
}

/* False: the connection is to be closed. */
static bool send_answer(mock_server *m, int fd, const char *body)
{
    for (size_t i = 0; i < m->n; i++) {
        const mock_answer *a = &m->answers[i];
        if (strstr(body, a->prompt) == NULL) {
            continue;
        }
        if (atomic_fetch_add(&m->refused[i], 1) < a->n_refusals) {
            char refusal[200];
            (void)snprintf(refusal, sizeof refusal,
                           "HTTP/1.1 429 Too Many\r\nRetry-After: %s\r\nConnection: close\r\n\r\n"
                           "{\"error\":{\"message\":\"busy, wait\"}}",
                           m->who.retry_after != NULL ? m->who.retry_after : "0");
            (void)send_text(fd, refusal);
            return false;
        }
        for (size_t k = 0; a->pieces[k] != NULL; k++) {
            if (k > 0 && a->pause_ms > 0) {
                const struct timespec t = {a->pause_ms / 1000, (a->pause_ms % 1000) * 1000000L};
                (void)nanosleep(&t, NULL);
            }
            if (!send_text(fd, a->pieces[k])) {
                return false;
            }
        }
        return false;
    }
    return send_text(fd, "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
}

/* One request into buf, NUL-terminated; the body's place, or NULL when the peer has gone. */
static char *read_request(int fd, char *buf, size_t cap)
{
    size_t n = 0;

    for (;;) {
        const ssize_t got = recv(fd, buf + n, cap - 1 - n, 0);
        if (got <= 0) {
            return NULL;
        }
        n += (size_t)got;
        buf[n] = '\0';
        char *end = strstr(buf, "\r\n\r\n");
        const char *len = strstr(buf, "Content-Length: ");
        const size_t want = len != NULL ? strtoul(len + 16, NULL, 10) : 0;
        if (end != NULL && (size_t)(buf + n - (end + 4)) >= want) {
            return end + 4;
        }
    }
}

static void *serve(void *arg)
{
    conn *c = arg;
    char *buf = malloc(1 << 20);
    bool open = buf != NULL;

    while (open) {
        const char *body = read_request(c->fd, buf, 1 << 20);
        if (body == NULL) {
            break;
        }
        if (strncmp(buf, "GET /v1/models ", 15) == 0) {
            send_models(c->m, c->fd);
        } else if (strncmp(buf, "GET /narrow/facts ", 18) == 0 && c->m->who.facts != NULL) {
            send_json(c->fd, c->m->who.facts);
        } else {
            atomic_fetch_add(&c->m->n_posts, 1);
            open = send_answer(c->m, c->fd, body);
        }
    }
    (void)close(c->fd);
    free(buf);
    free(c);
    return NULL;
}

static void *accept_all(void *arg)
{
    mock_server *m = arg;

    for (;;) {
        const int fd = accept(m->fd, NULL, NULL);
        if (fd < 0 || m->n_conns == MAX_CONNS) {
            return NULL;
        }
        conn *c = malloc(sizeof *c);
        if (c == NULL) {
            die("malloc");
        }
        *c = (conn){m, fd};
        if (pthread_create(&m->conns[m->n_conns++], NULL, serve, c) != 0) {
            die("pthread_create");
        }
    }
}

mock_server *mock_open(const mock_answer *answers, size_t n, const char *owner)
{
    return mock_open_as(answers, n, (mock_identity){.owner = owner});
}

mock_server *mock_open_as(const mock_answer *answers, size_t n, mock_identity who)
{
    mock_server *m = calloc(1, sizeof *m);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;

    if (m == NULL || n > MAX_ANSWERS) {
        die("mock_open");
    }
    m->answers = answers;
    m->n = n;
    m->who = who;
    m->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (m->fd < 0 || bind(m->fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(m->fd, 64) != 0 ||
        getsockname(m->fd, (struct sockaddr *)&a, &len) != 0 ||
        pthread_create(&m->thread, NULL, accept_all, m) != 0) {
        die("mock server");
    }
    (void)snprintf(m->url, sizeof m->url, "http://127.0.0.1:%u", ntohs(a.sin_port));
    return m;
}

const char *mock_url(const mock_server *m)
{
    return m->url;
}

unsigned mock_requests(mock_server *m)
{
    return atomic_load(&m->n_posts);
}

void mock_close(mock_server *m)
{
    (void)shutdown(m->fd, SHUT_RDWR);
    (void)pthread_join(m->thread, NULL);
    (void)close(m->fd);
    for (size_t i = 0; i < m->n_conns; i++) {
        (void)pthread_join(m->conns[i], NULL);
    }
    free(m);
}
