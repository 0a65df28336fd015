/* Which process of this machine listens on a port, so that the memory of a server that says nothing of
 * itself can be read like that of narrow's own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_LISTENER_H
#define NW_BENCH_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The port of a URL: the number after the host, 80 or 443 without one; 0: no URL. */
uint16_t nw_url_port(const char *url);
/* Whether it is one server, by HTTP, at a loopback address of this machine; false for a list. */
bool nw_url_is_loopback(const char *url);
/* 0 where there is none, where it is another user's, or where it has child processes, among which its
 * memory would be shared out. */
pid_t nw_listener_pid(uint16_t port);

#endif
