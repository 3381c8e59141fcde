/* SPDX-License-Identifier: Apache-2.0 */
/* words_metal.c FILE.csv - Metal's real functions in a body on the processor against libm in double: those of
 * base/maths.h within what results/maths.csv says, those computed in double within half a unit and a little. Inputs:
 * every exponent of both signs with several significands, and the edges of domains. That the same body compiles for
 * GPUs; that fast:: and precise:: names and functions of half, vectors and whole numbers are there and right. */
#include "maths.h"
#include "words_use.h"

enum { MOST = 512 * 40 + 128, FUNCTIONS = 64 };
static float x[MOST], y[MOST], out[FUNCTIONS * MOST];
static int n;

static double saturate(double v) { return v > 0 ? v < 1 ? v : 1 : 0; }
static double fraction(double v) { return !isfinite(v) ? NAN : fmin(v - floor(v), 0x1.fffffep-1); }
static double sign(double v) { return v > 0 ? 1 : v < 0 ? -1 : v == v ? v : 0; }
static double exp10_(double v) { return pow(10, v); }
/* Of whole turns, so that what is near a multiple of pi / 2 is small before it is multiplied by pi. */
static double sinpi_(double v)
{
  const double r = fmod(v, 2), a = fabs(r);
  if (a == 0 || a == 1) return copysign(0, v);
  const double s = a < 0.25   ? sin(M_PI * a)
                   : a < 0.75 ? cos(M_PI * (a - 0.5))
                   : a < 1.25 ? sin(M_PI * (1 - a))
                   : a < 1.75 ? -cos(M_PI * (a - 1.5))
                              : -sin(M_PI * (2 - a));
  return r < 0 ? -s : s;
}
static double cospi_(double v)
{
  const double a = fabs(fmod(v, 2));
  if (a == 0.5 || a == 1.5) return 0;
  return a < 0.25   ? cos(M_PI * a)
         : a < 0.75 ? sin(M_PI * (0.5 - a))
         : a < 1.25 ? -cos(M_PI * (1 - a))
         : a < 1.75 ? sin(M_PI * (a - 1.5))
                    : cos(M_PI * (2 - a));
}
static double rsqrt(double v) { return 1 / sqrt(v); }

typedef struct one {
  const char *name;
  double (*exact)(double);
  double bound; /* units in the last place; 0: as results/maths.csv has it */
} one;
static const one ones[] = {
    {"exp", exp, 0},           {"exp2", exp2, 0},         {"log", log, 0},           {"log2", log2, 0},
    {"sin", sin, 0},           {"cos", cos, 0},           {"tanh", tanh, 0},         {"erf", erf, 0},
    {"rsqrt", rsqrt, 0},       {"sqrt", sqrt, 0.5},       {"fabs", fabs, 0.5},       {"abs", fabs, 0.5},
    {"floor", floor, 0.5},     {"ceil", ceil, 0.5},       {"trunc", trunc, 0.5},     {"rint", rint, 0.5},
    {"round", round, 0.5},     {"fract", fraction, 1},    {"sign", sign, 0.5},       {"saturate", saturate, 0.5},
    {"tan", tan, 0.5001},      {"asin", asin, 0.5001},    {"acos", acos, 0.5001},    {"atan", atan, 0.5001},
    {"sinh", sinh, 0.5001},    {"cosh", cosh, 0.5001},    {"asinh", asinh, 0.5001},  {"acosh", acosh, 0.5001},
    {"atanh", atanh, 0.5001},  {"log10", log10, 0.5001},  {"expm1", expm1, 0},       {"log1p", log1p, 0},
    {"exp10", exp10_, 0.5001}, {"sinpi", sinpi_, 0.5001}, {"cospi", cospi_, 0.5001},
};
enum { ONES = sizeof ones / sizeof *ones };

typedef struct two {
  const char *name;
  double (*exact)(double, double);
  double bound;
} two;
static double least(double a, double b) { return b < a || a != a ? b : a; }
static double most(double a, double b) { return a < b || a != a ? b : a; }
static double step(double edge, double v) { return v < edge ? 0 : 1; }
static double quotient(double a, double b) { return a / b; }
static const two twos[] = {
    {"pow", pow, 0.5001}, {"fmod", fmod, 0.5}, {"atan2", atan2, 0.5001},  {"copysign", copysign, 0.5},
    {"fmin", least, 0.5}, {"fmax", most, 0.5}, {"min", least, 0.5},       {"max", most, 0.5},
    {"step", step, 0.5},  {"fdim", fdim, 0.5}, {"divide", quotient, 0.5},
};
enum { TWOS = sizeof twos / sizeof *twos };

static void add(uint32_t bits)
{
  if (n < MOST) x[n++] = words_float(bits);
}

static void make_inputs(void)
{
  static const float edges[] = {0,   1,           0.5f,        2,          4,          0.25f,    10,
                                100, 0.41421357f, 0.34999999f, 1.5707964f, 3.1415927f, 16777216, 33554432};
  uint64_t state = 3;
  for (uint32_t high = 0; high < 512; high++)
    for (uint32_t k = 0; k < 40; k++) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      add(high << 23 | (k < 2 ? k : k == 2 ? 0x7fffffu : (uint32_t)(state >> 41)));
    }
  for (size_t k = 0; k < sizeof edges / sizeof *edges; k++)
    for (uint32_t side = 0; side < 8; side++)
      add(words_bits(side & 4 ? -edges[k] : edges[k]) + (side & 3) - (edges[k] > 0 ? 1 : 0));
  for (int k = 0; k < n; k++) y[k] = k % 3 ? x[(k * 7919 + 13) % n] : (float)(k % 41 - 20) / 2;
}

/* "exp,4294967296,0.8763,..." */
static double bound_of(const char *path, const one *f)
{
  char line[256], name[32];
  double bound = f->bound, worst;
  FILE *file = bound > 0 || !path ? NULL : fopen(path, "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "%31[a-z0-9],%*u,%lf", name, &worst) == 2 && !strcmp(name, f->name)) bound = worst + 0.00005;
  if (file) fclose(file);
  return bound;
}

static void compare(const char *name, const float *got, double bound, const one *f1, const two *f2)
{
  double worst = 0;
  int at = 0;
  for (int k = 0; k < n; k++) {
    const double exact = f1 ? f1->exact((double)x[k]) : f2->exact((double)x[k], (double)y[k]);
    const double error = maths_error(got[k], exact);
    if (error > worst) worst = error, at = k;
  }
  if (!check(bound > 0 && worst <= bound, "%s: worst %.6f of %.4f", name, worst, bound))
    printf("# of %a and %a: %a\n", (double)x[at], (double)y[at], (double)got[at]);
}

static void real(const char *path)
{
  qn_text body = {0};
  qn_text_add(&body, "uint i = thread_position_in_grid.x; float u = a[i], v = b[i];\n");
  for (int k = 0; k < ONES; k++) qn_text_add(&body, "out[%d * n + i] = %s(u);\n", k, ones[k].name);
  for (int k = 0; k < TWOS; k++)
    qn_text_add(&body, "out[%d * n + i] = %s%s(u, v);\n", ONES + k,
                strcmp(twos[k].name, "divide") ? "" : "precise::", twos[k].name);
  const use u = {.name = "real", .inputs = "a b", .body = body.at};
  const qn_tensor in[] = {ARRAY(x, QN_F32, n), ARRAY(y, QN_F32, n)}, o = ARRAY(out, QN_F32, FUNCTIONS * MOST);
  const qn_template t = {"n", {.kind = QN_VALUE_INT, .integer = n}};
  const qn_kernel_call call = CALL(.inputs = in, .outputs = &o, .n_templates = 1, .templates = &t,
                                   .grid = {(uint64_t)n, 1, 1}, .group = {256, 1, 1});
  words_on_gpus("real functions", &u, &call);
  use fast = u;
  fast.math = QN_MATH_FAST;
  words_on_gpus("real functions, fast", &fast, &call);
  if (words_run("real functions", &u, &call)) {
    for (int k = 0; k < ONES; k++) compare(ones[k].name, out + (size_t)k * n, bound_of(path, &ones[k]), &ones[k], NULL);
    for (int k = 0; k < TWOS; k++) compare(twos[k].name, out + (size_t)(ONES + k) * n, twos[k].bound, NULL, &twos[k]);
  }
  qn_text_free(&body);
}

/* ---- expressions that are true, or the body says which is not ---- */
static const char *const truths[] = {
    "exp(1.0) == metal::exp(1.0) && precise::exp(1.0) == metal::precise::exp(1.0) && fast::exp(0.0) == 1.0",
    "abs(fast::sin(1.0) - sin(1.0)) < 1e-5 && abs(fast::pow(2.0, 3.0) - 8) < 1e-4",
    "isnan(NAN) && !isnan(1.0) && isinf(-INFINITY) && !isfinite(NAN) && isfinite(FLT_MAX) && signbit(-0.0)",
    "isnormal(FLT_MIN) && !isnormal(FLT_MIN / 2)",
    "as_type<uint>(1.0) == 0x3f800000 && as_type<float>(0x40000000) == 2.0 && as_type<ushort>(1.0h) == 0x3c00",
    "clamp(5, 0, 3) == 3 && clamp(-0.5, 0.0, 1.0) == 0 && mix(1.0, 3.0, 0.25) == 1.5 && min(3u, 2u) == 2",
    "smoothstep(0.0, 2.0, 1.0) == 0.5 && fma(2.0, 3.0, 4.0) == 10 && select(1, 2, true) == 2 && select(1.0, 2.0, "
    "false) == 1",
    "ldexp(1.5, 3) == 12 && ldexp(1.0, -149) > 0 && ilogb(10.0) == 3 && nextafter(1.0, 2.0) == 1.0 + FLT_EPSILON",
    "max3(1, 5, 3) == 5 && min3(4.0, 2.0, 3.0) == 2 && median3(9, 2, 5) == 5",
    "popcount(255u) == 8 && popcount(int(-1)) == 32 && popcount(ushort(0x101)) == 2 && clz(1u) == 31 && clz(0) == 32",
    "clz(uchar(1)) == 7 && ctz(8u) == 3 && ctz(0u) == 32 && ctz(1ul << 40) == 40 && clz(1l) == 63",
    "reverse_bits(1u) == 0x80000000u && reverse_bits(uchar(2)) == 64 && rotate(0x80000001u, 1u) == 3",
    "mulhi(0x80000000u, 4u) == 2 && mulhi(-1, 5) == -1 && mulhi(~0ul, ~0ul) == ~0ul - 1 && mulhi(-3l, 7l) == -1",
    "madhi(1 << 30, 8, 5) == 7 && mul24(-3, 5) == -15 && mul24(0x01000003u, 2u) == 6 && mad24(3, 4, 5) == 17",
    "absdiff(-3, 4) == 7 && absdiff(3u, 5u) == 2 && hadd(INT_MAX, INT_MAX) == INT_MAX && rhadd(1, 2) == 2 && hadd(1, "
    "2) == 1",
    "addsat(INT_MAX, 1) == INT_MAX && addsat(INT_MIN, -1) == INT_MIN && addsat(~0u, 1u) == ~0u && subsat(1u, 2u) == 0",
    "subsat(INT_MIN, 1) == INT_MIN && subsat(0, INT_MIN) == INT_MAX && addsat(uchar(250), uchar(10)) == 255",
    "addsat(char(-100), char(-100)) == -128 && madsat(100000, 100000, 5) == INT_MAX && madsat(3, 4, 5) == 17",
    "extract_bits(0xabcdu, 4, 8) == 0xbc && extract_bits(0xf0, 4, 4) == -1 && insert_bits(0xffffu, 0u, 4, 8) == 0xf00f",
    "M_PI_F > 3.14159 && HALF_MAX == 65504 && INT_MAX + INT_MIN == -1 && UINT_MAX == ~0u && half(M_PI_H) > 3",
    "ceildiv(10, 4) == 3 && Limits<int>::max == INT_MAX && Limits<uchar>::max == 255 && Limits<char>::min == -128",
    "Limits<float>::min == -INFINITY && Limits<float>::finite_max == FLT_MAX && float(Limits<half>::max) == INFINITY",
    "float(Limits<half>::finite_min) == -65504 && Limits<long>::min < 0 && Limits<bool>::max && Limits<ulong>::min == "
    "0",
    "elem_to_loc(5u, shape, strides, 2) == 21 && elem_to_loc<uint>(uint3(2, 1, 0), shape, strides, 2) == 21",
    "elem_to_loc_1(5u, 3l) == 15 && elem_to_loc_2(uint2(2, 1), strides) == 21 && elem_to_loc(0, shape, strides, 2) == "
    "0",
    "(complex64_t(1, 2) * complex64_t(3, 4)).imag == 10 && complex64_t(1, 2) < complex64_t(1, 3) && complex64_t(2) == "
    "2",
    "sincos_is_right() && frexp_is_right() && modf_is_right()",
    "sizeof(long) == 8 && sizeof(size_t) == 8 && sizeof(int8_t) == 1 && sizeof(uint16_t) == 2 && sizeof(ulong) == 8",
    "sign(-2.0) == -1 && step(1.0, 2.0) == 1 && fract(-0.25) == 0.75 && fmod(-7.5, 2.0) == -1.5 && powr(2.0, 0.5) > "
    "1.4",
    "exp(1) == exp(1.0) && sqrt(4u) == 2 && max(1, 2.5) == 2.5 && min(1.0h, 2) == 1 && max(1.0h, 2.5) == 2.5",
    "tanpi(0.25) == 1 && sinpi(0.5) == 1 && cospi(1.0) == -1",
};
enum { TRUTHS = sizeof truths / sizeof *truths };

static void all_true(void)
{
  static const char header[] =
      "bool sincos_is_right() { float c; float s = sincos(0.5, c); return s == sin(0.5) && c == cos(0.5); }\n"
      "bool frexp_is_right() { int e; float m = frexp(10.0, e); return m == 0.625 && e == 4; }\n"
      "bool modf_is_right() { float i; float f = modf(-3.25, i); return f == -0.25 && i == -3; }\n"
      "constant int shape[2] = {2, 3}; constant int64_t strides[2] = {17, 2};\n";
  static uint8_t held[TRUTHS];
  qn_text body = {0};
  for (int k = 0; k < TRUTHS; k++) qn_text_add(&body, "out[%d] = %s;\n", k, truths[k]);
  const use u = {.name = "truths", .header = header, .body = body.at};
  const qn_tensor o = ARRAY(held, QN_BOOL, TRUTHS);
  const qn_kernel_call call = CALL(.outputs = &o, .grid = {1, 1, 1}, .group = {1, 1, 1});
  words_on_gpus("functions of all kinds", &u, &call);
  if (words_run("functions of all kinds", &u, &call))
    for (int k = 0; k < TRUTHS; k++) check(held[k] == 1, "%s", truths[k]);
  qn_text_free(&body);
}

int main(int argc, char **argv)
{
  make_inputs();
  real(argc > 1 ? argv[1] : NULL);
  all_true();
  return test_end();
}
