/* Option rows that several commands share, so that one thing has one name, one default and one help.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_OPTION_ROWS_H
#define NW_CLI_OPTION_ROWS_H

#include "cli/options.h"
#include "formats/act_rule.h"

/* ---- of an engine ---- */
#define NW_OPTION_THREADS                                                               \
    {                                                                                   \
        .name = "threads", .letter = 't', .type = NW_OPT_INT, .fallback = "0", .lo = 0, \
        .hi = 1024, .unit = "threads",                                                  \
        .help = "threads of the engine; 0 for all this process may use"                 \
    }
#define NW_OPTION_TIER                                                         \
    {                                                                          \
        .name = "tier", .type = NW_OPT_STRING, .unit = "TIER",                 \
        .help = "kernel tier, such as ref; by default the best that runs here" \
    }
#define NW_OPTION_KV                                                                              \
    {                                                                                             \
        .name = "kv", .type = NW_OPT_STRING, .unit = "KIND",                                      \
        .help = "keys and values as f32, bf16, fp8, int8, int4 or KEYS/VALUES, then any of "      \
                "+windowN and +sinksN (newest and first tokens in BF16), +channel (calibrated "   \
                "scales of key channels), +dynamic; by default as the artifact says, else bf16, " \
                "and f32 for a model in F32"                                                      \
    }
#define NW_OPTION_ACT                                                                          \
    {                                                                                          \
        .name = "act", .type = NW_OPT_CHOICE, .choices = NW_ACT_RULE_NAMES,                    \
        .help = "activations of quantized matrices; a8 also for attention over int8 and int4 " \
                "keys and "                                                                    \
                "values; by default as the artifact says"                                      \
    }

/* ---- of what is written ---- */
#define NW_OPTION_OUT                                                                         \
    {                                                                                         \
        .name = "out", .letter = 'o', .type = NW_OPT_STRING, .unit = "DIR", .required = true, \
        .help = "folder to be made; it appears whole or not at all"                           \
    }
#define NW_OPTION_WORK_THREADS                                                           \
    {                                                                                    \
        .name = "threads", .letter = 't', .type = NW_OPT_INT, .fallback = "0", .lo = 0,  \
        .hi = 1024, .unit = "threads",                                                   \
        .help = "threads; 0 for all this process may use; the bytes do not depend on it" \
    }
#define NW_OPTION_FORCE                                                                        \
    {                                                                                          \
        .name = "force", .type = NW_OPT_FLAG, .help = "replace an earlier result of that name" \
    }
#define NW_OPTION_NO_FALLBACK                                                                \
    {                                                                                        \
        .name = "no-fallback", .type = NW_OPT_FLAG,                                          \
        .help = "refuse what the format cannot hold, in place of writing it in another type" \
    }

/* ---- of samples that are drawn ---- */
#define NW_OPTION_SAMPLE_LOG                                                                  \
    {                                                                                         \
        .name = "log", .type = NW_OPT_STRING, .unit = "FILE",                                 \
        .help = "JSONL log of production: rows with messages, text, or prompt and completion" \
    }
#define NW_OPTION_SAMPLE_TEXT                                                      \
    {                                                                              \
        .name = "text", .type = NW_OPT_STRING, .unit = "FILE",                     \
        .help = "plain text in place of a log, cut into windows of --n-ctx tokens" \
    }
#define NW_OPTION_SAMPLES(most, otherwise)                                                     \
    {                                                                                          \
        .name = "samples", .type = NW_OPT_INT, .fallback = (otherwise), .lo = 1, .hi = (most), \
        .unit = "samples", .help = "samples to draw"                                           \
    }
#define NW_OPTION_SAMPLE_TOKENS(otherwise, note)                                            \
    {                                                                                       \
        .name = "n-ctx", .type = NW_OPT_INT, .fallback = (otherwise), .lo = 2, .hi = 65536, \
        .unit = "tokens", .help = "longest sample; " note                                   \
    }
#define NW_OPTION_SAMPLE_SEED                                                                   \
    {                                                                                           \
        .name = "seed", .type = NW_OPT_INT, .fallback = "1", .lo = 0, .hi = 9007199254740992.0, \
        .help = "seed of the draw"                                                              \
    }

/* ---- of a measurement ---- */
#define NW_OPTION_RECORD                                                      \
    {                                                                         \
        .name = "record", .letter = 'r', .type = NW_OPT_STRING, .unit = "DB", \
        .help = "record that gets every row"                                  \
    }
#define NW_OPTION_CANDIDATE                                         \
    {                                                               \
        .name = "candidate", .type = NW_OPT_STRING, .unit = "NAME", \
        .help = "name of the target in the record"                  \
    }
#define NW_OPTION_ROLE                                                              \
    {                                                                               \
        .name = "role", .type = NW_OPT_CHOICE, .fallback = "candidate",             \
        .choices = "candidate|baseline", .help = "role of the target in the record" \
    }
#define NW_OPTION_API_KEY                                                      \
    {                                                                          \
        .name = "api-key", .type = NW_OPT_STRING, .unit = "KEY",               \
        .help = "bearer token for a server; by default that of NARROW_API_KEY" \
    }
#define NW_OPTION_SERVER_MODEL                                           \
    {                                                                    \
        .name = "model", .type = NW_OPT_STRING, .unit = "NAME",          \
        .help = "model name for a server; by default the first it lists" \
    }
#define NW_OPTION_TIMEOUT                                                               \
    {                                                                                   \
        .name = "timeout", .type = NW_OPT_INT, .fallback = "600", .lo = 1, .hi = 86400, \
        .unit = "s", .help = "time that a server has to answer a request"               \
    }
#define NW_OPTION_TOKENIZER                                          \
    {                                                                \
        .name = "tokenizer", .type = NW_OPT_STRING, .unit = "MODEL", \
        .help = "model whose tokenizer counts for a server"          \
    }
#define NW_OPTION_RETRIES                                                                  \
    {                                                                                      \
        .name = "retries", .type = NW_OPT_INT, .fallback = "3", .lo = 0, .hi = 100,        \
        .unit = "tries",                                                                   \
        .help = "more tries of a request that a server had no room for, or never answered" \
    }
#define NW_OPTION_MAX_RATE                                                                       \
    {                                                                                            \
        .name = "max-rate", .type = NW_OPT_DOUBLE, .lo = 0.001, .hi = 1e6, .unit = "requests/s", \
        .help = "requests sent to a server at most (no limit)"                                   \
    }

#endif
