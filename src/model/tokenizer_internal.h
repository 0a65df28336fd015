/* What the files of the tokenizer share: the vocabulary's tables, the steps before merging, the
 * scratch of one call. Readers fill a tokenizer through the nw_vocab_* functions and end with
 * nw_vocab_finish; from then on nothing changes.
 *
 *   text -> repair -> cut out added tokens -> normalize -> cut again -> pre-tokenize -> merge -> ids
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_TOKENIZER_INTERNAL_H
#define NW_MODEL_TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "base/file.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "model/tokenizer_pretok.h"
#include "model/unicode.h"

typedef enum { NW_TOK_BYTE_BPE, NW_TOK_CHAR_BPE, NW_TOK_SPM } nw_tok_kind;

/* As in GGUF's tokenizer.ggml.token_type. */
typedef enum {
    NW_TYPE_NORMAL = 1,
    NW_TYPE_UNKNOWN = 2,
    NW_TYPE_CONTROL = 3,
    NW_TYPE_USER = 4,
    NW_TYPE_UNUSED = 5,
    NW_TYPE_BYTE = 6,
} nw_tok_type;

typedef struct {
    const char *s; /* n bytes and a NUL, in the tokenizer's arena */
    uint32_t n;
} nw_text;

typedef struct {
    uint64_t key; /* left id << 32 | right id; all ones: empty slot */
    uint32_t rank;
    int32_t id;
} nw_merge_slot;

/* A token that is found in text before anything else. */
typedef struct {
    nw_text text;
    int32_t id;
    bool special; /* control: only in template text */
    bool normalized, lstrip, rstrip, single_word;
} nw_added;

typedef struct {
    nw_added *items; /* sorted by text bytes */
    size_t n;
    uint32_t first[257]; /* items whose text begins with byte b: [first[b], first[b + 1]) */
} nw_added_set;

typedef enum {
    NW_NORM_FORM,    /* form */
    NW_NORM_REPLACE, /* from (literal, or regex) by to */
    NW_NORM_PREPEND, /* to, before text that is not empty */
} nw_norm_kind;

typedef struct {
    nw_norm_kind kind;
    nw_normal_form form;
    nw_text from, to;
    nw_regex *regex; /* owned; NULL: literal */
} nw_norm_step;

#define NW_MAX_STEPS 16

struct nw_tokenizer {
    nw_arena arena;
    char *path;          /* the file read */
    char *hf_dir;        /* where tokenizer.json lies, to be copied; NULL otherwise */
    const char *hf_json; /* name of the tokenizer.json read */
    nw_tok_kind kind;

    uint32_t n; /* tokens */
    uint32_t cap;
    nw_text *text;         /* [n] as the file writes them */
    nw_text *bytes;        /* [n] what they stand for */
    uint8_t *type;         /* [n] nw_tok_type */
    float *score;          /* [n], SPM; NULL otherwise */
    uint32_t *slots;       /* open addressing over text: id + 1, 0 = empty */
    size_t n_slots;        /* a power of two */
    uint32_t max_len;      /* bytes of the longest text */
    uint64_t seed;         /* of the hash, so that no file can be built to collide */
    int32_t byte_id[256];  /* token of each byte, or -1 */
    bool joins_space[256]; /* SPM: some piece holds this byte right before U+2581 */

    nw_merge_slot *merges; /* open addressing, BPE */
    size_t n_merge_slots;
    uint64_t *merge_list; /* [n_merges] left << 32 | right, by rank */
    size_t n_merges;

    nw_added *added; /* all, while reading */
    size_t n_added, cap_added;
    nw_added_set raw, normal; /* matched before, and after normalization */
    nw_norm_step norm[NW_MAX_STEPS];
    size_t n_norm;
    nw_pretok pretok;

    bool ignore_merges, byte_fallback, fuse_unk;
    bool split_at_space;    /* words may be cut before a U+2581: no piece spans it (joins_space) */
    bool add_space_prefix;  /* SPM: U+2581 before each stretch of text */
    bool prefix_first_only; /* ... before the first stretch only */
    bool prefix_unless_there; /* ... unless it begins with one (Metaspace) */
    bool collapse_spaces;     /* SPM: no leading, trailing or double spaces */
    bool add_bos;
    bool decode_strip; /* decoding a text drops the space that encoding put in front */
    int32_t bos, eos, unk, pad;
    int32_t model_unk; /* what merging gives for a character without a token; -1: nothing */
    int32_t eog[16];
    size_t n_eog;
    char *chat_template;
};

/* ---- tokenizer_vocab.c: tables ---- */
NW_MUST_USE nw_status nw_vocab_init(nw_tokenizer *t, uint32_t n_tokens, nw_error *err);
/* Token `id` = text; a second token of the same text is kept, but the first one is found by text. */
NW_MUST_USE nw_status nw_vocab_set(nw_tokenizer *t, uint32_t id, const char *s, size_t n,
                                   nw_tok_type type, nw_error *err);
int32_t nw_vocab_find(const nw_tokenizer *t, const char *s, size_t n); /* -1: absent */
NW_MUST_USE nw_status nw_vocab_reserve_merges(nw_tokenizer *t, size_t n, nw_error *err);
/* False: a part or the joined token is not in the vocabulary. */
bool nw_vocab_add_merge(nw_tokenizer *t, const char *left, size_t n_left, const char *right,
                        size_t n_right);
/* -1: the pair does not merge. */
int32_t nw_vocab_merge(const nw_tokenizer *t, int32_t left, int32_t right, uint32_t *rank);
NW_MUST_USE nw_status nw_vocab_add_added(nw_tokenizer *t, const nw_added *a, nw_error *err);
void nw_vocab_add_eog(nw_tokenizer *t, int32_t id);
/* Decoded bytes, byte tokens, sorted added tokens. */
NW_MUST_USE nw_status nw_vocab_finish(nw_tokenizer *t, nw_error *err);
bool nw_vocab_mergeable(const nw_tokenizer *t, int32_t id); /* may arise from plain text */

/* ---- tokenizer_alphabet.c: GPT-2's byte alphabet ---- */
uint32_t nw_byte_to_char(uint8_t b); /* the code point that stands for b */
int nw_char_to_byte(uint32_t cp);    /* -1: stands for none */

/* ---- tokenizer_merge.c ---- */
typedef struct {
    uint32_t prev, next; /* UINT32_MAX: none */
    uint32_t pos, len;   /* bytes of the word; len 0: merged away */
    int32_t id;          /* -1: not in the vocabulary */
} nw_symbol;

typedef struct {
    uint64_t key; /* priority << 32 | left index: the least is merged next, leftmost on ties */
    uint32_t left, right, len;
    int32_t id;
} nw_pair;

typedef struct {
    nw_symbol *sym;
    size_t n_sym, cap_sym;
    nw_pair *heap;
    size_t n_heap, cap_heap;
    const char *word;
    size_t n_word;
} nw_merger;

void nw_merger_release(nw_merger *m);
void nw_merger_begin(nw_merger *m, const char *word, size_t n_word);
NW_MUST_USE bool nw_merger_add(nw_merger *m, size_t pos, size_t len, int32_t id);
/* Merges until nothing merges; the result is the list from sym[0] along next. */
NW_MUST_USE bool nw_merger_run(nw_merger *m, const nw_tokenizer *t);

/* ---- tokenizer_word.c: one word to ids ---- */
typedef struct nw_word_cache nw_word_cache;

typedef struct {
    const nw_tokenizer *tok;
    nw_ids *out;
    nw_error *err;
    nw_merger merger;
    nw_buf a, b; /* text before and after a normalization step */
    nw_buf c;    /* a word in the byte alphabet */
    nw_word_cache *cache;
    bool at_start;    /* no token and no text came before */
    bool after_token; /* an added token, or nothing, came right before */
} nw_encoder;

nw_word_cache *nw_word_cache_new(void); /* NULL: no memory; encoding works without */
void nw_word_cache_free(nw_word_cache *c);
NW_MUST_USE nw_status nw_encode_word(nw_encoder *e, const char *s, size_t n);

/* ---- readers ---- */
NW_MUST_USE nw_status nw_tokenizer_read_gguf(nw_tokenizer *t, const nw_gguf *g, const char *name,
                                             nw_error *err);
NW_MUST_USE nw_status nw_tokenizer_read_json(nw_tokenizer *t, const char *name, const char *bytes,
                                             size_t n, nw_error *err);
/* tokenizer_config.json, chat_template.jinja and generation_config.json beside it, where present. */
NW_MUST_USE nw_status nw_tokenizer_read_hf_config(nw_tokenizer *t, const char *dir, nw_error *err);
NW_MUST_USE nw_status nw_tokenizer_read_sp_model(nw_tokenizer *t, const char *name,
                                                 const uint8_t *bytes, size_t n, nw_error *err);
NW_MUST_USE nw_status nw_tokenizer_read_llama2c(nw_tokenizer *t, const char *name,
                                                const uint8_t *bytes, size_t n, nw_error *err);
/* A tokenizer from bytes in memory, for tests and fuzzing; `read` is one of the readers above. */
nw_tokenizer *nw_tokenizer_new(const char *path, nw_error *err);

#endif
