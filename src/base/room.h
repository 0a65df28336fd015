/* What is left of this machine: memory that can be taken without swapping, bytes of a disk.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_ROOM_H
#define NW_BASE_ROOM_H

#include <stdint.h>

/* The smaller of what the system calls available and what the cgroup has left; UINT64_MAX where neither
 * is told. */
uint64_t nw_room_memory(void);
/* What is left of the control group of this folder ("/sys/fs/cgroup"): pages of files count as left, since
 * the kernel drops them when memory is wanted. UINT64_MAX without a limit. */
uint64_t nw_room_group(const char *folder);
/* Of the file system that holds path, or would: its nearest folder that exists. UINT64_MAX where it
 * cannot be told. */
uint64_t nw_room_disk(const char *path);

#endif
