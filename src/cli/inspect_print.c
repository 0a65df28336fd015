/* `narrow inspect` for people: a head, the formats, and a table that says each thing once: layers
 * whose tensor of a role has the same format share a line.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"
#include "model/arch.h"

#define RANGES_BYTES 48

/* "134.5 M" */
static const char *amount(double x, char buf[24])
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t i = 0;

    for (; x >= 999.95 && i + 1 < NW_COUNT(units); i++) {
        x /= 1000;
    }
    (void)snprintf(buf, 24, i == 0 ? "%.0f%s" : "%.1f%s", x, units[i]);
    return buf;
}

static const char *arch_name(const nw_model_config *c)
{
    return nw_arch_get(c->arch)->name;
}

static void print_config(const nw_model_config *c)
{
    (void)printf("architecture  %s, %" PRIu32 " layer%s, d_model %" PRIu32 ", d_ff %" PRIu32
                 ", vocabulary %" PRIu32 ", context %" PRIu32 "\n",
                 arch_name(c), c->n_layers, c->n_layers == 1 ? "" : "s", c->d_model, c->d_ff,
                 c->n_vocab, c->n_ctx);
    (void)printf("attention     %" PRIu32 " heads of %" PRIu32 ", %" PRIu32
                 " key-value head%s, RoPE base %g",
                 c->n_heads, c->d_head, c->n_kv_heads, c->n_kv_heads == 1 ? "" : "s",
                 (double)c->rope_base);
    if (c->rope_scaling.kind != NW_ROPE_SCALE_NONE) {
        (void)printf(" scaled by %g (%s)", (double)c->rope_scaling.factor,
                     c->rope_scaling.kind == NW_ROPE_SCALE_LINEAR ? "linear" : "llama3");
    }
    if (c->sliding_window > 0 && c->global_every > c->n_layers) {
        (void)printf("; window %" PRIu32 " in %" PRIu32 " of %" PRIu32 " layers", c->sliding_window,
                     c->n_layers - c->global_first, c->n_layers);
    } else if (c->sliding_window > 0) {
        (void)printf("; window %" PRIu32 " with base %g, every %" PRIu32 "th layer global",
                     c->sliding_window, (double)c->rope_base_local, c->global_every);
    }
    (void)printf("\nhead          %s\n", c->tied ? "tied to the embedding" : "a matrix of its own");
}

static void print_tokenizer(const nw_inspection *m)
{
    if (m->tokenizer[0] == '\0') {
        (void)printf("tokenizer     none: %s\n", m->tokenizer_why);
    } else {
        (void)printf("tokenizer     %s, %" PRIu32 " tokens, %s\n", m->tokenizer, m->n_tokens,
                     m->has_template ? "with a chat template" : "no chat template");
    }
}

static void print_formats(const nw_inspection *m)
{
    char params[24];
    char bytes[24];

    (void)printf("\n%-12s %7s %11s %11s %12s %7s\n", "format", "tensors", "parameters", "bytes",
                 "bits/weight", "share");
    for (size_t i = 0; i < m->n_formats; i++) {
        const nw_inspect_format *f = &m->formats[i];
        (void)printf("%-12s %7zu %11s %11s %12.3f %6.1f%%\n", f->format, f->n_tensors,
                     amount((double)f->n_params, params), amount((double)f->n_bytes, bytes),
                     nw_inspect_bits(f->n_bytes, f->n_params),
                     m->n_bytes > 0 ? 100.0 * (double)f->n_bytes / (double)m->n_bytes : 0.0);
    }
    (void)printf("%-12s %7zu %11s %11s %12.3f\n", "all", m->n_tensors,
                 amount((double)m->n_params, params), amount((double)m->n_bytes, bytes),
                 nw_inspect_bits(m->n_bytes, m->n_params));
}

static const char *shape(const nw_inspect_tensor *t, char buf[32])
{
    if (nw_role_is_vector(t->role)) {
        (void)snprintf(buf, 32, "%" PRIu32, t->n_cols);
    } else {
        (void)snprintf(buf, 32, "%" PRIu32 " x %" PRIu32, t->n_rows, t->n_cols);
    }
    return buf;
}

/* Is t on the line that `first` begins? */
static bool same_line(const nw_inspect_tensor *first, const nw_inspect_tensor *t)
{
    return t->role == first->role && t->layer >= 0 && first->layer >= 0 &&
           strcmp(t->format, first->format) == 0;
}

/* A line belongs to its first tensor. */
static bool begins_line(const nw_inspection *m, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (same_line(&m->tensors[k], &m->tensors[i])) {
            return false;
        }
    }
    return true;
}

/* "0-4,6": the layers of a line; "" for tensors of no layer. Cut with ".." where it grows long. */
static const char *layers(const nw_inspection *m, size_t first, char buf[RANGES_BYTES])
{
    size_t n = 0;
    int32_t from = -2;
    int32_t to = -2;

    buf[0] = '\0';
    for (size_t i = first; i <= m->n_tensors; i++) {
        const bool end = i == m->n_tensors;
        if (!end && !same_line(&m->tensors[first], &m->tensors[i])) {
            continue;
        }
        if (!end && m->tensors[i].layer == to + 1) {
            to++;
            continue;
        }
        if (from >= 0 && n + 16 < RANGES_BYTES) {
            n += (size_t)snprintf(buf + n, RANGES_BYTES - n, "%s%" PRId32, n > 0 ? "," : "", from);
            n += to > from ? (size_t)snprintf(buf + n, RANGES_BYTES - n, "-%" PRId32, to) : 0;
        } else if (from >= 0) {
            (void)snprintf(buf + n, RANGES_BYTES - n, "..");
        }
        from = to = end ? -2 : m->tensors[i].layer;
    }
    return buf;
}

/* The name without the parts that repeat; a layer's number becomes N. */
static const char *short_name(const nw_inspect_tensor *t, char buf[96])
{
    char prefix[40];

    (void)snprintf(prefix, sizeof prefix, "model.layers.%" PRId32 ".", t->layer);
    if (t->layer >= 0 && strncmp(t->name, prefix, strlen(prefix)) == 0) {
        (void)snprintf(buf, 96, "model.layers.N.%s", t->name + strlen(prefix));
    } else {
        (void)snprintf(buf, 96, "%s", t->name);
    }
    return buf;
}

static void print_role(const nw_inspection *m, nw_role role)
{
    char name[96];
    char dims[32];
    char ranges[RANGES_BYTES];

    for (size_t i = 0; i < m->n_tensors; i++) {
        const nw_inspect_tensor *t = &m->tensors[i];
        if (t->role == role && begins_line(m, i)) {
            const int width = (int)strlen(t->format);
            (void)layers(m, i, ranges);
            (void)printf("%-48s %15s  %s%*s%s\n", short_name(t, name), shape(t, dims), t->format,
                         ranges[0] == '\0' ? 0
                         : width < 12      ? 13 - width
                                           : 1,
                         "", ranges);
        }
    }
}

static void print_groups(const nw_inspection *m)
{
    (void)printf("\n%-48s %15s  %-12s %s\n", "tensor", "shape", "format", "layers");
    print_role(m, NW_ROLE_EMBED);
    for (int role = NW_ROLE_ATTN_NORM; role < NW_ROLE_COUNT; role++) {
        print_role(m, (nw_role)role);
    }
    print_role(m, NW_ROLE_OUT_NORM);
    print_role(m, NW_ROLE_HEAD);
}

static void print_all(const nw_inspection *m)
{
    char dims[32];
    char bytes[24];

    (void)printf("\n%-52s %15s  %-12s %9s  %s\n", "tensor", "shape", "format", "bytes",
                 "in the file");
    for (size_t i = 0; i < m->n_tensors; i++) {
        const nw_inspect_tensor *t = &m->tensors[i];
        (void)printf("%-52s %15s  %-12s %9s  %s\n", t->name, shape(t, dims), t->format,
                     amount((double)t->n_bytes, bytes),
                     t->source != NULL ? t->source : "same name");
    }
}

void nw_inspect_print(const nw_inspection *m, bool all_tensors)
{
    char params[24];
    char bytes[24];

    (void)printf("model         %s\n", m->path);
    (void)printf("kind          %s, %" PRIu32 " file%s, %sB\n", m->kind, m->n_files,
                 m->n_files == 1 ? "" : "s", amount((double)m->file_bytes, bytes));
    (void)printf("sha256        %s\n", m->hash.hex);
    if (m->recipe[0] != '\0') {
        (void)printf("recipe        %s%s%s\n", m->recipe, m->note[0] != '\0' ? "; " : "", m->note);
    }
    print_config(&m->config);
    print_tokenizer(m);
    (void)printf("weights       %s parameters, %.3f bits each\n",
                 amount((double)m->n_params, params), nw_inspect_bits(m->n_bytes, m->n_params));
    if (m->act[0] != '\0') {
        (void)printf("activations   %s\n", m->act);
    }
    if (m->kv[0] != '\0') {
        (void)printf("keys, values  %s\n", m->kv);
    }
    if (m->n_ignored > 0) {
        (void)printf("not used      %zu tensors of the file\n", m->n_ignored);
    }
    print_formats(m);
    if (all_tensors) {
        print_all(m);
    } else {
        print_groups(m);
    }
}
