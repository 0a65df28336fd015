/* Lists of parts, the rules of fused matrices, and the folder: see export_parts.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/export_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/block_parts.h"
#include "formats/fp8.h"

size_t nw_export_module(const nw_export_tensor *t)
{
    const size_t n = strlen(t->name);
    const size_t k = strlen(".weight");

    return n > k && strcmp(t->name + n - k, ".weight") == 0 ? n - k : n;
}

nw_export_part *nw_export_part_add(nw_export_parts *l, const nw_export_tensor *tensor,
                                   const char *suffix, nw_error *err)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap > 0 ? 2 * l->cap : 256;
        nw_export_part *grown = realloc(l->items, cap * sizeof *grown);
        if (grown == NULL) {
            (void)nw_fail(err, NW_E_NOMEM, "no memory for a list of %zu tensors", cap);
            return NULL;
        }
        l->items = grown;
        l->cap = cap;
    }
    nw_export_part *p = &l->items[l->n];
    *p = (nw_export_part){
        .tensor = tensor, .scale_rows = tensor->n_rows, .scale_format = NW_FMT_F32, .global = 1};
    const int n = suffix[0] == '\0' ? snprintf(p->name, sizeof p->name, "%s", tensor->name)
                                    : snprintf(p->name, sizeof p->name, "%.*s.%s",
                                               (int)nw_export_module(tensor), tensor->name, suffix);
    if (n < 0 || (size_t)n >= sizeof p->name) {
        (void)nw_fail(err, NW_E_RANGE, "tensor '%.80s...': its name is too long", tensor->name);
        return NULL;
    }
    l->n++;
    return p;
}

nw_block_scales *nw_export_parts_blocks(nw_export_parts *l, nw_error *err)
{
    nw_block_scales **grown = realloc(l->blocks, (l->n_blocks + 1) * sizeof *grown);
    nw_block_scales *b = calloc(1, sizeof *b);

    l->blocks = grown != NULL ? grown : l->blocks;
    if (grown == NULL || b == NULL) {
        free(b);
        (void)nw_fail(err, NW_E_NOMEM, "no memory for a list of %zu matrices", l->n_blocks + 1);
        return NULL;
    }
    l->blocks[l->n_blocks++] = b;
    return b;
}

void nw_export_parts_release(nw_export_parts *l)
{
    for (size_t i = 0; i < l->n_blocks; i++) {
        free(l->blocks[i]->scales);
        free(l->blocks[i]);
    }
    free(l->blocks);
    free(l->items);
    free(l->kv);
    *l = (nw_export_parts){0};
}

nw_status nw_export_part_dense(nw_export_parts *l, const nw_export_tensor *t, nw_format_id dtype,
                               const char *fallback, nw_error *err)
{
    nw_export_part *p = nw_export_part_add(l, t, "", err);

    if (p == NULL) {
        return err->code;
    }
    p->format = dtype;
    p->n_dims = t->is_vector ? 1 : 2;
    p->dims[0] = t->is_vector ? t->n_cols : t->n_rows;
    p->dims[1] = t->n_cols;
    p->to = nw_format_get(dtype)->name;
    p->fallback = fallback;
    return NW_OK;
}

const char *nw_export_torch_dtype(nw_format_id dtype)
{
    return dtype == NW_FMT_BF16 ? "bfloat16" : dtype == NW_FMT_F16 ? "float16" : "float32";
}

float nw_export_rounded(float x, nw_format_id format)
{
    return format == NW_FMT_BF16  ? nw_bf16_to_f32(nw_bf16_from_f32(x))
           : format == NW_FMT_F16 ? nw_f16_to_f32(nw_f16_from_f32(x))
                                  : x;
}

/* Of layouts with one scale a tensor, that of its first row. */
typedef struct {
    bool set;
    float scale;
    int8_t zero;
} tensor_scale;

static nw_status check_tensor_scale(const nw_export_tensor *t, uint32_t row, const nw_export_row *r,
                                    tensor_scale *one, nw_error *err)
{
    if (t->type.span != NW_SPAN_TENSOR) {
        return NW_OK;
    }
    if (!one->set) {
        *one = (tensor_scale){.set = true, .scale = r->scales[0], .zero = r->zeros[0]};
    }
    return r->scales[0] == one->scale && r->zeros[0] == one->zero
               ? NW_OK
               : nw_fail(err, NW_E_FORMAT,
                         "tensor '%s' has another scale in row %" PRIu32
                         " than in row 0 (%g and %g), and its layout says that all have one",
                         t->name, row, (double)r->scales[0], (double)one->scale);
}

static nw_status check_scales(const nw_export_tensor *t, uint32_t row, const nw_export_row *r,
                              nw_format_id format, bool *fit, nw_error *err)
{
    const uint32_t n = nw_panel_scales(t->type, t->n_cols);

    for (uint32_t g = 0; g < n; g++) {
        const float rounded = nw_export_rounded(r->scales[g], format);
        *fit = *fit && rounded == r->scales[g];
        if (rounded == 0 && r->scales[g] != 0) {
            return nw_fail(err, NW_E_RANGE,
                           "tensor '%s', row %" PRIu32 ": scale %g is too small for %s", t->name,
                           row, (double)r->scales[g], nw_format_get(format)->name);
        }
    }
    return NW_OK;
}

nw_status nw_export_scales_fit(const nw_export_tensor *t, nw_format_id format, bool *fit,
                               nw_error *err)
{
    const size_t n_groups = nw_panel_groups(t->type, t->n_cols);
    nw_export_row r = {.codes = malloc(nw_panel_cols(t->type, t->n_cols)),
                       .scales = calloc(n_groups, sizeof *r.scales),
                       .zeros = calloc(n_groups, 1)};
    void *scratch = malloc(nw_export_scratch_bytes(t) + 1);
    tensor_scale one = {.set = false};
    nw_status st = NW_OK;

    *fit = true;
    if (r.codes == NULL || r.scales == NULL || r.zeros == NULL || scratch == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for a row", t->name);
    }
    for (uint32_t row = 0; st == NW_OK && row < t->n_rows; row++) {
        st = nw_export_codes(t, row, scratch, &r, err);
        st = st == NW_OK ? check_tensor_scale(t, row, &r, &one, err) : st;
        st = st == NW_OK ? check_scales(t, row, &r, format, fit, err) : st;
    }
    free(scratch);
    free(r.zeros);
    free(r.scales);
    free(r.codes);
    return st;
}

static nw_status check_pair(const nw_export_source *s, int32_t layer, nw_role a, nw_role b,
                            nw_export_same_fn same, const void *ctx, const char *what,
                            nw_error *err)
{
    const nw_export_tensor *x = nw_export_find(s, a, layer);
    const nw_export_tensor *y = nw_export_find(s, b, layer);
    char from[2][32];

    if (x == NULL || y == NULL || same(ctx, x, y)) {
        return NW_OK;
    }
    return nw_fail(err, NW_E_UNSUPPORTED,
                   "'%s' (%s) and '%s' (%s) must have the same %s: engines that load this format "
                   "make one matrix of them; give both the same layout in the recipe",
                   x->name, nw_export_type_name(x, from[0]), y->name,
                   nw_export_type_name(y, from[1]), what);
}

nw_status nw_export_check_fused(const nw_export_source *s, nw_export_same_fn same, const void *ctx,
                                const char *what, nw_error *err)
{
    static const nw_role pairs[][2] = {
        {NW_ROLE_Q, NW_ROLE_K}, {NW_ROLE_Q, NW_ROLE_V}, {NW_ROLE_GATE, NW_ROLE_UP}};
    const int32_t n_layers = (int32_t)nw_export_config(s)->n_layers;
    nw_status st = NW_OK;

    for (int32_t l = 0; l < n_layers; l++) {
        for (size_t i = 0; st == NW_OK && i < NW_COUNT(pairs); i++) {
            st = check_pair(s, l, pairs[i][0], pairs[i][1], same, ctx, what, err);
        }
    }
    return st;
}

/* One scale's bytes. */
static void put_scale(nw_format_id format, float scale, uint8_t *to)
{
    switch (nw_format_get(format)->block_bytes) {
    case 4:
        nw_put32(to, nw_f32_bits(scale));
        break;
    case 2:
        nw_put16(to, format == NW_FMT_BF16 ? nw_bf16_from_f32(scale) : nw_f16_from_f32(scale));
        break;
    default:
        *to = format == NW_FMT_F8_E4M3 ? nw_e4m3_from_f32(scale) : nw_e8m0_floor(scale);
        break;
    }
}

void nw_put_scales(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes)
{
    const nw_export_tensor *t = p->tensor;
    const uint32_t n_groups = nw_panel_scales(t->type, t->n_cols);
    const size_t size = nw_format_get(p->scale_format)->block_bytes;

    for (uint32_t g = 0; g < n_groups && row < p->scale_rows; g++) {
        const size_t at =
            p->groups_first ? (size_t)g * t->n_rows + row : (size_t)row * n_groups + g;
        put_scale(p->scale_format, r->scales[g], bytes + at * size);
    }
}

void nw_put_codes(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes)
{
    const uint32_t n_cols = p->tensor->n_cols;

    memcpy(bytes + (size_t)row * n_cols, r->codes, n_cols);
}
