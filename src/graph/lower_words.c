/* SPDX-License-Identifier: Apache-2.0 */
/* lower_words.c - ops that work element by element. Intermediate values keep the type that numbers are computed in: of
 * 16-bit reals only what a node's reader sees is rounded. */
#include "graph/lower.h"
#include <math.h>

static const double half_root = 0.70710678118654752440, gelu_root = 0.79788456080286535588;

static void unary(qn_lowering *l, int word)
{
  qn_result(l, 0, qn_words(l, (qn_graph_word)word, qn_given_value(l, 0, "self"), -1, -1));
}

static void logic(qn_lowering *l, int word)
{
  const int a = qn_given_operand(l, 0, "self"),
            b = qn_word((qn_graph_word)word)->n == 2 ? qn_given_operand(l, 1, "other") : -1;
  if (l->why) return;
  qn_result(l, 0, qn_words(l, (qn_graph_word)word, a, b, -1));
}

static void bitwise(qn_lowering *l, int word)
{
  qn_give_up_if(l, qn_value_at(l, qn_node_of(l)->result[0])->dtype != QN_BOOL, "bits of whole numbers");
  logic(l, word);
}

static void absolute(qn_lowering *l, int word)
{
  (void)word;
  unary(l, qn_is_real(l->type) ? QN_GRAPH_ABS : QN_GRAPH_ABS_INTEGER);
}

/* Rounding words leave whole numbers as they are. */
static void rounding(qn_lowering *l, int word) { unary(l, qn_is_real(l->type) ? word : QN_GRAPH_COPY); }

static void binary(qn_lowering *l, int word)
{
  const int a = qn_given_operand(l, 0, "self"), b = qn_given_operand(l, 1, "other");
  if (l->why) return;
  qn_result(l, 0, qn_words(l, (qn_graph_word)word, a, b, -1));
}

/* a + alpha * b; of bools a sum is "or". */
static void sum(qn_lowering *l, int word)
{
  const bool reversed = word == -1;
  int a = qn_given_operand(l, reversed ? 1 : 0, "self"), b = qn_given_operand(l, reversed ? 0 : 1, "other");
  const qn_argument *alpha = qn_given(l, 2, "alpha");
  if (l->why) return;
  qn_give_up_if(l, l->type == QN_BOOL, "sums of bools");
  if (alpha->kind != QN_ARGUMENT_NONE && qn_given_real(l, 2, "alpha", 1) != 1)
    b = qn_words(l, QN_GRAPH_MUL, qn_given_operand(l, 2, "alpha"), b, -1);
  qn_result(l, 0, qn_words(l, reversed ? QN_GRAPH_SUB : (qn_graph_word)word, a, b, -1));
}

static void divided(qn_lowering *l, int which)
{
  (void)which;
  qn_give_up_if(l, !qn_is_real(l->type), "a quotient of whole numbers");
  const qn_argument *mode = qn_given(l, -1, "rounding_mode");
  qn_give_up_if(l, mode->kind == QN_ARGUMENT_TEXT, "a rounded quotient");
  binary(l, QN_GRAPH_DIV);
}

static void real_only(qn_lowering *l, int word)
{
  qn_give_up_if(l, !qn_is_real(l->type), "of whole numbers");
  binary(l, word);
}

/* The type that numbers of two kinds are compared in. */
static int rank(qn_dtype dtype) { return qn_is_real(dtype) ? 2 : dtype == QN_BOOL ? 0 : 1; }
static qn_dtype common_type(qn_lowering *l, int a, int b)
{
  const qn_graph_value *x = qn_value_at(l, a), *y = qn_value_at(l, b);
  const qn_graph_value *number = x->form == QN_FORM_CONSTANT && !x->named   ? x
                                 : y->form == QN_FORM_CONSTANT && !y->named ? y
                                                                            : NULL;
  if (number) {
    const qn_graph_value *tensor = number == x ? y : x;
    if (rank(number->dtype) <= rank(tensor->dtype)) return qn_compute_type(tensor->dtype);
    return rank(number->dtype) == 2 ? QN_F32 : QN_I64;
  }
  if (rank(x->dtype) != rank(y->dtype)) {
    const qn_graph_value *high = rank(x->dtype) > rank(y->dtype) ? x : y;
    return qn_compute_type(high->dtype);
  }
  const qn_dtype p = qn_compute_type(x->dtype), q = qn_compute_type(y->dtype);
  return p == QN_F64 || q == QN_F64 ? QN_F64 : p == QN_I64 || q == QN_I64 ? QN_I64 : p;
}

/* A real number is rounded to the 16-bit type that it is compared with. */
static int rounded_to(qn_lowering *l, int number, qn_dtype dtype)
{
  const qn_graph_value *v = qn_value_at(l, number);
  if (v->form != QN_FORM_CONSTANT || v->named || v->dtype != QN_F64 || (dtype != QN_F16 && dtype != QN_BF16))
    return number;
  l->graph->value[number].dtype = QN_F32;
  return qn_made(l, QN_FORM_CAST, dtype, 0, NULL, number, -1);
}

static void compare(qn_lowering *l, int word)
{
  const int a = qn_given_operand(l, 0, "self");
  int b = qn_given_operand(l, 1, "other");
  if (l->why) return;
  b = rounded_to(l, b, qn_value_at(l, a)->dtype);
  if (l->why) return;
  const qn_dtype compute = common_type(l, a, b);
  qn_give_up_if(l, compute == QN_BOOL && word != QN_GRAPH_EQ && word != QN_GRAPH_NE, "an order of bools");
  qn_result(l, 0, qn_words_typed(l, (qn_graph_word)word, QN_BOOL, compute, a, b, -1));
}

static void is_number(qn_lowering *l, int word)
{
  const int a = qn_given_value(l, 0, "self");
  if (l->why) return;
  l->type = qn_compute_type(qn_value_at(l, a)->dtype);
  qn_give_up_if(l, !qn_is_real(l->type), "of whole numbers");
  int v = word == QN_GRAPH_ISNAN
              ? qn_words(l, QN_GRAPH_ISNAN, a, -1, -1)
              : qn_words(l, QN_GRAPH_EQ, qn_words(l, QN_GRAPH_ABS, a, -1, -1), qn_number(l, INFINITY), -1);
  qn_result(l, 0, v);
}

static void truth(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "self");
  qn_result(l, 0, qn_words(l, QN_GRAPH_NOT, a, -1, -1));
}

static void power(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_operand(l, 0, "self"), b = qn_given_operand(l, 1, "exponent");
  const qn_argument *e = qn_given(l, 1, "exponent");
  if (l->why) return;
  const double p = qn_given_real(l, 1, "exponent", NAN);
  if (e->kind != QN_ARGUMENT_VALUE && p == 2) {
    qn_result(l, 0, qn_words(l, QN_GRAPH_MUL, a, a, -1));
    return;
  }
  if (e->kind != QN_ARGUMENT_VALUE && p == 3) {
    qn_result(l, 0, qn_words(l, QN_GRAPH_MUL, qn_words(l, QN_GRAPH_MUL, a, a, -1), a, -1));
    return;
  }
  qn_give_up_if(l, !qn_is_real(l->type), "a power of whole numbers");
  if (e->kind != QN_ARGUMENT_VALUE && p == 1) {
    qn_result(l, 0, qn_words(l, QN_GRAPH_COPY, a, -1, -1));
    return;
  }
  if (e->kind != QN_ARGUMENT_VALUE && p == 0.5) {
    qn_result(l, 0, qn_words(l, QN_GRAPH_SQRT, a, -1, -1));
    return;
  }
  if (e->kind != QN_ARGUMENT_VALUE && p == -0.5) {
    qn_result(l, 0, qn_words(l, QN_GRAPH_RSQRT, a, -1, -1));
    return;
  }
  if (e->kind != QN_ARGUMENT_VALUE && p == -1) {
    qn_result(l, 0, qn_words(l, QN_GRAPH_RECIPROCAL, a, -1, -1));
    return;
  }
  qn_result(l, 0, qn_words(l, QN_GRAPH_POW, a, b, -1));
}

static int bounded(qn_lowering *l, int a, double low, double high)
{
  a = qn_words(l, QN_GRAPH_ATLEAST, a, qn_number(l, low), -1);
  return qn_words(l, QN_GRAPH_ATMOST, a, qn_number(l, high), -1);
}

/* which: -1 a least value, 1 a largest, 0 both; what is not given does not bound. */
static void clamp(qn_lowering *l, int which)
{
  int a = qn_given_value(l, 0, "self");
  const int k_high = which > 0 ? 1 : 2;
  if (which <= 0 && qn_given(l, 1, "min")->kind != QN_ARGUMENT_NONE)
    a = qn_words(l, QN_GRAPH_ATLEAST, a, qn_given_operand(l, 1, "min"), -1);
  if (which >= 0 && qn_given(l, k_high, "max")->kind != QN_ARGUMENT_NONE && !l->why)
    a = qn_words(l, QN_GRAPH_ATMOST, a, qn_given_operand(l, k_high, "max"), -1);
  qn_result(l, 0, a);
}

static void hardtanh(qn_lowering *l, int which)
{
  double high = qn_given_real(l, 2, "max_val", 1), low = qn_given_real(l, 1, "min_val", -1);
  if (which == 6) low = 0, high = 6;
  qn_result(l, 0, bounded(l, qn_given_value(l, 0, "self"), low, high));
}

/* min(max(a + 3, 0), 6) / 6, and a times it. */
static void hardsigmoid(qn_lowering *l, int times)
{
  const int a = qn_given_value(l, 0, "self");
  int v = bounded(l, qn_words(l, QN_GRAPH_ADD, a, qn_number(l, 3), -1), 0, 6);
  if (times) v = qn_words(l, QN_GRAPH_MUL, a, v, -1);
  qn_result(l, 0, qn_words(l, QN_GRAPH_DIV, v, qn_number(l, 6), -1));
}

static int gelu_of(qn_lowering *l, int a, bool by_tanh)
{
  const int half = qn_words(l, QN_GRAPH_MUL, a, qn_number(l, 0.5), -1);
  int v;
  if (by_tanh) {
    const int cube = qn_words(l, QN_GRAPH_MUL, qn_words(l, QN_GRAPH_MUL, a, a, -1), a, -1);
    v = qn_words(l, QN_GRAPH_ADD, a, qn_words(l, QN_GRAPH_MUL, cube, qn_number(l, 0.044715), -1), -1);
    v = qn_words(l, QN_GRAPH_TANH, qn_words(l, QN_GRAPH_MUL, v, qn_number(l, gelu_root), -1), -1, -1);
  } else
    v = qn_words(l, QN_GRAPH_ERF, qn_words(l, QN_GRAPH_MUL, a, qn_number(l, half_root), -1), -1, -1);
  return qn_words(l, QN_GRAPH_MUL, half, qn_words(l, QN_GRAPH_ADD, v, qn_number(l, 1), -1), -1);
}

static void gelu(qn_lowering *l, int which)
{
  (void)which;
  const qn_argument *form = qn_given(l, 1, "approximate");
  qn_result(l, 0, gelu_of(l, qn_given_value(l, 0, "self"), form->kind == QN_ARGUMENT_TEXT && form->text[0] == 't'));
}

/* log(1 + e^(beta a)) / beta, a itself past the threshold. */
static int softplus_of(qn_lowering *l, int a, double beta, double threshold)
{
  const int scaled = beta == 1 ? a : qn_words(l, QN_GRAPH_MUL, a, qn_number(l, beta), -1);
  int v = qn_words(l, QN_GRAPH_LOG1P, qn_words(l, QN_GRAPH_EXP, scaled, -1, -1), -1, -1);
  if (beta != 1) v = qn_words(l, QN_GRAPH_DIV, v, qn_number(l, beta), -1);
  return qn_words(l, QN_GRAPH_WHERE, qn_words(l, QN_GRAPH_GT, scaled, qn_number(l, threshold), -1), a, v);
}

enum { TANH_IS_1 = 20 }; /* from here on, in double too */

/* tanh(log(1 + e^a)) with one exponential: for n = e^a (e^a + 2) it is n / (n + 2). */
static int tanh_of_softplus(qn_lowering *l, int a)
{
  const int e = qn_words(l, QN_GRAPH_EXP, qn_words(l, QN_GRAPH_ATMOST, a, qn_number(l, TANH_IS_1), -1), -1, -1);
  const int n = qn_words(l, QN_GRAPH_MUL, e, qn_words(l, QN_GRAPH_ADD, e, qn_number(l, 2), -1), -1);
  return qn_words(l, QN_GRAPH_DIV, n, qn_words(l, QN_GRAPH_ADD, n, qn_number(l, 2), -1), -1);
}

static void softplus(qn_lowering *l, int mish)
{
  const int a = qn_given_value(l, 0, "self");
  if (mish)
    qn_result(l, 0, qn_words(l, QN_GRAPH_MUL, a, tanh_of_softplus(l, a), -1));
  else
    qn_result(l, 0, softplus_of(l, a, qn_given_real(l, 1, "beta", 1), qn_given_real(l, 2, "threshold", 20)));
}

/* Whether it is that word of values that no node between has rounded. */
static const qn_graph_value *word_of(const qn_lowering *l, int value, qn_graph_word word)
{
  const qn_graph_value *v = qn_value_at(l, value);
  return v->form == QN_FORM_WORD && v->word == word && (v->dtype == l->type || v->dtype == QN_BOOL) ? v : NULL;
}

/* The argument of a softplus in the form that core ATen gives it. -1: the value is no softplus, or its threshold is so
 * low that tanh of it is below 1. */
static int argument_of_softplus(const qn_lowering *l, int value)
{
  const qn_graph_value *where = word_of(l, value, QN_GRAPH_WHERE);
  const qn_graph_value *above = where ? word_of(l, where->argument[0], QN_GRAPH_GT) : NULL;
  const qn_graph_value *log = above ? word_of(l, where->argument[2], QN_GRAPH_LOG1P) : NULL;
  const qn_graph_value *e = log ? word_of(l, log->argument[0], QN_GRAPH_EXP) : NULL;
  if (!e || e->argument[0] != where->argument[1] || above->argument[0] != where->argument[1]) return -1;
  const qn_graph_value *threshold = qn_value_at(l, above->argument[1]);
  return threshold->form == QN_FORM_CONSTANT && threshold->real >= TANH_IS_1 ? where->argument[1] : -1;
}

static void hyperbolic_tangent(qn_lowering *l, int word)
{
  const int a = qn_given_value(l, 0, "self");
  const int of = l->why ? -1 : argument_of_softplus(l, a);
  qn_result(l, 0, of < 0 ? qn_words(l, (qn_graph_word)word, a, -1, -1) : tanh_of_softplus(l, of));
}

static void leaky_relu(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "self");
  const int low = qn_words(l, QN_GRAPH_MUL, a, qn_number(l, qn_given_real(l, 1, "negative_slope", 0.01)), -1);
  qn_result(l, 0, qn_words(l, QN_GRAPH_WHERE, qn_words(l, QN_GRAPH_GT, a, qn_number(l, 0), -1), a, low));
}

static int elu_of(qn_lowering *l, int a, double alpha, double scale, double inner)
{
  const int e = qn_words(l, QN_GRAPH_EXPM1, qn_words(l, QN_GRAPH_MUL, a, qn_number(l, inner), -1), -1, -1);
  const int low = qn_words(l, QN_GRAPH_MUL, e, qn_number(l, alpha * scale), -1);
  const int high = qn_words(l, QN_GRAPH_MUL, a, qn_number(l, scale), -1);
  return qn_words(l, QN_GRAPH_WHERE, qn_words(l, QN_GRAPH_GT, a, qn_number(l, 0), -1), high, low);
}

static void elu(qn_lowering *l, int selu)
{
  const int a = qn_given_value(l, 0, "self");
  qn_result(l, 0,
            selu ? elu_of(l, a, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1)
                 : elu_of(l, a, qn_given_real(l, 1, "alpha", 1), qn_given_real(l, 2, "scale", 1),
                          qn_given_real(l, 3, "input_scale", 1)));
}

static void where(qn_lowering *l, int masked)
{
  const int a = qn_given_operand(l, masked ? 1 : 0, "mask"), b = qn_given_operand(l, masked ? 2 : 1, "value");
  const int c = qn_given_operand(l, masked ? 0 : 2, "other");
  if (l->why) return;
  qn_result(l, 0, qn_words(l, QN_GRAPH_WHERE, a, b, c));
}

static void cast(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "self");
  qn_give_up_if(l, qn_given(l, -1, "device")->kind != QN_ARGUMENT_NONE, "a copy to a device");
  if (l->why) return;
  const qn_graph_value *to = qn_value_at(l, qn_node_of(l)->result[0]);
  qn_result(l, 0, qn_made(l, QN_FORM_CAST, to->dtype, qn_value_at(l, a)->ndim, qn_value_at(l, a)->shape, a, -1));
}

/* A tensor of one number: which says where it stands among the arguments, or is -1 - the number. */
static void fill(qn_lowering *l, int which)
{
  const qn_graph_value *to = qn_value_at(l, qn_node_of(l)->result[0]);
  const int number = which < 0 ? qn_number(l, -1 - which) : qn_given_operand(l, which, "fill_value");
  int64_t shape[QN_GRAPH_DIMS];
  for (int d = 0; d < to->ndim; d++) shape[d] = to->shape[d];
  if (l->why) return;
  const int v = qn_viewed(l, number, to->ndim, shape);
  qn_result(l, 0, v);
}

/* start + step * index of one dimension */
static void iota(qn_lowering *l, int prims)
{
  const qn_graph_value *to = qn_value_at(l, qn_node_of(l)->result[0]);
  qn_give_up_if(l, to->ndim != 1, "a sequence of other than one dimension");
  const int v = qn_made(l, QN_FORM_IOTA, to->dtype, to->ndim, to->shape, -1, -1);
  if (l->why) return;
  qn_graph_value *value = &l->graph->value[v];
  const bool one = qn_node_of(l)->n_arguments == 1;
  value->real = prims ? qn_given_real(l, -1, "start", 0) : one ? 0 : qn_given_real(l, 0, "start", 0);
  value->step = prims ? qn_given_real(l, -1, "step", 1) : one ? 1 : qn_given_real(l, 2, "step", 1);
  qn_give_up_if(l,
                qn_is_real(value->dtype) || value->real != floor(value->real) || value->step != floor(value->step) ||
                    fabs(value->real) > 0x1p53 || fabs(value->step) > 0x1p53,
                "a sequence that is not of whole numbers");
  qn_result(l, 0, v);
}

#define SELF(name, lower, which)                                                                                       \
  {"aten." name ".Tensor", lower, which}, { "aten." name ".Scalar", lower, which }
const qn_graph_rule qn_graph_word_rules[] = {SELF("add", sum, QN_GRAPH_ADD),
                                             SELF("sub", sum, QN_GRAPH_SUB),
                                             SELF("rsub", sum, -1),
                                             SELF("mul", binary, QN_GRAPH_MUL),
                                             SELF("div", divided, 0),
                                             {"aten.div.Tensor_mode", divided, 0},
                                             QN_ATEN("neg", unary, QN_GRAPH_NEG),
                                             QN_ATEN("abs", absolute, 0),
                                             QN_ATEN("sign", unary, QN_GRAPH_SIGN),
                                             QN_ATEN("reciprocal", unary, QN_GRAPH_RECIPROCAL),
                                             QN_ATEN("sqrt", unary, QN_GRAPH_SQRT),
                                             QN_ATEN("rsqrt", unary, QN_GRAPH_RSQRT),
                                             QN_ATEN("exp", unary, QN_GRAPH_EXP),
                                             QN_ATEN("exp2", unary, QN_GRAPH_EXP2),
                                             QN_ATEN("log", unary, QN_GRAPH_LOG),
                                             QN_ATEN("log2", unary, QN_GRAPH_LOG2),
                                             QN_ATEN("log10", unary, QN_GRAPH_LOG10),
                                             QN_ATEN("log1p", unary, QN_GRAPH_LOG1P),
                                             QN_ATEN("expm1", unary, QN_GRAPH_EXPM1),
                                             QN_ATEN("sin", unary, QN_GRAPH_SIN),
                                             QN_ATEN("cos", unary, QN_GRAPH_COS),
                                             QN_ATEN("tan", unary, QN_GRAPH_TAN),
                                             QN_ATEN("asin", unary, QN_GRAPH_ASIN),
                                             QN_ATEN("acos", unary, QN_GRAPH_ACOS),
                                             QN_ATEN("atan", unary, QN_GRAPH_ATAN),
                                             QN_ATEN("atan2", binary, QN_GRAPH_ATAN2),
                                             QN_ATEN("sinh", unary, QN_GRAPH_SINH),
                                             QN_ATEN("cosh", unary, QN_GRAPH_COSH),
                                             QN_ATEN("tanh", hyperbolic_tangent, QN_GRAPH_TANH),
                                             QN_ATEN("asinh", unary, QN_GRAPH_ASINH),
                                             QN_ATEN("acosh", unary, QN_GRAPH_ACOSH),
                                             QN_ATEN("atanh", unary, QN_GRAPH_ATANH),
                                             QN_ATEN("erf", unary, QN_GRAPH_ERF),
                                             QN_ATEN("sigmoid", unary, QN_GRAPH_SIGMOID),
                                             QN_ATEN("silu", unary, QN_GRAPH_SILU),
                                             QN_ATEN("relu", unary, QN_GRAPH_RELU),
                                             QN_ATEN("floor", rounding, QN_GRAPH_FLOOR),
                                             QN_ATEN("ceil", rounding, QN_GRAPH_CEIL),
                                             QN_ATEN("trunc", rounding, QN_GRAPH_TRUNC),
                                             QN_ATEN("round", rounding, QN_GRAPH_RINT),
                                             SELF("fmod", real_only, QN_GRAPH_FMOD),
                                             QN_ATEN("minimum", binary, QN_GRAPH_MINIMUM),
                                             QN_ATEN("maximum", binary, QN_GRAPH_MAXIMUM),
                                             SELF("eq", compare, QN_GRAPH_EQ),
                                             SELF("ne", compare, QN_GRAPH_NE),
                                             SELF("lt", compare, QN_GRAPH_LT),
                                             SELF("le", compare, QN_GRAPH_LE),
                                             SELF("gt", compare, QN_GRAPH_GT),
                                             SELF("ge", compare, QN_GRAPH_GE),
                                             QN_ATEN("isnan", is_number, QN_GRAPH_ISNAN),
                                             QN_ATEN("isinf", is_number, 0),
                                             QN_ATEN("logical_and", logic, QN_GRAPH_AND),
                                             QN_ATEN("logical_or", logic, QN_GRAPH_OR),
                                             QN_ATEN("logical_xor", logic, QN_GRAPH_XOR),
                                             QN_ATEN("logical_not", truth, 0),
                                             SELF("bitwise_and", bitwise, QN_GRAPH_AND),
                                             SELF("bitwise_or", bitwise, QN_GRAPH_OR),
                                             SELF("bitwise_xor", bitwise, QN_GRAPH_XOR),
                                             QN_ATEN("bitwise_not", bitwise, QN_GRAPH_NOT),
                                             {"aten.pow.Tensor_Scalar", power, 0},
                                             {"aten.pow.Tensor_Tensor", power, 0},
                                             {"aten.pow.Scalar", power, 0},
                                             QN_ATEN("clamp", clamp, 0),
                                             {"aten.clamp.Tensor", clamp, 0},
                                             QN_ATEN("clamp_min", clamp, -1),
                                             QN_ATEN("clamp_max", clamp, 1),
                                             {"aten.clamp_min.Tensor", clamp, -1},
                                             {"aten.clamp_max.Tensor", clamp, 1},
                                             QN_ATEN("hardtanh", hardtanh, 0),
                                             QN_ATEN("relu6", hardtanh, 6),
                                             QN_ATEN("hardsigmoid", hardsigmoid, 0),
                                             QN_ATEN("hardswish", hardsigmoid, 1),
                                             QN_ATEN("gelu", gelu, 0),
                                             QN_ATEN("softplus", softplus, 0),
                                             QN_ATEN("mish", softplus, 1),
                                             QN_ATEN("leaky_relu", leaky_relu, 0),
                                             QN_ATEN("elu", elu, 0),
                                             QN_ATEN("selu", elu, 1),
                                             {"aten.where.self", where, 0},
                                             {"aten.where.ScalarSelf", where, 0},
                                             {"aten.where.ScalarOther", where, 0},
                                             {"aten.where.Scalar", where, 0},
                                             {"aten.masked_fill.Scalar", where, 1},
                                             {"aten.masked_fill.Tensor", where, 1},
                                             QN_ATEN("_to_copy", cast, 0),
                                             {"prims.convert_element_type.default", cast, 0},
                                             QN_ATEN("clone", unary, QN_GRAPH_COPY),
                                             QN_ATEN("full", fill, 1),
                                             QN_ATEN("full_like", fill, 1),
                                             QN_ATEN("scalar_tensor", fill, 0),
                                             QN_ATEN("zeros", fill, -1),
                                             QN_ATEN("zeros_like", fill, -1),
                                             QN_ATEN("ones", fill, -2),
                                             QN_ATEN("ones_like", fill, -2),
                                             QN_ATEN("arange", iota, 0),
                                             {"aten.arange.start", iota, 0},
                                             {"aten.arange.start_step", iota, 0},
                                             {"prims.iota.default", iota, 1},
                                             {0}};
