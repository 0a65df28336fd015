/* The registry of number formats on disk: one row a format, with its block, its names in GGUF and
 * safetensors, and its decoder. A format without a decoder is storage: its tensors can be listed,
 * measured and copied, never read as numbers.
 *
 * A row of a matrix is n_cols / block_elems blocks in a run; element j of a block is dst[j].
 * Block layouts: docs of GGUF, checked bit for bit against gguf-py (tests/unit/test_format.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_FORMAT_H
#define NW_FORMATS_FORMAT_H

#include "base/status.h"

/* id, name, elements a block, bytes a block, ggml type (-1: none), safetensors dtype, decode, encode
 */
#define NW_FORMAT_MAP(X)                                                             \
    X(F32, "F32", 1, 4, 0, "F32", nw_decode_f32, nw_encode_f32)                      \
    X(F16, "F16", 1, 2, 1, "F16", nw_decode_f16, nw_encode_f16)                      \
    X(BF16, "BF16", 1, 2, 30, "BF16", nw_decode_bf16, nw_encode_bf16)                \
    X(Q4_0, "Q4_0", 32, 18, 2, NULL, nw_decode_q4_0, nw_encode_q4_0)                 \
    X(Q4_1, "Q4_1", 32, 20, 3, NULL, nw_decode_q4_1, nw_encode_q4_1)                 \
    X(Q5_0, "Q5_0", 32, 22, 6, NULL, nw_decode_q5_0, nw_encode_q5_0)                 \
    X(Q5_1, "Q5_1", 32, 24, 7, NULL, nw_decode_q5_1, nw_encode_q5_1)                 \
    X(Q8_0, "Q8_0", 32, 34, 8, NULL, nw_decode_q8_0, nw_encode_q8_0)                 \
    X(Q4_K, "Q4_K", 256, 144, 12, NULL, nw_decode_q4_k, nw_encode_q4_k)              \
    X(Q5_K, "Q5_K", 256, 176, 13, NULL, nw_decode_q5_k, nw_encode_q5_k)              \
    X(Q6_K, "Q6_K", 256, 210, 14, NULL, nw_decode_q6_k, nw_encode_q6_k)              \
    X(I8, "I8", 1, 1, 24, "I8", NULL, NULL)                                          \
    X(U8, "U8", 1, 1, -1, "U8", NULL, NULL)                                          \
    X(I16, "I16", 1, 2, 25, "I16", NULL, NULL)                                       \
    X(U16, "U16", 1, 2, -1, "U16", NULL, NULL)                                       \
    X(I32, "I32", 1, 4, 26, "I32", NULL, NULL)                                       \
    X(U32, "U32", 1, 4, -1, "U32", NULL, NULL)                                       \
    X(I64, "I64", 1, 8, 27, "I64", NULL, NULL)                                       \
    X(U64, "U64", 1, 8, -1, "U64", NULL, NULL)                                       \
    X(F64, "F64", 1, 8, 28, "F64", NULL, NULL)                                       \
    X(C64, "C64", 1, 8, -1, "C64", NULL, NULL)                                       \
    X(BOOL, "BOOL", 1, 1, -1, "BOOL", NULL, NULL)                                    \
    X(F8_E4M3, "F8_E4M3", 1, 1, -1, "F8_E4M3", nw_decode_f8_e4m3, nw_encode_f8_e4m3) \
    X(F8_E5M2, "F8_E5M2", 1, 1, -1, "F8_E5M2", nw_decode_f8_e5m2, nw_encode_f8_e5m2) \
    X(F8_E8M0, "F8_E8M0", 1, 1, -1, "F8_E8M0", nw_decode_f8_e8m0, NULL)              \
    X(F8_E4M3FNUZ, "F8_E4M3FNUZ", 1, 1, -1, "F8_E4M3FNUZ", NULL, NULL)               \
    X(F8_E5M2FNUZ, "F8_E5M2FNUZ", 1, 1, -1, "F8_E5M2FNUZ", NULL, NULL)               \
    X(F6_E2M3, "F6_E2M3", 4, 3, -1, "F6_E2M3", NULL, NULL)                           \
    X(F6_E3M2, "F6_E3M2", 4, 3, -1, "F6_E3M2", NULL, NULL)                           \
    X(F4, "F4", 2, 1, -1, "F4", nw_decode_f4, nw_encode_f4)                          \
    X(Q8_1, "Q8_1", 32, 36, 9, NULL, NULL, NULL)                                     \
    X(Q2_K, "Q2_K", 256, 84, 10, NULL, NULL, NULL)                                   \
    X(Q3_K, "Q3_K", 256, 110, 11, NULL, NULL, NULL)                                  \
    X(Q8_K, "Q8_K", 256, 292, 15, NULL, NULL, NULL)                                  \
    X(IQ2_XXS, "IQ2_XXS", 256, 66, 16, NULL, NULL, NULL)                             \
    X(IQ2_XS, "IQ2_XS", 256, 74, 17, NULL, NULL, NULL)                               \
    X(IQ3_XXS, "IQ3_XXS", 256, 98, 18, NULL, NULL, NULL)                             \
    X(IQ1_S, "IQ1_S", 256, 50, 19, NULL, NULL, NULL)                                 \
    X(IQ4_NL, "IQ4_NL", 32, 18, 20, NULL, nw_decode_iq4_nl, NULL)                    \
    X(IQ3_S, "IQ3_S", 256, 110, 21, NULL, NULL, NULL)                                \
    X(IQ2_S, "IQ2_S", 256, 82, 22, NULL, NULL, NULL)                                 \
    X(IQ4_XS, "IQ4_XS", 256, 136, 23, NULL, NULL, NULL)                              \
    X(IQ1_M, "IQ1_M", 256, 56, 29, NULL, NULL, NULL)                                 \
    X(TQ1_0, "TQ1_0", 256, 54, 34, NULL, NULL, NULL)                                 \
    X(TQ2_0, "TQ2_0", 256, 66, 35, NULL, NULL, NULL)                                 \
    X(MXFP4, "MXFP4", 32, 17, 39, NULL, nw_decode_mxfp4, nw_encode_mxfp4)            \
    X(NVFP4, "NVFP4", 64, 36, 40, NULL, nw_decode_nvfp4, nw_encode_nvfp4)            \
    X(Q1_0, "Q1_0", 128, 18, 41, NULL, NULL, NULL)                                   \
    X(Q2_0, "Q2_0", 64, 18, 42, NULL, NULL, NULL)

typedef enum {
#define NW_FORMAT_ENUM(id, name, elems, bytes, ggml, st, decode, encode) NW_FMT_##id,
    NW_FORMAT_MAP(NW_FORMAT_ENUM)
#undef NW_FORMAT_ENUM
        NW_FMT_COUNT
} nw_format_id;

/* src need not be aligned; dst holds n_blocks * block_elems floats; the two do not overlap. */
typedef void (*nw_decode_fn)(const uint8_t *src, float *dst, size_t n_blocks);
typedef void (*nw_encode_fn)(const float *src, uint8_t *dst, size_t n_blocks);

typedef struct {
    nw_format_id id;
    const char *name; /* "Q4_K": as GGUF and safetensors spell it */
    uint32_t block_elems, block_bytes;
    int32_t ggml_type;    /* -1: GGUF has no such type */
    const char *st_dtype; /* NULL: safetensors has no such dtype */
    nw_decode_fn decode;  /* NULL: storage only */
    nw_encode_fn encode;  /* NULL: not written by this registry */
} nw_format;

const nw_format *nw_format_get(nw_format_id id);           /* never NULL for a valid id */
const nw_format *nw_format_by_name(const char *name);      /* NULL: unknown */
const nw_format *nw_format_by_ggml(int32_t ggml_type);     /* NULL: unknown or removed */
const nw_format *nw_format_by_st_dtype(const char *dtype); /* NULL: unknown */

/* Bytes of n_elems elements in whole blocks; false when n_elems is no multiple of the block or the
 * size does not fit a size_t. */
NW_MUST_USE bool nw_format_bytes(const nw_format *f, uint64_t n_elems, size_t *out);

#endif
