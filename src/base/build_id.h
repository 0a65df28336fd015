/* Which program this is: two builds of one version may round differently.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_BUILD_ID_H
#define NW_BASE_BUILD_ID_H

/* The first 16 digits of the SHA-256 of the running program's file; "" where that cannot be read. Static
 * storage. */
const char *nw_build_id(void);

#endif
