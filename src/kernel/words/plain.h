/* SPDX-License-Identifier: Apache-2.0 */
/* plain.h - the least that a Metal body needs: uint3 and exp. */
#ifndef QN_WORDS_PLAIN_H
#define QN_WORDS_PLAIN_H
#include "base/maths.h"
namespace QN_WORDS {
typedef unsigned uint;
struct uint3 {
  uint x, y, z;
};
QN_FN float exp(float x) { return qn_exp(x); }
} // namespace QN_WORDS
namespace metal = QN_WORDS;
#endif
