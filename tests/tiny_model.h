/* A seeded tiny model in a Hugging Face folder: config.json, model.safetensors, tokenizer.json,
 * tokenizer_config.json with a chat template. Widths are odd on purpose (no multiple of 16 or 32).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_TINY_MODEL_H
#define NW_TESTS_TINY_MODEL_H

#include "model/config.h"

/* 256 bytes, then <s>, </s>, <|user|>, <|end|>: the ids of the byte-level tokenizer. */
#define NW_TINY_VOCAB 260
#define NW_TINY_BOS   256
#define NW_TINY_EOS   257

/* Two layers, four query heads on two kv heads, untied. */
nw_model_config nw_tiny_llama(void);
/* The same with widths of 64 and 96, which groups of 32 divide. */
nw_model_config nw_tiny_wide(void);
/* Four layers, the third one global, a window of 20 tokens, tied, all of gemma's norms. */
nw_model_config nw_tiny_gemma3(void);

/* As wide and as deep as nw_tiny_llama: biases on q, k and v (which are large), tied. */
nw_model_config nw_tiny_qwen2(void);
/* Norms on q and k, heads of 20 that are no n-th part of the width; the second layer sees a window. */
nw_model_config nw_tiny_qwen3(void);
/* All layers see a window of 20 tokens. */
nw_model_config nw_tiny_mistral(void);

/* Writes the folder `dir` (made if absent), weights float32 from `seed`: normal with variance
 * 1 / n_cols, norm gains near 1. Ends the test program on failure. */
void nw_tiny_write(const nw_model_config *c, uint64_t seed, const char *dir);

#endif
