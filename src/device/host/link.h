/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - the short way from a compiled kernel to a shared object. */
#ifndef QN_DEVICE_HOST_LINK_H
#define QN_DEVICE_HOST_LINK_H
#include <stdbool.h>

/* Links the object file without any library, where it needs none; false: it was not done, and the compiler's driver
 * must. `directory` is for temporary files. */
bool qn_link_alone(const char *object, const char *output, const char *directory);
#endif
