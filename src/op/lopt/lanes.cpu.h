/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.cpu.h - for files built once a tier: vectors of lanes from and to arrays. */
#ifndef QN_OP_LOPT_LANES_CPU_H
#define QN_OP_LOPT_LANES_CPU_H
#include "base/for_packs.h"
#include "op/lopt/lopt.math.h"
#include <stdint.h>
#include <string.h>

enum { BLOCK = 64 }; /* lanes that are taken together */
#define ALIGNED _Alignas(64)

QN_FN qn_f32 get(const float *from)
{
  qn_f32 x;
  memcpy(&x, from, sizeof x);
  return x;
}

QN_FN void put(float *to, qn_f32 x) { memcpy(to, &x, sizeof x); }

/* x to all of a block. */
QN_FN void spread(float *to, float x)
{
  for (int u = 0; u < BLOCK; u += QN_LANES) put(to + u, qn_splat(x));
}

/* n floats and zeros behind them, up to `room`. */
static inline void fill(float *to, const float *from, uint64_t n, uint64_t room)
{
  memcpy(to, from, n * sizeof *to);
  memset(to + n, 0, (room - n) * sizeof *to);
}
#endif
