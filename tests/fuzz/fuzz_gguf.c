/* Whatever the bytes: an error that says something, or tables in which every key, string and tensor
 * lies inside the file, names are found again, and a config, when there is one, passes its check.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz/check.h"
#include "model/gguf.h"
#include "model/sources.h"

static void inside(const uint8_t *data, size_t size, const uint8_t *p, size_t n)
{
    NW_CHECK(n == 0 || (p >= data && n <= size && (size_t)(p - data) <= size - n));
}

static void check_tables(const nw_gguf *g, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < nw_gguf_n_kv(g); i++) {
        const nw_gguf_kv *kv = nw_gguf_kv_at(g, i);
        size_t cursor = 0;
        size_t len = 0;
        uint64_t n = 0;
        const char *s = NULL;
        inside(data, size, kv->data, kv->n_bytes);
        NW_CHECK(nw_gguf_find(g, kv->key) == kv);
        while (nw_gguf_next_str(kv, &cursor, &s, &len)) {
            inside(data, size, (const uint8_t *)s, len);
            n++;
        }
        NW_CHECK(n == (kv->type == NW_GGUF_ARR && kv->elem_type == NW_GGUF_STR ? kv->n : 0));
    }
    for (size_t i = 0; i < nw_gguf_n_tensors(g); i++) {
        const nw_gguf_tensor *t = nw_gguf_tensor_at(g, i);
        size_t want = 0;
        inside(data, size, t->data, t->n_bytes);
        NW_CHECK(nw_gguf_tensor_find(g, t->name) == t);
        NW_CHECK(nw_format_bytes(nw_format_get(t->format), t->n_elems, &want));
        NW_CHECK(want == t->n_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_gguf *g = NULL;
    nw_error err = {0};
    nw_model_config c;

    if (nw_gguf_read("fuzz", data, size, &g, &err) != NW_OK) {
        NW_CHECK(g == NULL && err.code != NW_OK && err.message[0] != '\0');
        return 0;
    }
    check_tables(g, data, size);
    if (nw_config_from_gguf(g, &c, &err) == NW_OK) {
        NW_CHECK(nw_config_check(&c, "fuzz", &err) == NW_OK);
    } else {
        NW_CHECK(err.message[0] != '\0');
    }
    nw_gguf_close(g);
    return 0;
}
