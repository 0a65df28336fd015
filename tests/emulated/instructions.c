/* What the emulator makes of the instructions that few others use, against their definition in plain C,
 * before a kernel is blamed: random operands with zeros, ends of the range and subnormals among them.
 * Source: Intel SDM vol. 2 (VPDPBUSD, VDPBF16PS, VPERMB, VPERMI2B, VPERMW, VCVTNE2PS2BF16, VSCALEFPS,
 * VREDUCEPS, VPACKUSDW, VCVTPH2PS).
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "formats/half.h"

#define TRIALS 2000
/* only these functions are compiled for AVX-512, so that the definitions stay plain */
#define REAL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vnni,avx512vbmi,avx512bf16")))

typedef union {
    __m512i v;
    __m512 ps;
    __m512bh bh;
    uint8_t u8[64];
    int8_t s8[64];
    uint16_t u16[32];
    uint32_t u32[16];
    int32_t s32[16];
    float f32[16];
} reg;

typedef struct {
    reg a, b, c;
} operands;

/* One instruction and the same from its definition. */
typedef struct {
    const char *name;
    void (*real)(operands *o, reg *out);
    void (*plain)(const operands *o, reg *out);
    void (*fill)(operands *o, nw_rng *rng);
} instruction;

static void fill_bits(operands *o, nw_rng *rng)
{
    for (size_t i = 0; i < 64; i++) {
        o->a.u8[i] = (uint8_t)nw_rng_u64(rng);
        o->b.u8[i] = (uint8_t)nw_rng_u64(rng);
        o->c.u8[i] = (uint8_t)nw_rng_u64(rng);
    }
    if (nw_rng_below(rng, 8) == 0) {
        memset(o->b.u8, 0xff, 64);
        memset(o->c.u8, 0x80, 64);
    }
}

/* Floats of moderate size, in pairs of BF16 for b and c; a subnormal BF16 or a zero now and then. */
static void fill_floats(operands *o, nw_rng *rng)
{
    for (size_t i = 0; i < 16; i++) {
        o->a.f32[i] = (float)nw_rng_normal(rng);
    }
    for (size_t i = 0; i < 32; i++) {
        const uint64_t rare = nw_rng_below(rng, 16);
        o->b.u16[i] = nw_bf16_from_f32((float)nw_rng_normal(rng));
        if (rare < 2) {
            o->b.u16[i] = rare == 0 ? (uint16_t)nw_rng_below(rng, 128) : (uint16_t)0x8000;
        }
        o->c.u16[i] = nw_bf16_from_f32((float)nw_rng_normal(rng));
    }
}

static void fill_f32(operands *o, nw_rng *rng)
{
    for (size_t i = 0; i < 16; i++) {
        o->a.f32[i] = (float)ldexp(nw_rng_normal(rng), (int)nw_rng_below(rng, 60) - 30);
        o->b.f32[i] = (float)nw_rng_below(rng, 40) - 20;
        o->c.f32[i] = (float)nw_rng_normal(rng);
    }
}

REAL static void real_dpbusd(operands *o, reg *out)
{
    out->v = _mm512_dpbusd_epi32(o->a.v, o->b.v, o->c.v);
}

static void plain_dpbusd(const operands *o, reg *out)
{
    for (size_t i = 0; i < 16; i++) {
        uint32_t sum = o->a.u32[i];
        for (size_t t = 0; t < 4; t++) {
            sum += (uint32_t)(o->b.u8[4 * i + t] * o->c.s8[4 * i + t]);
        }
        out->u32[i] = sum;
    }
}

REAL static void real_dpbf16(operands *o, reg *out)
{
    out->ps = _mm512_dpbf16_ps(o->a.ps, o->b.bh, o->c.bh);
}

/* The value as the instruction reads it: subnormal is 0. */
static float bf16_operand(uint16_t h)
{
    return (h & 0x7f80) == 0 ? 0 : nw_bf16_to_f32(h);
}

static void plain_dpbf16(const operands *o, reg *out)
{
    for (size_t i = 0; i < 16; i++) {
        float sum = o->a.f32[i];
        for (size_t t = 2;
             t-- > 0;) { /* the high half first, each product added with one rounding */
            sum = fmaf(bf16_operand(o->b.u16[2 * i + t]), bf16_operand(o->c.u16[2 * i + t]), sum);
        }
        out->f32[i] = sum;
    }
}

REAL static void real_permb(operands *o, reg *out)
{
    out->v = _mm512_permutexvar_epi8(o->a.v, o->b.v);
}

static void plain_permb(const operands *o, reg *out)
{
    for (size_t i = 0; i < 64; i++) {
        out->u8[i] = o->b.u8[o->a.u8[i] & 63];
    }
}

REAL static void real_permi2b(operands *o, reg *out)
{
    out->v = _mm512_permutex2var_epi8(o->b.v, o->a.v, o->c.v);
}

static void plain_permi2b(const operands *o, reg *out)
{
    for (size_t i = 0; i < 64; i++) {
        const uint8_t at = o->a.u8[i] & 127;
        out->u8[i] = at < 64 ? o->b.u8[at] : o->c.u8[at - 64];
    }
}

REAL static void real_permw(operands *o, reg *out)
{
    out->v = _mm512_permutexvar_epi16(o->a.v, o->b.v);
}

static void plain_permw(const operands *o, reg *out)
{
    for (size_t i = 0; i < 32; i++) {
        out->u16[i] = o->b.u16[o->a.u16[i] & 31];
    }
}

REAL static void real_packusdw(operands *o, reg *out)
{
    out->v = _mm512_packus_epi32(o->a.v, o->b.v);
}

static void plain_packusdw(const operands *o, reg *out)
{
    for (size_t i = 0; i < 32; i++) { /* within each 16 bytes: four of a, then four of b */
        const int32_t v = (i % 8 < 4 ? &o->a : &o->b)->s32[i / 8 * 4 + i % 4];
        out->u16[i] = (uint16_t)(v < 0 ? 0 : v > 65535 ? 65535 : v);
    }
}

REAL static void real_cvtne2(operands *o, reg *out)
{
    out->bh = _mm512_cvtne2ps_pbh(o->a.ps, o->c.ps);
}

static void plain_cvtne2(const operands *o, reg *out)
{
    for (size_t i = 0; i < 16; i++) {
        out->u16[i] = nw_bf16_from_f32(o->c.f32[i]);
        out->u16[16 + i] = nw_bf16_from_f32(o->a.f32[i]);
    }
}

REAL static void real_cvtph(operands *o, reg *out)
{
    out->ps = _mm512_cvtph_ps(_mm512_castsi512_si256(o->b.v));
}

static void plain_cvtph(const operands *o, reg *out)
{
    for (size_t i = 0; i < 16; i++) {
        out->f32[i] = nw_f16_to_f32(o->b.u16[i]);
        /* a NaN becomes a quiet one */
        out->u32[i] |= (out->u32[i] & 0x7fffffff) > 0x7f800000 ? 0x400000 : 0;
    }
}

REAL static void real_scalef(operands *o, reg *out)
{
    out->ps = _mm512_scalef_ps(o->a.ps, o->b.ps);
}

static void plain_scalef(const operands *o, reg *out)
{
    for (size_t i = 0; i < 16; i++) {
        out->f32[i] = ldexpf(o->a.f32[i], (int)floorf(o->b.f32[i]));
    }
}

REAL static void real_reduce(operands *o, reg *out)
{
    out->ps = _mm512_reduce_ps(o->c.ps, 0);
}

static void plain_reduce(const operands *o, reg *out)
{
    for (size_t i = 0; i < 16; i++) {
        out->f32[i] = o->c.f32[i] - nearbyintf(o->c.f32[i]);
    }
}

static const instruction instructions[] = {
    {"vpdpbusd", real_dpbusd, plain_dpbusd, fill_bits},
    {"vdpbf16ps", real_dpbf16, plain_dpbf16, fill_floats},
    {"vpermb", real_permb, plain_permb, fill_bits},
    {"vpermi2b", real_permi2b, plain_permi2b, fill_bits},
    {"vpermw", real_permw, plain_permw, fill_bits},
    {"vpackusdw", real_packusdw, plain_packusdw, fill_bits},
    {"vcvtne2ps2bf16", real_cvtne2, plain_cvtne2, fill_f32},
    {"vcvtph2ps", real_cvtph, plain_cvtph, fill_bits},
    {"vscalefps", real_scalef, plain_scalef, fill_f32},
    {"vreduceps", real_reduce, plain_reduce, fill_f32},
};

/* The first value that differs, printed; true where there is none. */
static bool same(const instruction *in, nw_rng *rng)
{
    for (unsigned trial = 0; trial < TRIALS; trial++) {
        operands o;
        reg got, want;
        in->fill(&o, rng);
        in->real(&o, &got);
        in->plain(&o, &want);
        for (size_t i = 0; i < 16; i++) {
            if (got.u32[i] != want.u32[i]) {
                printf("%s trial %u [%zu]: %08x, by its definition %08x\n", in->name, trial, i,
                       got.u32[i], want.u32[i]);
                return false;
            }
        }
    }
    return true;
}

int main(void)
{
    const size_t n = sizeof instructions / sizeof instructions[0];
    nw_rng rng = nw_rng_seed(1);
    int failed = 0;

    for (size_t i = 0; i < n; i++) {
        failed += same(&instructions[i], &rng) ? 0 : 1;
    }
    printf("%zu instructions, %d not as defined\n", n, failed);
    return failed != 0;
}
