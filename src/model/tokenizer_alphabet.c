/* GPT-2's byte alphabet: 33-126, 161-172 and 174-255 stand for themselves, the other 68 bytes for
 * U+0100 on, in order (Radford et al. 2019, encoder.py, bytes_to_unicode).
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_internal.h"

static bool stands_for_itself(uint32_t b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

/* The bytes 0-32 (33 of them), 127-160 (34) and 173 are the ones that are moved. */
uint32_t nw_byte_to_char(uint8_t b)
{
    if (stands_for_itself(b)) {
        return b;
    }
    if (b <= 32) {
        return 0x100U + b;
    }
    return b == 173 ? 0x100U + 67 : 0x100U + 33 + (b - 127U);
}

int nw_char_to_byte(uint32_t cp)
{
    if (cp < 0x100) {
        return stands_for_itself(cp) ? (int)cp : -1;
    }
    const uint32_t k = cp - 0x100;
    if (k <= 32) {
        return (int)k;
    }
    if (k <= 66) {
        return (int)(k - 33 + 127);
    }
    return k == 67 ? 173 : -1;
}
