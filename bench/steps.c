/* Our side of bench/peers: one engine that runs steps on request, so that they can take turns with a
 * peer's. bench/peers/llama_steps.c speaks the same language.
 *
 *   bench_steps MODEL|- [threads] [kv] [a16|a8|auto] [context] [sequences]
 *
 * reads commands from stdin and answers each with one line:
 *   depth D      every sequence is given D tokens            ok
 *   prefill N    N tokens of the first sequence              seconds
 *   decode N S   N steps of S sequences                      seconds
 *   gemv N       N products of one small matrix, a vector    seconds
 *   read MB S    raw read of so many MiB for S seconds       bytes/s (MODEL - : no engine at all)
 *   facts        the engine's facts                          JSON
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "bench/bandwidth.h"
#include "engine/facts.h"
#include "engine/speed.h"

#define MIB ((size_t)1 << 20)

typedef struct {
    nw_engine *engine; /* NULL: raw reads only */
    nw_speed *speed;
    nw_pool *pool; /* of raw reads; made by the first */
    unsigned n_threads;
    uint32_t n_seqs;
} server;

static void answer(nw_status st, double x, const nw_error *err)
{
    if (st == NW_OK) {
        (void)printf("%.9g\n", x);
    } else {
        (void)printf("error: %s\n", err->message);
    }
}

static nw_status set_depth(server *s, uint32_t depth, nw_error *err)
{
    nw_speed_close(s->speed);
    s->speed = NULL;
    return nw_speed_open(s->engine, s->n_seqs, depth, &s->speed, err);
}

static nw_status raw_read(server *s, size_t mib, double seconds, double *rate, nw_error *err)
{
    nw_bandwidth b;

    if (s->pool == NULL && nw_pool_open(s->n_threads, &s->pool, err) != NW_OK) {
        return err->code;
    }
    const nw_status st = nw_bandwidth_read(s->pool, mib * MIB, seconds, &b, err);
    *rate = st == NW_OK ? b.median_bytes_s : 0;
    return st;
}

static void print_facts(const server *s)
{
    json_t *facts = nw_engine_facts_json(s->engine);
    char *text = facts != NULL ? json_dumps(facts, JSON_COMPACT) : NULL;

    (void)puts(text != NULL ? text : "error: no memory");
    free(text);
    json_decref(facts);
}

static void run(server *s, const char *line)
{
    nw_error err = {0};
    double x = 0;
    unsigned a = 0;
    unsigned b = 0;
    nw_status st = NW_OK;

    if (sscanf(line, "read %u %lf", &a, &x) == 2) {
        st = raw_read(s, a, x, &x, &err);
    } else if (s->engine == NULL) {
        st = nw_fail(&err, NW_E_USAGE, "no model");
    } else if (sscanf(line, "depth %u", &a) == 1) {
        st = set_depth(s, a, &err);
    } else if (sscanf(line, "prefill %u", &a) == 1) {
        st = nw_speed_prefill(s->speed, a, &x, &err);
    } else if (sscanf(line, "decode %u %u", &a, &b) == 2) {
        st = nw_speed_decode(s->speed, a, b, &x, &err);
    } else if (sscanf(line, "gemv %u", &a) == 1) {
        x = nw_speed_linear(s->speed, a);
    } else if (strncmp(line, "facts", 5) == 0) {
        print_facts(s);
        return;
    } else {
        st = nw_fail(&err, NW_E_USAGE, "no such command");
    }
    answer(st, x, &err);
}

static nw_status open_engine(server *s, int argc, char **argv, nw_error *err)
{
    nw_engine_options o = nw_engine_options_default();

    o.n_threads = s->n_threads;
    o.max_seqs = s->n_seqs;
    o.n_ctx = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 0;
    if (argc > 4 && strcmp(argv[4], "auto") != 0) {
        o.act = strcmp(argv[4], "a8") == 0;
    }
    if (nw_engine_kv_parse(argc > 3 ? argv[3] : "bf16", &o, err) != NW_OK ||
        nw_engine_open(argv[1], &o, &s->engine, err) != NW_OK) {
        return err->code;
    }
    return set_depth(s, 0, err);
}

int main(int argc, char **argv)
{
    char line[128];
    nw_error err = {0};
    server s = {.n_threads = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0,
                .n_seqs = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 1};

    if (argc < 2 || (strcmp(argv[1], "-") != 0 && open_engine(&s, argc, argv, &err) != NW_OK)) {
        (void)fprintf(stderr, "bench_steps: %s\n", argc < 2 ? "no model named" : err.message);
        return 3;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        run(&s, line);
        (void)fflush(stdout);
    }
    nw_speed_close(s.speed);
    nw_engine_close(s.engine);
    nw_pool_close(s.pool);
    return 0;
}
