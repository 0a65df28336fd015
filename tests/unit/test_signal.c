/* A clean stop: signals that come together, in whatever order their handlers run, ask for one; a second ^C
 * ends the process.
 * SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* sigprocmask, fork; NOLINT(bugprone-reserved-identifier) */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/signal.h"
#include "table.h"

static void send_together(const int *signals, size_t n)
{
    sigset_t held;
    sigset_t before;

    (void)sigemptyset(&held);
    for (size_t i = 0; i < n; i++) {
        (void)sigaddset(&held, signals[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &held, &before);
    for (size_t i = 0; i < n; i++) {
        (void)raise(signals[i]);
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

/* How a process ends that gets these one after the other or, held back until all are there, together. */
static int end_of(const int *signals, size_t n, bool together)
{
    int how = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        nw_stop_install();
        for (size_t i = 0; i < (together ? 1 : n); i++) {
            send_together(signals + i, together ? n : 1);
        }
        _exit(nw_stop_requested() ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

/* What a stage of a study gets when ^C goes to the group: its own, and the study's SIGTERM. */
static void an_interrupt_beside_a_sigterm_is_one_stop(void **state)
{
    static const int both[] = {SIGINT, SIGTERM};
    static const int turned[] = {SIGTERM, SIGINT};

    (void)state;
    assert_int_equal(end_of(both, 2, true), 0);
    assert_int_equal(end_of(both, 2, false), 0);
    assert_int_equal(end_of(turned, 2, false), 0);
    assert_int_equal(end_of(both, 1, false), 0);
}

static void a_second_interrupt_ends_the_process(void **state)
{
    static const int twice[] = {SIGINT, SIGINT};

    (void)state;
    const int how = end_of(twice, 2, false);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGINT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupt_beside_a_sigterm_is_one_stop),
        cmocka_unit_test(a_second_interrupt_ends_the_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
