/* Whatever the bytes of a tokenizer.json, the reader says what is wrong, or gives a tokenizer that encodes a text
 * to ids in range and decodes them to valid UTF-8.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz/check.h"
#include "model/tokenizer_internal.h"

static void use(const nw_tokenizer *t)
{
    static const char text[] = "Hello  w\xC3\xB6rld\n\n 12 <s>\xE2\x96\x81\xFF it's";
    nw_error err = {0};
    nw_ids ids = {0};
    nw_buf out;

    if (nw_tokenizer_encode(t, text, sizeof text - 1, NW_TOK_BOS | NW_TOK_SPECIAL, &ids, &err) ==
        NW_OK) {
        nw_buf_init(&out, 1 << 24);
        for (size_t i = 0; i < ids.n; i++) {
            NW_CHECK(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < nw_tokenizer_size(t));
        }
        if (nw_tokenizer_decode(t, ids.ids, ids.n, 0, &out, &err) == NW_OK && out.len > 0) {
            NW_CHECK(nw_utf8_valid(out.data, out.len));
        }
        nw_buf_release(&out);
    } else {
        NW_CHECK(err.message[0] != '\0' && ids.n == 0);
    }
    nw_ids_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_error err = {0};
    nw_tokenizer *t = nw_tokenizer_new("f", &err);

    NW_CHECK(t != NULL);
    if (nw_tokenizer_read_json(t, "f", size == 0 ? "" : (const char *)data, size, &err) == NW_OK) {
        use(t);
    } else {
        NW_CHECK(err.code != NW_OK && err.message[0] != '\0');
    }
    nw_tokenizer_close(t);
    return 0;
}
