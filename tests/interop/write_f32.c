/* Writes all tensors of a checkpoint, in HF names and order, as one float32 safetensors file: what
 * check_values.py compares with the values other programs read. usage: write_f32 MODEL OUT
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "model/checkpoint.h"
#include "model/safetensors.h"

static nw_status write_tensor(const nw_checkpoint *c, const nw_ckpt_tensor *t, nw_st_writer *w,
                              nw_error *err)
{
    float *row = malloc((size_t)t->n_cols * sizeof *row);
    nw_status st = row != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for a row");

    for (uint32_t i = 0; i < t->n_rows && st == NW_OK; i++) {
        st = nw_checkpoint_read_f32(c, t, i, 1, row, err);
        if (st == NW_OK) {
            st = nw_st_writer_write(w, t->name, row, (size_t)t->n_cols * sizeof *row, err);
        }
    }
    free(row);
    return st;
}

static nw_status write_all(const nw_checkpoint *c, const char *path, nw_error *err)
{
    const size_t n = nw_checkpoint_n_tensors(c);
    nw_st_decl *decl = calloc(n, sizeof *decl);
    nw_st_writer *w = NULL;
    nw_status st = decl != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for a list");

    for (size_t i = 0; i < n && st == NW_OK; i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        decl[i] = (nw_st_decl){t->name, NW_FMT_F32, 1, {t->n_cols}};
        if (!nw_role_is_vector(t->role)) {
            decl[i] = (nw_st_decl){t->name, NW_FMT_F32, 2, {t->n_rows, t->n_cols}};
        }
    }
    if (st == NW_OK) {
        st = nw_st_writer_open(path, decl, n, NULL, 4096, &w, err);
    }
    for (size_t i = 0; i < n && st == NW_OK; i++) {
        st = write_tensor(c, nw_checkpoint_at(c, i), w, err);
    }
    if (st == NW_OK) {
        st = nw_st_writer_commit(w, err);
    }
    nw_st_writer_close(w);
    free(decl);
    return st;
}

int main(int argc, char **argv)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};

    if (argc != 3) {
        return 2;
    }
    nw_status st = nw_checkpoint_open(argv[1], &c, &err);
    if (st == NW_OK) {
        st = write_all(c, argv[2], &err);
    }
    nw_checkpoint_close(c);
    if (st != NW_OK) {
        (void)fprintf(stderr, "write_f32: %s\n", err.message);
    }
    return nw_status_exit_code(st);
}
