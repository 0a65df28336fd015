/* Tokens of one output into text that may be shown: whole characters only, and nothing of a stop
 * string. What could still become a stop string is held back until it is decided; a stop string that
 * spans tokens is found, and so is one made of control tokens' text ("<|im_end|>"), although that
 * text is never shown.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_TEXTOUT_H
#define NW_ENGINE_TEXTOUT_H

#include "base/buf.h"
#include "model/tokenizer.h"

#define NW_STOP_MAX       16  /* stop strings of one request */
#define NW_STOP_MAX_BYTES 256 /* of each */

typedef struct nw_textout nw_textout;

/* The strings are copied. NW_E_RANGE for an empty or too long string or too many. */
NW_MUST_USE nw_status nw_textout_open(const nw_tokenizer *tok, const char *const *stop,
                                      size_t n_stop, nw_textout **out, nw_error *err);
void nw_textout_close(nw_textout *t); /* takes NULL */

/* Appends to *text what the token makes showable. True when it completed a stop string: *text then
 * ends before that string, and the output is over. Ids out of range add nothing. */
bool nw_textout_push(nw_textout *t, int32_t id, nw_buf *text);
/* The output ended otherwise: appends what was held back. */
void nw_textout_flush(nw_textout *t, nw_buf *text);

#endif
