/* narrow doctor: what this machine offers to the engine, and how it was found out.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/pool.h"
#include "bench/bandwidth.h"
#include "bench/peak.h"
#include "cli/command.h"
#include "cli/doctor_server.h"
#include "cli/option_rows.h"
#include "cli/print_json.h"
#include "kernels/kernels.h"

#define MEASURE_S 0.5

static const nw_option options[] = {
    {.name = "threads",
     .letter = 't',
     .type = NW_OPT_INT,
     .fallback = "0",
     .lo = 0,
     .hi = 1024,
     .unit = "threads",
     .help = "threads that measure; 0 for all this process may use"},
    NW_OPTION_API_KEY,
    NW_OPTION_SERVER_MODEL,
    NW_OPTION_TOKENIZER,
    NW_OPTION_TIMEOUT,
};

typedef struct {
    const char *cpu, *why, *mask;
    const char *tier; /* of the kernels that an engine takes here */
    unsigned n_threads;
    uint64_t total_bytes, available_bytes, l3_bytes;
    nw_bandwidth read, read_one; /* all threads; one thread */
    double peak[NW_PEAK_COUNT];  /* multiply-adds a second of all threads; 0: no instruction */
} machine;

/* A field of /proc/meminfo in bytes; 0 where it is absent. */
static uint64_t meminfo(const char *field)
{
    char line[256];
    uint64_t bytes = 0;
    FILE *fp = fopen("/proc/meminfo", "re");

    while (fp != NULL && bytes == 0 && fgets(line, sizeof line, fp) != NULL) {
        const size_t n = strlen(field);
        if (strncmp(line, field, n) == 0 && line[n] == ':') {
            bytes = strtoull(line + n + 1, NULL, 10) * 1024;
        }
    }
    if (fp != NULL) {
        (void)fclose(fp);
    }
    return bytes;
}

/* What the kernel says of the last cache; sysconf multiplies it by guesses inside virtual machines. */
static uint64_t l3_bytes(void)
{
    uint64_t kib = 0;
    FILE *fp = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    char line[64] = "";

    if (fp != NULL) {
        if (fgets(line, sizeof line, fp) != NULL) {
            kib = strtoull(line, NULL, 10); /* "32768K" */
        }
        (void)fclose(fp);
    }
    return kib * 1024;
}

static nw_status measure(machine *m, nw_error *err)
{
    const size_t n_bytes = nw_bandwidth_buffer_bytes(m->l3_bytes, m->available_bytes);
    nw_pool *pool = NULL;
    nw_status st = nw_pool_open(m->n_threads, &pool, err);

    if (st == NW_OK) {
        st = nw_bandwidth_read(pool, n_bytes, MEASURE_S, &m->read, err);
    }
    if (st == NW_OK) {
        st = nw_bandwidth_read(NULL, n_bytes, MEASURE_S, &m->read_one, err);
    }
    for (int i = 0; st == NW_OK && i < NW_PEAK_COUNT; i++) {
        m->peak[i] = nw_peak_pool(pool, (nw_peak_kind)i);
    }
    nw_pool_close(pool);
    return st;
}

static json_t *read_json(const nw_bandwidth *b, unsigned n_threads)
{
    return json_pack("{s:f, s:f, s:I, s:i, s:i}", "median_gb_per_s", b->median_bytes_s / 1e9,
                     "best_gb_per_s", b->best_bytes_s / 1e9, "buffer_bytes",
                     (json_int_t)b->buffer_bytes, "n_passes", (int)b->n_passes, "n_threads",
                     (int)n_threads);
}

static json_t *peaks_json(const machine *m)
{
    json_t *list = json_array();

    for (int i = 0; i < NW_PEAK_COUNT; i++) {
        const nw_peak_kind kind = (nw_peak_kind)i;
        if (m->peak[i] > 0) {
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:f}", "kind", nw_peak_name(kind), "instruction",
                                nw_peak_instruction(kind), "gmac_per_s", m->peak[i] / 1e9));
        }
    }
    return list;
}

static json_t *feature_list(void)
{
    json_t *list = json_array();
    const uint32_t have = nw_cpu_features();

#define ADD_FEATURE(name, bit, text)                          \
    if ((have >> (bit)&1) != 0) {                             \
        (void)json_array_append_new(list, json_string(text)); \
    }
    NW_CPU_FEATURE_MAP(ADD_FEATURE)
#undef ADD_FEATURE
    return list;
}

static nw_status print_json(const machine *m, nw_error *err)
{
    json_t *row = json_pack(
        "{s:s, s:o, s:s?, s:s, s:i, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "cpu", m->cpu, "features",
        feature_list(), "cpu_mask", m->mask, "tier", m->tier, "n_threads", (int)m->n_threads,
        "threads_because", m->why, "memory_total_bytes", (json_int_t)m->total_bytes,
        "memory_available_bytes", (json_int_t)m->available_bytes, "l3_bytes",
        (json_int_t)m->l3_bytes, "read_bandwidth", read_json(&m->read, m->n_threads),
        "read_bandwidth_one_thread", read_json(&m->read_one, 1), "peaks", peaks_json(m));
    return nw_print_json("doctor", row, err);
}

static void print_read(const nw_bandwidth *b, unsigned n_threads)
{
    (void)printf(
        "read        %.1f GB/s median, %.1f GB/s best: %u thread%s, %u passes over %.0f MiB\n",
        b->median_bytes_s / 1e9, b->best_bytes_s / 1e9, n_threads, n_threads == 1 ? "" : "s",
        b->n_passes, (double)b->buffer_bytes / (1024.0 * 1024));
}

static void print_text(const machine *m)
{
    const double gib = 1024.0 * 1024 * 1024;

    (void)printf("processor   %s\n", m->cpu);
    (void)printf("mask        %s\n",
                 m->mask == NULL ? "none (NW_CPU_MASK hides features)" : m->mask);
    (void)printf("kernels     %s\n", m->tier);
    (void)printf("threads     %s\n", m->why);
    (void)printf("memory      %.1f GiB, %.1f GiB available\n", (double)m->total_bytes / gib,
                 (double)m->available_bytes / gib);
    print_read(&m->read, m->n_threads);
    if (m->n_threads > 1) {
        print_read(&m->read_one, 1);
    }
    for (int i = 0; i < NW_PEAK_COUNT; i++) {
        if (m->peak[i] > 0) {
            (void)printf("peak %-6s %.0f GMAC/s: %u threads of %s\n", nw_peak_name((nw_peak_kind)i),
                         m->peak[i] / 1e9, m->n_threads, nw_peak_instruction((nw_peak_kind)i));
        }
    }
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    const unsigned asked = (unsigned)nw_args_int(args, "threads");
    machine m = {
        .cpu = nw_cpu_describe(),
        .mask = getenv("NW_CPU_MASK"),
        .tier = nw_kernels_pick(nw_cpu_features())->tier,
        .total_bytes = meminfo("MemTotal"),
        .available_bytes = meminfo("MemAvailable"),
        .l3_bytes = l3_bytes(),
    };

    (void)exit_code;
    if (args->n_operands > 0) {
        return nw_doctor_server(args, err);
    }
    m.n_threads = nw_cpu_threads(&m.why);
    if (asked > 0) {
        m.n_threads = asked;
        m.why = "as asked by --threads";
    }
    nw_status st = measure(&m, err);
    if (st != NW_OK) {
        return st;
    }
    if (args->json) {
        return print_json(&m, err);
    }
    print_text(&m);
    return NW_OK;
}

const nw_command nw_cmd_doctor = {
    .name = "doctor",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "[URL]",
    .max_operands = 1,
    .summary = "show what this machine can run, or what can be measured on a server",
    .description =
        "Shows the processor and the instruction sets that the kernels may use, the threads that "
        "affinity and cgroup quota leave, the memory, and the bandwidth of streaming reads from a "
        "buffer larger than the last cache, by all threads and by one. Batch-1 decoding cannot be "
        "faster than this bandwidth divided by the bytes of the weights; prefill and large batches "
        "cannot be faster than the peak of multiply-adds, shown for each kind of activations that "
        "the processor has an instruction for.\n\n"
        "With the URL of an OpenAI-compatible server (several replicas: URLs separated by commas) "
        "it tries out, by a small request each, what the server can do, and says what can be "
        "measured on it and what cannot, with the reason. --tokenizer names a model whose "
        "tokenizer is held against the server's.",
};
