/* SPDX-License-Identifier: Apache-2.0 */
/* arch.h - architectures, inside: by name alone, and which of two is the older. */
#ifndef QN_DEVICE_ARCH_H
#define QN_DEVICE_ARCH_H
#include "quern/arch.h"
#include <stdbool.h>

/* "sm_90", "avx512", "emulator": name, family, capability and limits of an architecture that need not be here. False
 * where the name is none. */
bool qn_arch_from_name(const char *name, qn_arch *arch);
/* Where it stands among the others of its kind, growing from old to new; 0 where there is no order. */
int qn_arch_order(const qn_arch *arch);
#endif
