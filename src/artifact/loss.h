/* The loss report of a conversion: for each tensor what its values cost, against the source's values,
 * and the sum over all. Exact means every value is equal.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_LOSS_H
#define NW_ARTIFACT_LOSS_H

#include "artifact/manifest.h"

typedef struct {
    size_t n_tensors, n_exact;
    uint64_t n_params;
    nw_tensor_error sum;               /* over all tensors */
    double worst_sqnr_db, max_abs_err; /* of tensors that are not exact */
    char *worst_name;                  /* the first of the lowest SQNR; NULL: all are exact */
    size_t n_fallbacks;                /* tensors in another type than the one asked for */
    char *first_fallback;              /* what is to be said of the first; NULL: none */
    json_t
        *tensors; /* [{name, from, to, exact, max_abs_err, rms_err, fallback}], in writing order */
    json_t
        *dropped; /* ["fp8 keys and values with fixed scales"]: what beside tensors' values has no
                        place in the format; NULL: nothing */
} nw_loss;

/* One written tensor. `fallback`: why its type is another than the one asked for; NULL: it is not. */
typedef struct {
    const char *name, *from, *to; /* "int4-g32", "Q4_0" */
    const char *fallback;
    nw_tensor_error error;
} nw_loss_tensor;

/* All zero is an empty report. */
NW_MUST_USE nw_status nw_loss_add(nw_loss *l, const nw_loss_tensor *t, nw_error *err);
/* `what` of the source is not in the result. */
NW_MUST_USE nw_status nw_loss_drop(nw_loss *l, const char *what, nw_error *err);
void nw_loss_release(nw_loss *l);
double nw_loss_rms(const nw_loss *l); /* of the error over all values */
/* {n_tensors, n_exact, max_abs_err, rms_err, ..., dropped, tensors}; owned by the caller. */
json_t *nw_loss_json(const nw_loss *l);

#endif
