/* SPDX-License-Identifier: Apache-2.0 */
/* forced.c - see forced.h. */
#include "op/forced.h"
#include "op/call.h"
#include "quern/arch.h"
#include <string.h>

static qn_status check_arch(void)
{
  qn_arch arch = {.size = sizeof arch};
  return qn_device_arch((qn_device){QN_EMULATOR, 0}, &arch); /* the emulator imitates what the option says */
}

qn_status qn_forced_check(const char *name)
{
  if (!strcmp(name, "arch")) return check_arch();
  for (size_t k = 0; k < qn_op_count(); k++) {
    const qn_engine *engine = qn_op_of(qn_op_at(k))->engine;
    if (engine->option && !strcmp(name, engine->option)) return engine->check_option();
  }
  return QN_OK;
}
