/* SPDX-License-Identifier: Apache-2.0 */
/* integer.h - Metal's functions of whole numbers, for 8 to 64 bits, signed and not, and vectors of them; and min3, max3
 * and median3 of any numbers. */
#ifndef QN_DIALECT_INTEGER_H
#define QN_DIALECT_INTEGER_H
#include "kernel/dialect/metal.h"

namespace QN_WORDS {
template <int bytes> struct qn_bits_of_size;
#define QN_SIZE(bytes, type)                                                                                           \
  template <> struct qn_bits_of_size<bytes> {                                                                          \
    typedef unsigned type u;                                                                                           \
    typedef signed type s;                                                                                             \
  };
QN_SIZE(1, char)
QN_SIZE(2, short)
QN_SIZE(4, int)
QN_SIZE(8, long)
#undef QN_SIZE
template <class T> using qn_unsigned = typename qn_bits_of_size<sizeof(T)>::u;
template <class T> using qn_signed = typename qn_bits_of_size<sizeof(T)>::s;
template <class T> QN_WORD bool qn_is_signed() { return T(-1) < T(0); }
template <class T> QN_WORD T qn_most() { return qn_is_signed<T>() ? T(qn_unsigned<T>(-1) >> 1) : T(-1); }
template <class T> QN_WORD T qn_fewest() { return qn_is_signed<T>() ? T(-qn_most<T>() - 1) : T(0); }

QN_WORD int qn_leading_zeros(unsigned long x)
{
#ifdef QN_CUDA_DIALECT
  return __clzll(static_cast<long long>(x));
#else
  return x ? __builtin_clzl(x) : 64;
#endif
}

struct qn_op_popcount {
  template <class T> static QN_WORD T go(T x)
  {
#ifdef QN_CUDA_DIALECT
    return static_cast<T>(__popcll(static_cast<qn_unsigned<T>>(x)));
#else
    return static_cast<T>(__builtin_popcountl(static_cast<qn_unsigned<T>>(x)));
#endif
  }
};
struct qn_op_clz {
  template <class T> static QN_WORD T go(T x)
  {
    return static_cast<T>(qn_leading_zeros(static_cast<qn_unsigned<T>>(x)) - static_cast<int>(64 - 8 * sizeof(T)));
  }
};
struct qn_op_ctz {
  template <class T> static QN_WORD T go(T x)
  {
    const unsigned long bits = static_cast<qn_unsigned<T>>(x);
    return static_cast<T>(bits ? 63 - qn_leading_zeros(bits & (0ul - bits)) : static_cast<int>(8 * sizeof(T)));
  }
};
struct qn_op_reverse {
  template <class T> static QN_WORD T go(T x)
  {
    unsigned long v = static_cast<qn_unsigned<T>>(x);
    v = (v >> 1 & 0x5555555555555555ul) | (v & 0x5555555555555555ul) << 1;
    v = (v >> 2 & 0x3333333333333333ul) | (v & 0x3333333333333333ul) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0ful) | (v & 0x0f0f0f0f0f0f0f0ful) << 4;
    v = (v >> 8 & 0x00ff00ff00ff00fful) | (v & 0x00ff00ff00ff00fful) << 8;
    v = (v >> 16 & 0x0000ffff0000fffful) | (v & 0x0000ffff0000fffful) << 16;
    v = v >> 32 | v << 32;
    return static_cast<T>(v >> (64 - 8 * sizeof(T)));
  }
};
struct qn_op_rotate {
  template <class T> static QN_WORD T go(T x, T by)
  {
    const unsigned width = 8 * sizeof(T), k = static_cast<unsigned>(by) & (width - 1u);
    const qn_unsigned<T> v = static_cast<qn_unsigned<T>>(x);
    return static_cast<T>(k ? static_cast<qn_unsigned<T>>(static_cast<qn_unsigned<T>>(v << k) | v >> (width - k)) : v);
  }
};
struct qn_op_mulhi {
  template <class T> static QN_WORD T go(T a, T b)
  {
    if constexpr (sizeof(T) < 8) {
      return static_cast<T>((static_cast<long>(a) * static_cast<long>(b)) >> (8 * sizeof(T)));
    } else {
      const unsigned long x = static_cast<unsigned long>(a), y = static_cast<unsigned long>(b);
      const unsigned long xl = x & 0xffffffffu, xh = x >> 32, yl = y & 0xffffffffu, yh = y >> 32;
      const unsigned long cross = (xl * yl >> 32) + xh * yl, low = (cross & 0xffffffffu) + xl * yh;
      unsigned long high = xh * yh + (cross >> 32) + (low >> 32);
      if (a < T(0)) high -= y;
      if (b < T(0)) high -= x;
      return static_cast<T>(high);
    }
  }
  static QN_WORD unsigned go(unsigned a, unsigned b)
  {
    return static_cast<unsigned>(static_cast<unsigned long>(a) * b >> 32);
  }
};
struct qn_op_absdiff {
  template <class T> static QN_WORD T go(T a, T b)
  {
    const qn_unsigned<T> x = static_cast<qn_unsigned<T>>(a), y = static_cast<qn_unsigned<T>>(b);
    return static_cast<T>(static_cast<qn_unsigned<T>>(a > b ? x - y : y - x));
  }
};
struct qn_op_hadd { /* (a + b) / 2, rounded down, without overflow */
  template <class T> static QN_WORD T go(T a, T b) { return static_cast<T>((a >> 1) + (b >> 1) + (a & b & T(1))); }
};
struct qn_op_rhadd {
  template <class T> static QN_WORD T go(T a, T b) { return static_cast<T>((a >> 1) + (b >> 1) + ((a | b) & T(1))); }
};
struct qn_op_addsat {
  template <class T> static QN_WORD T go(T a, T b)
  {
    const T sum =
        static_cast<T>(static_cast<qn_unsigned<T>>(static_cast<qn_unsigned<T>>(a) + static_cast<qn_unsigned<T>>(b)));
    if (qn_is_signed<T>())
      return a < T(0) ? b < T(0) && sum >= T(0) ? qn_fewest<T>() : sum : b > T(0) && sum < a ? qn_most<T>() : sum;
    return sum < a ? qn_most<T>() : sum;
  }
};
struct qn_op_subsat {
  template <class T> static QN_WORD T go(T a, T b)
  {
    const T rest =
        static_cast<T>(static_cast<qn_unsigned<T>>(static_cast<qn_unsigned<T>>(a) - static_cast<qn_unsigned<T>>(b)));
    if (qn_is_signed<T>()) return b < T(0) ? rest < a ? qn_most<T>() : rest : rest > a ? qn_fewest<T>() : rest;
    return a < b ? T(0) : rest;
  }
};
struct qn_op_mul24 {
  template <class T> static QN_WORD T go(T a, T b)
  {
    const T x = qn_is_signed<T>() ? T(T(qn_unsigned<T>(a) << 8) >> 8) : T(a & T(0xffffff));
    const T y = qn_is_signed<T>() ? T(T(qn_unsigned<T>(b) << 8) >> 8) : T(b & T(0xffffff));
    return static_cast<T>(static_cast<qn_unsigned<T>>(x) * static_cast<qn_unsigned<T>>(y));
  }
};
struct qn_op_median {
  template <class T> static QN_WORD T go(T a, T b, T c)
  {
    return qn_op_max::go(qn_op_min::go(a, b), qn_op_min::go(qn_op_max::go(a, b), c));
  }
};
struct qn_op_min3 {
  template <class T> static QN_WORD T go(T a, T b, T c) { return qn_op_min::go(qn_op_min::go(a, b), c); }
};
struct qn_op_max3 {
  template <class T> static QN_WORD T go(T a, T b, T c) { return qn_op_max::go(qn_op_max::go(a, b), c); }
};

QN_KEEP_1(popcount, qn_op_popcount)
QN_KEEP_1(clz, qn_op_clz)
QN_KEEP_1(ctz, qn_op_ctz)
QN_KEEP_1(reverse_bits, qn_op_reverse)
QN_KEEP_2(rotate, qn_op_rotate)
QN_KEEP_2(mulhi, qn_op_mulhi)
QN_KEEP_2(absdiff, qn_op_absdiff)
QN_KEEP_2(hadd, qn_op_hadd)
QN_KEEP_2(rhadd, qn_op_rhadd)
QN_KEEP_2(addsat, qn_op_addsat)
QN_KEEP_2(subsat, qn_op_subsat)
QN_KEEP_2(mul24, qn_op_mul24)
QN_KEEP_3(median3, qn_op_median)
QN_KEEP_3(min3, qn_op_min3)
QN_KEEP_3(max3, qn_op_max3)
QN_KEEP_3(fmedian3, qn_op_median)
QN_KEEP_3(fmin3, qn_op_min3)
QN_KEEP_3(fmax3, qn_op_max3)
QN_BOTH(median3)
QN_BOTH(min3)
QN_BOTH(max3)
QN_BOTH(fmedian3)
QN_BOTH(fmin3)
QN_BOTH(fmax3)
template <class T> QN_WORD T madhi(T a, T b, T c) { return static_cast<T>(mulhi(a, b) + c); }
template <class T> QN_WORD T mad24(T a, T b, T c) { return static_cast<T>(mul24(a, b) + c); }
template <class T> QN_WORD T madsat(T a, T b, T c)
{
  const T high = mulhi(a, b), low = static_cast<T>(static_cast<qn_unsigned<T>>(a) * static_cast<qn_unsigned<T>>(b));
  const bool fits = qn_is_signed<T>() ? high == (low < T(0) ? T(-1) : T(0)) : high == T(0);
  if (!fits) return high < T(0) ? qn_fewest<T>() : qn_most<T>();
  return addsat(low, c);
}

/* `bits` bits from `offset` on, with the sign of their highest where T is signed. */
template <class T> QN_WORD T extract_bits(T x, unsigned offset, unsigned bits)
{
  const unsigned width = 8 * sizeof(T);
  if (bits == 0) return T(0);
  const qn_unsigned<T> up = static_cast<qn_unsigned<T>>(static_cast<qn_unsigned<T>>(x) << (width - bits - offset));
  if (qn_is_signed<T>()) return static_cast<T>(static_cast<qn_signed<T>>(up) >> (width - bits));
  return static_cast<T>(up >> (width - bits));
}
template <class T> QN_WORD T insert_bits(T base, T insert, unsigned offset, unsigned bits)
{
  const unsigned width = 8 * sizeof(T);
  if (bits == 0) return base;
  const qn_unsigned<T> mask =
      static_cast<qn_unsigned<T>>((static_cast<qn_unsigned<T>>(-1) >> (width - bits)) << offset);
  return static_cast<T>((static_cast<qn_unsigned<T>>(base) & static_cast<qn_unsigned<T>>(~mask)) |
                        (static_cast<qn_unsigned<T>>(static_cast<qn_unsigned<T>>(insert) << offset) & mask));
}
} // namespace QN_WORDS
#endif
