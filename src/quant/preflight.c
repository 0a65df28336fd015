/* Checks before work: see preflight.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/preflight.h"

#include <inttypes.h>
#include <string.h>

#include "quant/block_method.h"

#define MAX_TEXT      ((size_t)1 << 20)
#define MESSAGE_BYTES 900 /* of nw_error's message */

void nw_preflight_init(nw_preflight *p)
{
    *p = (nw_preflight){0};
    nw_buf_init(&p->text, MAX_TEXT);
}

bool nw_preflight_check(nw_preflight *p, nw_status st, nw_error *err)
{
    if (st == NW_OK) {
        return true;
    }
    if (p->n++ == 0) {
        p->first = *err;
    }
    (void)nw_buf_printf(&p->text, "%s%s", p->text.len > 0 ? "\n" : "", err->message);
    *err = (nw_error){0};
    return false;
}

nw_status nw_preflight_end(nw_preflight *p, nw_buf *all, nw_error *err)
{
    nw_status st = NW_OK;

    if (p->n == 1) {
        *err = p->first;
        st = err->code;
    } else if (p->n > 1) {
        st = nw_fail(err, p->first.code, "%zu things are wrong:\n%.*s", p->n, MESSAGE_BYTES,
                     p->text.data);
        if (all != NULL) {
            all->len = 0; /* what a part put there is in the text as well */
            (void)nw_buf_add(all, p->text.data, p->text.len);
        }
    }
    nw_buf_release(&p->text);
    return st;
}

static uint64_t choice_memory(const nw_recipe_choice *ch, unsigned n_threads, size_t panel_bytes)
{
    const nw_method_job job = {
        .method = ch->method, .type = ch->type, .block = ch->block, .n_cols = ch->tensor->n_cols};
    const uint64_t n = ch->tensor->n_cols;
    const uint64_t least = (uint64_t)4 * n_threads * panel_bytes;
    uint64_t need =
        2 * (least > NW_QUANTIZE_BLOCK ? least : NW_QUANTIZE_BLOCK); /* one is written */

    need += n_threads * (2 * NW_PANEL_ROWS * n * sizeof(float) +
                         (ch->type.kind == NW_PANEL_BF16_12 ? NW_PANEL_ROWS * n * sizeof(uint16_t)
                                                            : nw_method_scratch_bytes(&job)));
    if (ch->type.packed) { /* values, symbols, codes, and the panel that is decoded again */
        need += n_threads * NW_PANEL_ROWS * n * 10;
    }
    if (nw_method_needs_stats(ch->method)) {
        need += n * n * (nw_method_needs_factor(ch->method) ? 12 : 4);
    }
    return need;
}

nw_quantize_need nw_preflight_need(const nw_recipe_choice *choices, size_t n, unsigned n_threads)
{
    nw_quantize_need need = {0};

    for (size_t i = 0; i < n; i++) {
        const nw_recipe_choice *ch = &choices[i];
        size_t bytes = 0;
        size_t panel = 0;
        if (ch->is_vector) {
            need.disk += (uint64_t)ch->tensor->n_cols * sizeof(float);
            continue;
        }
        if (!nw_panel_tensor_bytes(ch->type, ch->tensor->n_rows, ch->tensor->n_cols, &bytes) ||
            !nw_panel_bytes(ch->type, ch->tensor->n_cols, &panel)) {
            continue; /* too large for an address: told when it is written */
        }
        need.disk += bytes;
        const uint64_t memory = choice_memory(ch, n_threads, panel);
        need.memory = memory > need.memory ? memory : need.memory;
    }
    return need;
}

nw_status nw_preflight_disk(const char *out, uint64_t need, uint64_t left, uint64_t have,
                            nw_error *err)
{
    if (have >= need || have + left >= need) {
        return NW_OK;
    }
    return nw_fail(err, NW_E_IO, "%s: needs %.3f GB of disk, %.3f GB are free", out,
                   (double)need / 1e9, (double)(have + left) / 1e9);
}

nw_status nw_preflight_memory(uint64_t need, uint64_t have, nw_error *err)
{
    if (have >= need) {
        return NW_OK;
    }
    return nw_fail(err, NW_E_NOMEM, "needs %.3f GB of memory, %.3f GB are available",
                   (double)need / 1e9, (double)have / 1e9);
}

nw_status nw_preflight_no_fallback(const nw_recipe_choice *choices, size_t n, nw_error *err)
{
    nw_buf text;
    nw_status st = NW_OK;
    char type[32];

    nw_buf_init(&text, MAX_TEXT);
    for (size_t i = 0; i < n; i++) {
        const nw_recipe_choice *ch = &choices[i];
        if (ch->asked_block != ch->block) {
            (void)nw_buf_printf(&text,
                                "%s%s: %u columns are no multiple of 256, as %s asks "
                                "(--no-fallback)",
                                text.len > 0 ? "\n" : "", ch->tensor->name,
                                (unsigned)ch->tensor->n_cols, nw_block_name(ch->asked_block));
        }
        if (ch->asked != ch->method) {
            (void)nw_buf_printf(&text, "%s%s: method %s does not know layout %s (--no-fallback)",
                                text.len > 0 ? "\n" : "", ch->tensor->name,
                                nw_method_name(ch->asked), nw_panel_name(ch->type, type));
        }
    }
    if (text.len > 0) {
        st = nw_fail(err, NW_E_FORMAT, "%.*s", MESSAGE_BYTES, text.data);
    }
    nw_buf_release(&text);
    return st;
}
