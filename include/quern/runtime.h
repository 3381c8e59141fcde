/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h - the settings of the library as a whole: options, log, allocation hooks. Set them before other calls, from
 * one thread; reading options is safe from any thread at any time. */
#ifndef QN_RUNTIME_H
#define QN_RUNTIME_H
#include "status.h"
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- options: one table; each has a default, an environment variable and a line of documentation ---- */
typedef struct qn_option_info {
  const char *name;          /* "cpu" */
  const char *variable;      /* "QUERN_CPU": read once, at the option's first use */
  const char *default_value; /* as text; "" is none */
  const char *values; /* the allowed values: "ref|avx2|avx512|avx512bf16|amx|neon|auto", "path", "bytes with K, M, G" */
  const char *doc;    /* one line */
} qn_option_info;

QN_API size_t qn_option_count(void);
QN_API const qn_option_info *qn_option_at(size_t k); /* NULL past the end */

/* The value in force as text. QN_BAD_ARGUMENT with the nearest name for an unknown one; a variable whose value is not
 * among the allowed ones is an error of the first call that needs it, never silently the default. The text lives until
 * the next set of that option. */
QN_API qn_status qn_option_get(const char *name, const char **value);
QN_API qn_status qn_option_set(const char *name, const char *value); /* NULL: back to variable or default */

/* ---- log: the library prints nothing; this is how it speaks ---- */
typedef enum qn_log_level { QN_LOG_OFF, QN_LOG_WARNING, QN_LOG_INFO, QN_LOG_DEBUG } qn_log_level;
typedef void qn_log_fn(void *user, qn_log_level level, const char *text); /* any thread may call it; text is borrowed */
QN_API void qn_log_set(qn_log_fn *fn, void *user, qn_log_level most);     /* NULL: silence (the default) */

/* ---- allocation hooks: every byte that the library takes on the host goes through them ---- */
typedef struct qn_allocator {
  void *(*allocate)(void *user, size_t bytes,
                    size_t alignment);                     /* NULL when there is none; alignment is a power of 2 */
  void (*release)(void *user, void *memory, size_t bytes); /* never called with NULL */
  void *user;
} qn_allocator;
QN_API qn_status qn_allocator_set(const qn_allocator *allocator); /* copied; NULL: aligned_alloc and free */

/* The best CPU tier that would run now, after detection and the option "cpu": "ref", "avx2", "avx512", "neon". The
 * tiers avx512bf16 and amx are avx512 but for products of bf16 numbers, and are not named here. */
QN_API qn_status qn_cpu_tier(const char **name);

#ifdef __cplusplus
}
#endif
#endif
