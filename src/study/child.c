/* See child.h. SPDX-License-Identifier: Apache-2.0 */
#include "study/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/signal.h"

extern char **environ;

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

/* The child starts with default signal dispositions and an open file `out` as its stdout. */
static int spawn(const nw_child_args *a, const char *out, pid_t *pid)
{
    union {
        const char *const *from;
        char *const *to;
    } argv = {.from = a->argv};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t defaults;

    (void)sigemptyset(&defaults);
    (void)sigaddset(&defaults, SIGINT);
    (void)sigaddset(&defaults, SIGTERM);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setsigdefault(&attr, &defaults);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
    int rc = 0;
    if (out != NULL) {
        rc = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out,
                                              O_WRONLY | O_CREAT | O_APPEND, 0666);
    }
    if (rc == 0) {
        rc = posix_spawn(pid, "/proc/self/exe", &files, &attr, argv.to, environ);
    }
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&files);
    return rc;
}

nw_status nw_child_run(const nw_child_args *a, const char *out, int *exit_code, nw_error *err)
{
    pid_t pid = 0;
    int how = 0;
    const int rc = spawn(a, out, &pid);

    if (rc != 0) {
        return nw_fail(err, NW_E_IO, "narrow %s: cannot start it: %s", a->argv[1], strerror(rc));
    }
    bool told = false;
    while (waitpid(pid, &how, 0) < 0) {
        if (errno != EINTR) {
            return nw_fail(err, NW_E_IO, "narrow %s: cannot wait for it: %s", a->argv[1],
                           strerror(errno));
        }
        if (nw_stop_requested() && !told) {
            (void)kill(pid, SIGTERM); /* a SIGTERM of ours did not reach the child; ^C did */
            told = true;
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
