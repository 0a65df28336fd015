/* The forward pass written down once more, as plainly as can be: whole sequence, full score matrix,
 * doubles, weights straight from the checkpoint. The engine is held to it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_NAIVE_MODEL_H
#define NW_TESTS_NAIVE_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* Logits [n][n_vocab] after each token; the caller frees them. Ends the test program on failure. */
double *nw_naive_logits(const char *path, const int32_t *ids, size_t n);

#endif
