/* Notes about the source of weights: see source_note.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/source_note.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/folder.h"
#include "base/file.h"
#include "model/hf_quant.h"

#define MAX_NOTE_FILE ((size_t)1 << 20)

/* Bits of a code without its share of scales: block formats carry the number in their names (Q4_1,
 * Q6_K, IQ4_NL, MXFP4); of the others it is the size of an element, 16 and more being no
 * quantization. */
static unsigned code_bits(const nw_ckpt_tensor *t)
{
    const nw_format *f = nw_format_get(t->format);
    const char *digit = strpbrk(f->name, "0123456789");

    if (t->quant != NULL) {
        return t->quant->bits;
    }
    if (f->block_elems > 1 && digit != NULL) {
        return (unsigned)(*digit - '0');
    }
    return f->block_bytes * 8 / f->block_elems;
}

unsigned nw_source_bits(const nw_checkpoint *c)
{
    uint64_t weights[16] = {0}; /* by bits */
    uint64_t total = 0;

    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        const uint64_t n = (uint64_t)t->n_rows * t->n_cols;
        const unsigned bits = code_bits(t);
        if (t->layer < 0 || nw_role_is_vector(t->role)) {
            continue; /* an embedding is often kept wider, and outweighs the layers of a small model */
        }
        total += n;
        if (bits < NW_COUNT(weights)) {
            weights[bits] += n;
        }
    }
    for (unsigned b = 1; b < NW_COUNT(weights); b++) {
        if (weights[b] > 0 && weights[b] >= total / 10) {
            return b;
        }
    }
    return 0;
}

static nw_status recorded_note(const nw_checkpoint *c, char **note, nw_error *err)
{
    char *path = nw_path_join(nw_checkpoint_path(c), "narrow.json");
    const char *text = NULL;
    json_t *doc = NULL;
    nw_status st = NW_OK;

    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", nw_checkpoint_path(c));
    }
    if (nw_file_exists(path)) {
        st = nw_json_load(path, MAX_NOTE_FILE, &doc, err);
        if (st == NW_OK) {
            st = nw_json_opt_str(doc, path, "note", &text, err);
        }
        if (st == NW_OK && text != NULL && text[0] != '\0') {
            *note = strdup(text);
            st = *note != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", path);
        }
        json_decref(doc);
    }
    free(path);
    return st;
}

nw_status nw_source_note(const nw_checkpoint *c, char **note, nw_error *err)
{
    const unsigned bits = nw_source_bits(c);
    char text[64] = "";

    *note = NULL;
    if (nw_file_is_dir(nw_checkpoint_path(c))) {
        const nw_status st = recorded_note(c, note, err);
        if (st != NW_OK || *note != NULL) {
            return st;
        }
    }
    if (bits > 0) {
        (void)snprintf(text, sizeof text, "made from published %u-bit weights", bits);
    }
    *note = strdup(text);
    return *note != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for a note");
}

nw_status nw_source_open(const char *path, const char *out, nw_checkpoint **ckpt, nw_error *err)
{
    if (nw_folder_holds(out, path)) {
        return nw_fail(err, NW_E_USAGE, "%s: the result would take the place of its source", out);
    }
    if (nw_artifact_is_native(path)) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: is a quantized artifact; name the checkpoint it was made from", path);
    }
    return nw_checkpoint_open(path, ckpt, err);
}

void nw_source_say_activations(nw_act_rule act, size_t n_fixed, char buf[128])
{
    const size_t n =
        (size_t)snprintf(buf, 128, "rounding of activations (%s)", nw_act_rule_name(act));

    if (n_fixed > 0) {
        (void)snprintf(buf + n, 128 - n, ", with the fixed scales of %zu matrices", n_fixed);
    }
}

json_t *nw_source_dropped(const nw_checkpoint *c)
{
    const nw_act_rule act = nw_checkpoint_act(c);
    json_t *list = json_array();
    size_t n_fixed = 0;
    char text[128];

    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_hfq_matrix *q = nw_checkpoint_at(c, i)->quant;
        n_fixed += q != NULL && q->act.scale > 0;
    }
    if (act != NW_ACT_RULE_A16) {
        nw_source_say_activations(act, n_fixed, text);
        (void)json_array_append_new(list, json_string(text));
    }
    if (nw_checkpoint_n_kv_scales(c) > 0) {
        (void)json_array_append_new(list, json_string(NW_SOURCE_KV_SCALES));
    }
    return list;
}

json_t *nw_source_formats(const nw_checkpoint *c)
{
    json_t *out = json_object();

    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        char buf[32];
        const char *name = nw_ckpt_format_name(nw_checkpoint_at(c, i), buf);
        const json_int_t n = json_integer_value(json_object_get(out, name));
        (void)json_object_set_new(out, name, json_integer(n + 1));
    }
    return out;
}
