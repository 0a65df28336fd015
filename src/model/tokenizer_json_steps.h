/* The components of a tokenizer.json around its model; each reader takes the component's JSON value,
 * which may be null or absent, and fills the tokenizer.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_TOKENIZER_JSON_STEPS_H
#define NW_MODEL_TOKENIZER_JSON_STEPS_H

#include <jansson.h>

#include "model/tokenizer_internal.h"

/* Sets the kind to byte-level BPE where a ByteLevel component stands. */
NW_MUST_USE nw_status nw_json_read_pre_tokenizer(nw_tokenizer *t, const json_t *v, nw_error *err);
NW_MUST_USE nw_status nw_json_read_normalizer(nw_tokenizer *t, const json_t *v, nw_error *err);
/* BOS of a TemplateProcessing. */
NW_MUST_USE nw_status nw_json_read_post_processor(nw_tokenizer *t, const json_t *v, nw_error *err);

#endif
