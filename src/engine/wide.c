/* The few wide columns of an input: see wide.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/wide.h"

static nw_act_kind wide_kind(const nw_engine *e)
{
    return e->kernels->act_kind((nw_panel_type){.kind = NW_PANEL_BF16}, false);
}

bool nw_wide_alloc(nw_engine *e)
{
    nw_work *w = &e->work;
    const uint32_t n = e->facts.max_step_tokens;
    const uint32_t most = e->weights.max_wide;

    if (most == 0) {
        return true;
    }
    w->wide = nw_arena_array(&e->arena, n, most * sizeof *w->wide);
    w->wide_act = nw_arena_alloc(&e->arena, nw_act_bytes(wide_kind(e), n, most));
    w->wide_out = nw_arena_array(&e->arena, e->facts.n_threads, sizeof *w->wide_out);
    bool ok = w->wide != NULL && w->wide_act != NULL && w->wide_out != NULL;
    for (unsigned i = 0; ok && i < e->facts.n_threads; i++) {
        w->wide_out[i] = nw_arena_array(&e->arena, n, NW_FFN_ROWS * sizeof(float));
        ok = w->wide_out[i] != NULL;
    }
    return ok;
}

void nw_wide_take(nw_engine *e, const nw_artifact_input *in, float *x, uint32_t n_cols, uint32_t t0,
                  uint32_t t1)
{
    if (in == NULL || in->n_wide == 0) {
        return;
    }
    for (uint32_t t = t0; t < t1; t++) {
        float *row = x + (size_t)t * n_cols;
        float *wide = e->work.wide + (size_t)t * in->n_wide;
        for (uint32_t i = 0; i < in->n_wide; i++) {
            wide[i] = row[in->wide[i]];
            row[in->wide[i]] = 0;
        }
    }
    e->kernels->act_pack(wide_kind(e), e->work.wide, in->n_wide, t0, t1, in->n_wide,
                         e->work.wide_act);
}

void nw_wide_restore(const nw_engine *e, const nw_artifact_input *in, float *x, uint32_t n_cols,
                     uint32_t t0, uint32_t t1)
{
    for (uint32_t t = t0; in != NULL && t < t1; t++) {
        for (uint32_t i = 0; i < in->n_wide; i++) {
            x[(size_t)t * n_cols + in->wide[i]] = e->work.wide[(size_t)t * in->n_wide + i];
        }
    }
}

void nw_wide_add(const nw_engine *e, const nw_weight *wide, uint32_t p0, uint32_t p1, uint32_t row0,
                 float *y, size_t ldy, unsigned worker)
{
    float *out = e->work.wide_out != NULL ? e->work.wide_out[worker] : NULL;
    size_t panel_bytes = 0;

    if (wide->data == NULL || out == NULL ||
        !nw_panel_bytes(wide->type, wide->n_cols, &panel_bytes)) {
        return;
    }
    const uint32_t first = p0 * NW_PANEL_ROWS;
    const uint32_t left = wide->n_rows - first;
    const uint32_t n = left < (p1 - p0) * NW_PANEL_ROWS ? left : (p1 - p0) * NW_PANEL_ROWS;
    const nw_weight part = {.type = wide->type,
                            .data = wide->data + p0 * panel_bytes,
                            .n_rows = left,
                            .n_cols = wide->n_cols};
    const nw_act act = {.kind = wide_kind(e),
                        .n_tokens = e->work.n_tokens,
                        .n_cols = wide->n_cols,
                        .data = e->work.wide_act};

    e->kernels->linear(&part, &act, 0, p1 - p0, out, NW_FFN_ROWS);
    for (uint32_t t = 0; t < e->work.n_tokens; t++) {
        e->kernels->add(out + (size_t)t * NW_FFN_ROWS, n, y + t * ldy + (first - row0));
    }
}
