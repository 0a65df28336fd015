/* Chat templates: the part of Jinja2 that the models' templates use, rendered as transformers does
 * (trim_blocks, lstrip_blocks, sandboxed). A construct that is not known is refused when the template
 * is parsed, by name and position, and never rendered half. Output keeps its provenance: what the
 * template wrote and what came out of a message are different segments, so that a message cannot
 * forge control tokens.
 *
 * Limits: NW_TEMPLATE_MAX_SOURCE bytes of source, NW_TEMPLATE_MAX_DEPTH levels of nesting,
 * NW_TEMPLATE_MAX_STEPS evaluated nodes, NW_TEMPLATE_MAX_OUTPUT bytes of output or of any string.
 * Threads: a parsed template is immutable.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_TEMPLATE_H
#define NW_MODEL_TEMPLATE_H

#include <jansson.h>

#include "base/arena.h"
#include "base/status.h"
#include "model/tokenizer.h"

#define NW_TEMPLATE_MAX_SOURCE ((size_t)1 << 20)
#define NW_TEMPLATE_MAX_DEPTH  100
#define NW_TEMPLATE_MAX_STEPS  ((size_t)20000000)
#define NW_TEMPLATE_MAX_OUTPUT ((size_t)64 << 20)

typedef struct nw_template nw_template;

/* Rendered text in order; neighbouring segments differ in is_template. All zero is empty. */
typedef struct {
    nw_text_segment *segs;
    size_t n;
    nw_arena arena; /* holds segs and their text */
} nw_segments;

void nw_segments_release(nw_segments *s);
/* The whole text, NUL-terminated; the caller frees it; NULL when there is no memory. */
char *nw_segments_join(const nw_segments *s, size_t *len);

/* `name` stands in messages ("name:line:column: ..."). A construct outside of what is known is
 * NW_E_UNSUPPORTED with its name, a syntax error NW_E_FORMAT. *out is NULL on failure. */
NW_MUST_USE nw_status nw_template_parse(const char *name, const char *src, size_t n,
                                        nw_template **out, nw_error *err);
void nw_template_free(nw_template *t);

/* messages: a list of objects, given to the template as they are. bos and eos are the texts of those
 * tokens (NULL: empty). Strings from messages count as content wherever they end up; numbers and
 * everything else as template text. raise_exception gives NW_E_FORMAT with the template's own words
 * as the message. On failure *out is empty. */
NW_MUST_USE nw_status nw_template_render(const nw_template *t, const json_t *messages,
                                         bool add_generation_prompt, const char *bos,
                                         const char *eos, nw_segments *out, nw_error *err);

/* As above, with further variables for the template (an object such as {"tools": [...]}; may be
 * NULL). Their strings count as content. */
NW_MUST_USE nw_status nw_template_render_vars(const nw_template *t, const json_t *messages,
                                              const json_t *vars, bool add_generation_prompt,
                                              const char *bos, const char *eos, nw_segments *out,
                                              nw_error *err);

/* Renders the tokenizer's own template and encodes it; exactly one BOS where the model wants one.
 * NW_E_UNSUPPORTED where the tokenizer has no template. */
NW_MUST_USE nw_status nw_chat_encode(const nw_tokenizer *tok, const json_t *messages,
                                     bool add_generation_prompt, nw_ids *out, nw_error *err);

#endif
