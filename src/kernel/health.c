/* SPDX-License-Identifier: Apache-2.0 */
/* health.c - reads the health buffer: sixteen floats in which a kernel says how far it came and what stopped it. The
 * kernel fills it, the caller brings it to the host; nothing here knows a device. */
#include "core/core.h"
#include "quern/kernel.h"
#include <math.h>
#include <stdio.h>

static const char *error_text(int code)
{
  static const char *const texts[] = {
      [1] = "the matrix is too large for this kernel",
      [2] = "the work of a thread is too large",
      [3] = "too many iterations",
      [4] = "a numerical fault (4): a pivot that is not positive",
      [5] = "a numerical fault (5): a norm or value that is not finite or too small",
  };
  return code >= 1 && code <= 5 ? texts[code] : "an error of its own";
}

/* The kernel's other notes, for the sentence. */
static void tell(const float dbg[QN_HEALTH_COUNT], char *text, size_t bytes)
{
  snprintf(text, bytes, "m %g, n %g, %g threads a group of %g, work %g, values %g %g %g %g, %g iterations",
           (double)dbg[QN_HEALTH_M], (double)dbg[QN_HEALTH_N], (double)dbg[QN_HEALTH_GROUP],
           (double)dbg[QN_HEALTH_THREADS], (double)dbg[QN_HEALTH_WORK], (double)dbg[QN_HEALTH_VALUE],
           (double)dbg[QN_HEALTH_VALUE + 1], (double)dbg[QN_HEALTH_VALUE + 2], (double)dbg[QN_HEALTH_VALUE + 3],
           (double)dbg[QN_HEALTH_ITERATIONS]);
}

qn_status qn_health_status(const char *kernel, const float dbg[QN_HEALTH_COUNT])
{
  char rest[384];
  qn_require(kernel && dbg, "health: %s is NULL", kernel ? "the buffer" : "the kernel's name");
  const float error = dbg[QN_HEALTH_ERROR], success = dbg[QN_HEALTH_SUCCESS];
  const bool failed = !(fabsf(error) <= 0.0f); /* NaN is a fault too */
  if (success == 1.0f && !failed) return QN_OK;
  tell(dbg, rest, sizeof rest);
  if (failed) {
    const int code = error >= 1.0f && error <= 1000.0f ? (int)error : 0;
    return qn_fail(QN_KERNEL_ERROR, "%s: error %g, %s, with value %g (%s)", kernel, (double)error, error_text(code),
                   (double)dbg[QN_HEALTH_ERROR_VALUE], rest);
  }
  if (dbg[QN_HEALTH_STARTED] != 1.0f)
    return qn_fail(QN_KERNEL_ERROR, "%s: it did not start: its health buffer begins with %g (%s)", kernel,
                   (double)dbg[QN_HEALTH_STARTED], rest);
  return qn_fail(QN_KERNEL_ERROR, "%s: it began and did not come to its end (%s)", kernel, rest);
}
