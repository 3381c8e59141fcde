/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.h - how fast the device's clocks run at this moment, and whether something holds them down, as far as it can
 * be read without rights: NVML for CUDA devices, /proc for the processor. */
#ifndef QN_WORKBENCH_CLOCKS_H
#define QN_WORKBENCH_CLOCKS_H
#include "quern/tensor.h"
#include <stddef.h>

/* "1980 MHz, memory 3201 MHz, 51 C, not throttled"; "" where nothing can be read. */
void qn_clocks_read(qn_device device, char *text, size_t bytes);
#endif
