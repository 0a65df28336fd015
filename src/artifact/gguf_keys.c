/* See gguf_keys.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/gguf_keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Keys that speak of a file's layout and types are the new file's own; those of types, and of how codes were
 * chosen, only where a type has changed. */
static bool is_own_key(const char *key, bool same_types)
{
    static const char *const own[] = {"general.file_type", "general.quantization_version"};
    bool found = strncmp(key, "split.", strlen("split.")) == 0 ||
                 strcmp(key, "general.alignment") == 0 ||
                 (!same_types && strncmp(key, "quantize.", strlen("quantize.")) == 0);

    for (size_t i = 0; !same_types && i < NW_COUNT(own); i++) {
        found = found || strcmp(key, own[i]) == 0;
    }
    return found;
}

void nw_gguf_keys_put(nw_gguf_writer *w, const nw_gguf *g, bool same_types)
{
    for (size_t i = 0; i < nw_gguf_n_kv(g); i++) {
        const nw_gguf_kv *kv = nw_gguf_kv_at(g, i);
        if (!is_own_key(kv->key, same_types)) {
            nw_gguf_put_copy(w, kv);
        }
    }
}

nw_status nw_gguf_keys_write(const nw_checkpoint *source, const char *dir, nw_error *err)
{
    const nw_gguf *g = nw_checkpoint_gguf(source);
    nw_gguf_writer *w = NULL;

    if (g == NULL) {
        return NW_OK;
    }
    char *path = nw_path_join(dir, NW_GGUF_KEYS_FILE);
    nw_status st = path != NULL ? nw_gguf_writer_open(path, &w, err)
                                : nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", dir);
    if (st == NW_OK) {
        nw_gguf_keys_put(w, g, true);
        st = nw_gguf_writer_declare(w, NULL, 0, err);
    }
    st = st == NW_OK ? nw_gguf_writer_commit(w, err) : st;
    nw_gguf_writer_close(w);
    free(path);
    return st;
}

nw_status nw_gguf_keys_open(const char *dir, nw_gguf **out, nw_error *err)
{
    char *path = nw_path_join(dir, NW_GGUF_KEYS_FILE);
    nw_status st = NW_OK;

    *out = NULL;
    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", dir);
    }
    if (nw_file_exists(path)) {
        st = nw_gguf_open(path, out, err);
    }
    free(path);
    return st;
}
