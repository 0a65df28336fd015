/* YAML (studies, recipes, policies) through libfyaml into the same json_t that JSON uses, with the
 * line and column of every node kept, so that each mistake in a study is shown where it stands.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_YAML_H
#define NW_BASE_YAML_H

#include "base/json.h"

typedef struct nw_yaml nw_yaml;

/* Duplicate keys, aliases, tags, a second document, more than 64 levels or 1 MiB: refused with "path:line:column: ...". */
NW_MUST_USE nw_status nw_yaml_load(const char *path, nw_yaml **out, nw_error *err);
/* The same from n bytes; `name` stands for the path. */
NW_MUST_USE nw_status nw_yaml_parse(const char *name, const char *bytes, size_t n, nw_yaml **out,
                                    nw_error *err);
void nw_yaml_close(nw_yaml *y);

/* The document as JSON values (plain scalars resolved by the YAML 1.2 core schema); borrowed. */
json_t *nw_yaml_root(const nw_yaml *y);
const char *nw_yaml_path(const nw_yaml *y);

/* "path:line:column" of the node at a JSON pointer such as "/candidates/2/weights"; of the nearest
 * ancestor that exists, otherwise. Written into buf, which is returned. */
const char *nw_yaml_where(const nw_yaml *y, const char *pointer, char *buf, size_t n);

#endif
