/* Attention of the reference tier, for its table (ref.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_REF_ATTENTION_H
#define NW_KERNELS_REF_ATTENTION_H

#include "kernels/attention.h"

void nw_ref_attend(const nw_attn *a);

#endif
