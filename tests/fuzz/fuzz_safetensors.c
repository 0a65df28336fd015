/* Whatever the bytes: an error that says something, or tensors that lie inside the file, do not
 * overlap, cover all data after the header, and are found by their names.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/check.h"
#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_safetensors *s = NULL;
    nw_error err = {0};
    size_t covered = 8;

    if (nw_st_read("fuzz", data, size, &s, &err) != NW_OK) {
        NW_CHECK(s == NULL && err.code != NW_OK && err.message[0] != '\0');
        return 0;
    }
    for (int i = 7; i >= 0; i--) { /* the length of the header, which the reader accepted */
        covered += (size_t)data[i] << (8 * i);
    }
    for (size_t i = 0; i < nw_st_n_tensors(s); i++) {
        const nw_st_tensor *t = nw_st_at(s, i);
        size_t want = 0;
        NW_CHECK(nw_st_find(s, t->name) == t);
        NW_CHECK(t->n_bytes == 0 || (t->data >= data && t->data + t->n_bytes <= data + size));
        NW_CHECK(nw_format_bytes(nw_format_get(t->format), t->n_elems, &want));
        NW_CHECK(want == t->n_bytes);
        covered += t->n_bytes;
    }
    NW_CHECK(covered == size);
    nw_st_close(s);
    return 0;
}
