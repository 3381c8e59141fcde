/* SPDX-License-Identifier: Apache-2.0 */
/* jit.h - a kernel from its embedded source: found in memory, else on disk, else compiled. */
#ifndef QN_JIT_JIT_H
#define QN_JIT_JIT_H
#include "device/backend.h"

/* The kernel `name` of the unit for this device, ready to launch. Found by full key, thread-safe; two threads that ask
 * for the same missing kernel compile it once. The function lives as long as the process. Failing leaves nothing
 * half-built. A fork after the device was opened: QN_FORKED. */
qn_status qn_jit_function(qn_device device, const qn_unit *unit, const char *name, const qn_device_function **function);
/* Changes when what was found before may no longer be what would be found: an option was set, the process forked. Never
 * 0. Taken before the function is asked for, and kept with it. */
uint64_t qn_jit_stamp(void);
#endif
