/* Quantized matrices of a Hugging Face folder: several tensors that fill one role. See hf_quant.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/arch.h"
#include "model/checkpoint_parts.h"

#define NAME_BYTES 256
#define SHOW       96

const char *nw_ckpt_format_name(const nw_ckpt_tensor *t, char buf[32])
{
    if (t->quant != NULL) {
        return nw_hfq_name(t->quant, buf);
    }
    (void)snprintf(buf, 32, "%s", nw_format_get(t->format)->name);
    return buf;
}

nw_act_rule nw_checkpoint_act(const nw_checkpoint *c)
{
    return c->quant.act;
}

/* Length of the module's name: of any part, or of ".weight" that holds codes. */
static size_t module_of(const nw_ckpt_source *s, const char *name)
{
    const char *dot = strrchr(name, '.');
    const bool codes = s->format == NW_FMT_I8 || s->format == NW_FMT_F8_E4M3;

    if (dot != NULL && strcmp(dot, ".weight") == 0) {
        return codes ? (size_t)(dot - name) : 0;
    }
    return nw_hfq_stem(name);
}

/* The matrix's place; false where the module is no matrix of the architecture. */
static bool role_of(const nw_checkpoint *c, const char *name, size_t n_module, nw_role *role,
                    int32_t *layer)
{
    char weight[NAME_BYTES];
    const int n = snprintf(weight, sizeof weight, "%.*s.weight", (int)n_module, name);

    return n > 0 && (size_t)n < sizeof weight &&
           nw_arch_match(nw_arch_get(c->config.arch), NW_NAMING_HF, weight, role, layer) &&
           !nw_role_is_vector(*role) && *layer < (int32_t)c->config.n_layers;
}

/* The tensor that stands for the whole matrix. */
static bool holds_codes(const char *name, size_t n_module)
{
    const char *suffix = name + n_module + 1;

    return strcmp(suffix, "weight") == 0 || strcmp(suffix, "weight_packed") == 0 ||
           strcmp(suffix, "qweight") == 0;
}

static nw_status fill(nw_checkpoint *c, const nw_ckpt_source *s, nw_role role, int32_t layer,
                      bool *placed, nw_error *err)
{
    const size_t slot = nw_ckpt_slot(role, layer);
    char shown[SHOW];
    uint32_t rows = 0;
    uint32_t cols = 0;

    nw_role_shape(&c->config, role, &rows, &cols);
    if (c->slots[slot].name != NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' is there under two names",
                       nw_checkpoint_file(c, s->file),
                       nw_name_show(s->name, strlen(s->name), shown, sizeof shown));
    }
    const nw_status st = nw_hfq_bind(c->st, &c->quant, s->name, module_of(s, s->name), rows, cols,
                                     &c->matrices[slot], err);
    *placed = st == NW_OK && c->matrices[slot].codes != NULL;
    if (*placed) {
        c->slots[slot] = (nw_ckpt_tensor){.name = s->name,
                                          .source = s->name,
                                          .role = role,
                                          .layer = layer,
                                          .format = s->format,
                                          .n_rows = rows,
                                          .n_cols = cols,
                                          .n_bytes = c->matrices[slot].n_bytes,
                                          .scale = 1,
                                          .data = s->data,
                                          .file = s->file,
                                          .quant = &c->matrices[slot]};
    }
    return st;
}

nw_status nw_ckpt_place_quant(nw_checkpoint *c, const nw_ckpt_source *s, const char *name,
                              bool *placed, nw_error *err)
{
    const size_t n_module = c->quant.method == NW_HFQ_NONE ? 0 : module_of(s, name);
    nw_role role = NW_ROLE_EMBED;
    int32_t layer = -1;

    *placed = false;
    if (c->quant.method != NW_HFQ_NONE) {
        const nw_status st = nw_ckpt_place_kv(c, s, name, placed, err);
        if (st != NW_OK || *placed) {
            return st;
        }
    }
    if (n_module == 0 || !role_of(c, name, n_module, &role, &layer)) {
        return NW_OK;
    }
    if (role == NW_ROLE_HEAD && c->config.tied) {
        *placed = true;
        c->n_ignored++;
        return NW_OK;
    }
    if (c->matrices == NULL) {
        c->matrices = calloc(c->n_slots, sizeof *c->matrices);
        if (c->matrices == NULL) {
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu matrices", c->path, c->n_slots);
        }
    }
    if (holds_codes(name, n_module)) {
        return fill(c, s, role, layer, placed, err);
    }
    *placed = true; /* a part: bound with the codes, wherever these stand */
    return NW_OK;
}

static void log_undone(const nw_checkpoint *c)
{
    if (c->quant.act_note != NULL) {
        nw_log(NW_LOG_WARN, "%s: the file asks for %s: not done, activations are not rounded",
               c->path, c->quant.act_note);
    }
    if (c->quant.kv_note != NULL) {
        nw_log(NW_LOG_WARN, "%s: the file asks for %s: not done", c->path, c->quant.kv_note);
    } else if (c->quant.kv_scheme && c->kv == NULL) {
        nw_log(NW_LOG_WARN, "%s: keys and values in FP8 are asked for, and uncalibrated: %s",
               c->path, c->kv_all_one ? "every scale is 1" : "there are no scales");
    }
}

nw_status nw_ckpt_check_quant(const nw_checkpoint *c, nw_error *err)
{
    char plain[NW_CKPT_NAME_BYTES];
    char shown[SHOW];

    for (size_t i = 0; c->quant.method != NW_HFQ_NONE && i < nw_ckpt_n_sources(c); i++) {
        const nw_ckpt_source s = nw_ckpt_source_at(c, i);
        const char *name = nw_ckpt_plain_name(c, s.name, plain);
        const size_t n_module = nw_hfq_stem(name);
        nw_role role = NW_ROLE_EMBED;
        int32_t layer = -1;
        if (n_module > 0 && role_of(c, name, n_module, &role, &layer) &&
            !(role == NW_ROLE_HEAD && c->config.tied) &&
            c->slots[nw_ckpt_slot(role, layer)].quant == NULL) {
            return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' belongs to no quantized matrix",
                           nw_checkpoint_file(c, s.file),
                           nw_name_show(s.name, strlen(s.name), shown, sizeof shown));
        }
    }
    log_undone(c);
    return NW_OK;
}
