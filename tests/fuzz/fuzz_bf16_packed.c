/* Packed BF16 panels: whatever the bytes (a head, one byte for the columns, a panel), nothing is read or
 * written outside, and what unpacks gives the same bytes when it is packed again.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "formats/bf16_packed.h"
#include "formats/half.h"
#include "fuzz/check.h"

static void check_round_trip(const nw_bf16_unpacker *u, const nw_bf16_packed_head *head,
                             const uint8_t *panel, const uint8_t *in, size_t n, uint32_t n_cols)
{
    nw_bf16_packer *p = malloc(sizeof *p);
    uint16_t *w = malloc((size_t)16 * n_cols * sizeof *w);
    float *row = malloc(n_cols * sizeof *row);
    uint8_t *scratch = malloc(nw_bf16_packed_scratch(n_cols));
    uint8_t *out = NULL;
    size_t bound = 0;

    NW_CHECK(nw_bf16_packed_bound(n_cols, &bound));
    out = malloc(bound);
    NW_CHECK(p != NULL && w != NULL && row != NULL && scratch != NULL && out != NULL);
    for (uint32_t r = 0; r < 16; r++) {
        nw_panel_unpack_row(nw_bf16_unpacked_type(u), panel, n_cols, r, row);
        for (uint32_t c = 0; c < n_cols; c++) {
            w[r * n_cols + c] = (uint16_t)(nw_f32_bits(row[c]) >> 16);
        }
    }
    nw_bf16_packer_init(p, head);
    NW_CHECK(nw_bf16_pack(p, w, n_cols, 16, n_cols, out, scratch) == n);
    NW_CHECK(memcmp(out, in, n) == 0);
    free(p);
    free(w);
    free(row);
    free(scratch);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_bf16_packed_head head;
    nw_bf16_unpacker *u = malloc(sizeof *u);

    NW_CHECK(u != NULL);
    if (size > sizeof head) {
        memcpy(&head, data, sizeof head);
        const uint32_t n_cols = 4 * (1U + data[sizeof head] % 32U); /* whole quads: no padding */
        const uint8_t *in = data + sizeof head + 1;
        const size_t n = size - sizeof head - 1;
        size_t bytes = 0;
        if (nw_bf16_unpacker_init(u, &head) &&
            nw_panel_bytes(nw_bf16_unpacked_type(u), n_cols, &bytes)) {
            uint8_t *panel = aligned_alloc(64, bytes);
            uint8_t *scratch = malloc(nw_bf16_packed_scratch(n_cols));
            NW_CHECK(panel != NULL && scratch != NULL);
            if (nw_bf16_unpack(u, in, n, n_cols, panel, scratch)) {
                check_round_trip(u, &head, panel, in, n, n_cols);
            }
            free(panel);
            free(scratch);
        }
    }
    free(u);
    return 0;
}
