/* SPDX-License-Identifier: Apache-2.0 */
/* lion_list.h - a list of tensors for Lion's tests: all of its memory in one block, filled with numbers of every kind,
 * so that two runs are compared, and the absence of any write is shown, by comparing blocks. */
#ifndef QN_TESTS_LION_LIST_H
#define QN_TESTS_LION_LIST_H
#include "quern/lion.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PARAM, GRAD, MOMENTUM, MASTER, ROLES };

typedef struct lion_list {
  size_t n, bytes;
  qn_dtype dtype[ROLES]; /* QN_NONE: not given */
  unsigned char *block;
  int64_t *extent; /* one a tensor: they have one dimension until a test says otherwise */
  qn_tensor *t[ROLES];
  qn_exec exec;
  qn_lion_params params;
  int64_t *workspace;
} lion_list;

static inline uint32_t lion_random(uint64_t *state)
{
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 32);
}

/* Normal in the main; zeros of both signs, subnormals, tiny, huge, and with `wild` infinities and NaNs. */
static inline float lion_value(uint64_t *state, bool wild)
{
  const uint32_t r = lion_random(state);
  const float x = (float)((int32_t)lion_random(state)) * 0x1p-31f;
  switch (r % 16) {
  case 0: return 0.0f;
  case 1: return -0.0f;
  case 2: return x * 1e-30f;
  case 3: return x * 1e-38f * 1e-2f;
  case 4: return x * 1e15f;
  case 5: return !wild ? x : r & 256 ? x / 0.0f : 0.0f / 0.0f;
  default: return x * 0.1f;
  }
}

/* By truncation: which numbers come out does not matter. */
static inline uint16_t lion_half(qn_dtype dtype, float x)
{
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return (uint16_t)(dtype == QN_BF16 ? u >> 16 : u >> 13);
}

static inline lion_list lion_list_make(size_t n, const size_t *elements, const qn_dtype dtype[ROLES], uint64_t seed,
                                       bool wild)
{
  lion_list l = {.n = n, .exec = {.size = sizeof(qn_exec)}, .params = QN_LION_DEFAULTS};
  memcpy(l.dtype, dtype, sizeof l.dtype);
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < n; k++) l.bytes += (elements[k] * qn_dtype_bytes(dtype[role]) + 63) / 64 * 64 + 64;
  l.block = aligned_alloc(64, l.bytes);
  memset(l.block, 0xa5, l.bytes);
  l.extent = calloc(n + 1, sizeof *l.extent);
  l.workspace = aligned_alloc(64, (16 * n + 127) / 64 * 64);
  unsigned char *at = l.block;
  for (int role = 0; role < ROLES; role++) {
    const size_t size = qn_dtype_bytes(dtype[role]);
    if (!size) continue;
    l.t[role] = calloc(n + 1, sizeof *l.t[role]);
    for (size_t k = 0; k < n; k++) {
      l.extent[k] = (int64_t)elements[k];
      l.t[role][k] = (qn_tensor){.data = at, .dtype = dtype[role], .ndim = 1, .shape = &l.extent[k]};
      for (size_t i = 0; i < elements[k]; i++) {
        const float x = lion_value(&seed, wild);
        const uint16_t h = lion_half(dtype[role], x);
        memcpy(at + i * size, size == 4 ? (const void *)&x : (const void *)&h, size);
      }
      at += (elements[k] * size + 63) / 64 * 64 + 64;
    }
  }
  l.params.lr = 1e-3;
  l.params.weight_decay = 0.1;
  return l;
}

static inline void lion_list_free(lion_list *l)
{
  for (int role = 0; role < ROLES; role++) free(l->t[role]);
  free(l->block);
  free(l->extent);
  free(l->workspace);
}

static inline qn_status lion_list_step(lion_list *l)
{
  l->exec.workspace = l->workspace;
  l->exec.workspace_bytes = qn_lion_workspace_bytes(&l->params, l->n);
  return qn_lion_step(&l->exec, &l->params, l->n, l->t[PARAM], l->t[GRAD], l->t[MOMENTUM], l->t[MASTER]);
}

/* Bit for bit, but that any NaN is any other; the places of tensors are those of `a`. -1: equal, else a byte's place.
 */
static inline long lion_list_difference(const lion_list *a, const lion_list *b)
{
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; a->t[role] && k < a->n; k++) {
      const size_t size = qn_dtype_bytes(a->dtype[role]);
      const unsigned char *x = a->t[role][k].data, *y = b->block + (x - a->block);
      const uint32_t inf = size == 4 ? 0x7f800000u : a->dtype[role] == QN_BF16 ? 0x7f80u : 0x7c00u;
      for (size_t i = 0; i < (size_t)a->extent[k]; i++) {
        uint32_t u = 0, v = 0;
        memcpy(&u, x + i * size, size);
        memcpy(&v, y + i * size, size);
        const uint32_t rest = size == 4 ? 0x7fffffffu : 0x7fffu;
        if (u != v && !((u & rest) > inf && (v & rest) > inf)) return (long)(x - a->block) + (long)(i * size);
      }
    }
  return -1;
}
#endif
