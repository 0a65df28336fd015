/* Inside of the GGUF export: the plan of its tensors (gguf_plan.c), made before anything is written, and
 * its rows (gguf_write.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_GGUF_WRITE_PARTS_H
#define NW_ARTIFACT_GGUF_WRITE_PARTS_H

#include "artifact/gguf_write.h"
#include "model/gguf_writer.h"

/* One tensor of the file. */
typedef struct {
    const nw_export_tensor *tensor; /* NULL: bytes as they are */
    const nw_gguf_tensor *extra;    /* of a GGUF source: copied as it is; NULL: not one */
    char name[64];                  /* GGUF's */
    nw_format_id format;
    bool raw;             /* rows are the source's own bytes */
    bool unpack;          /* rows are a panel's codes as blocks */
    float scale;          /* values of the file times this are the model's: NVFP4 */
    uint32_t pair_half;   /* > 0: rows as interleaved pairs of heads of twice as many */
    float offset;         /* added to the values: 1 for gemma's norms */
    const char *fallback; /* why the type is not the one of the codes; NULL: it is */
    /* what is written in place of a tensor of the model: n values */
    float *values; /* owned */
    uint32_t n_values;
} nw_gguf_item;

typedef struct {
    nw_gguf_item *items;
    size_t n;
} nw_gguf_plan;

NW_MUST_USE nw_status nw_gguf_plan_make(const nw_export_job *job, nw_gguf_plan *plan,
                                        nw_error *err);
void nw_gguf_plan_release(nw_gguf_plan *plan);
/* The llama_ftype of a file of these types; informational. */
uint32_t nw_gguf_plan_file_type(const nw_gguf_plan *plan);

/* Row of Hugging Face's order that stands as row `row` of the file. */
uint32_t nw_gguf_item_row(const nw_gguf_item *item, uint32_t row);

#endif
