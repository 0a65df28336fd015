/* Lines on stderr that several commands begin with. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_SAY_H
#define NW_CLI_SAY_H

#include <jansson.h>

#include "engine/engine.h"

/* What computes: the tier of the kernels, activations and threads; from facts as
 * nw_engine_facts_json gives them, and nothing where they are NULL or of another program. */
void nw_say_kernels(const json_t *facts);
void nw_say_engine_kernels(const nw_engine *e);

#endif
