/* UTF-8 and Unicode for the tokenizer: decoding, repair of invalid bytes, the character classes the
 * pre-tokenizers ask for (general category from utf8proc), normalization forms.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_UNICODE_H
#define NW_MODEL_UNICODE_H

#include "base/buf.h"
#include "base/status.h"

#define NW_REPLACEMENT_CHAR 0xFFFDU

/* Decodes the character at s[0..n), n > 0. Valid: its length (1..4) and *cp. Invalid: *cp = U+FFFD
 * and the length of the maximal ill-formed part (Unicode 15, section 3.9, table 3-8), so that each
 * such part becomes one U+FFFD, as in Python's and the browsers' decoders. *valid may be NULL. */
size_t nw_utf8_decode(const char *s, size_t n, uint32_t *cp, bool *valid);
/* Writes 1..4 bytes; returns how many. cp must be a scalar value (not a surrogate). */
size_t nw_utf8_encode(uint32_t cp, char out[4]);
bool nw_utf8_valid(const char *s, size_t n);
/* Appends s with every ill-formed part replaced by U+FFFD. */
bool nw_utf8_repair(const char *s, size_t n, nw_buf *out);
/* In place, for messages cut to a size: a character that the end cuts goes, any other ill-formed part
 * becomes one '?'. */
void nw_utf8_mend(char *text);

bool nw_is_letter(uint32_t cp); /* \p{L} */
bool nw_is_number(uint32_t cp); /* \p{N} */
bool nw_is_space(uint32_t cp);  /* \s: property White_Space */
/* str.isprintable() of Python: neither other (C*) nor separator (Z*), but the space. */
bool nw_is_printable(uint32_t cp);
bool nw_is_word(uint32_t cp); /* \w: alphabetic, mark, decimal number, connector punctuation */

/* The first place where `what` (n_what > 0 bytes) stands in s, or NULL. */
const char *nw_bytes_find(const char *s, size_t n, const char *what, size_t n_what);

typedef enum { NW_NFC, NW_NFD, NW_NFKC, NW_NFKD } nw_normal_form;

/* Appends the normal form of valid UTF-8. Text that is ASCII is copied. */
NW_MUST_USE nw_status nw_unicode_normalize(const char *s, size_t n, nw_normal_form form,
                                           nw_buf *out, nw_error *err);

#endif
