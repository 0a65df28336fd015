/* SHA-256's blocks by the SHA instructions of x86: under hash.c, which does the rest.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_SHA256_X86_H
#define NW_BASE_SHA256_X86_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool nw_sha256_x86_runs(void); /* here */
/* n_blocks of 64 bytes. */
void nw_sha256_x86_blocks(uint32_t state[8], const uint8_t *bytes, size_t n_blocks);
/* Of two messages, as many of each. */
void nw_sha256_x86_blocks_two(uint32_t *const state[2], const uint8_t *const bytes[2],
                              size_t n_blocks);

#endif
