/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - the device sources that the build embedded, by the name they are included under ("base/simd.h"). */
#ifndef QN_CORE_SOURCE_H
#define QN_CORE_SOURCE_H
#include <stddef.h>
typedef struct qn_source {
  const char *name, *text; /* text ends in a NUL that is not counted */
  size_t bytes;
} qn_source;
extern const qn_source qn_sources[]; /* ends with name NULL */
const qn_source *qn_source_find(const char *name);
#endif
