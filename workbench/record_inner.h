/* SPDX-License-Identifier: Apache-2.0 */
/* record_inner.h - what lines of JSON of several kinds have in common. */
#ifndef QN_WORKBENCH_RECORD_INNER_H
#define QN_WORKBENCH_RECORD_INNER_H
#include "quern/device.h"
#include "workbench/workload.h"
#include <jansson.h>
#include <stdio.h>

json_t *qn_number_or_null(double x);                        /* null where it is not finite */
void qn_json_print(FILE *out, json_t *given, size_t flags); /* as a line, and releases it */
void qn_json_date(char date[32]);                           /* now: "2026-07-01T12:30:00Z" */
/* The line, which is given away, behind what the file has; real numbers with so many digits. */
qn_status qn_json_append(const char *path, json_t *line, unsigned digits);
/* The device, its processor, the system, driver and compiler. */
json_t *qn_json_machine(const qn_device_info *device);
/* How every line begins behind its schema: date, version, commit, machine, build. */
qn_status qn_json_head(qn_device device, json_t **head);
json_t *qn_json_shapes(const qn_workload *work); /* a list of extents a tensor */
#endif
