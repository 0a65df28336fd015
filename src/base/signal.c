/* A flag that signal handlers set and long loops read: see signal.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/signal.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_bool stop;
static atomic_bool interrupted;

/* The second ^C gets the default action, so that a stuck process can always be ended. A SIGTERM beside a
 * ^C does not count: a parent that got the same ^C sends one to its children, and of two that wait the
 * handler of the SIGTERM runs first. */
static void on_signal(int sig)
{
    atomic_store(&stop, true);
    if (sig == SIGINT && atomic_exchange(&interrupted, true)) {
        struct sigaction by_default = {.sa_handler = SIG_DFL};
        (void)sigaction(sig, &by_default, NULL);
        (void)raise(sig);
    }
}

void nw_stop_install(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool nw_stop_requested(void)
{
    return atomic_load_explicit(&stop, memory_order_relaxed);
}

void nw_stop_request(void)
{
    atomic_store(&stop, true);
}
