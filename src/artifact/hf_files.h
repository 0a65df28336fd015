/* The small files of a Hugging Face model folder, made from a checkpoint: config.json,
 * generation_config.json, tokenizer.json, tokenizer_config.json, chat_template.jinja.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_HF_FILES_H
#define NW_ARTIFACT_HF_FILES_H

#include "base/json.h"
#include "model/checkpoint.h"

/* generation_config.json and what a folder has of tokenizer and template, byte for byte; says whether the
 * first and tokenizer.json were there. */
NW_MUST_USE nw_status nw_hf_files_copy(const char *from, const char *dir, bool with_tokenizer,
                                       bool *has_generation, bool *has_tokenizer, nw_error *err);

/* torch_dtype: "bfloat16" or "float32". Without `with_tokenizer` the tokenizer files are left out;
 * with it a checkpoint that has no tokenizer is an error. Files that stand in a Hugging Face
 * folder are copied, config.json is written anew. */
NW_MUST_USE nw_status nw_hf_files_write(const nw_checkpoint *c, const char *dir,
                                        const char *torch_dtype, bool with_tokenizer,
                                        nw_error *err);

/* Writes a JSON value with sorted keys, indented, into dir/name; takes the reference. */
NW_MUST_USE nw_status nw_hf_json_write(const char *dir, const char *name, json_t *value,
                                       nw_error *err);

#endif
