/* See panel_block.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/panel_block.h"

#include <stdlib.h>

#include "formats/panel_rows.h"

nw_status nw_panel_block_open(nw_panel_block *b, size_t n_threads, size_t want, nw_error *err)
{
    const uint32_t n_all = nw_panel_count(b->n_rows);

    b->n_panels = want < n_all ? (uint32_t)want : n_all;
    b->scratch_bytes = (b->scratch_bytes + 63) / 64 * 64;
    b->out = calloc(b->n_panels, b->panel_bytes);
    b->errors = calloc(b->n_panels, sizeof *b->errors);
    b->rows = calloc(n_threads * 2 * NW_PANEL_ROWS, b->n_cols * sizeof *b->rows);
    b->scratch = calloc(n_threads, b->scratch_bytes + 1);
    if (b->out == NULL || b->errors == NULL || b->rows == NULL || b->scratch == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for a block of %u panels", b->name,
                       (unsigned)b->n_panels);
    }
    return NW_OK;
}

void nw_panel_block_close(nw_panel_block *b)
{
    free(b->out);
    free(b->errors);
    free(b->rows);
    free(b->scratch);
}

nw_panel_place nw_panel_block_place(const nw_panel_block *b, size_t item, unsigned worker)
{
    const uint32_t row0 = (b->panel0 + (uint32_t)item) * NW_PANEL_ROWS;
    const uint32_t left = b->n_rows - row0;

    return (nw_panel_place){.row0 = row0,
                            .n_rows = left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS,
                            .rows = b->rows + (size_t)worker * 2 * NW_PANEL_ROWS * b->n_cols,
                            .panel = b->out + item * b->panel_bytes,
                            .scratch = b->scratch + worker * b->scratch_bytes};
}

void nw_panel_block_measure(nw_panel_block *b, size_t item, const nw_panel_place *p,
                            const uint8_t *panel)
{
    const nw_panel_rows packed = {.type = b->type,
                                  .panel = panel,
                                  .n_rows = p->n_rows,
                                  .n_cols = b->n_cols,
                                  .out = p->rows + (size_t)NW_PANEL_ROWS * b->n_cols,
                                  .ld = b->n_cols};
    const nw_row_error error = nw_panel_error(&packed, p->rows);

    b->errors[item] = (nw_tensor_error){0};
    nw_tensor_error_add_rows(&b->errors[item], &error, (uint64_t)p->n_rows * b->n_cols);
}

void nw_panel_block_fail(nw_panel_block *b, const nw_error *err)
{
    int none = NW_OK;

    if (atomic_compare_exchange_strong(&b->status, &none, (int)err->code)) {
        b->error = *err;
    }
}

nw_status nw_panel_block_check(const nw_panel_block *b, nw_error *err)
{
    if (atomic_load(&b->status) != NW_OK) {
        *err = b->error;
        return err->code;
    }
    return NW_OK;
}
