/* What is left of memory and disk: see room.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/status.h"

/* The number after `field` in a small text file, or the file's first one for ""; UINT64_MAX where there
 * is none ("max"). */
static uint64_t number_in(const char *path, const char *field)
{
    char line[128];
    uint64_t value = UINT64_MAX;
    FILE *fp = fopen(path, "re");

    while (fp != NULL && value == UINT64_MAX && fgets(line, sizeof line, fp) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0) {
            char *end = NULL;
            const char *at = line + strlen(field);
            const unsigned long long v = strtoull(at, &end, 10);
            value = end != at ? v : UINT64_MAX;
        }
    }
    if (fp != NULL) {
        (void)fclose(fp);
    }
    return value;
}

static uint64_t number_of(const char *folder, const char *file, const char *field)
{
    char path[512];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, file);

    return n < (int)sizeof path ? number_in(path, field) : UINT64_MAX;
}

uint64_t nw_room_group(const char *folder)
{
    static const char *const caches[] = {"inactive_file ", "active_file "};
    const uint64_t limit = number_of(folder, "memory.max", "");
    uint64_t used = number_of(folder, "memory.current", "");

    if (limit == UINT64_MAX || used == UINT64_MAX) {
        return UINT64_MAX;
    }
    for (size_t i = 0; i < NW_COUNT(caches); i++) {
        const uint64_t cache = number_of(folder, "memory.stat", caches[i]);
        if (cache != UINT64_MAX) {
            used -= cache < used ? cache : used;
        }
    }
    return limit > used ? limit - used : 0;
}

uint64_t nw_room_memory(void)
{
    const uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    const uint64_t system = kib == UINT64_MAX ? UINT64_MAX : kib * 1024;
    const uint64_t group = nw_room_group("/sys/fs/cgroup");

    return system < group ? system : group;
}

uint64_t nw_room_disk(const char *path)
{
    struct statvfs fs;
    char *at = strdup(path);
    uint64_t room = UINT64_MAX;

    while (at != NULL && !nw_file_is_dir(at[0] != '\0' ? at : ".")) {
        char *slash = strrchr(at, '/');
        if (slash == NULL) {
            at[0] = '\0';
        } else {
            slash[slash == at ? 1 : 0] = '\0';
        }
    }
    if (at != NULL && statvfs(at[0] != '\0' ? at : ".", &fs) == 0) {
        room = (uint64_t)fs.f_bavail * fs.f_frsize;
    }
    free(at);
    return room;
}
