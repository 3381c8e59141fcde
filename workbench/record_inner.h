/* SPDX-License-Identifier: Apache-2.0 */
/* record_inner.h - parts of lines of JSON that record.c and figures.c both write. */
#ifndef QN_WORKBENCH_RECORD_INNER_H
#define QN_WORKBENCH_RECORD_INNER_H
#include "quern/device.h"
#include "workbench/workload.h"
#include <jansson.h>

json_t *qn_number_or_null(double x); /* null where it is not finite */
/* The device, its processor, the system, driver and compiler. */
json_t *qn_json_machine(const qn_device_info *device);
/* How every line begins behind its schema: date, version, commit, machine, build. */
qn_status qn_json_head(qn_device device, json_t **head);
json_t *qn_json_shapes(const qn_workload *work); /* a list of extents a tensor */
#endif
