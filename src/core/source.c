/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - an embedded device source by its name. */
#include "core/source.h"
#include <string.h>

const qn_source *qn_source_find(const char *name)
{
  for (const qn_source *source = qn_sources; source->name; source++)
    if (!strcmp(source->name, name)) return source;
  return NULL;
}
