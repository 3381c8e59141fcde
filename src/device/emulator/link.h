/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - the short way from a compiled kernel to a shared object. */
#ifndef QN_DEVICE_EMULATOR_LINK_H
#define QN_DEVICE_EMULATOR_LINK_H
#include "device/emulator/child.h"
#include <stdbool.h>

/* The paths of files[0] and files[1] in a child. */
#define QN_LINK_OBJECT QN_CHILD_PATH "3"
#define QN_LINK_OUTPUT QN_CHILD_PATH "4"

/* Links the object files[0] into files[1], both in memory, without any library, where it needs none; false: it was not
 * done, and the compiler's driver must. */
bool qn_link_alone(const int files[2]);
#endif
