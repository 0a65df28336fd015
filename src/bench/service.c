/* Starting `narrow serve` as a child: same binary by /proc/self/exe, any free port, which it prints on
 * its first line once it listens. The child dies with this process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/service.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/signal.h"
#include "bench/listener.h"

#define START_LIMIT_S 600.0 /* packing a large checkpoint at load takes its time */
#define STOP_LIMIT_S  20.0
#define CLIENT_NICE   (-5) /* tried, never needed: the client must not wait behind the server */

static void run_child(const nw_service_options *o, int out_fd, pid_t parent)
{
    const char *argv[NW_SERVICE_MAX_ARGS + 8] = {"narrow", "serve", o->spec, "--port", "0"};
    size_t n = 5;

    for (size_t i = 0; i < o->n_serve_args; i++) {
        argv[n++] = o->serve_args[i];
    }
    if (nw_log_get_level() < NW_LOG_INFO) {
        argv[n++] = "--quiet";
    }
    (void)prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM, 0UL, 0UL, 0UL);
    if (getppid() != parent) { /* it died before the line above */
        _exit(1);
    }
    (void)dup2(out_fd, STDOUT_FILENO);
    (void)close(out_fd);
    union {
        const char **from;
        char *const *to;
    } args = {argv}; /* execv does not write to its strings */
    (void)execv("/proc/self/exe", args.to);
    _exit(127);
}

/* Reads the child's first line. */
static nw_status read_line(int fd, pid_t child, char *line, size_t n, nw_error *err)
{
    const double end_s = nw_now_s() + START_LIMIT_S;
    size_t len = 0;

    while (nw_now_s() < end_s && !nw_stop_requested()) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 100) <= 0) {
            continue;
        }
        const ssize_t got = read(fd, line + len, n - 1 - len);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            int status = 0;
            (void)waitpid(child, &status, 0);
            return nw_fail(err, NW_E_IO, "narrow serve ended before it listened (exit code %d)",
                           WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
        len += got > 0 ? (size_t)got : 0;
        line[len] = '\0';
        if (strchr(line, '\n') != NULL || len + 1 == n) {
            return NW_OK;
        }
    }
    return nw_stop_requested()
               ? nw_fail(err, NW_E_CANCELLED, "stopped while narrow serve was starting")
               : nw_fail(err, NW_E_IO, "narrow serve does not listen after %.0f s", START_LIMIT_S);
}

static void stop_child(nw_service *s)
{
    const double end_s = nw_now_s() + STOP_LIMIT_S;

    (void)kill(s->child, SIGTERM);
    while (waitpid(s->child, NULL, WNOHANG) == 0) {
        if (nw_now_s() > end_s) {
            (void)kill(s->child, SIGKILL);
            (void)waitpid(s->child, NULL, 0);
            break;
        }
        nw_sleep_until_ns(nw_now_ns() + 20000000);
    }
    s->child = 0;
}

static nw_status start_child(const nw_service_options *o, nw_service *s, char *url, size_t n_url,
                             nw_error *err)
{
    static const char prefix[] = "listening on ";
    char line[256] = "";
    int fds[2];
    const pid_t parent = getpid();

    if (o->n_serve_args > NW_SERVICE_MAX_ARGS) {
        return nw_fail(err, NW_E_RANGE, "serve: %zu arguments, at most %d are passed on",
                       o->n_serve_args, NW_SERVICE_MAX_ARGS);
    }
    if (pipe(fds) != 0) {
        return nw_fail(err, NW_E_IO, "pipe to narrow serve: %s", strerror(errno));
    }
    (void)fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    s->child = fork();
    if (s->child == 0) {
        run_child(o, fds[1], parent);
    }
    (void)close(fds[1]);
    nw_status st = s->child > 0 ? read_line(fds[0], s->child, line, sizeof line, err)
                                : nw_fail(err, NW_E_IO, "fork: %s", strerror(errno));
    (void)close(fds[0]); /* the server writes nothing more there */
    if (st == NW_OK && strncmp(line, prefix, sizeof prefix - 1) != 0) {
        st = nw_fail(err, NW_E_IO, "narrow serve began with '%.60s'", line);
    }
    if (st != NW_OK) {
        return st;
    }
    line[strcspn(line, "\r\n")] = '\0';
    (void)snprintf(url, n_url, "%s", line + sizeof prefix - 1);
    s->pid = s->child;
    return NW_OK;
}

static nw_status open_target(const nw_service_options *o, const char *spec, nw_service *s,
                             nw_error *err)
{
    nw_target_options t = o->target;

    if (!o->in_process && t.tokenizer == NULL && !nw_target_spec_is_url(o->spec)) {
        t.tokenizer = o->spec; /* prompts of exact length without asking the server */
    }
    if (nw_target_open(spec, &t, &s->target, err) != NW_OK) {
        return err->code;
    }
    s->facts = nw_target_facts(s->target);
    if (o->in_process) {
        s->pid = getpid();
    } else if (s->pid == 0 && nw_url_is_loopback(spec)) {
        s->pid = (pid_t)json_integer_value(json_object_get(s->facts, "pid"));
        s->pid = s->pid != 0 ? s->pid : nw_listener_pid(nw_url_port(spec));
    }
    return NW_OK;
}

nw_status nw_service_open(const nw_service_options *o, nw_service *out, nw_error *err)
{
    nw_service s = {0};
    char url[256];
    nw_status st = NW_OK;
    const bool url_given = nw_target_spec_is_url(o->spec);

    (void)signal(SIGPIPE, SIG_IGN);
    if (url_given && o->in_process) {
        return nw_fail(err, NW_E_USAGE, "%s: only an artifact can be run inside this process",
                       o->spec);
    }
    if (!url_given && !o->in_process) {
        st = start_child(o, &s, url, sizeof url, err);
    }
    if (st == NW_OK) {
        if (!o->in_process) { /* after the fork: the server keeps its own priority */
            (void)setpriority(PRIO_PROCESS, 0, CLIENT_NICE);
        }
        st = open_target(o, s.child > 0 ? url : o->spec, &s, err);
    }
    if (st != NW_OK) {
        nw_service_close(&s);
        return st;
    }
    *out = s;
    return NW_OK;
}

json_t *nw_service_facts(const nw_service *s)
{
    return nw_target_facts(s->target);
}

void nw_service_close(nw_service *s)
{
    nw_target_close(s->target);
    json_decref(s->facts);
    if (s->child > 0) {
        stop_child(s);
    }
    *s = (nw_service){0};
}
