/* See child.h. SPDX-License-Identifier: Apache-2.0 */
#include "study/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/signal.h"

#define POLL_NS 10000000 /* how late the end of a child, or a signal, may be seen */

void nw_child_arg(nw_child_args *a, const char *arg)
{
    if (a->n == 0) {
        a->argv[a->n++] = "narrow";
    }
    assert(a->n <= NW_CHILD_MAX_ARGS);
    a->argv[a->n++] = arg;
    a->argv[a->n] = NULL;
}

void nw_child_option(nw_child_args *a, const char *name, const char *value)
{
    if (value != NULL) {
        nw_child_arg(a, name);
        nw_child_arg(a, value);
    }
}

/* In the child: it gets SIGTERM when the study dies, however it dies, so that no stage goes on
 * writing into a record that the next study has opened. */
static void become(const nw_child_args *a, int out, pid_t parent)
{
    union {
        const char *const *from;
        char *const *to;
    } argv = {.from = a->argv}; /* execv does not write to its strings */
    struct sigaction by_default = {.sa_handler = SIG_DFL};

    (void)sigaction(SIGINT, &by_default, NULL);
    (void)sigaction(SIGTERM, &by_default, NULL);
    (void)prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM, 0UL, 0UL, 0UL);
    if (getppid() != parent) { /* it died before the line above */
        _exit(1);
    }
    if (out >= 0) {
        (void)dup2(out, STDOUT_FILENO);
    }
    (void)execv("/proc/self/exe", argv.to);
    _exit(127);
}

static nw_status start(const nw_child_args *a, const char *path, pid_t *pid, nw_error *err)
{
    const pid_t parent = getpid();
    int out = -1;

    if (nw_stop_requested()) {
        return nw_fail(err, NW_E_CANCELLED, "narrow %s: stopped", a->argv[1]);
    }
    if (path != NULL) {
        out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (out < 0) {
            return nw_fail(err, NW_E_IO, "%s: cannot open: %s", path, strerror(errno));
        }
    }
    *pid = fork();
    if (*pid == 0) {
        become(a, out, parent);
    }
    const int why = errno;
    if (out >= 0) {
        (void)close(out);
    }
    return *pid > 0
               ? NW_OK
               : nw_fail(err, NW_E_IO, "narrow %s: cannot start it: %s", a->argv[1], strerror(why));
}

nw_status nw_child_run(nw_child_args *a, const char *out, int *exit_code, nw_error *err)
{
    pid_t pid = 0;
    int how = 0;
    bool told = false;

    if (nw_log_get_level() < NW_LOG_INFO) {
        nw_child_arg(a, "--quiet");
    }
    if (start(a, out, &pid, err) != NW_OK) {
        return err->code;
    }
    for (pid_t got = 0; got == 0;) {
        got = waitpid(pid, &how, WNOHANG);
        if (got < 0 && errno != EINTR) {
            return nw_fail(err, NW_E_IO, "narrow %s: cannot wait for it: %s", a->argv[1],
                           strerror(errno));
        }
        got = got < 0 ? 0 : got;
        if (nw_stop_requested() && !told) {
            (void)kill(pid, SIGTERM); /* a signal to us alone did not reach the child */
            told = true;
        }
        if (got == 0) {
            nw_sleep_until_ns(nw_now_ns() + POLL_NS);
        }
    }
    if (nw_stop_requested()) {
        return nw_fail(err, NW_E_CANCELLED, "narrow %s: stopped", a->argv[1]);
    }
    if (WIFSIGNALED(how)) {
        return nw_fail(err, NW_E_IO, "narrow %s: ended by signal %d (%s)", a->argv[1],
                       WTERMSIG(how), strsignal(WTERMSIG(how)));
    }
    *exit_code = WEXITSTATUS(how);
    return NW_OK;
}
