/* The encoder of keys and values (kv_put.h), compiled for the vectors of the AVX-512 tier.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_attn.h"
#include "kernels/kv_put.h"

void nw_avx512_kv_put(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                      uint8_t *k_page, uint8_t *v_page)
{
    nw_kv_put(kv, slot, k, v, k_page, v_page, nw_avx512_rotate);
}
