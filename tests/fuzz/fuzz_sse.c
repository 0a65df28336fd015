/* However a stream is cut, its events are the same: read whole, and byte by byte.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz/check.h"
#include "target/sse.h"

static void collect(void *ctx, const char *data, size_t n)
{
    nw_buf *all = ctx;

    NW_CHECK(data[n] == '\0');
    (void)(nw_buf_add(all, data, n) && nw_buf_add(all, "\x1f", 1));
}

static nw_status read_in_steps(const uint8_t *data, size_t size, size_t step, nw_buf *all)
{
    nw_sse s;
    nw_error err = {0};
    nw_status st = NW_OK;

    nw_sse_init(&s, 4096);
    for (size_t i = 0; st == NW_OK && i < size; i += step) {
        const size_t n = size - i < step ? size - i : step;
        st = nw_sse_push(&s, (const char *)data + i, n, collect, all, &err);
    }
    NW_CHECK(st == NW_OK || err.message[0] != '\0');
    nw_sse_release(&s);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_buf whole;
    nw_buf cut;

    nw_buf_init(&whole, (size_t)1 << 24);
    nw_buf_init(&cut, (size_t)1 << 24);
    const nw_status a = read_in_steps(data, size, size + 1, &whole);
    const nw_status b = read_in_steps(data, size, 1, &cut);
    NW_CHECK(a == b);
    NW_CHECK(whole.len == cut.len && (cut.len == 0 || memcmp(whole.data, cut.data, cut.len) == 0));
    nw_buf_release(&whole);
    nw_buf_release(&cut);
    return 0;
}
