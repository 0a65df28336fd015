/* Options as rows of a table. From a command's rows come its parser, `--help`, its man page and the
 * shell completion (help.h), so none of them can be out of date. What a command reads, it reads by
 * the name in the table.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_OPTIONS_H
#define NW_CLI_OPTIONS_H

#include "base/status.h"

typedef enum {
    NW_OPT_FLAG,   /* no value */
    NW_OPT_STRING, /* any text, not empty */
    NW_OPT_INT,    /* lo to hi */
    NW_OPT_DOUBLE, /* lo to hi */
    NW_OPT_CHOICE, /* one of `choices` */
    NW_OPT_REPEAT, /* any text; may be given several times, in order */
} nw_option_type;

typedef struct {
    const char *name; /* without dashes: "n-ctx" */
    char letter;      /* 'o' for -o, or 0 */
    nw_option_type type;
    const char *fallback; /* the default as the user would write it; NULL: none */
    double lo, hi;        /* of INT (exact below 2^53) and DOUBLE, both allowed */
    const char *choices;  /* of CHOICE: "text|json" */
    const char *unit;     /* of numbers: "tokens", or NULL; of texts: what stands for it, "FILE" */
    const char *help;     /* lower case, no full stop */
    bool required;
} nw_option;

typedef struct nw_command nw_command;
typedef struct nw_arg nw_arg;

/* A parsed command line. Texts point into argv or into the table. */
typedef struct {
    const nw_command *command;
    const char *const *operands; /* [n_operands] */
    size_t n_operands;
    bool json, quiet, help; /* the options that every command has */
    const char **storage;   /* owned; behind `operands` */
    nw_arg *given;          /* owned, [n_given] */
    size_t n_given;
} nw_args;

/* Accepts --name VALUE, --name=VALUE, -o VALUE, -oVALUE, flags anywhere, and -- before operands
 * that begin with a dash. NW_E_USAGE names option, value and range. *out is set only on success.
 * With --help, nothing is required. */
NW_MUST_USE nw_status nw_args_parse(const nw_command *command, int argc, char *const *argv,
                                    nw_args *out, nw_error *err);
void nw_args_release(nw_args *a);

/* Each asserts that the table has the option, with that type. */
bool nw_args_flag(const nw_args *a, const char *name);
bool nw_args_given(const nw_args *a, const char *name); /* on the command line, not by default */
const char *nw_args_str(const nw_args *a, const char *name); /* STRING, CHOICE; NULL: absent */
int64_t nw_args_int(const nw_args *a, const char *name);     /* 0 when absent with no default */
/* The key for a server: --api-key, else NARROW_API_KEY of the environment (which studies hand on to their
 * stages, and which no file has to hold); NULL: none. */
const char *nw_args_server_key(const nw_args *a);
/* Refuses what a server that narrow does not start has settled already (--threads, --tier, --kv, --act),
 * where the first operand is a URL. */
NW_MUST_USE nw_status nw_args_check_server(const nw_args *a, nw_error *err);
double nw_args_double(const nw_args *a, const char *name); /* 0 when absent with no default */
size_t nw_args_count(const nw_args *a, const char *name);  /* REPEAT */
const char *nw_args_nth(const nw_args *a, const char *name, size_t i); /* REPEAT, i < count */

/* The options that a command has beside its own: [*n]. */
const nw_option *nw_options_global(const nw_command *c, size_t *n);

/* The candidate nearest to `word` when a slip of the hand explains the difference, or NULL. `get`
 * returns candidate i, NULL after the last. */
const char *nw_nearest(const char *word, const char *(*get)(const void *ctx, size_t i),
                       const void *ctx);

#endif
