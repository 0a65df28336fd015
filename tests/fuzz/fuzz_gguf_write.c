/* Whatever the reader of GGUF takes, the writer writes: a file with the same keys and the same tensors, byte
 * for byte, which the reader takes again. Files with more dims than the writer has are left out.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "fuzz/check.h"
#include "model/gguf_writer.h"

/* A key that the writer decides itself. */
static bool is_alignment(const nw_gguf_kv *kv)
{
    return strcmp(kv->key, "general.alignment") == 0;
}

static nw_gguf_decl *declare(const nw_gguf *g)
{
    const size_t n = nw_gguf_n_tensors(g);
    nw_gguf_decl *decls = calloc(n + 1, sizeof *decls);
    bool fits = decls != NULL;

    for (size_t i = 0; fits && i < n; i++) {
        const nw_gguf_tensor *t = nw_gguf_tensor_at(g, i);
        fits = t->n_dims >= 1 && t->n_dims <= 2 && t->n_bytes > 0 && t->name[0] != '\0';
        decls[i] = (nw_gguf_decl){
            .name = t->name, .format = t->format, .n_dims = t->n_dims, .ne = {t->ne[0], t->ne[1]}};
    }
    if (!fits) {
        free(decls);
        return NULL;
    }
    return decls;
}

static void write_all(const nw_gguf *g, const nw_gguf_decl *decls, const char *path)
{
    nw_gguf_writer *w = NULL;
    nw_error err = {0};

    NW_CHECK(nw_gguf_writer_open(path, &w, &err) == NW_OK);
    for (size_t i = 0; i < nw_gguf_n_kv(g); i++) {
        if (!is_alignment(nw_gguf_kv_at(g, i))) {
            nw_gguf_put_copy(w, nw_gguf_kv_at(g, i));
        }
    }
    NW_CHECK(nw_gguf_writer_declare(w, decls, nw_gguf_n_tensors(g), &err) == NW_OK);
    for (size_t i = 0; i < nw_gguf_n_tensors(g); i++) {
        const nw_gguf_tensor *t = nw_gguf_tensor_at(g, i);
        NW_CHECK(nw_gguf_writer_write(w, t->data, t->n_bytes, &err) == NW_OK);
    }
    NW_CHECK(nw_gguf_writer_commit(w, &err) == NW_OK);
    nw_gguf_writer_close(w);
}

static void compare(const nw_gguf *a, const nw_gguf *b)
{
    NW_CHECK(nw_gguf_n_tensors(a) == nw_gguf_n_tensors(b));
    for (size_t i = 0; i < nw_gguf_n_tensors(a); i++) {
        const nw_gguf_tensor *t = nw_gguf_tensor_at(a, i);
        const nw_gguf_tensor *u = nw_gguf_tensor_at(b, i);
        NW_CHECK(strcmp(t->name, u->name) == 0 && t->format == u->format);
        NW_CHECK(t->n_bytes == u->n_bytes && memcmp(t->data, u->data, t->n_bytes) == 0);
    }
    for (size_t i = 0; i < nw_gguf_n_kv(a); i++) {
        const nw_gguf_kv *x = nw_gguf_kv_at(a, i);
        const nw_gguf_kv *y = nw_gguf_find(b, x->key);
        if (is_alignment(x)) {
            continue;
        }
        NW_CHECK(y != NULL && x->type == y->type && x->elem_type == y->elem_type && x->n == y->n);
        NW_CHECK(x->n_bytes == y->n_bytes &&
                 (x->n_bytes == 0 || memcmp(x->data, y->data, x->n_bytes) == 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_gguf *g = NULL;
    nw_gguf *again = NULL;
    nw_error err = {0};
    char dir[] = "/tmp/fuzz-gguf-XXXXXX";

    if (nw_gguf_read("fuzz", data, size, &g, &err) != NW_OK) {
        return 0;
    }
    nw_gguf_decl *decls = declare(g);
    if (decls != NULL) {
        NW_CHECK(mkdtemp(dir) != NULL);
        char *path = nw_path_join(dir, "x.gguf");
        NW_CHECK(path != NULL);
        write_all(g, decls, path);
        NW_CHECK(nw_gguf_open(path, &again, &err) == NW_OK);
        compare(g, again);
        nw_gguf_close(again);
        NW_CHECK(unlink(path) == 0 && rmdir(dir) == 0);
        free(path);
    }
    free(decls);
    nw_gguf_close(g);
    return 0;
}
