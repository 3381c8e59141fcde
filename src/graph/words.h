/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - the one table of what graphs compute element by element, and how elements are reduced and scanned. A
 * formula is an expression of a, b, c that both C (in double: the reference) and a kernel's body (in the type it
 * computes with) understand, so it is written once. Its whole numbers are exact in every type; other constants come as
 * arguments. */
#ifndef QN_GRAPH_WORDS_H
#define QN_GRAPH_WORDS_H

/* Types of the arguments and the result.
 *   SAME     all of the type that the result is computed in
 *   COMPARE  arguments of their common type, the result a bool
 *   LOGIC    arguments bools, the result a bool
 *   WHERE    a is a bool, b and c and the result of one type */
typedef enum qn_word_kind { QN_WORD_SAME, QN_WORD_COMPARE, QN_WORD_LOGIC, QN_WORD_WHERE } qn_word_kind;

/* name, kind, arguments, cost in operations, formula */
#define QN_GRAPH_WORDS(X)                                                                                              \
  X(COPY, SAME, 1, 0, a)                                                                                               \
  X(ADD, SAME, 2, 1, a + b)                                                                                            \
  X(SUB, SAME, 2, 1, a - b)                                                                                            \
  X(MUL, SAME, 2, 1, a *b)                                                                                             \
  X(DIV, SAME, 2, 4, a / b)                                                                                            \
  X(NEG, SAME, 1, 1, -a)                                                                                               \
  X(ABS, SAME, 1, 1, fabs(a))                                                                                          \
  X(ABS_INTEGER, SAME, 1, 1, a < 0 ? -a : a)                                                                           \
  X(SIGN, SAME, 1, 2, (a > 0 ? 1 : 0) - (a < 0 ? 1 : 0))                                                               \
  X(RECIPROCAL, SAME, 1, 4, 1 / a)                                                                                     \
  X(SQRT, SAME, 1, 8, sqrt(a))                                                                                         \
  X(RSQRT, SAME, 1, 8, 1 / sqrt(a))                                                                                    \
  X(EXP, SAME, 1, 16, exp(a))                                                                                          \
  X(EXP2, SAME, 1, 16, exp2(a))                                                                                        \
  X(LOG, SAME, 1, 16, log(a))                                                                                          \
  X(LOG2, SAME, 1, 16, log2(a))                                                                                        \
  X(LOG10, SAME, 1, 32, log10(a))                                                                                      \
  X(LOG1P, SAME, 1, 42, log1p(a))                                                                                      \
  X(EXPM1, SAME, 1, 27, expm1(a))                                                                                      \
  X(SIN, SAME, 1, 24, sin(a))                                                                                          \
  X(COS, SAME, 1, 24, cos(a))                                                                                          \
  X(TAN, SAME, 1, 48, tan(a))                                                                                          \
  X(ASIN, SAME, 1, 48, asin(a))                                                                                        \
  X(ACOS, SAME, 1, 48, acos(a))                                                                                        \
  X(ATAN, SAME, 1, 48, atan(a))                                                                                        \
  X(ATAN2, SAME, 2, 48, atan2(a, b))                                                                                   \
  X(SINH, SAME, 1, 48, sinh(a))                                                                                        \
  X(COSH, SAME, 1, 48, cosh(a))                                                                                        \
  X(TANH, SAME, 1, 24, tanh(a))                                                                                        \
  X(ASINH, SAME, 1, 48, asinh(a))                                                                                      \
  X(ACOSH, SAME, 1, 48, acosh(a))                                                                                      \
  X(ATANH, SAME, 1, 48, atanh(a))                                                                                      \
  X(ERF, SAME, 1, 24, erf(a))                                                                                          \
  X(SIGMOID, SAME, 1, 20, 1 / (1 + exp(-a)))                                                                           \
  X(SILU, SAME, 1, 20, a / (1 + exp(-a)))                                                                              \
  X(RELU, SAME, 1, 1, a < 0 ? 0 : a)                                                                                   \
  X(FLOOR, SAME, 1, 1, floor(a))                                                                                       \
  X(CEIL, SAME, 1, 1, ceil(a))                                                                                         \
  X(TRUNC, SAME, 1, 1, trunc(a))                                                                                       \
  X(RINT, SAME, 1, 1, rint(a))                                                                                         \
  X(FMOD, SAME, 2, 16, fmod(a, b))                                                                                     \
  X(POW, SAME, 2, 64, pow(a, b))                                                                                       \
  X(MINIMUM, SAME, 2, 2, a != a ? a : a < b ? a : b)                                                                   \
  X(MAXIMUM, SAME, 2, 2, a != a ? a : a > b ? a : b)                                                                   \
  X(ATLEAST, SAME, 2, 1, a < b || b != b ? b : a)                                                                      \
  X(ATMOST, SAME, 2, 1, a > b || b != b ? b : a)                                                                       \
  X(EQ, COMPARE, 2, 1, a == b)                                                                                         \
  X(NE, COMPARE, 2, 1, a != b)                                                                                         \
  X(LT, COMPARE, 2, 1, a < b)                                                                                          \
  X(LE, COMPARE, 2, 1, a <= b)                                                                                         \
  X(GT, COMPARE, 2, 1, a > b)                                                                                          \
  X(GE, COMPARE, 2, 1, a >= b)                                                                                         \
  X(ISNAN, COMPARE, 1, 1, a != a)                                                                                      \
  X(AND, LOGIC, 2, 1, a != 0 && b != 0)                                                                                \
  X(OR, LOGIC, 2, 1, a != 0 || b != 0)                                                                                 \
  X(XOR, LOGIC, 2, 1, (a != 0) != (b != 0))                                                                            \
  X(NOT, LOGIC, 1, 1, a == 0)                                                                                          \
  X(WHERE, WHERE, 3, 1, a != 0 ? b : c)

typedef enum qn_graph_word {
#define X(name, kind, n, cost, formula) QN_GRAPH_##name,
  QN_GRAPH_WORDS(X)
#undef X
      QN_GRAPH_WORD_COUNT
} qn_graph_word;

typedef struct qn_word_info {
  const char *name, *formula;
  qn_word_kind kind;
  int n, cost;
  double (*reference)(double a, double b, double c);
} qn_word_info;

/* name, first value, formula of two. LOGSUM is log(e^a + e^b). ARGMAX and ARGMIN compare as MAX and MIN and keep the
 * place, the first of equals; a NaN is the largest and the smallest. ANY and ALL are of bools. */
#define QN_GRAPH_REDUCTIONS(X)                                                                                         \
  X(SUM, 0, a + b)                                                                                                     \
  X(PROD, 1, a *b)                                                                                                     \
  X(MAX, -INFINITY, a != a ? a : a > b ? a : b)                                                                        \
  X(MIN, INFINITY, a != a ? a : a < b ? a : b)                                                                         \
  X(ANY, 0, a != 0 || b != 0)                                                                                          \
  X(ALL, 1, a != 0 && b != 0)                                                                                          \
  X(LOGSUM, -INFINITY,                                                                                                 \
    a != a                  ? a                                                                                        \
    : b != b                ? b                                                                                        \
    : a > b                 ? a + log1p(exp(b - a))                                                                    \
    : (a < b || a - b == 0) ? b + log1p(exp(a - b))                                                                    \
                            : a)                                                                                       \
  X(ARGMAX, -INFINITY, a != a ? a : b != b ? b : a > b ? a : b)                                                        \
  X(ARGMIN, INFINITY, a != a ? a : b != b ? b : a < b ? a : b)

typedef enum qn_graph_reduction {
#define X(name, first, formula) QN_GRAPH_REDUCE_##name,
  QN_GRAPH_REDUCTIONS(X)
#undef X
      QN_GRAPH_REDUCTION_COUNT
} qn_graph_reduction;

typedef struct qn_reduction_info {
  const char *name, *formula;
  double first;
  double (*reference)(double a, double b);
} qn_reduction_info;

const qn_word_info *qn_word(qn_graph_word word);
const qn_reduction_info *qn_reduction(qn_graph_reduction reduction);
#endif
