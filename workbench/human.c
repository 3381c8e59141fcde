/* SPDX-License-Identifier: Apache-2.0 */
/* human.c - see human.h. Three digits are enough for a reader; tools read the JSON. */
#include "workbench/human.h"
#include <stdio.h>
#include <time.h>

qn_human qn_human_bytes(int64_t bytes)
{
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  qn_human human;
  if (bytes < 1024) {
    snprintf(human.text, sizeof human.text, "%lld B", (long long)bytes);
    return human;
  }
  double amount = (double)bytes / 1024;
  size_t unit = 0;
  for (; amount >= 1023.5; amount /= 1024) unit++;
  snprintf(human.text, sizeof human.text, "%.*f %s", amount < 9.95 ? 1 : 0, amount, units[unit]);
  return human;
}

qn_human qn_human_time(int64_t unix_s)
{
  qn_human human;
  struct tm tm;
  time_t t = (time_t)unix_s;
  if (!localtime_r(&t, &tm) || !strftime(human.text, sizeof human.text, "%Y-%m-%d %H:%M", &tm))
    snprintf(human.text, sizeof human.text, "%lld", (long long)unix_s);
  return human;
}
