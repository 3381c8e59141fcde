/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c - XXH3 of 128 bits, from xxHash's header, inlined here so that nothing is linked and nothing of it exported.
 * For keys and checksums of our own files; it is no defence against somebody who chooses the bytes. */
#include "core/core.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wpedantic"
#define XXH_INLINE_ALL
#include <xxhash.h>
#pragma GCC diagnostic pop

qn_hash128 qn_hash(const void *data, size_t bytes)
{
  XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return (qn_hash128){hash.low64, hash.high64};
}
