/* SPDX-License-Identifier: Apache-2.0 */
/* metal_types.h - Metal's names of types and its constants. What half and bfloat can do is half.h's; a text that has
 * none does without. */
#ifndef QN_DIALECT_METAL_TYPES_H
#define QN_DIALECT_METAL_TYPES_H
#include "kernel/dialect/common.h"

#define __METAL__ 1
#define __METAL_VERSION__ 310
#if QN_MATH == 2 && !defined(__FAST_MATH__)
#define __FAST_MATH__ 1
#endif
#define METAL_FUNC QN_WORD
#define METAL_CONST constexpr
#define MTL_CONST constexpr

#undef assert
#define assert(...) static_cast<void>(0)

/* Constants that NVRTC's compiler knows too, which has no __builtin_nanf and __builtin_huge_valf. */
#ifndef NAN
#define NAN __builtin_bit_cast(float, 0x7fc00000u)
#endif
#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7f800000u)
#endif
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_E_H half(M_E_F)
#define M_LOG2E_H half(M_LOG2E_F)
#define M_LOG10E_H half(M_LOG10E_F)
#define M_2_SQRTPI_H half(M_2_SQRTPI_F)
#define M_LN2_H half(M_LN2_F)
#define M_LN10_H half(M_LN10_F)
#define M_PI_H half(M_PI_F)
#define M_PI_2_H half(M_PI_2_F)
#define M_PI_4_H half(M_PI_4_F)
#define M_1_PI_H half(M_1_PI_F)
#define M_2_PI_H half(M_2_PI_F)
#define M_SQRT2_H half(M_SQRT2_F)
#define M_SQRT1_2_H half(M_SQRT1_2_F)
#define MAXFLOAT 3.402823466e+38f
#define HUGE_VALF INFINITY
#define FLT_RADIX 2
#define FLT_DECIMAL_DIG 9
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.1920928955078125e-7f
#define FLT_MAX_EXP 128
#define FLT_MIN_EXP (-125)
#define FLT_MAX_10_EXP 38
#define FLT_MIN_10_EXP (-37)
#define FLT_TRUE_MIN 1.401298464e-45f
#define HALF_DIG 3
#define HALF_MANT_DIG 11
#define HALF_RADIX 2
#define HALF_DECIMAL_DIG 5
#define HALF_MAX_EXP 16
#define HALF_MIN_EXP (-13)
#define HALF_MAX_10_EXP 4
#define HALF_MIN_10_EXP (-4)
#define HALF_TRUE_MIN half(5.9604644775390625e-8f)
#define HUGE_VALH half(INFINITY)
#define HALF_MAX half(65504.0f)
#define HALF_MIN half(6.103515625e-5f)
#define HALF_EPSILON half(9.765625e-4f)
#define MAXHALF HALF_MAX
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul

namespace QN_WORDS {
namespace metal = QN_WORDS;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef decltype(sizeof 0) size_t;
typedef long ptrdiff_t;
typedef unsigned long uintptr_t;
typedef qn_half half;
typedef qn_bfloat bfloat;
typedef bfloat bfloat16_t;
typedef half float16_t;

template <class T> using uniform = T;
template <class T> QN_WORD T make_uniform(T x) { return x; }
template <class to, class from> QN_WORD to as_type(from x) { return qn_bits_as<to>(x); }

#if !defined(QN_CUDA_DIALECT)
extern "C" int printf(const char *, ...);
#else
using ::printf;
#endif
} // namespace QN_WORDS
#endif
