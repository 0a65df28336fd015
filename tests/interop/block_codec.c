/* Blocks through the registry, for check_blocks.py: standard input to standard output.
 * usage: block_codec decode|panel|encode FORMAT
 *   decode: blocks to float32 values, panel: the same by way of a panel (rows of 256 values),
 *   encode: float32 values to blocks
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/repack.h"

#define ROW 256 /* values: a whole number of blocks of every format */

/* One row of blocks as a panel of one row, decoded; false where the panel cannot hold it. */
static bool through_panel(const nw_format *f, const uint8_t *row, float *values)
{
    nw_panel_type type = {0};
    uint32_t bad = 0;
    size_t n = 0;

    if (!nw_repack_type(f->id, &type) || !nw_panel_bytes(type, ROW, &n)) {
        return false;
    }
    uint8_t *panel = aligned_alloc(64, n);
    void *scratch = malloc(nw_repack_scratch_bytes(f->id, ROW));
    const bool ok = panel != NULL && scratch != NULL &&
                    nw_repack_panel(f->id, &row, 1, ROW, panel, scratch, &bad);
    if (ok) {
        nw_panel_unpack_row(type, panel, ROW, 0, values);
    }
    free(panel);
    free(scratch);
    return ok;
}

/* One row; false where it cannot be done. */
static bool convert(const nw_format *f, const char *what, uint8_t *blocks, float *values)
{
    const size_t n_blocks = ROW / f->block_elems;

    if (strcmp(what, "panel") == 0) {
        return through_panel(f, blocks, values);
    }
    if (strcmp(what, "encode") == 0 && f->encode != NULL) {
        f->encode(values, blocks, n_blocks);
        return true;
    }
    if (strcmp(what, "decode") == 0 && f->decode != NULL) {
        f->decode(blocks, values, n_blocks);
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    const nw_format *f = argc == 3 ? nw_format_by_name(argv[2]) : NULL;
    uint8_t blocks[ROW * 4];
    float values[ROW];

    if (f == NULL) {
        (void)fprintf(stderr, "usage: block_codec decode|panel|encode FORMAT\n");
        return 2;
    }
    const bool encode = strcmp(argv[1], "encode") == 0;
    const size_t n_bytes = (size_t)ROW / f->block_elems * f->block_bytes;
    void *in = encode ? (void *)values : (void *)blocks;
    void *out = encode ? (void *)blocks : (void *)values;
    while (fread(in, encode ? sizeof values : n_bytes, 1, stdin) == 1) {
        if (!convert(f, argv[1], blocks, values)) {
            (void)fprintf(stderr, "block_codec: %s cannot be done with %s\n", argv[1], argv[2]);
            return 1;
        }
        if (fwrite(out, encode ? n_bytes : sizeof values, 1, stdout) != 1) {
            return 4;
        }
    }
    return 0;
}
