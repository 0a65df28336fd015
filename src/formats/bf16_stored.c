/* Packed BF16 tensors in a file: see bf16_stored.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/bf16_stored.h"

#include <stdlib.h>
#include <string.h>

#include "formats/block_parts.h"

#define PANEL_SIZES 16u /* bytes of a packed panel before its streams */

bool nw_bf16_stored_prefix(uint32_t n_rows, size_t *out)
{
    return nw_size_mul(nw_panel_count(n_rows), sizeof(uint32_t), out) &&
           nw_size_add(*out, sizeof(nw_bf16_packed_head), out);
}

bool nw_bf16_stored_bytes(const uint32_t *sizes, uint32_t n_rows, uint64_t *out)
{
    size_t sum = 0;

    if (!nw_bf16_stored_prefix(n_rows, &sum)) {
        return false;
    }
    for (uint32_t i = 0; i < nw_panel_count(n_rows); i++) {
        if (!nw_size_add(sum, sizes[i], &sum)) {
            return false;
        }
    }
    *out = (sum + 63) / 64 * 64;
    return true;
}

bool nw_bf16_stored_least(uint32_t n_rows, uint32_t n_cols, uint64_t *out)
{
    /* a byte of sign and mantissa for each of 16 rows and each column of a quad */
    const uint64_t panel = PANEL_SIZES + ((uint64_t)n_cols + 3) / 4 * 64;
    size_t prefix = 0;
    size_t panels = 0;
    size_t sum = 0;

    if (!nw_bf16_stored_prefix(n_rows, &prefix) ||
        !nw_size_mul(nw_panel_count(n_rows), (size_t)panel, &panels) ||
        !nw_size_add(prefix, panels, &sum)) {
        return false;
    }
    *out = sum;
    return true;
}

bool nw_bf16_stored_open(nw_bf16_stored *s, const uint8_t *bytes, size_t n, uint32_t n_rows,
                         uint32_t n_cols)
{
    nw_bf16_packed_head head;
    uint64_t least = 0;
    uint64_t at = 0;

    *s = (nw_bf16_stored){.bytes = bytes, .n_panels = nw_panel_count(n_rows), .n_cols = n_cols};
    if (!nw_bf16_stored_least(n_rows, n_cols, &least) || least > n) {
        return false;
    }
    memcpy(&head, bytes, sizeof head);
    if (!nw_bf16_unpacker_init(&s->unpacker, &head)) {
        return false;
    }
    s->type = nw_bf16_unpacked_type(&s->unpacker);
    if (s->type.kind == NW_PANEL_BF16_12 && s->type.escapes > nw_bf16_12_most(n_cols)) {
        return false; /* room for escapes is not bounded by the file, but by the columns */
    }
    s->at = calloc((size_t)s->n_panels + 1, sizeof *s->at);
    if (s->at == NULL) {
        return false;
    }
    at = sizeof head + (uint64_t)s->n_panels * sizeof(uint32_t);
    for (uint32_t i = 0; i < s->n_panels; i++) {
        s->at[i] = at;
        at += nw_le32(bytes + sizeof head + (size_t)i * sizeof(uint32_t));
    }
    s->at[s->n_panels] = at;
    if (at > n || n - at >= 64) {
        nw_bf16_stored_close(s);
        return false;
    }
    return true;
}

void nw_bf16_stored_close(nw_bf16_stored *s)
{
    free(s->at);
    s->at = NULL;
}

bool nw_bf16_stored_panel(const nw_bf16_stored *s, uint32_t i, uint8_t *panel, void *scratch)
{
    return nw_bf16_unpack(&s->unpacker, s->bytes + s->at[i], (size_t)(s->at[i + 1] - s->at[i]),
                          s->n_cols, panel, scratch);
}
