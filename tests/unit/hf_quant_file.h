/* A safetensors file written out by hand, with one module "m", and a quantization_config, for the tests of
 * quantized matrices.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_HF_QUANT_FILE_H
#define NW_TESTS_HF_QUANT_FILE_H

#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "model/hf_quant.h"
#include "table.h"

/* A safetensors file in the making: header entries, then data. */
typedef struct {
    nw_buf header, data;
} file;

static void add(file *f, const char *name, const char *dtype, const char *shape, const void *bytes,
                size_t n)
{
    const size_t begin = f->data.len;

    assert_true(nw_buf_add(&f->data, bytes, n));
    assert_true(nw_buf_printf(&f->header,
                              "%s\"m.%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":"
                              "[%zu,%zu]}",
                              f->header.len > 0 ? "," : "{", name, dtype, shape, begin,
                              f->data.len));
}

static nw_safetensors *finish(file *f, nw_buf *whole)
{
    nw_safetensors *s = NULL;
    nw_error err = {0};
    uint8_t len[8] = {0};

    assert_true(nw_buf_puts(&f->header, "}"));
    len[0] = (uint8_t)(f->header.len & 0xFF);
    len[1] = (uint8_t)(f->header.len >> 8);
    nw_buf_init(whole, 1 << 16);
    assert_true(nw_buf_add(whole, len, sizeof len));
    assert_true(nw_buf_add(whole, f->header.data, f->header.len));
    assert_true(nw_buf_add(whole, f->data.data, f->data.len));
    if (nw_st_read("m", (const uint8_t *)whole->data, whole->len, &s, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    nw_buf_release(&f->header);
    nw_buf_release(&f->data);
    return s;
}

static file start(void)
{
    file f;
    nw_buf_init(&f.header, 1 << 14);
    nw_buf_init(&f.data, 1 << 14);
    return f;
}

static nw_hfq_config config(const char *text)
{
    nw_hfq_config c = {0};
    nw_error err = {0};
    json_t *root = NULL;

    assert_int_equal(nw_json_parse("config.json", text, strlen(text), &root, &err), NW_OK);
    if (nw_hfq_config_parse("config.json", root, &c, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    json_decref(root);
    return c;
}

#endif
