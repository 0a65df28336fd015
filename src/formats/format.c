/* The rows of the registry (NW_FORMAT_MAP) as objects, and the look-ups over them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/format.h"

#include <assert.h>
#include <string.h>

#include "formats/block.h"
#include "formats/encode.h"

static const nw_format formats[] = {
#define FORMAT_ROW(id, name, elems, bytes, ggml, st, decode, encode) \
    {NW_FMT_##id, name, elems, bytes, ggml, st, decode, encode},
    NW_FORMAT_MAP(FORMAT_ROW)
#undef FORMAT_ROW
};

const nw_format *nw_format_get(nw_format_id id)
{
    assert((size_t)id < NW_COUNT(formats));
    return &formats[id];
}

const nw_format *nw_format_by_name(const char *name)
{
    for (size_t i = 0; i < NW_COUNT(formats); i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

const nw_format *nw_format_by_ggml(int32_t ggml_type)
{
    for (size_t i = 0; i < NW_COUNT(formats); i++) {
        if (ggml_type >= 0 && formats[i].ggml_type == ggml_type) {
            return &formats[i];
        }
    }
    return NULL;
}

const nw_format *nw_format_by_st_dtype(const char *dtype)
{
    for (size_t i = 0; i < NW_COUNT(formats); i++) {
        if (formats[i].st_dtype != NULL && strcmp(formats[i].st_dtype, dtype) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

bool nw_format_bytes(const nw_format *f, uint64_t n_elems, size_t *out)
{
    return n_elems % f->block_elems == 0 &&
           nw_size_mul((size_t)(n_elems / f->block_elems), f->block_bytes, out);
}
