/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - how the library fails: a status, and a sentence with values kept for qn_last_error(). */
#ifndef QN_CORE_STATUS_H
#define QN_CORE_STATUS_H
#include "quern/status.h"

qn_status qn_fail_at(qn_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Record why, then hand back the code: `return qn_fail(QN_NO_DEVICE, "cuda:%d: there are %d", index, count);`. The code
 * is the macro's own value, so that the compiler sees that it is not QN_OK. */
#define qn_fail(status, ...)                                                                                           \
  __extension__({                                                                                                      \
    qn_fail_at((status), __VA_ARGS__);                                                                                 \
    (status);                                                                                                          \
  })
#define qn_require(condition, ...)                                                                                     \
  do {                                                                                                                 \
    if (!(condition)) return qn_fail(QN_BAD_ARGUMENT, __VA_ARGS__);                                                    \
  } while (0)
/* Is it the caller's mistake? */
static inline int qn_is_refusal(qn_status status) { return status == QN_BAD_ARGUMENT || status == QN_BAD_TYPE; }
#define qn_try(call)                                                                                                   \
  do {                                                                                                                 \
    qn_status status_ = (call);                                                                                        \
    if (status_ != QN_OK) return status_;                                                                              \
  } while (0)
#endif
