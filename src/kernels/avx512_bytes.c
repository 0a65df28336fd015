/* The tables of avx512_bytes.h, made by the preprocessor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_bytes.h"

#define TOP(n) (31 - __builtin_clz((unsigned)(n) | 1)) /* place of the top bit; n >= 0 */
/* The BF16 bits of n * 2^e for 0 <= n < 256. */
#define BF16_OF(n, e) ((n) == 0 ? 0 : (127 + (e) + TOP(n)) << 7 | (((n) << 7 >> TOP(n)) & 0x7F))

/* fp8 with m bits of mantissa and exponent bias b: subnormal below 2^m, else 1.f * 2^(e - b). */
#define FP8(i, m, b)                               \
    ((i) >> (m) == 0 ? BF16_OF((i), 1 - (b) - (m)) \
                     : BF16_OF((1 << (m)) | ((i) & ((1 << (m)) - 1)), ((i) >> (m)) - (b) - (m)))
/* E4M3 has one NaN and no infinity; E5M2 is the upper byte of an IEEE binary16. */
#define E4M3(i) ((i) == 0x7F ? 0x7FC0 : FP8(i, 3, 7))
#define E5M2(i) ((i) > 0x7C ? 0x7FC0 : (i) == 0x7C ? 0x7F80 : FP8(i, 2, 15))

#define HIGH(f, i)    ((uint8_t)(f(i) >> 8))
#define LOW(f, i)     ((uint8_t)(f(i) & 0xFF))
#define R4(g, f, i)   g(f, i), g(f, (i) + 1), g(f, (i) + 2), g(f, (i) + 3)
#define R16(g, f, i)  R4(g, f, i), R4(g, f, (i) + 4), R4(g, f, (i) + 8), R4(g, f, (i) + 12)
#define R64(g, f, i)  R16(g, f, i), R16(g, f, (i) + 16), R16(g, f, (i) + 32), R16(g, f, (i) + 48)
#define R128(g, f, i) R64(g, f, i), R64(g, f, (i) + 64)

const _Alignas(64) uint8_t nw_bf16_of_e4m3[2][128] = {{R128(HIGH, E4M3, 0)}, {R128(LOW, E4M3, 0)}};
const _Alignas(64) uint8_t nw_bf16_of_e5m2[2][128] = {{R128(HIGH, E5M2, 0)}, {R128(LOW, E5M2, 0)}};
