/* The peer's side of bench/peers: llama.cpp that runs steps on request, as bench/steps.c does for us,
 * by the calls that its own llama-bench and llama-batched-bench make. Compiled by prepare.sh against
 * the library that was built there; not a part of narrow's build.
 *
 *   llama_steps MODEL threads kv(f16|q8_0|q4_0|...) flash(0|1|auto) context sequences [state-file]
 *
 * reads commands from stdin and answers each with one line:
 *   depth D      the first sequence gets D tokens, from the state file where it has one; with several
 *                sequences, each gets D                       ok
 *   prefill N    N tokens of the first sequence              seconds
 *   decode N S   N steps of S sequences                      seconds
 *   facts        what was opened                             JSON
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama.h"

#define N_BATCH 2048
#define UBATCH  512

typedef struct {
    struct llama_model *model;
    struct llama_context *ctx;
    struct llama_batch batch;
    const char *state_file;
    int n_seqs, n_vocab, depth;
    unsigned rng;
} server;

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static llama_token any_token(server *s)
{
    s->rng = s->rng * 1664525U + 1013904223U;
    return (llama_token)((s->rng >> 8) % (unsigned)s->n_vocab);
}

static void add(server *s, int pos, int seq, bool logits)
{
    struct llama_batch *b = &s->batch;
    const int i = b->n_tokens++;

    b->token[i] = any_token(s);
    b->pos[i] = pos;
    b->n_seq_id[i] = 1;
    b->seq_id[i][0] = seq;
    b->logits[i] = logits;
}

static bool decode(server *s)
{
    const bool ok = llama_decode(s->ctx, s->batch) == 0;
    llama_synchronize(s->ctx);
    s->batch.n_tokens = 0;
    return ok;
}

/* Tokens [from, to) of one sequence; logits for the last, as llama-bench has it. */
static bool feed(server *s, int seq, int from, int to)
{
    bool ok = true;
    while (ok && from < to) {
        const int end = to - from < N_BATCH ? to : from + N_BATCH;
        for (int pos = from; pos < end; pos++) {
            add(s, pos, seq, pos + 1 == end);
        }
        ok = decode(s);
        from = end;
    }
    return ok;
}

static void cut(server *s, int n_seqs)
{
    for (int i = 0; i < n_seqs; i++) {
        (void)llama_memory_seq_rm(llama_get_memory(s->ctx), i, s->depth, -1);
    }
}

static bool set_depth(server *s, int depth)
{
    llama_token tokens[1];
    size_t n = 0;

    llama_memory_clear(llama_get_memory(s->ctx), false);
    s->depth = depth;
    if (s->state_file != NULL &&
        llama_state_seq_load_file(s->ctx, s->state_file, 0, tokens, 1, &n) > 0) {
        return true;
    }
    for (int i = 0; i < s->n_seqs; i++) {
        if (!feed(s, i, 0, depth)) {
            return false;
        }
    }
    if (s->state_file != NULL) {
        tokens[0] = 0;
        return llama_state_seq_save_file(s->ctx, s->state_file, 0, tokens, 1) > 0;
    }
    return true;
}

static bool prefill(server *s, int n, double *seconds)
{
    const double start = now_s();
    const bool ok = feed(s, 0, s->depth, s->depth + n);
    *seconds = now_s() - start;
    cut(s, 1);
    return ok;
}

static bool steps(server *s, int n, int n_seqs, double *seconds)
{
    const double start = now_s();
    bool ok = n_seqs <= s->n_seqs;
    for (int i = 0; ok && i < n; i++) {
        for (int seq = 0; seq < n_seqs; seq++) {
            add(s, s->depth + i, seq, true);
        }
        ok = decode(s);
    }
    *seconds = now_s() - start;
    cut(s, n_seqs);
    return ok;
}

static void run(server *s, const char *line)
{
    char desc[128] = "";
    double x = 0;
    int a = 0;
    int b = 0;
    bool ok = false;

    if (sscanf(line, "depth %d", &a) == 1) {
        ok = set_depth(s, a);
    } else if (sscanf(line, "prefill %d", &a) == 1) {
        ok = prefill(s, a, &x);
    } else if (sscanf(line, "decode %d %d", &a, &b) == 2) {
        ok = steps(s, a, b, &x);
    } else if (strncmp(line, "facts", 5) == 0) {
        (void)llama_model_desc(s->model, desc, sizeof desc);
        (void)printf("{\"model\": \"%s\", \"bytes\": %llu, \"system\": \"%s\"}\n", desc,
                     (unsigned long long)llama_model_size(s->model), llama_print_system_info());
        return;
    }
    if (ok) {
        (void)printf("%.9g\n", x);
    } else {
        (void)printf("error: llama.cpp refused '%.*s'\n", (int)strcspn(line, "\n"), line);
    }
}

static enum ggml_type type_by_name(const char *name)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char *known = ggml_type_name((enum ggml_type)i);
        if (known != NULL && strcmp(known, name) == 0) {
            return (enum ggml_type)i;
        }
    }
    (void)fprintf(stderr, "llama_steps: no type '%s'\n", name);
    exit(2);
}

static void quiet(enum ggml_log_level level, const char *text, void *ctx)
{
    (void)ctx;
    if (level == GGML_LOG_LEVEL_ERROR) {
        (void)fputs(text, stderr);
    }
}

static void open_all(server *s, char **argv)
{
    struct llama_model_params m = llama_model_default_params();
    struct llama_context_params c = llama_context_default_params();

    llama_log_set(quiet, NULL);
    llama_backend_init();
    s->model = llama_model_load_from_file(argv[1], m);
    c.n_threads = c.n_threads_batch = (int)strtol(argv[2], NULL, 10);
    c.type_k = c.type_v = type_by_name(argv[3]);
    c.flash_attn_type = strcmp(argv[4], "auto") == 0 ? LLAMA_FLASH_ATTN_TYPE_AUTO
                        : strcmp(argv[4], "1") == 0  ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                                     : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    c.n_ctx = (uint32_t)strtoul(argv[5], NULL, 10);
    s->n_seqs = (int)strtol(argv[6], NULL, 10);
    c.n_seq_max = (uint32_t)s->n_seqs;
    c.n_ctx *= c.n_seq_max; /* the peer's context is that of all sequences */
    c.n_batch = N_BATCH;
    c.n_ubatch = UBATCH;
    s->ctx = s->model != NULL ? llama_init_from_model(s->model, c) : NULL;
    if (s->ctx == NULL) {
        (void)fprintf(stderr, "llama_steps: %s does not open\n", argv[1]);
        exit(3);
    }
    s->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(s->model));
    s->batch = llama_batch_init(N_BATCH, 0, 1);
}

int main(int argc, char **argv)
{
    char line[128];
    server s = {.rng = 1};

    if (argc < 7) {
        (void)fprintf(stderr,
                      "usage: llama_steps MODEL threads kv flash context sequences [state]\n");
        return 2;
    }
    s.state_file = argc > 7 ? argv[7] : NULL;
    open_all(&s, argv);
    while (fgets(line, sizeof line, stdin) != NULL) {
        run(&s, line);
        (void)fflush(stdout);
    }
    llama_batch_free(s.batch);
    llama_free(s.ctx);
    llama_model_free(s.model);
    return 0;
}
