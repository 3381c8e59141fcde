/* SPDX-License-Identifier: Apache-2.0 */
/* maths_unit.h - a device kernel that runs one function of src/base/maths.h, or the reciprocal under it, over floats
 * given by their bits: each thread a run of them. It writes a sum of mixed results a run, which says whether all are
 * right with next to nothing to read back, or the results themselves. QN_MATHS names the function. */
#ifndef QN_TESTS_MATHS_UNIT_H
#define QN_TESTS_MATHS_UNIT_H
#include <stdint.h>

typedef struct maths_args {
  uint64_t *sum; /* one a run; or NULL */
  float *result; /* all, run after run; or NULL */
  uint64_t runs;
  uint32_t first, step, length; /* run r has bits first + (r length + k) step, mod 2^32, for k below length */
} maths_args;

#define MATHS_UNIT_SOURCE "maths.cu"
#define MATHS_UNIT_TEXT                                                                                                \
  "#include \"base/maths.h\"\n"                                                                                        \
  "struct maths_args { qn_u64 *sum; float *result; qn_u64 runs; qn_u32 first, step, length; };\n"                      \
  "QN_KERNEL(maths, maths_args, a)\n"                                                                                  \
  "{\n"                                                                                                                \
  "  qn_u64 run = qn_block() * qn_block_threads() + qn_thread(), sum = 0;\n"                                           \
  "  if (run >= a.runs) return;\n"                                                                                     \
  "  for (qn_u32 k = 0; k < a.length; k++) {\n"                                                                        \
  "    qn_u32 bits = a.first + ((qn_u32)run * a.length + k) * a.step;\n"                                               \
  "    float y = QN_MATHS(qn_bits_float(bits));\n"                                                                     \
  "    if (a.result) a.result[run * a.length + k] = y;\n"                                                              \
  "    qn_u64 mixed = (qn_float_bits(y != y ? qn_bits_float(0x7fc00000u) : y) ^ bits * 2654435761u) *\n"               \
  "                   0x9e3779b97f4a7c15ull;\n"                                                                        \
  "    sum += mixed ^ mixed >> 31;\n"                                                                                  \
  "  }\n"                                                                                                              \
  "  if (a.sum) a.sum[run] = sum;\n"                                                                                   \
  "}\n"

/* The kernel's contribution for one input. */
static inline uint64_t maths_mixed(uint32_t bits, uint32_t result, int is_nan)
{
  const uint64_t mixed =
      (uint64_t)((is_nan ? 0x7fc00000u : result) ^ bits * 2654435761u) * UINT64_C(0x9e3779b97f4a7c15);
  return mixed ^ mixed >> 31;
}
#endif
