/* What calibration may draw from: rows of a log with their strata, without their texts, or windows
 * of a text. Internal to the sampling of quant.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_CALIB_ROWS_H
#define NW_QUANT_CALIB_ROWS_H

#include "quant/calib_sample.h"

typedef struct {
    uint64_t digest; /* of the content: equal rows have equal ones */
    size_t index;    /* row of the log, window of the text */
    uint32_t stratum;
    bool usable; /* neither empty nor a repetition */
} nw_calib_row;

typedef struct {
    nw_calib_row *rows;
    size_t n, cap;
    nw_stratum *strata; /* in order of appearance until sorted */
    size_t n_strata, cap_strata;
} nw_calib_rows;

void nw_calib_rows_release(nw_calib_rows *r);

/* Reads the whole log once; 32 bytes a row are kept. */
NW_MUST_USE nw_status nw_calib_rows_scan(const nw_sample_options *o, nw_calib_rows *out,
                                         nw_error *err);
/* One stratum named "text", a row for each of n windows of n_ctx ids. */
NW_MUST_USE nw_status nw_calib_rows_windows(const int32_t *ids, size_t n, uint32_t n_ctx,
                                            nw_calib_rows *out, nw_error *err);
/* Sorts strata by name, marks repetitions and counts. */
NW_MUST_USE nw_status nw_calib_rows_settle(nw_calib_rows *r, nw_error *err);

/* Appends the ids of a row to *ids. `where` ("log.jsonl:7") stands in messages. */
NW_MUST_USE nw_status nw_calib_row_encode(const nw_tokenizer *tok, const json_t *row,
                                          const char *where, nw_ids *ids, nw_error *err);

#endif
