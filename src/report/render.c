/* Specifications to SVG: one run of node over the bundled script, all figures at once. Input and output
 * go through unnamed temporary files, so that neither side can block the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "report/figures.h"

#define MAX_SVG_BYTES (64U << 20)
#define TIMEOUT_S     120
#define SCRIPT_NAME   "narrow-render.mjs"

extern char **environ;

/* Beside the program, or where an installation puts it. The caller frees the path; NULL: nowhere. */
static char *find_script(const char *given)
{
    static const char *const places[] = {"/" SCRIPT_NAME, "/../share/narrow/" SCRIPT_NAME};
    const char *named = given != NULL ? given : getenv("NARROW_RENDER");
    char exe[4096];

    if (named != NULL) {
        return nw_file_exists(named) ? strdup(named) : NULL;
    }
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) {
        return NULL;
    }
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash != NULL && i < NW_COUNT(places); i++) {
        char path[4200];
        *slash = '\0';
        (void)snprintf(path, sizeof path, "%s%s", exe, places[i]);
        if (nw_file_exists(path)) {
            return strdup(path);
        }
    }
    return NULL;
}

/* Exit code of the child, or -1 when it had to be killed. */
static int wait_for(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    const int64_t end = nw_now_ns() + (int64_t)TIMEOUT_S * 1000000000;
    int status = 0;

    for (;;) {
        const pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR)) {
            break;
        }
        if (nw_now_ns() > end) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Three unnamed files in place of stdin, stdout and stderr of the child. */
typedef struct {
    FILE *fp[3];
} child_files;

static bool open_files(child_files *io)
{
    bool ok = true;

    for (int i = 0; i < 3; i++) {
        io->fp[i] = tmpfile();
        ok = ok && io->fp[i] != NULL;
    }
    return ok;
}

static void close_files(child_files *io)
{
    for (int i = 0; i < 3; i++) {
        if (io->fp[i] != NULL) {
            (void)fclose(io->fp[i]);
        }
    }
}

/* 0, or the reason as an errno; *code is the exit code. */
static int run_node(const char *script, const child_files *io, int *code)
{
    const char *node = getenv("NARROW_NODE");
    char name[256];
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;

    (void)snprintf(name, sizeof name, "%s", node != NULL ? node : "node");
    char *path = strdup(script);
    if (path == NULL) {
        return ENOMEM;
    }
    char *const argv[] = {name, path, NULL};
    (void)posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++) {
        (void)posix_spawn_file_actions_adddup2(&actions, fileno(io->fp[i]), i);
    }
    const int failed = posix_spawnp(&pid, name, &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    free(path);
    if (failed == 0) {
        *code = wait_for(pid);
    }
    return failed;
}

/* The whole file from its start; the caller frees it. */
static char *read_back(FILE *fp, size_t *n)
{
    char *text = NULL;

    *n = 0;
    if (fseek(fp, 0, SEEK_END) != 0) {
        return NULL;
    }
    const long size = ftell(fp);
    if (size >= 0 && (size_t)size <= MAX_SVG_BYTES && fseek(fp, 0, SEEK_SET) == 0) {
        text = malloc((size_t)size + 1);
    }
    if (text != NULL) {
        *n = fread(text, 1, (size_t)size, fp);
        text[*n] = '\0';
    }
    return text;
}

/* The last line a failing script wrote. */
static void explain(nw_figures *g, const child_files *io, int code)
{
    size_t n = 0;
    char *text = read_back(io->fp[2], &n);

    while (n > 0 && text[n - 1] == '\n') {
        text[--n] = '\0';
    }
    (void)snprintf(g->why_none, sizeof g->why_none, "node ended with exit code %d: %.300s", code,
                   text != NULL ? text : "");
    free(text);
}

static void accept_svgs(nw_figures *g, const child_files *io)
{
    nw_error err = {.code = NW_OK};
    size_t n = 0;
    char *text = read_back(io->fp[1], &n);
    json_t *svgs = NULL;

    if (text == NULL || nw_json_parse("svg", text, n, &svgs, &err) != NW_OK ||
        !json_is_object(svgs)) {
        (void)snprintf(g->why_none, sizeof g->why_none, "node wrote no figures: %.300s",
                       err.message);
        json_decref(svgs);
    } else {
        g->svgs = svgs;
    }
    free(text);
}

static void render(nw_figures *g, const char *script, const child_files *io)
{
    int code = 0;

    if (json_dumpf(g->specs, io->fp[0], JSON_COMPACT) != 0 || fflush(io->fp[0]) != 0 ||
        lseek(fileno(io->fp[0]), 0, SEEK_SET) != 0) {
        (void)snprintf(g->why_none, sizeof g->why_none, "no room for a temporary file");
        return;
    }
    const int failed = run_node(script, io, &code);
    if (failed != 0) {
        (void)snprintf(g->why_none, sizeof g->why_none, "node cannot be started: %s",
                       strerror(failed));
    } else if (code != 0) {
        explain(g, io, code);
    } else {
        accept_svgs(g, io);
    }
}

nw_status nw_figures_render(nw_figures *g, const char *script, nw_error *err)
{
    child_files io = {.fp = {NULL}};
    char *path = find_script(script);

    if (path == NULL) {
        (void)snprintf(g->why_none, sizeof g->why_none,
                       "the script %s is not beside the program (it is built where npm is there)",
                       SCRIPT_NAME);
        return NW_OK;
    }
    if (!open_files(&io)) {
        close_files(&io);
        free(path);
        return nw_fail(err, NW_E_IO, "figures: no temporary file: %s", strerror(errno));
    }
    render(g, path, &io);
    close_files(&io);
    free(path);
    return NW_OK;
}
