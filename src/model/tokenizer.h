/* Tokenizer: text to ids and back, for byte-level BPE, BPE over characters with byte fallback, and
 * SentencePiece BPE (merging by score). Read from GGUF metadata, tokenizer.json, a SentencePiece
 * model or a llama2.c vocabulary; all of these are hostile bytes.
 *
 * What is a control token is decided by the token's type in the file alone. Text becomes a control
 * token only where the caller says that the text is the template's (NW_TOK_SPECIAL, or a segment
 * with is_template): what a user wrote never does. Tokens of type "user defined" (Gemma's runs of
 * newlines) are cut out of any text, as the models expect.
 *
 * Threads: an open tokenizer is immutable; any number of threads may encode and decode with it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_TOKENIZER_H
#define NW_MODEL_TOKENIZER_H

#include <jansson.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/status.h"

/* One call takes at most this many bytes of text; longer text is refused with NW_E_RANGE. Scratch
 * memory is about 50 bytes for each byte of the longest piece that cannot be split. */
#define NW_TOKENIZER_MAX_TEXT ((size_t)64 << 20)

typedef struct nw_tokenizer nw_tokenizer;

/* path: a GGUF file; a folder with tokenizer.json, a SentencePiece model (tokenizer.model, tok*.model)
 * or a llama2.c vocabulary (tokenizer.bin, tok*.bin), tried in this order; one of those files
 * itself; or another file (weights) beside which one of them lies. *out is NULL on failure. */
NW_MUST_USE nw_status nw_tokenizer_open(const char *path, nw_tokenizer **out, nw_error *err);
void nw_tokenizer_close(nw_tokenizer *tok);

/* A growing list of ids. All zero is empty. */
typedef struct {
    int32_t *ids;
    size_t n, cap;
} nw_ids;

void nw_ids_init(nw_ids *v);
void nw_ids_release(nw_ids *v);
NW_MUST_USE bool nw_ids_push(nw_ids *v, int32_t id); /* false: no memory, v unchanged */

enum {
    NW_TOK_BOS = 1,     /* begin with BOS if the model wants one and the text gives none */
    NW_TOK_SPECIAL = 2, /* the text is the template's: control-token text becomes control tokens */
};

/* Appends the ids of the text to *out. Ill-formed UTF-8 counts as U+FFFD. On failure *out is as it
 * was. Cost: near-linear in n_bytes for every text (merging is O(n log n)). */
NW_MUST_USE nw_status nw_tokenizer_encode(const nw_tokenizer *tok, const char *text, size_t n_bytes,
                                          unsigned flags, nw_ids *out, nw_error *err);

/* A piece of a rendered chat: written by the template, or taken from a message. */
typedef struct {
    const char *text; /* n bytes, borrowed */
    size_t n;
    bool is_template;
} nw_text_segment;

/* Encodes the concatenation of the segments as one text, so that for harmless content the ids are
 * those of the whole string; control tokens arise only from bytes that all lie in template text.
 * NW_TOK_SPECIAL is implied for template segments. */
NW_MUST_USE nw_status nw_tokenizer_encode_segments(const nw_tokenizer *tok,
                                                   const nw_text_segment *segs, size_t n_segs,
                                                   unsigned flags, nw_ids *out, nw_error *err);

/* Streaming decoder: hands out whole characters only. Bytes that can no longer become a character
 * come out as U+FFFD, one for each maximal ill-formed part. */
enum {
    NW_DETOK_START = 1, /* the ids start a text: the prefix space that encoding added is dropped */
    NW_DETOK_CONTROL = 2, /* control tokens appear as their text; otherwise as nothing */
};

typedef struct {
    const nw_tokenizer *tok; /* borrowed */
    unsigned flags;
    bool at_start;
    uint8_t n_pending;
    char pending[4]; /* the start of a character that is not complete yet */
} nw_detok;

void nw_detok_init(nw_detok *d, const nw_tokenizer *tok, unsigned flags);
void nw_detok_release(nw_detok *d);
/* False: the id is out of range, or *out is full or without memory (see out->failed). */
bool nw_detok_push(nw_detok *d, int32_t id, nw_buf *out);
/* Ends the text: a character that was never completed becomes U+FFFD. */
bool nw_detok_flush(nw_detok *d, nw_buf *out);

/* Decodes a whole list; a convenience over nw_detok. */
NW_MUST_USE nw_status nw_tokenizer_decode(const nw_tokenizer *tok, const int32_t *ids, size_t n,
                                          unsigned detok_flags, nw_buf *out, nw_error *err);

uint32_t nw_tokenizer_size(const nw_tokenizer *tok);               /* ids are [0, size) */
int32_t nw_tokenizer_bos(const nw_tokenizer *tok);                 /* -1: none */
int32_t nw_tokenizer_eos(const nw_tokenizer *tok);                 /* -1: none */
int32_t nw_tokenizer_pad(const nw_tokenizer *tok);                 /* -1: none */
int32_t nw_tokenizer_unk(const nw_tokenizer *tok);                 /* -1: none */
bool nw_tokenizer_adds_bos(const nw_tokenizer *tok);               /* NW_TOK_BOS has an effect */
bool nw_tokenizer_is_eog(const nw_tokenizer *tok, int32_t id);     /* ends a generation */
bool nw_tokenizer_is_control(const nw_tokenizer *tok, int32_t id); /* the unknown token too */
/* The bytes the id stands for, whatever their number (control tokens: their text); may be a part of
 * a character and may hold NUL. NULL and *len = 0 for an id out of range. Lives as long as tok. */
const char *nw_tokenizer_piece(const nw_tokenizer *tok, int32_t id, size_t *len);
/* The id of the token with exactly this text as the file writes it, or -1. */
int32_t nw_tokenizer_find(const nw_tokenizer *tok, const char *text, size_t len);
/* "byte-bpe", "char-bpe" or "sentencepiece"; and the file it came from. */
const char *nw_tokenizer_kind(const nw_tokenizer *tok);
const char *nw_tokenizer_path(const nw_tokenizer *tok);
/* The chat template's text, or NULL. */
const char *nw_tokenizer_chat_template(const nw_tokenizer *tok);

/* Equal for tokenizers that give the same ids: over the bytes and the kind of every token, BOS and
 * EOS, and the ids of a fixed probe text. A GGUF file and the folder written from it agree. */
nw_digest nw_tokenizer_hash(const nw_tokenizer *tok);

/* Writes tokenizer.json and tokenizer_config.json (and chat_template.jinja where there is a template)
 * into dir, which exists. A tokenizer that came from such files is copied byte for byte; any other is
 * written so that the `tokenizers` library gives the same ids. */
NW_MUST_USE nw_status nw_tokenizer_write_hf(const nw_tokenizer *tok, const char *dir,
                                            nw_error *err);

#endif
