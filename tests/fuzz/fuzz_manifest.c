/* The manifest reader: whatever the bytes, an error that says something, or a manifest whose tensors
 * have names and the sizes that their shapes ask for, sealed by its own hash.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "artifact/manifest.h"
#include "fuzz/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_manifest m = {0};
    nw_error err = {0};

    if (nw_manifest_parse("f", size == 0 ? "" : (const char *)data, size, &m, &err) != NW_OK) {
        NW_CHECK(err.code != NW_OK && err.message[0] != '\0');
        NW_CHECK(m.tensors == NULL && m.n_tensors == 0);
        return 0;
    }
    for (size_t i = 0; i < m.n_tensors; i++) {
        const nw_manifest_tensor *t = &m.tensors[i];
        size_t want = 0;
        NW_CHECK(t->name != NULL && t->n_rows > 0 && t->n_cols > 0);
        NW_CHECK(t->is_vector || nw_panel_tensor_bytes(t->type, t->n_rows, t->n_cols, &want));
        NW_CHECK(t->is_vector ? t->n_bytes == (uint64_t)t->n_rows * t->n_cols * 4
                              : t->n_bytes == want);
    }
    const nw_digest read = m.hash;
    NW_CHECK(nw_manifest_seal(&m, &err) == NW_OK);
    NW_CHECK(strcmp(read.hex, m.hash.hex) == 0);
    nw_manifest_release(&m);
    return 0;
}
