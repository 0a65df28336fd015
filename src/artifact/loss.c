/* See loss.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double rms(const nw_tensor_error *e)
{
    return sqrt(e->sum_err_sq / fmax(1, (double)e->n));
}

static json_t *row_json(const nw_loss_tensor *t, bool exact)
{
    json_t *row = json_pack("{s:s, s:s, s:s, s:b, s:f, s:f}", "name", t->name, "from", t->from,
                            "to", t->to, "exact", (int)exact, "max_abs_err", t->error.max_abs_err,
                            "rms_err", rms(&t->error));

    if (t->fallback != NULL) {
        (void)json_object_set_new(row, "fallback", json_string(t->fallback));
    }
    return row;
}

static void note_worst(nw_loss *l, const nw_loss_tensor *t, double sqnr)
{
    l->max_abs_err = fmax(l->max_abs_err, t->error.max_abs_err);
    if (l->worst_name == NULL || sqnr < l->worst_sqnr_db) {
        free(l->worst_name);
        l->worst_name = strdup(t->name);
        l->worst_sqnr_db = sqnr;
    }
}

static void note_fallback(nw_loss *l, const nw_loss_tensor *t)
{
    if (l->n_fallbacks++ == 0) {
        char text[256];
        (void)snprintf(text, sizeof text, "%s: %s", t->name, t->fallback);
        l->first_fallback = strdup(text);
    }
}

nw_status nw_loss_add(nw_loss *l, const nw_loss_tensor *t, nw_error *err)
{
    const double sqnr = nw_tensor_error_sqnr_db(&t->error);
    const bool exact = isinf(sqnr) != 0;

    l->n_tensors++;
    l->n_params += t->error.n;
    nw_tensor_error_add(&l->sum, &t->error);
    if (exact) {
        l->n_exact++;
    } else {
        note_worst(l, t, sqnr);
    }
    if (t->fallback != NULL) {
        note_fallback(l, t);
    }
    if (l->tensors == NULL) {
        l->tensors = json_array();
    }
    if (json_array_append_new(l->tensors, row_json(t, exact)) != 0) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for its loss", t->name);
    }
    return NW_OK;
}

nw_status nw_loss_drop(nw_loss *l, const char *what, nw_error *err)
{
    if (l->dropped == NULL) {
        l->dropped = json_array();
    }
    return json_array_append_new(l->dropped, json_string(what)) == 0
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "no memory for a loss report");
}

double nw_loss_rms(const nw_loss *l)
{
    return rms(&l->sum);
}

json_t *nw_loss_json(const nw_loss *l)
{
    json_t *doc = json_pack("{s:I, s:I, s:I, s:f, s:f, s:I}", "n_tensors", (json_int_t)l->n_tensors,
                            "n_exact", (json_int_t)l->n_exact, "n_params", (json_int_t)l->n_params,
                            "max_abs_err", l->max_abs_err, "rms_err", nw_loss_rms(l), "n_fallbacks",
                            (json_int_t)l->n_fallbacks);

    if (l->worst_name != NULL) {
        (void)json_object_set_new(doc, "worst_tensor", json_string(l->worst_name));
        (void)json_object_set_new(doc, "worst_sqnr_db", json_real(l->worst_sqnr_db));
    }
    if (l->dropped != NULL) {
        (void)json_object_set(doc, "dropped", l->dropped);
    }
    if (l->tensors != NULL) {
        (void)json_object_set(doc, "tensors", l->tensors);
    }
    return doc;
}

void nw_loss_release(nw_loss *l)
{
    free(l->worst_name);
    free(l->first_fallback);
    json_decref(l->tensors);
    json_decref(l->dropped);
    *l = (nw_loss){0};
}
