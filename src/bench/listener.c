/* From a port to a process by way of the socket's inode. Source: proc(5), net/tcp and PID/fd.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/listener.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_LISTEN 0x0A

uint16_t nw_url_port(const char *url)
{
    const char *host = strstr(url, "://");

    if (host == NULL) {
        return 0;
    }
    host += 3;
    const char *end = host + strcspn(host, "/,");
    const char *bracket = memchr(host, ']', (size_t)(end - host)); /* [::1]:8000 */
    const char *colon = memchr(bracket != NULL ? bracket : host, ':',
                               (size_t)(end - (bracket != NULL ? bracket : host)));
    const unsigned long port = colon != NULL                   ? strtoul(colon + 1, NULL, 10)
                               : strncmp(url, "https", 5) == 0 ? 443
                                                               : 80;
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

bool nw_url_is_loopback(const char *url)
{
    static const char *const hosts[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};

    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        const size_t n = strlen(hosts[i]);
        if (strncmp(url, hosts[i], n) == 0) {
            const char *end = url + n;
            end += *end == ':' ? 1 + strspn(end + 1, "0123456789") : 0;
            return (*end == '\0' || *end == '/') && strchr(end, ',') == NULL;
        }
    }
    return false;
}

/* The inode of the socket that listens on the port, from a table such as /proc/net/tcp; 0: none. */
static uint64_t listening_inode(const char *table, uint16_t port)
{
    char line[512];
    uint64_t found = 0;
    FILE *f = fopen(table, "re");

    while (f != NULL && found == 0 && fgets(line, sizeof line, f) != NULL) {
        unsigned local = 0;
        unsigned state = 0;
        uint64_t inode = 0;
        /* sl local:port remote:port state queues timer retransmits uid timeout inode */
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %" SCNu64,
                   &local, &state, &inode) == 3 &&
            local == port && state == STATE_LISTEN) {
            found = inode;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}

static bool holds_socket(const char *pid, uint64_t inode)
{
    char path[300];
    char want[40];
    char link[64];
    bool found = false;

    (void)snprintf(want, sizeof want, "socket:[%" PRIu64 "]", inode);
    (void)snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *d = opendir(path);
    const struct dirent *e = NULL;
    while (d != NULL && !found && (e = readdir(d)) != NULL) {
        (void)snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", pid, e->d_name);
        const ssize_t n = readlink(path, link, sizeof link - 1);
        if (n > 0) {
            link[n] = '\0';
            found = strcmp(link, want) == 0;
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return found;
}

/* True where it has none, and the kernel says so. */
static bool is_alone(const char *pid)
{
    char path[128];
    char text[16] = "?";

    (void)snprintf(path, sizeof path, "/proc/%.20s/task/%.20s/children", pid, pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    const bool none = fgets(text, sizeof text, f) == NULL;
    (void)fclose(f);
    return none;
}

pid_t nw_listener_pid(uint16_t port)
{
    uint64_t inode = listening_inode("/proc/net/tcp", port);
    pid_t found = 0;

    inode = inode != 0 ? inode : listening_inode("/proc/net/tcp6", port);
    DIR *d = inode != 0 ? opendir("/proc") : NULL;
    const struct dirent *e = NULL;
    while (d != NULL && found == 0 && (e = readdir(d)) != NULL) {
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && holds_socket(e->d_name, inode)) {
            found = is_alone(e->d_name) ? (pid_t)strtol(e->d_name, NULL, 10) : 0;
            break;
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return found;
}
