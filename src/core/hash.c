/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c - XXH3 of 128 bits, from xxHash's header, inlined here so that nothing is linked and nothing of it exported.
 * For keys of our own files; it is no defence against somebody who chooses the bytes. qn_hash_keyed is one: SipHash-2-4
 * of 128 bits (Aumasson and Bernstein, 2012). */
#include "core/core.h"
#include <string.h>

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

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

static void sip_rounds(uint64_t v[4], int n)
{
  while (n-- > 0) {
    v[0] += v[1], v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
  }
}

static void sip_word(uint64_t v[4], uint64_t word)
{
  v[3] ^= word;
  sip_rounds(v, 2);
  v[0] ^= word;
}

/* In this machine's byte order. */
qn_hash128 qn_hash_keyed(const uint64_t key[2], const void *data, size_t bytes)
{
  uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee, key[0] ^ 0x6c7967656e657261,
                   key[1] ^ 0x7465646279746573};
  const unsigned char *at = data;
  uint64_t word, last = (uint64_t)bytes << 56;
  for (size_t n = bytes / 8; n; n--, at += 8) {
    memcpy(&word, at, 8);
    sip_word(v, word);
  }
  for (size_t k = 0; k < bytes % 8; k++) last |= (uint64_t)at[k] << 8 * k;
  sip_word(v, last);
  v[2] ^= 0xee;
  sip_rounds(v, 4);
  const uint64_t low = v[0] ^ v[1] ^ v[2] ^ v[3];
  v[1] ^= 0xdd;
  sip_rounds(v, 4);
  return (qn_hash128){low, v[0] ^ v[1] ^ v[2] ^ v[3]};
}
