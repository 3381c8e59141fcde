/* SPDX-License-Identifier: Apache-2.0 */
/* op_check.c - see op_check.h. */
#include "workbench/op_check.h"
#include <string.h>

#define QN_CHECK(name) extern const qn_op_check qn_check_##name;
#include "op_checks.h"
#undef QN_CHECK

const qn_op_check *qn_op_check_of(const qn_op *op)
{
  static const qn_op_check none;
#define QN_CHECK(op_name)                                                                                              \
  if (!strcmp(op->info.name, #op_name)) return &qn_check_##op_name;
#include "op_checks.h"
#undef QN_CHECK
  return &none;
}
