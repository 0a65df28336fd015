/* Vectors of 4 rows or 4 values for the bodies in lanes_*.h: NEON as every AArch64 processor has it,
 * and sdot or usdot where the file is compiled for them. What an operation means is said in
 * lanes.h, its includer. Empty on other architectures.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_NEON_H
#define NW_KERNELS_LANES_NEON_H

#include <string.h>

#include "kernels/tile.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define NW_LANES     4u
#define NW_REGISTERS 32u

typedef float32x4_t nw_lanes_f;
typedef int32x4_t nw_lanes_i;
typedef uint16x4_t nw_lanes_h;

/* ---- loads and stores ---- */

NW_INLINE nw_lanes_f nw_lanes_load(const float *x)
{
    return vld1q_f32(x);
}

NW_INLINE nw_lanes_f nw_lanes_load_n(const float *x, size_t n)
{
    float all[4] = {0};
    memcpy(all, x, n * sizeof *x);
    return vld1q_f32(all);
}

NW_INLINE void nw_lanes_store(float *y, nw_lanes_f x)
{
    vst1q_f32(y, x);
}

NW_INLINE void nw_lanes_store_n(float *y, size_t n, nw_lanes_f x)
{
    float all[4];
    vst1q_f32(all, x);
    memcpy(y, all, n * sizeof *y);
}

NW_INLINE nw_lanes_i nw_lanes_bytes(const uint8_t *p)
{
    return vreinterpretq_s32_u8(vld1q_u8(p));
}

NW_INLINE nw_lanes_h nw_lanes_words_u8(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(x))));
}

NW_INLINE nw_lanes_i nw_lanes_u8(const uint8_t *p)
{
    return vreinterpretq_s32_u32(vmovl_u16(nw_lanes_words_u8(p)));
}

NW_INLINE nw_lanes_f nw_lanes_f16(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

NW_INLINE nw_lanes_i nw_lanes_pairs_u8(const uint8_t *p)
{
    return vreinterpretq_s32_u16(vmovl_u8(vld1_u8(p)));
}

NW_INLINE nw_lanes_i nw_lanes_pairs_s8(const uint8_t *p)
{
    return vreinterpretq_s32_s16(vmovl_s8(vreinterpret_s8_u8(vld1_u8(p))));
}

NW_INLINE nw_lanes_i nw_lanes_table(const uint8_t t[16])
{
    return vreinterpretq_s32_u8(vld1q_u8(t));
}

/* ---- whole numbers ---- */

NW_INLINE nw_lanes_i nw_lanes_int(int32_t x)
{
    return vdupq_n_s32(x);
}

NW_INLINE nw_lanes_i nw_lanes_count(void)
{
    static const int32_t count[4] = {0, 1, 2, 3};
    return vld1q_s32(count);
}

NW_INLINE nw_lanes_i nw_lanes_add_i(nw_lanes_i a, nw_lanes_i b)
{
    return vaddq_s32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_sub_i(nw_lanes_i a, nw_lanes_i b)
{
    return vsubq_s32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_mul_i(nw_lanes_i a, nw_lanes_i b)
{
    return vmulq_s32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_and(nw_lanes_i a, nw_lanes_i b)
{
    return vandq_s32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_or(nw_lanes_i a, nw_lanes_i b)
{
    return vorrq_s32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_lookup(nw_lanes_i table, nw_lanes_i index)
{
    return vreinterpretq_s32_u8(
        vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(index)));
}

NW_INLINE nw_lanes_i nw_lanes_left(nw_lanes_i x, int n)
{
    return vshlq_s32(x, vdupq_n_s32(n));
}

NW_INLINE nw_lanes_i nw_lanes_right(nw_lanes_i x, int n)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(-n)));
}

NW_INLINE nw_lanes_i nw_lanes_right_signed(nw_lanes_i x, int n)
{
    return vshlq_s32(x, vdupq_n_s32(-n));
}

NW_INLINE nw_lanes_i nw_lanes_greater(nw_lanes_i a, nw_lanes_i b)
{
    return vreinterpretq_s32_u32(vcgtq_s32(a, b));
}

/* ---- floats ---- */

NW_INLINE nw_lanes_f nw_lanes_set(float x)
{
    return vdupq_n_f32(x);
}

NW_INLINE nw_lanes_f nw_lanes_add(nw_lanes_f a, nw_lanes_f b)
{
    return vaddq_f32(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_sub(nw_lanes_f a, nw_lanes_f b)
{
    return vsubq_f32(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_mul(nw_lanes_f a, nw_lanes_f b)
{
    return vmulq_f32(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_div(nw_lanes_f a, nw_lanes_f b)
{
    return vdivq_f32(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_fma(nw_lanes_f a, nw_lanes_f b, nw_lanes_f c)
{
    return vfmaq_f32(c, a, b);
}

NW_INLINE nw_lanes_f nw_lanes_max(nw_lanes_f a, nw_lanes_f b)
{
    return vmaxq_f32(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_clamp(nw_lanes_f x, float lo, float hi)
{
    return vminq_f32(vmaxq_f32(x, vdupq_n_f32(lo)), vdupq_n_f32(hi));
}

NW_INLINE nw_lanes_f nw_lanes_round(nw_lanes_f x)
{
    return vrndnq_f32(x);
}

NW_INLINE nw_lanes_i nw_lanes_whole(nw_lanes_f x)
{
    return vcvtnq_s32_f32(x);
}

NW_INLINE nw_lanes_f nw_lanes_float(nw_lanes_i x)
{
    return vcvtq_f32_s32(x);
}

NW_INLINE nw_lanes_f nw_lanes_from_bits(nw_lanes_i x)
{
    return vreinterpretq_f32_s32(x);
}

NW_INLINE nw_lanes_f nw_lanes_pick(nw_lanes_i mask, nw_lanes_f x, nw_lanes_f other)
{
    return vbslq_f32(vreinterpretq_u32_s32(mask), x, other);
}

NW_INLINE float nw_lanes_sum(nw_lanes_f v)
{
    return vaddvq_f32(v);
}

NW_INLINE float nw_lanes_top(nw_lanes_f v)
{
    return vmaxvq_f32(v);
}

/* ---- 16-bit words, one a lane ---- */

NW_INLINE nw_lanes_h nw_lanes_split(const uint8_t *p, unsigned pair)
{
    return vreinterpret_u16_u8(vld1_u8(p + (size_t)pair * 8));
}

NW_INLINE nw_lanes_h nw_lanes_left_h(nw_lanes_h x, int n)
{
    return vshl_u16(x, vdup_n_s16((int16_t)n));
}

NW_INLINE nw_lanes_h nw_lanes_right_h(nw_lanes_h x, int n)
{
    return vshl_u16(x, vdup_n_s16((int16_t)-n));
}

NW_INLINE nw_lanes_h nw_lanes_and_h(nw_lanes_h x, uint16_t mask)
{
    return vand_u16(x, vdup_n_u16(mask));
}

NW_INLINE nw_lanes_h nw_lanes_or_h(nw_lanes_h a, nw_lanes_h b)
{
    return vorr_u16(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_from_f16(nw_lanes_h x)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(x));
}

/* ---- sums of 4 products of bytes ---- */

NW_INLINE nw_lanes_i nw_lanes_flip(nw_lanes_i stored)
{
    return veorq_s32(stored, vdupq_n_s32((int32_t)0x80808080U));
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
NW_INLINE nw_lanes_i nw_lanes_dot_small(nw_lanes_i c, nw_lanes_i w, nw_lanes_i a)
{
    return vusdotq_s32(c, vreinterpretq_u8_s32(w), vreinterpretq_s8_s32(a));
}

NW_INLINE int32_t nw_lanes_dot_start(int32_t sum)
{
    return -128 * sum;
}

NW_INLINE nw_lanes_i nw_lanes_dot_stored(nw_lanes_i c, nw_lanes_i stored, nw_lanes_i a)
{
    return nw_lanes_dot_small(c, stored, a);
}
#else
#if defined(__ARM_FEATURE_DOTPROD)
NW_INLINE nw_lanes_i nw_lanes_dot_small(nw_lanes_i c, nw_lanes_i w, nw_lanes_i a)
{
    return vdotq_s32(c, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(a));
}
#else
/* Two products a pair: at most 128 * 127 * 2 = 32512, so int16 holds them. */
NW_INLINE nw_lanes_i nw_lanes_dot_small(nw_lanes_i c, nw_lanes_i w, nw_lanes_i a)
{
    const int8x16_t x = vreinterpretq_s8_s32(w);
    const int8x16_t y = vreinterpretq_s8_s32(a);
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y));
    return vpadalq_s16(c, vpaddq_s16(low, vmull_high_s8(x, y)));
}
#endif

NW_INLINE int32_t nw_lanes_dot_start(int32_t sum)
{
    (void)sum;
    return 0;
}

NW_INLINE nw_lanes_i nw_lanes_dot_stored(nw_lanes_i c, nw_lanes_i stored, nw_lanes_i a)
{
    return nw_lanes_dot_small(c, nw_lanes_flip(stored), a);
}
#endif

#endif
#endif
