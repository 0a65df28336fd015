/* A set of names taken from a file: kept as NUL-terminated copies, searched by bisection, duplicates
 * found by sorting. Cost n log n whatever the names are, so that no file can be made slow to open by
 * choosing them; memory about the bytes of the names plus 16 bytes a name. All zero is empty.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_NAMES_H
#define NW_MODEL_NAMES_H

#include "base/status.h"

typedef struct {
    char *text; /* the names one after the other, each with its NUL */
    size_t n_text, cap_text;
    size_t *at;    /* name i starts at text + at[i] */
    size_t *order; /* indices sorted by name; NULL before seal */
    size_t n, cap;
} nw_names;

/* Appends a name (index: the count before); false without memory. The name must hold no NUL. */
NW_MUST_USE bool nw_names_add(nw_names *s, const char *name, size_t len);
void nw_names_release(nw_names *s);

/* Ends the adding. *dup is set to the index of a name that occurred before, or to the count. From
 * here on pointers given by nw_names_at stay valid until release. False without memory. */
NW_MUST_USE bool nw_names_seal(nw_names *s, size_t *dup);

const char *nw_names_at(const nw_names *s, size_t i);
/* The index of a name, or the count when it is absent. Sealed sets only. */
size_t nw_names_find(const nw_names *s, const char *name);
/* Index of the i-th name in sorted order. */
size_t nw_names_sorted(const nw_names *s, size_t i);

/* Bytes from a file as they may be shown in a message: cut to fit, control bytes and quotes as \xNN,
 * so that a name cannot write to a terminal. Returns buf. */
const char *nw_name_show(const char *bytes, size_t len, char *buf, size_t n);

#endif
