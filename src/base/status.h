/* Status codes and the one error object. A function that can fail returns nw_status and takes
 * `nw_error *err` last: never NULL, untouched on success, set once where the fault is known
 * (subject, value found, limit; lower case, no full stop), prefixed upwards by nw_context, and
 * printed once, by main. Broken invariants are asserts and never come this way.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_STATUS_H
#define NW_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NW_MUST_USE     __attribute__((warn_unused_result))
#define NW_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define NW_COUNT(a)     (sizeof(a) / sizeof((a)[0]))

/* name, exit code of the process (STYLE section 6), what a reader of a log is told */
#define NW_STATUS_MAP(X)                      \
    X(OK, 0, "ok")                            \
    X(E_NOMEM, 4, "out of memory")            \
    X(E_IO, 4, "input or output failed")      \
    X(E_FORMAT, 3, "malformed input")         \
    X(E_RANGE, 3, "value out of range")       \
    X(E_UNSUPPORTED, 3, "not supported")      \
    X(E_NETWORK, 4, "network or peer failed") \
    X(E_CANCELLED, 130, "cancelled")          \
    X(E_USAGE, 2, "wrong usage")              \
    X(E_BUSY, 4, "no capacity at the moment")

typedef enum {
#define NW_STATUS_ENUM(name, exit_code, text) NW_##name,
    NW_STATUS_MAP(NW_STATUS_ENUM)
#undef NW_STATUS_ENUM
} nw_status;

typedef struct {
    nw_status code;
    char message[1024];
} nw_error;

/* Sets code and message; returns code. */
nw_status nw_fail(nw_error *err, nw_status code, const char *fmt, ...) NW_PRINTF(3, 4);

/* Puts "what I was doing: " before the message of a failure; returns its code. */
nw_status nw_context(nw_error *err, const char *fmt, ...) NW_PRINTF(2, 3);

#ifdef __clang_analyzer__
/* What the analyzer cannot see from here: neither ever returns NW_OK. */
#define nw_fail(err, code, ...) ((void)(nw_fail)(err, code, __VA_ARGS__), (code))
#define nw_context(err, ...)    ((void)(nw_context)(err, __VA_ARGS__), NW_E_IO)
#endif

const char *nw_status_text(nw_status code);
int nw_status_exit_code(nw_status code);

/* Overflow-safe size arithmetic for any size with a factor from outside. False on overflow,
 * and *out is then untouched. */
static inline NW_MUST_USE bool nw_size_mul(size_t a, size_t b, size_t *out)
{
    size_t r = 0;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline NW_MUST_USE bool nw_size_add(size_t a, size_t b, size_t *out)
{
    size_t r = 0;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

#endif
