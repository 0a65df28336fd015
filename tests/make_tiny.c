/* Writes one of the seeded tiny models, for tests that are scripts.
 * usage: make_tiny llama|wide|gemma3|qwen2|qwen3|mistral DIR
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "tiny_model.h"

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        nw_model_config (*make)(void);
    } models[] = {{"llama", nw_tiny_llama}, {"wide", nw_tiny_wide},   {"gemma3", nw_tiny_gemma3},
                  {"qwen2", nw_tiny_qwen2}, {"qwen3", nw_tiny_qwen3}, {"mistral", nw_tiny_mistral}};

    for (size_t i = 0; argc == 3 && i < NW_COUNT(models); i++) {
        if (strcmp(models[i].name, argv[1]) == 0) {
            const nw_model_config c = models[i].make();
            nw_tiny_write(&c, 1, argv[2]);
            return 0;
        }
    }
    (void)fprintf(stderr, "usage: make_tiny llama|wide|gemma3|qwen2|qwen3|mistral DIR\n");
    return 2;
}
