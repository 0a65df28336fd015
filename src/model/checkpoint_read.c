/* Reading of values through the checkpoint view: rows in HF order, and the digest of the source.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "model/checkpoint.h"
#include "model/hf_quant.h"

/* Where row `row` of Hugging Face's order stands in the file. Within a head of 2h rows the file keeps
 * the pairs that RoPE rotates side by side (row 2j + s), Hugging Face keeps the first of all pairs,
 * then the second of all (row s * h + j). */
static size_t file_row(const nw_ckpt_tensor *t, uint32_t row)
{
    if (t->pair_half == 0) {
        return row;
    }
    const uint32_t d_head = 2 * t->pair_half;
    const uint32_t in_head = row % d_head;
    return row - in_head + 2 * (in_head % t->pair_half) + in_head / t->pair_half;
}

static const uint8_t *row_bytes(const nw_ckpt_tensor *t, uint32_t row)
{
    return t->data + file_row(t, row) * t->row_bytes;
}

const uint8_t *nw_checkpoint_row(const nw_ckpt_tensor *t, uint32_t row)
{
    assert(row < t->n_rows);
    return t->offset == 0 && t->quant == NULL ? row_bytes(t, row) : NULL;
}

static nw_status check_rows(const nw_checkpoint *c, const nw_ckpt_tensor *t, uint32_t row0,
                            uint32_t n_rows, nw_error *err)
{
    if (row0 > t->n_rows || n_rows > t->n_rows - row0) {
        return nw_fail(err, NW_E_RANGE,
                       "%s: tensor '%s': rows %" PRIu32 " to %" PRIu64 " of %" PRIu32,
                       nw_checkpoint_path(c), t->name, row0, (uint64_t)row0 + n_rows, t->n_rows);
    }
    return NW_OK;
}

static nw_status read_quant(const nw_checkpoint *c, const nw_ckpt_tensor *t, uint32_t row0,
                            uint32_t n_rows, float *dst, nw_error *err)
{
    uint8_t *codes = malloc(t->n_cols);

    if (codes == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: tensor '%s': no memory for the codes of a row",
                       nw_checkpoint_path(c), t->name);
    }
    for (uint32_t i = 0; i < n_rows; i++, dst += t->n_cols) {
        nw_hfq_row(t->quant, row0 + i, codes, dst);
    }
    free(codes);
    return NW_OK;
}

nw_status nw_checkpoint_read_f32(const nw_checkpoint *c, const nw_ckpt_tensor *t, uint32_t row0,
                                 uint32_t n_rows, float *dst, nw_error *err)
{
    const nw_ckpt_edit *edit = nw_checkpoint_edit(c);
    const nw_status st = nw_checkpoint_read_plain_f32(c, t, row0, n_rows, dst, err);

    return st == NW_OK && edit->fn != NULL ? edit->fn(edit->ctx, t, row0, n_rows, dst, err) : st;
}

nw_status nw_checkpoint_read_plain_f32(const nw_checkpoint *c, const nw_ckpt_tensor *t,
                                       uint32_t row0, uint32_t n_rows, float *dst, nw_error *err)
{
    const nw_format *f = nw_format_get(t->format);
    const nw_status st = check_rows(c, t, row0, n_rows, err);

    if (st != NW_OK) {
        return st;
    }
    if (t->quant != NULL) {
        return read_quant(c, t, row0, n_rows, dst, err);
    }
    if (f->decode == NULL) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: tensor '%s': format %s cannot be decoded",
                       nw_checkpoint_path(c), t->name, f->name);
    }
    for (uint32_t i = 0; i < n_rows; i++, dst += t->n_cols) {
        f->decode(row_bytes(t, row0 + i), dst, t->n_cols / f->block_elems);
        for (uint32_t k = 0; t->scale != 1 && k < t->n_cols; k++) {
            dst[k] *= t->scale;
        }
        for (uint32_t k = 0; t->offset != 0 && k < t->n_cols; k++) {
            dst[k] += t->offset;
        }
    }
    return NW_OK;
}

nw_status nw_checkpoint_read_raw(const nw_checkpoint *c, const nw_ckpt_tensor *t, uint32_t row0,
                                 uint32_t n_rows, uint8_t *dst, nw_error *err)
{
    const nw_status st = check_rows(c, t, row0, n_rows, err);

    if (st != NW_OK) {
        return st;
    }
    if (t->quant != NULL) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: tensor '%s': its rows lie in several tensors",
                       nw_checkpoint_path(c), t->name);
    }
    if (t->offset != 0) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: tensor '%s': the stored values differ from the model's by %g",
                       nw_checkpoint_path(c), t->name, (double)-t->offset);
    }
    if (t->scale != 1) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: tensor '%s': the model's values are %g times the stored ones",
                       nw_checkpoint_path(c), t->name, (double)t->scale);
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        memcpy(dst + (size_t)i * t->row_bytes, row_bytes(t, row0 + i), t->row_bytes);
    }
    return NW_OK;
}

void nw_checkpoint_ahead(const nw_ckpt_tensor *t, uint32_t row0, uint32_t n_rows)
{
    const uint32_t left = row0 < t->n_rows ? t->n_rows - row0 : 0;
    const size_t n = left < n_rows ? left : n_rows;

    if (t->quant == NULL && n > 0) {
        nw_file_ahead(t->data + row0 * t->row_bytes, n * t->row_bytes);
    }
}

static const char *file_name(const nw_checkpoint *c, uint32_t file)
{
    const char *path = nw_checkpoint_file(c, file);
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* One line of the list that stands for several files. */
static void add_line(nw_sha256 *h, const char *name, const nw_digest *d)
{
    nw_sha256_add(h, d->hex, strlen(d->hex));
    nw_sha256_add(h, "  ", 2);
    nw_sha256_add(h, name, strlen(name));
    nw_sha256_add(h, "\n", 1);
}

nw_status nw_checkpoint_digest_join(const nw_checkpoint *c, const nw_digest *files, nw_digest *out,
                                    nw_error *err)
{
    nw_sha256 h = {0};

    if (nw_checkpoint_n_files(c) == 1) {
        *out = files[0];
        return NW_OK;
    }
    const nw_status st = nw_sha256_init(&h, err);
    if (st != NW_OK) {
        return st;
    }
    for (uint32_t i = 0; i < nw_checkpoint_n_files(c); i++) {
        add_line(&h, file_name(c, i), &files[i]);
    }
    *out = nw_sha256_end(&h);
    return NW_OK;
}

nw_status nw_checkpoint_digest(const nw_checkpoint *c, nw_digest *out, nw_error *err)
{
    const uint32_t n = nw_checkpoint_n_files(c);
    nw_digest *files = calloc((size_t)n + 1, sizeof *files);
    nw_status st = files != NULL
                       ? NW_OK
                       : nw_fail(err, NW_E_NOMEM, "%s: no memory for the hashes of %u files",
                                 nw_checkpoint_path(c), (unsigned)n);

    for (uint32_t i = 0; st == NW_OK && i < n; i++) {
        st = nw_digest_file(nw_checkpoint_file(c, i), &files[i], err);
    }
    st = st == NW_OK ? nw_checkpoint_digest_join(c, files, out, err) : st;
    free(files);
    return st;
}

nw_status nw_checkpoint_stamp(const nw_checkpoint *c, nw_digest *out, nw_error *err)
{
    nw_sha256 h = {0};
    nw_status st = nw_sha256_init(&h, err);

    for (uint32_t i = 0; i < nw_checkpoint_n_files(c) && st == NW_OK; i++) {
        nw_file_stamp stamp = {0};
        char text[64];
        st = nw_file_stamp_of(nw_checkpoint_file(c, i), &stamp, err);
        const int n = snprintf(text, sizeof text, " %" PRIu64 " %" PRId64 "\n", stamp.size,
                               stamp.modified_ns);
        nw_sha256_add(&h, file_name(c, i), strlen(file_name(c, i)));
        nw_sha256_add(&h, text, (size_t)n);
    }
    if (st == NW_OK) {
        *out = nw_sha256_end(&h);
    }
    nw_sha256_release(&h);
    return st;
}
