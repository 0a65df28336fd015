/* A SentencePiece model (.model), a protobuf. Only what changes ids is read; the wire format is
 * walked with every length held against the bytes left.
 *
 *   ModelProto      1 pieces (repeated) {1 piece, 2 score f32, 3 type}   2 trainer   3 normalizer
 *   TrainerSpec     3 model_type (2 = BPE)  24 space_as_suffix  35 byte_fallback
 *                   40 unk_id  41 bos_id  42 eos_id  43 pad_id
 *   NormalizerSpec  2 precompiled_charsmap  3 add_dummy_prefix  4 remove_extra_whitespaces
 *                   5 escape_whitespaces
 *
 * Source: sentencepiece_model.proto (types and defaults). A model with a character map (nmt_nfkc) or
 * of another kind than BPE is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "model/tokenizer_internal.h"

#define SPACE_MARK "\xE2\x96\x81"

typedef struct {
    const uint8_t *p, *end;
} reader;

typedef struct {
    uint32_t number; /* of the field */
    uint32_t wire;   /* 0 varint, 1 fixed64, 2 bytes, 5 fixed32 */
    uint64_t value;  /* of a varint or a fixed */
    reader bytes;    /* wire 2 */
} field;

static bool varint(reader *r, uint64_t *out)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        const uint8_t b = *r->p++;
        v |= (uint64_t)(b & 0x7FU) << shift;
        if ((b & 0x80U) == 0) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool fixed(reader *r, size_t n, uint64_t *out)
{
    if ((size_t)(r->end - r->p) < n) {
        return false;
    }
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        *out |= (uint64_t)*r->p++ << (8 * i);
    }
    return true;
}

/* The next field; false at the end, and with *bad set where the bytes are no field. */
static bool next(reader *r, field *f, bool *bad)
{
    uint64_t tag = 0;

    if (r->p == r->end || *bad) {
        return false;
    }
    *bad = true;
    if (!varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX) {
        return false;
    }
    *f = (field){.number = (uint32_t)(tag >> 3), .wire = (uint32_t)(tag & 7)};
    switch (f->wire) {
    case 0:
        *bad = !varint(r, &f->value);
        break;
    case 1:
    case 5:
        *bad = !fixed(r, f->wire == 1 ? 8 : 4, &f->value);
        break;
    case 2:
        if (varint(r, &f->value) && f->value <= (uint64_t)(r->end - r->p)) {
            f->bytes = (reader){r->p, r->p + f->value};
            r->p += f->value;
            *bad = false;
        }
        break;
    default:
        break;
    }
    return !*bad;
}

static nw_status damaged(const nw_tokenizer *t, const char *what, const reader *r,
                         const uint8_t *start, nw_error *err)
{
    return nw_fail(err, NW_E_FORMAT, "%s: %s is not a valid protobuf message at byte %zu of %zu",
                   t->path, what, (size_t)(r->p - start), (size_t)(r->end - start));
}

static nw_status add_piece(nw_tokenizer *t, uint32_t id, reader text, uint64_t type, nw_error *err)
{
    if (text.p == text.end || type < NW_TYPE_NORMAL || type > NW_TYPE_BYTE) {
        return nw_fail(err, NW_E_FORMAT, "%s: piece %u is empty or of unknown type %llu", t->path,
                       id, (unsigned long long)type);
    }
    if (isnan(t->score[id])) {
        return nw_fail(err, NW_E_FORMAT, "%s: the score of piece %u is not a number", t->path, id);
    }
    if (nw_vocab_set(t, id, (const char *)text.p, (size_t)(text.end - text.p), (nw_tok_type)type,
                     err) != NW_OK) {
        return err->code;
    }
    const bool plain = type == NW_TYPE_NORMAL || type == NW_TYPE_UNUSED || type == NW_TYPE_BYTE;
    const nw_added a = {.text = t->text[id], .id = (int32_t)id, .special = type != NW_TYPE_USER};
    return plain ? NW_OK : nw_vocab_add_added(t, &a, err);
}

static nw_status read_piece(nw_tokenizer *t, uint32_t id, reader r, nw_error *err)
{
    const uint8_t *start = r.p;
    field f = {0};
    bool bad = false;
    reader text = {NULL, NULL};
    uint64_t type = NW_TYPE_NORMAL;

    while (next(&r, &f, &bad)) {
        if (f.number == 1 && f.wire == 2) {
            text = f.bytes;
        } else if (f.number == 2 && f.wire == 5) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&t->score[id], &bits, sizeof bits);
        } else if (f.number == 3 && f.wire == 0) {
            type = f.value;
        }
    }
    return bad ? damaged(t, "a piece", &r, start, err) : add_piece(t, id, text, type, err);
}

static int32_t as_id(const nw_tokenizer *t, uint64_t value)
{
    return value < t->n ? (int32_t)value : -1; /* -1, "none", arrives as 2^64 - 1 */
}

static nw_status read_trainer(nw_tokenizer *t, reader r, nw_error *err)
{
    const uint8_t *start = r.p;
    field f = {0};
    bool bad = false;
    uint64_t model_type = 1;

    while (next(&r, &f, &bad)) {
        if (f.wire != 0) {
            continue;
        }
        switch (f.number) {
        case 3:
            model_type = f.value;
            break;
        case 24:
            if (f.value != 0) {
                return nw_fail(err, NW_E_UNSUPPORTED, "%s: spaces at the end of pieces", t->path);
            }
            break;
        case 35:
            t->byte_fallback = f.value != 0;
            break;
        case 40:
            t->unk = as_id(t, f.value);
            break;
        case 41:
            t->bos = as_id(t, f.value);
            break;
        case 42:
            t->eos = as_id(t, f.value);
            break;
        case 43:
            t->pad = as_id(t, f.value);
            break;
        default:
            break;
        }
    }
    if (bad) {
        return damaged(t, "the trainer's part", &r, start, err);
    }
    if (model_type != 2) {
        static const char *const names[] = {"of no kind", "unigram", "bpe", "word", "char"};
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: a SentencePiece model %s, known is bpe", t->path,
                       model_type < NW_COUNT(names) ? names[model_type] : "of unknown kind");
    }
    return NW_OK;
}

static nw_status read_normalizer(nw_tokenizer *t, reader r, nw_error *err)
{
    const uint8_t *start = r.p;
    field f = {0};
    bool bad = false;

    while (next(&r, &f, &bad)) {
        if (f.number == 2 && f.wire == 2 && f.bytes.p != f.bytes.end) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "%s: a precompiled character map of %zu bytes (known is the identity)",
                           t->path, (size_t)(f.bytes.end - f.bytes.p));
        }
        if (f.number == 3 && f.wire == 0) {
            t->add_space_prefix = f.value != 0;
        } else if (f.number == 4 && f.wire == 0) {
            t->collapse_spaces = f.value != 0;
        } else if (f.number == 5 && f.wire == 0 && f.value == 0) {
            return nw_fail(err, NW_E_UNSUPPORTED, "%s: spaces that are not escaped", t->path);
        }
    }
    return bad ? damaged(t, "the normalizer's part", &r, start, err) : NW_OK;
}

/* What a file that says nothing means (sentencepiece_model.proto), and what narrow adds. */
static void set_defaults(nw_tokenizer *t)
{
    t->kind = NW_TOK_SPM;
    t->unk = 0;
    t->bos = t->n > 1 ? 1 : -1;
    t->eos = t->n > 2 ? 2 : -1;
    t->add_bos = true;
    t->add_space_prefix = true;
    t->fuse_unk = true;
    t->norm[t->n_norm++] =
        (nw_norm_step){.kind = NW_NORM_REPLACE, .from = {" ", 1}, .to = {SPACE_MARK, 3}};
}

static nw_status read_fields(nw_tokenizer *t, reader r, nw_error *err)
{
    field f = {0};
    bool bad = false;
    uint32_t id = 0;
    nw_status st = NW_OK;
    reader trainer = {r.p, r.p};

    t->collapse_spaces = true;
    while (st == NW_OK && next(&r, &f, &bad)) {
        if (f.number == 1 && f.wire == 2) {
            st = read_piece(t, id++, f.bytes, err);
        } else if (f.number == 2 && f.wire == 2) {
            trainer = f.bytes;
        } else if (f.number == 3 && f.wire == 2) {
            st = read_normalizer(t, f.bytes, err);
        }
    }
    return st == NW_OK ? read_trainer(t, trainer, err) : st;
}

nw_status nw_tokenizer_read_sp_model(nw_tokenizer *t, const char *name, const uint8_t *bytes,
                                     size_t n, nw_error *err)
{
    const reader all = {bytes, n == 0 ? bytes : bytes + n};
    reader r = all;
    field f = {0};
    bool bad = false;
    uint32_t n_pieces = 0;

    while (next(&r, &f, &bad)) {
        n_pieces += f.number == 1 && f.wire == 2;
    }
    if (bad || n_pieces == 0) {
        return bad ? damaged(t, "the model", &r, all.p, err)
                   : nw_fail(err, NW_E_FORMAT, "%s: no pieces in %zu bytes", name, n);
    }
    if (nw_vocab_init(t, n_pieces, err) != NW_OK) {
        return err->code;
    }
    t->score = nw_arena_array(&t->arena, n_pieces, sizeof *t->score);
    if (t->score == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %u scores", name, n_pieces);
    }
    set_defaults(t);
    if (read_fields(t, all, err) != NW_OK) {
        return err->code;
    }
    t->model_unk = t->unk;
    t->decode_strip = t->add_space_prefix;
    return nw_vocab_finish(t, err);
}
