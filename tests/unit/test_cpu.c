/* The processor: masks by name, and the cgroup quota of both versions on folders made for the test.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "base/cpu.h"
#include "base/file.h"
#include "table.h"
#include "tmpdir.h"

#define ALL \
    (uint32_t)(NW_CPU_AVX2 | NW_CPU_AVX512 | NW_CPU_AVX512VNNI | NW_CPU_AVX512BF16 | NW_CPU_NEON)

static struct row {
    const char *name;
    const char *mask;
    bool known;
    uint32_t left;
} rows[] = {
    {"empty_hides_nothing", "", true, ALL},
    {"ref_hides_all", "ref", true, 0},
    {"one", "avx2", true, ALL & ~(uint32_t)NW_CPU_AVX2},
    {"a_prefix_is_not_the_name", "avx512vnni", true, ALL & ~(uint32_t)NW_CPU_AVX512VNNI},
    {"two", "avx512vnni,neon", true, ALL & ~(uint32_t)(NW_CPU_AVX512VNNI | NW_CPU_NEON)},
    {"hidden_without_being_there", "i8mm", true, ALL},
    {"unknown", "avx1024", false, ALL},
    {"unknown_after_known", "avx2,avx1024", false, ALL},
};

static void mask(void **state)
{
    const struct row *r = *state;
    uint32_t features = ALL;
    assert_int_equal(nw_cpu_mask(r->mask, &features), r->known);
    assert_int_equal(features, r->left);
}

static struct quota {
    const char *name;
    const char *self;
    const char *files[4][2]; /* path below the root, content */
    double want;
} quotas[] = {
    {"v2_at_the_leaf", "0::/a/b\n", {{"a/b/cpu.max", "150000 100000\n"}}, 1.5},
    {"v2_parent_is_tighter",
     "0::/a/b\n",
     {{"a/b/cpu.max", "400000 100000\n"}, {"a/cpu.max", "200000 100000\n"}},
     2},
    {"v2_no_limit", "0::/a\n", {{"a/cpu.max", "max 100000\n"}}, 0},
    {"v2_inside_a_namespace", "0::/\n", {{"cpu.max", "50000 100000\n"}}, 0.5},
    {"v2_path_of_another_namespace", "0::/../x/y\n", {{"cpu.max", "300000 100000\n"}}, 3},
    {"v1_joint_mount",
     "9:name=systemd:/\n2:cpu,cpuacct:/a\n",
     {{"cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n"},
      {"cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}},
     2.5},
    {"v1_plain_mount",
     "1:cpu:/\n",
     {{"cpu/cpu.cfs_quota_us", "100000\n"}, {"cpu/cpu.cfs_period_us", "50000\n"}},
     2},
    {"v1_no_limit",
     "1:cpu:/\n",
     {{"cpu/cpu.cfs_quota_us", "-1\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
     0},
    {"cpuset_is_no_quota", "3:cpuset:/\n", {{"cpuset/cpu.cfs_quota_us", "1\n"}}, 0},
    {"no_cgroups", "", {{NULL, NULL}}, 0},
};

static void quota(void **state)
{
    const struct quota *r = *state;
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    nw_error err;

    for (size_t i = 0; i < NW_COUNT(r->files) && r->files[i][0] != NULL; i++) {
        (void)nw_tmpdir_file(&d, r->files[i][0], path, sizeof path);
        *strrchr(path, '/') = '\0';
        assert_int_equal(nw_file_mkdirs(path, &err), NW_OK);
        (void)nw_tmpdir_put(&d, r->files[i][0], r->files[i][1], strlen(r->files[i][1]), path,
                            sizeof path);
    }
    (void)nw_tmpdir_put(&d, "self", r->self, strlen(r->self), path, sizeof path);
    assert_true(nw_cpu_quota(d.path, path) == r->want);
    nw_tmpdir_remove(&d);
}

static void this_machine_is_described(void **state)
{
    const char *why = NULL;

    (void)state;
    assert_true(nw_cpu_threads(&why) >= 1);
    assert_int_equal(strtoul(why, NULL, 10), nw_cpu_threads(NULL));
    assert_non_null(strchr(nw_cpu_describe(), '('));
    assert_int_equal(nw_cpu_describe()[strlen(nw_cpu_describe()) - 1], ')');
}

int main(void)
{
    const struct CMUnitTest others[] = {cmocka_unit_test(this_machine_is_described)};
    return NW_RUN_TABLE("mask", rows, mask) + NW_RUN_TABLE("quota", quotas, quota) +
           cmocka_run_group_tests(others, NULL, NULL);
}
