/* Processor features and the threads this process may use: see cpu.h. Features count only where the
 * operating system saves their registers (XCR0), which cpuid alone does not say.
 * Sources: Intel SDM vol. 2A (CPUID), vol. 1 ch. 13 (XCR0), ch. 18 (AMX); arch/x86/xstate.rst of Linux's
 * documentation; Arm ELF HWCAP list of Linux.
 * SPDX-License-Identifier: Apache-2.0 */
/* sched_getaffinity and CPU_COUNT are GNU's */
#define _GNU_SOURCE /* NOLINT(bugprone-reserved-identifier) */
#include "base/cpu.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define MAX_CGROUP_BYTES 65536

static const struct {
    const char *name;
    uint32_t bit;
} feature_rows[] = {
#define FEATURE_ROW(name, bit, text) {text, 1U << (bit)},
    NW_CPU_FEATURE_MAP(FEATURE_ROW)
#undef FEATURE_ROW
};

static struct {
    pthread_once_t once;
    uint32_t features;
    char describe[256];
    unsigned threads;
    char why[96];
} cpu = {.once = PTHREAD_ONCE_INIT};

#if defined(__x86_64__)
static uint64_t read_xcr0(void)
{
    uint32_t lo = 0;
    uint32_t hi = 0;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool has(uint32_t reg, unsigned bit)
{
    return (reg >> bit & 1) != 0;
}

static uint32_t features_avx512(uint32_t b7, uint32_t c7, uint32_t a71)
{
    uint32_t f = 0;

    if (!has(b7, 16) || !has(b7, 17) || !has(b7, 30) || !has(b7, 31)) { /* F DQ BW VL */
        return 0;
    }
    f |= NW_CPU_AVX512;
    f |= has(c7, 11) ? NW_CPU_AVX512VNNI : 0;
    f |= has(c7, 1) ? NW_CPU_AVX512VBMI : 0;
    f |= has(a71, 5) ? NW_CPU_AVX512BF16 : 0;
    return f;
}

/* Linux keeps the tiles' registers (8 KiB a thread) only for processes that have asked. */
static bool may_use_tiles(void)
{
#define REQUEST_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM */
#define TILE_DATA          18     /* XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static bool has_amx(uint32_t d7, uint64_t xcr0)
{
    const bool tiles = has(d7, 22) && has(d7, 24) && has(d7, 25); /* BF16 TILE INT8 */
    return tiles && (xcr0 & 0x60000) == 0x60000 && may_use_tiles();
}

static uint32_t probe_features(void)
{
    uint32_t a = 0, b = 0, c1 = 0, d = 0, d7 = 0;
    uint32_t a7 = 0, b7 = 0, c7 = 0, a71 = 0;
    uint32_t f = 0;

    if (__get_cpuid(1, &a, &b, &c1, &d) == 0 || !has(c1, 27)) { /* OSXSAVE */
        return 0;
    }
    const uint64_t xcr0 = read_xcr0();
    if ((xcr0 & 0x06) != 0x06 || __get_cpuid_count(7, 0, &a7, &b7, &c7, &d7) == 0) {
        return 0; /* no saved YMM registers */
    }
    if (a7 >= 1) {
        (void)__get_cpuid_count(7, 1, &a71, &b, &a, &d);
    }
    if (has(b7, 5) && has(c1, 12) && has(c1, 29)) { /* AVX2 FMA F16C */
        f |= NW_CPU_AVX2;
        f |= has(a71, 4) ? NW_CPU_AVXVNNI : 0;
    }
    if (f != 0 && (xcr0 & 0xe6) == 0xe6) { /* mask and ZMM registers are saved */
        f |= features_avx512(b7, c7, a71);
        f |= has_amx(d7, xcr0) ? NW_CPU_AMX : 0;
    }
    return f;
}

static void probe_brand(char *out, size_t n)
{
    uint32_t r[12] = {0};

    for (uint32_t i = 0; i < 3; i++) {
        uint32_t *q = r + (size_t)4 * i;
        if (__get_cpuid(0x80000002U + i, &q[0], &q[1], &q[2], &q[3]) == 0) {
            break;
        }
    }
    char text[sizeof r + 1] = "";
    memcpy(text, r, sizeof r);
    const char *start = text + strspn(text, " ");
    size_t len = strlen(start);
    while (len > 0 && start[len - 1] == ' ') {
        len--;
    }
    (void)snprintf(out, n, "%.*s", (int)len, len > 0 ? start : "x86-64");
}
#elif defined(__aarch64__)
static uint32_t probe_features(void)
{
    const unsigned long h = getauxval(AT_HWCAP);
    const unsigned long h2 = getauxval(AT_HWCAP2);
    uint32_t f = 0;

    f |= (h & HWCAP_ASIMD) != 0 ? NW_CPU_NEON : 0;
    f |= (h & HWCAP_ASIMDDP) != 0 ? NW_CPU_DOTPROD : 0;
    f |= (h2 & HWCAP2_I8MM) != 0 ? NW_CPU_I8MM : 0;
    return f;
}

static void probe_brand(char *out, size_t n)
{
    (void)snprintf(out, n, "AArch64");
}
#else
static uint32_t probe_features(void)
{
    return 0;
}

static void probe_brand(char *out, size_t n)
{
    (void)snprintf(out, n, "unknown processor");
}
#endif

static uint32_t feature_bit(const char *name, size_t len)
{
    for (size_t i = 0; i < NW_COUNT(feature_rows); i++) {
        if (strlen(feature_rows[i].name) == len && memcmp(feature_rows[i].name, name, len) == 0) {
            return feature_rows[i].bit;
        }
    }
    return 0;
}

bool nw_cpu_mask(const char *list, uint32_t *features)
{
    uint32_t hidden = 0;

    for (const char *p = list; *p != '\0';) {
        const size_t len = strcspn(p, ",");
        const uint32_t bit =
            len == 3 && memcmp(p, "ref", 3) == 0 ? UINT32_MAX : feature_bit(p, len);
        if (bit == 0) {
            return false;
        }
        hidden |= bit;
        p += len;
        p += *p == ',' ? 1 : 0;
    }
    *features &= ~hidden;
    return true;
}

/* Processors that one folder of the cgroup tree allows, HUGE_VAL where it sets no limit. v2 has
 * cpu.max with "QUOTA PERIOD" or "max PERIOD"; v1 has two files, and -1 for no quota. Both in us. */
static double folder_quota(const char *dir)
{
    static const char *const names[] = {"cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"};
    double value[NW_COUNT(names)] = {-1, -1, -1};
    double period = 0;

    for (size_t i = 0; i < NW_COUNT(names); i++) {
        char *path = nw_path_join(dir, names[i]);
        FILE *fp = path == NULL ? NULL : fopen(path, "re");
        char line[128] = "";
        if (fp != NULL && fgets(line, sizeof line, fp) != NULL) {
            char *rest = NULL;
            value[i] = strtod(line, &rest);
            period = i == 0 ? strtod(rest, NULL) : period;
            value[i] = rest == line ? -1 : value[i]; /* "max" */
        }
        if (fp != NULL) {
            (void)fclose(fp);
        }
        free(path);
    }
    if (value[0] > 0 && period > 0) {
        return value[0] / period;
    }
    return value[1] > 0 && value[2] > 0 ? value[1] / value[2] : HUGE_VAL;
}

/* The least quota from root/mount/path up to root/mount. The path of another namespace does not exist
 * here, and its folders then set no limit. */
static double path_quota(const char *root, const char *mount, const char *path)
{
    char dir[4096];
    double least = HUGE_VAL;
    const int n = snprintf(dir, sizeof dir, "%s%s%s", root, mount, path);

    if (n < 0 || (size_t)n >= sizeof dir) {
        return least;
    }
    const size_t top = strlen(root) + strlen(mount);
    for (;;) {
        least = fmin(least, folder_quota(dir));
        char *slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < top) {
            return least;
        }
        *slash = '\0';
    }
}

/* Whether one of the comma-separated controllers is "cpu"; v2 has an empty list. */
static bool is_cpu_controller(const char *list, size_t n)
{
    for (size_t i = 0; i + 3 <= n; i++) {
        const bool starts = i == 0 || list[i - 1] == ',';
        if (starts && memcmp(list + i, "cpu", 3) == 0 && (i + 3 == n || list[i + 3] == ',')) {
            return true;
        }
    }
    return false;
}

double nw_cpu_quota(const char *root, const char *self)
{
    double least = HUGE_VAL;
    char line[4096];
    FILE *fp = fopen(self, "re");

    while (fp != NULL && fgets(line, sizeof line, fp) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'); /* "ID:CONTROLLERS:PATH" */
        char *path = list == NULL ? NULL : strchr(list + 1, ':');
        if (path == NULL) {
            continue;
        }
        list++;
        const size_t n_list = (size_t)(path - list);
        path++;
        if (n_list == 0) {
            least = fmin(least, path_quota(root, "", path));
        } else if (is_cpu_controller(list, n_list)) {
            char mount[256];
            (void)snprintf(mount, sizeof mount, "/%.*s", (int)n_list, list);
            least = fmin(least, path_quota(root, mount, path));
            least = fmin(least, path_quota(root, "/cpu", path));
        }
    }
    if (fp != NULL) {
        (void)fclose(fp);
    }
    return isfinite(least) ? least : 0;
}

static void probe_threads(void)
{
    cpu_set_t set;
    unsigned affinity = 1;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
        affinity = (unsigned)CPU_COUNT(&set);
    }
    const double quota = nw_cpu_quota("/sys/fs/cgroup", "/proc/self/cgroup");
    if (quota > 0 && floor(quota) < affinity) {
        cpu.threads = quota < 1 ? 1 : (unsigned)floor(quota);
        (void)snprintf(cpu.why, sizeof cpu.why, "%u by a cgroup quota of %.2f processors",
                       cpu.threads, quota);
    } else {
        cpu.threads = affinity;
        (void)snprintf(cpu.why, sizeof cpu.why, "%u by affinity", affinity);
    }
}

static void probe(void)
{
    char brand[64] = "";
    const char *mask = getenv("NW_CPU_MASK");

    cpu.features = probe_features();
    if (mask != NULL && !nw_cpu_mask(mask, &cpu.features)) {
        nw_log(NW_LOG_WARN, "NW_CPU_MASK: '%s' names an unknown feature and is ignored", mask);
    }
    probe_brand(brand, sizeof brand);
    size_t used = (size_t)snprintf(cpu.describe, sizeof cpu.describe, "%s (", brand);
    for (size_t i = 0; i < NW_COUNT(feature_rows); i++) {
        if ((cpu.features & feature_rows[i].bit) != 0) {
            used += (size_t)snprintf(cpu.describe + used, sizeof cpu.describe - used, "%s ",
                                     feature_rows[i].name);
        }
    }
    const bool none = cpu.describe[used - 1] == '(';
    (void)snprintf(cpu.describe + used - (none ? 0 : 1), sizeof cpu.describe - used, "%s)",
                   none ? "ref" : "");
    probe_threads();
}

uint32_t nw_cpu_features(void)
{
    (void)pthread_once(&cpu.once, probe);
    return cpu.features;
}

const char *nw_cpu_describe(void)
{
    (void)pthread_once(&cpu.once, probe);
    return cpu.describe;
}

unsigned nw_cpu_threads(const char **why)
{
    (void)pthread_once(&cpu.once, probe);
    if (why != NULL) {
        *why = cpu.why;
    }
    return cpu.threads;
}
