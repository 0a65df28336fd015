/* Fixed scales of FP8 keys and values on their way into other people's folders: see export.h and
 * export_parts.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/export_parts.h"
#include "artifact/kv_scales.h"
#include "base/log.h"

/* Both kinds are FP8, with fixed scales. */
static bool is_fixed_fp8(const char *format)
{
    return strncmp(format, "fp8", 3) == 0 && (format[3] == '\0' || format[3] == '+') &&
           strstr(format, "+dynamic") == NULL;
}

uint32_t nw_export_n_kv_scales(const nw_export_source *s)
{
    const nw_checkpoint *c = nw_export_checkpoint(s);
    const nw_artifact_kv *kv = nw_export_kv(s);

    if (c != NULL) {
        return nw_checkpoint_n_kv_scales(c);
    }
    return is_fixed_fp8(kv->format) ? kv->n_scales : 0;
}

void nw_export_kv_scales(const nw_export_source *s, uint32_t layer, float *k, float *v)
{
    const nw_checkpoint *c = nw_export_checkpoint(s);
    const nw_artifact_kv *kv = nw_export_kv(s);

    if (c != NULL) {
        nw_checkpoint_kv_scales(c, layer, k, v);
        return;
    }
    memcpy(k, kv->k_scale + (size_t)layer * kv->n_scales, kv->n_scales * sizeof *k);
    memcpy(v, kv->v_scale + (size_t)layer * kv->n_scales, kv->n_scales * sizeof *v);
}

/* "model.layers.3.self_attn.k_proj.weight" to "model.layers.3.self_attn.k_scale". */
static nw_status add_part(nw_export_parts *l, const nw_export_tensor *proj, const char *name,
                          const float *numbers, uint32_t n, nw_error *err)
{
    nw_export_part *part = nw_export_part_add(l, proj, "scale", err);
    const char *dot = strstr(proj->name, "_proj.");

    if (part == NULL) {
        return err->code;
    }
    if (dot == NULL || dot == proj->name) {
        return nw_fail(err, NW_E_UNSUPPORTED, "tensor '%s': no name for the scale of its output",
                       proj->name);
    }
    (void)snprintf(part->name, sizeof part->name, "%.*s%s", (int)(dot - 1 - proj->name), proj->name,
                   name);
    part->format = NW_FMT_F32;
    part->n_dims = n > 1 ? 3 : 1;
    part->dims[0] = n;
    part->dims[1] = part->dims[2] = 1;
    part->numbers = numbers;
    return NW_OK;
}

nw_status nw_export_parts_kv(nw_export_parts *l, const nw_export_source *s, nw_error *err)
{
    const uint32_t n = nw_export_n_kv_scales(s);
    const uint32_t n_layers = nw_export_config(s)->n_layers;
    nw_status st = NW_OK;

    if (n == 0) {
        return NW_OK;
    }
    l->kv = calloc((size_t)n_layers * 2 * n, sizeof *l->kv);
    if (l->kv == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for scales of %u layers", n_layers);
    }
    for (uint32_t i = 0; st == NW_OK && i < n_layers; i++) {
        const nw_export_tensor *k = nw_export_find(s, NW_ROLE_K, (int32_t)i);
        const nw_export_tensor *v = nw_export_find(s, NW_ROLE_V, (int32_t)i);
        float *at = l->kv + (size_t)i * 2 * n;
        nw_export_kv_scales(s, i, at, at + n);
        if (k == NULL || v == NULL) {
            return nw_fail(err, NW_E_FORMAT, "%s: layer %u has no k or v", nw_export_path(s), i);
        }
        st = add_part(l, k, "k_scale", at, n, err);
        st = st == NW_OK ? add_part(l, v, "v_scale", at + n, n, err) : st;
    }
    return st;
}

nw_status nw_export_note_kv(const nw_export_source *s, bool has_place, nw_loss *loss, nw_error *err)
{
    const bool artifact = nw_export_checkpoint(s) == NULL;
    const char *format = artifact ? nw_export_kv(s)->format : "fp8";
    const uint32_t n = nw_export_n_kv_scales(s);
    const bool lost = artifact ? format[0] != '\0' && (!has_place || n == 0) : !has_place && n > 0;
    char what[128];

    if (!lost && strchr(format, '+') == NULL) {
        return NW_OK;
    }
    /* scales are all that can be said */
    (void)snprintf(what, sizeof what, "keys and values in %.40s%s", format,
                   !lost   ? ": what is more than fp8 and its scales"
                   : n > 0 ? ", with their fixed scales"
                           : "");
    nw_log(NW_LOG_WARN,
           "%s: keys and values in %s: the folder that is written does not say %s, an option of "
           "its engine has to",
           nw_export_path(s), format, lost ? "so" : "more than fp8 and its scales");
    return nw_loss_drop(loss, what, err);
}
