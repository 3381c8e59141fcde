/* SPDX-License-Identifier: Apache-2.0 */
/* forced.c - see forced.h. */
#include "op/forced.h"
#include "core/core.h"
#include "op/call.h"
#include "op/geometry.h"
#include "quern/arch.h"
#include <stdio.h>
#include <string.h>

static qn_status check_geometry(void)
{
  char why[512];
  qn_geometry geometry;
  bool is_set;
  if (qn_geometry_forced(&geometry, &is_set) == QN_OK) return QN_OK;
  snprintf(why, sizeof why, "%s", qn_last_error());
  return qn_fail(QN_BAD_ARGUMENT, "QUERN_GEOMETRY: %s", why);
}

static qn_status check_arch(void)
{
  qn_arch arch = {.size = sizeof arch};
  return qn_device_arch((qn_device){QN_HOST, 0}, &arch); /* the host imitates what the option says */
}

qn_status qn_forced_check(const char *name)
{
  if (!strcmp(name, "geometry")) return check_geometry();
  if (!strcmp(name, "arch")) return check_arch();
  for (size_t k = 0; k < qn_op_count(); k++) {
    const qn_shaped *shaped = qn_op_of(qn_op_at(k))->shaped;
    if (shaped && shaped->variant_option && !strcmp(name, shaped->variant_option)) return shaped->check_option();
  }
  return QN_OK;
}
