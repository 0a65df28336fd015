/* Whatever the bytes: an error that says something, or tensors that lie inside the file one after the
 * other and a config that passes its check.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/check.h"
#include "model/sources.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_llama2c m = {0};
    nw_error err = {0};
    const uint8_t *at = data;

    if (nw_llama2c_read("fuzz", data, size, &m, &err) != NW_OK) {
        NW_CHECK(m.tensors == NULL && err.code != NW_OK && err.message[0] != '\0');
        return 0;
    }
    NW_CHECK(nw_config_check(&m.config, "fuzz", &err) == NW_OK);
    for (size_t i = 0; i < m.n_tensors; i++) {
        const nw_llama2c_tensor *t = &m.tensors[i];
        NW_CHECK(t->n_bytes == (size_t)t->n_rows * t->n_cols * 4);
        NW_CHECK(t->data >= at && t->data + t->n_bytes <= data + size);
        at = t->data + t->n_bytes;
    }
    nw_llama2c_release(&m);
    return 0;
}
