/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - what the examinations of `quern doctor` report to. */
#ifndef QN_CLI_DOCTOR_H
#define QN_CLI_DOCTOR_H
#include "core/core.h"
#include "quern/quern.h"
#include <jansson.h>

/* OK: as it should be. NONE: not here, and nothing that was asked for needs it. MEND: here and not as it should be. The
 * last two say how to mend it. */
typedef enum qn_doctor_finding { QN_DOCTOR_OK, QN_DOCTOR_NONE, QN_DOCTOR_MEND } qn_doctor_finding;

typedef struct qn_doctor {
  json_t *lines;                    /* NULL: they are printed at once */
  bool needs[QN_DEVICE_KIND_COUNT]; /* --require: that it is not here is then to be mended */
  size_t broken;
  bool misled; /* by a variable whose value is wrong */
} qn_doctor;

/* One line: topic, what was found (format), and how to mend it: a command, or NULL where it is fine. */
void qn_doctor_say(qn_doctor *doctor, qn_doctor_finding finding, const char *topic, const char *mend,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- examinations: doctor_build.c, doctor_device.c ---- */
void qn_doctor_tools(qn_doctor *doctor);
void qn_doctor_build(qn_doctor *doctor);   /* the build directory that this command runs from, if it does */
void qn_doctor_library(qn_doctor *doctor); /* the shared library that a program would load, and the installed headers */
/* They return whether a real kernel ran there and its result was right. */
bool qn_doctor_cpu(qn_doctor *doctor);
bool qn_doctor_emulator(qn_doctor *doctor);
bool qn_doctor_cuda(qn_doctor *doctor, int index); /* -1: every device */

#endif
