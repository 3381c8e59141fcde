/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.c - see clocks.h. NVML is opened at run time and only its oldest calls are used; without it a bench says less
 * and is no worse. A device's number is NVML's only where CUDA_VISIBLE_DEVICES does not renumber; there it is not read.
 */
#include "workbench/clocks.h"
#include "device/cuda/driver.h"
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvml {
  int (*init)(void);
  int (*device)(unsigned index, void **device);
  int (*clock)(void *device, int type, unsigned *mhz);
  int (*temperature)(void *device, int sensor, unsigned *celsius);
  int (*reasons)(void *device, unsigned long long *reasons);
} nvml;

static bool open_nvml(nvml *n)
{
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); /* stays open: the process is about to end */
  return library && qn_cuda_symbol(library, "nvmlInit_v2", &n->init) &&
         qn_cuda_symbol(library, "nvmlDeviceGetHandleByIndex_v2", &n->device) &&
         qn_cuda_symbol(library, "nvmlDeviceGetClockInfo", &n->clock) &&
         qn_cuda_symbol(library, "nvmlDeviceGetTemperature", &n->temperature) &&
         qn_cuda_symbol(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &n->reasons) && n->init() == 0;
}

static void read_cuda(int index, char *text, size_t bytes)
{
  enum { GRAPHICS = 0, MEMORY = 2, ON_DIE = 0 };
  const unsigned long long idle = 1, application_setting = 2, harmless = idle | application_setting;
  nvml n;
  void *device;
  unsigned graphics, memory, celsius;
  unsigned long long reasons;
  if (getenv("CUDA_VISIBLE_DEVICES") || !open_nvml(&n) || n.device((unsigned)index, &device)) return;
  if (n.clock(device, GRAPHICS, &graphics) || n.clock(device, MEMORY, &memory)) return;
  int used = snprintf(text, bytes, "%u MHz, memory %u MHz", graphics, memory);
  if (used < 0 || (size_t)used >= bytes || n.temperature(device, ON_DIE, &celsius) || n.reasons(device, &reasons))
    return;
  bool held = reasons & ~harmless;
  snprintf(text + used, bytes - (size_t)used, held ? ", %u C, throttled: 0x%llx" : ", %u C, not throttled", celsius,
           reasons & ~harmless);
}

static void read_cpu(char *text, size_t bytes)
{
  char line[256];
  double mhz = 0, most = 0, load;
  FILE *file = fopen("/proc/cpuinfo", "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "cpu MHz : %lf", &mhz) == 1 && mhz > most) most = mhz;
  if (file) fclose(file);
  if (getloadavg(&load, 1) != 1) return;
  if (most > 0)
    snprintf(text, bytes, "%.0f MHz, load %.2f", most, load);
  else
    snprintf(text, bytes, "load %.2f", load);
}

void qn_clocks_read(qn_device device, char *text, size_t bytes)
{
  *text = 0;
  if (device.kind == QN_CUDA)
    read_cuda(device.index, text, bytes);
  else
    read_cpu(text, bytes);
}
