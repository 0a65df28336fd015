/* Helpers over Jansson: strict loading (duplicate keys refused, position in the message), typed
 * look-ups that name file, key, value found and limit, and a streaming JSONL reader.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_JSON_H
#define NW_BASE_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "base/status.h"

/* Parses n bytes; an integer that int64_t does not hold is a real; `name` stands in messages ("name:line:column: ..."). *out is owned. Depth is
 * bounded by Jansson (2048); memory by a multiple of n. */
NW_MUST_USE nw_status nw_json_parse(const char *name, const char *bytes, size_t n, json_t **out,
                                    nw_error *err);
/* The whole file, at most max_bytes. */
NW_MUST_USE nw_status nw_json_load(const char *path, size_t max_bytes, json_t **out, nw_error *err);
/* Compact text with sorted keys, so that equal values have equal bytes; the caller frees it. */
char *nw_json_canonical(const json_t *value);

/* A value as JSON, for a message: cut after a whole character, "an object", "a list". */
#define NW_JSON_SHOWN 48
const char *nw_json_show(const json_t *v, char buf[NW_JSON_SHOWN]);

/* Typed look-ups in object `obj` called `name`. "opt" variants leave *out untouched where the key
 * is absent or null. Wrong type or out of [lo, hi]: NW_E_FORMAT / NW_E_RANGE naming all. */
NW_MUST_USE nw_status nw_json_u32(const json_t *obj, const char *name, const char *key, uint32_t lo,
                                  uint32_t hi, uint32_t *out, nw_error *err);
NW_MUST_USE nw_status nw_json_opt_u32(const json_t *obj, const char *name, const char *key,
                                      uint32_t lo, uint32_t hi, uint32_t *out, nw_error *err);
NW_MUST_USE nw_status nw_json_opt_double(const json_t *obj, const char *name, const char *key,
                                         double lo, double hi, double *out, nw_error *err);
NW_MUST_USE nw_status nw_json_opt_bool(const json_t *obj, const char *name, const char *key,
                                       bool *out, nw_error *err);
/* Borrowed from obj. */
NW_MUST_USE nw_status nw_json_str(const json_t *obj, const char *name, const char *key,
                                  const char **out, nw_error *err);
NW_MUST_USE nw_status nw_json_opt_str(const json_t *obj, const char *name, const char *key,
                                      const char **out, nw_error *err);

/* Streaming JSONL (house example 9). A last line without newline is an error when `strict_end`;
 * evaluation data from outside often lacks it, our own results never do. */
typedef struct {
    char *path;
    FILE *fp;
    char *line;
    size_t cap;
    size_t line_no;
    bool strict_end;
    json_t *row;
} nw_jsonl;

NW_MUST_USE nw_status nw_jsonl_open(nw_jsonl *r, const char *path, bool strict_end, nw_error *err);
/* The end: NW_OK and *row == NULL. The row belongs to the reader and dies at the next call. */
NW_MUST_USE nw_status nw_jsonl_next(nw_jsonl *r, json_t **row, nw_error *err);
void nw_jsonl_close(nw_jsonl *r);

#endif
