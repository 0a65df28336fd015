/* From a URL to the process behind it. SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/listener.h"
#include "table.h"

static struct row {
    const char *name, *url;
    uint16_t port;
} rows[] = {
    {"port", "http://127.0.0.1:8080/v1", 8080},
    {"no_port", "http://localhost/v1", 80},
    {"https", "https://host", 443},
    {"ipv6", "http://[::1]:18081", 18081},
    {"ipv6_no_port", "http://[::1]/v1", 80},
    {"replicas", "http://a:1,http://b:2", 1},
    {"too_large", "http://a:70000", 0},
    {"no_url", "folder/model", 0},
};

static void port_of_a_url(void **state)
{
    const struct row *r = *state;
    assert_int_equal(nw_url_port(r->url), r->port);
}

static struct loopback_row {
    const char *name, *url;
    bool is;
} loopback_rows[] = {
    {"address", "http://127.0.0.1:8080/v1", true},
    {"name_alone", "http://localhost", true},
    {"ipv6", "http://[::1]/v1", true},
    {"longer_address", "http://127.0.0.10:80", false},
    {"longer_name", "http://localhost.example.org:80", false},
    {"user_name", "http://localhost:80@example.org/", false},
    {"two_servers", "http://127.0.0.1:80,http://127.0.0.1:81", false},
    {"other", "http://example.org", false},
};

static void loopback_by_the_whole_host(void **state)
{
    const struct loopback_row *r = *state;
    assert_int_equal(nw_url_is_loopback(r->url), r->is);
}

static void this_process_listens(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_true(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 1) == 0 &&
                getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    const uint16_t port = ntohs(a.sin_port);
    if (access("/proc/thread-self/children", R_OK) == 0) {
        assert_int_equal(nw_listener_pid(port), getpid());
        int hold[2]; /* a child: its memory would be missed */
        assert_int_equal(pipe(hold), 0);
        const pid_t child = fork();
        if (child == 0) {
            char c;
            (void)close(hold[1]);
            _exit(read(hold[0], &c, 1) == 0 ? 0 : 1);
        }
        assert_int_equal(nw_listener_pid(port), 0);
        (void)close(hold[0]);
        (void)close(hold[1]);
        (void)waitpid(child, NULL, 0);
    }
    (void)close(fd);
    assert_int_equal(nw_listener_pid(port), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(this_process_listens)};
    return NW_RUN_TABLE("port_of_a_url", rows, port_of_a_url) +
           NW_RUN_TABLE("loopback", loopback_rows, loopback_by_the_whole_host) +
           cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
