/* SPDX-License-Identifier: Apache-2.0 */
/* words_simd.c - barriers, the words of a simdgroup and of a quadgroup, and atomics: each against what it is by
 * definition, for full simdgroups, for one of 11 lanes, and with some lanes gone; and that all of it compiles for GPUs.
 */
#include "words_use.h"

enum { THREADS = 75 }; /* 32, 32 and 11 lanes */

static float in[THREADS], out[THREADS];
static uint32_t bits[THREADS];

/* The lanes of thread t's simdgroup, and thread 0 of it. */
static int lanes(int t) { return t / 32 == 2 ? 11 : 32; }
static const float *base(int t) { return in + t / 32 * 32; }

static bool run(const char *what, const char *expression, qn_dtype dtype, void *result)
{
  char body[512];
  snprintf(body, sizeof body,
           "uint lane = thread_index_in_simdgroup; uint i = thread_position_in_grid.x; float x = inp[i]; (void)lane;\n"
           "out[i] = %s;",
           expression);
  const use u = {.name = what, .inputs = "inp", .body = body};
  const qn_tensor i = ARRAY(in, QN_F32, THREADS), o = ARRAY(result, dtype, THREADS);
  const qn_kernel_call call = CALL(.inputs = &i, .outputs = &o, .grid = {THREADS, 1, 1}, .group = {THREADS, 1, 1});
  const bool ok = words_run(what, &u, &call);
  words_on_gpus(what, &u, &call);
  return ok;
}

/* ---- definitions ---- */
typedef float reduction(float a, float b);
static float add(float a, float b) { return a + b; }
static float multiply(float a, float b) { return a * b; }
static float least(float a, float b) { return b < a ? b : a; }
static float most(float a, float b) { return a < b ? b : a; }

/* By pairs, then pairs of these; lanes from n on are not there. */
static float by_pairs(const float *x, int n, reduction *of, int width)
{
  if (width == 1) return x[0];
  const float low = by_pairs(x, n, of, width / 2);
  return n > width / 2 ? of(low, by_pairs(x + width / 2, n - width / 2, of, width / 2)) : low;
}

static void reductions(void)
{
  static const struct {
    const char *name;
    reduction *of;
  } all[] = {{"sum", add}, {"product", multiply}, {"min", least}, {"max", most}};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    char word[32], expression[48];
    for (int quad = 0; quad < 2; quad++) {
      int wrong = 0;
      snprintf(word, sizeof word, "%s_%s", quad ? "quad" : "simd", all[k].name);
      snprintf(expression, sizeof expression, "%s(x)", word);
      if (!run(word, expression, QN_F32, out)) continue;
      for (int t = 0; t < THREADS; t++) {
        const int first = quad ? t / 4 * 4 : t / 32 * 32, left = THREADS - first, width = quad ? 4 : 32;
        wrong += !words_same(out[t], by_pairs(in + first, left < width ? left : width, all[k].of, width));
      }
      check(!wrong, "%s: %d of %d wrong", word, wrong, THREADS);
    }
  }
}

static void bitwise(void)
{
  int wrong = 0;
  if (run("simd_and", "simd_and(7u << lane % 3) * 64 + simd_or(1u << lane % 5) * 2 + simd_xor(lane)", QN_U32, bits))
    for (int t = 0; t < THREADS; t++) {
      const int n = lanes(t);
      uint32_t x = 0;
      for (int k = 0; k < n; k++) x ^= (uint32_t)k;
      wrong += bits[t] != 4u * 64 + 31u * 2 + x;
    }
  check(!wrong, "simd_and, simd_or, simd_xor: %d wrong", wrong);
}

/* Sums of whole numbers, so that the order does not matter, and once of others, for the bits. */
static void prefixes(void)
{
  int wrong = 0;
  if (run("prefix", "simd_prefix_inclusive_sum(lane + 1) * 65536 + simd_prefix_exclusive_sum(lane + 1)", QN_U32, bits))
    for (int t = 0; t < THREADS; t++) {
      const uint32_t l = (uint32_t)t % 32;
      wrong += bits[t] != (l + 1) * (l + 2) / 2 * 65536 + l * (l + 1) / 2;
    }
  check(!wrong, "simd_prefix_inclusive_sum and _exclusive_sum: %d wrong", wrong);
  wrong = 0;
  if (run("products", "simd_prefix_inclusive_product(x) - simd_prefix_exclusive_product(x)", QN_F32, out))
    for (int t = 0; t < THREADS; t++) {
      double before = 1;
      for (int k = 0; k < t % 32; k++) before *= (double)base(t)[k];
      const double want = before * (double)in[t] - before;
      wrong += !(fabs((double)out[t] - want) <= 1e-5 * (fabs(before) * (fabs((double)in[t]) + 1)));
    }
  check(!wrong, "simd_prefix_inclusive_product and _exclusive_product: %d wrong", wrong);
}

typedef int source_of(int lane, int n);
static int s_shuffle(int l, int n) { return (l * 7 + 3) % n; }
static int s_xor(int l, int n) { return (l ^ 1) < n ? l ^ 1 : -1; }
static int s_up(int l, int n) { return (void)n, l < 3 ? l : l - 3; }
static int s_down(int l, int n) { return l + 3 < n ? l + 3 : n == 32 ? l : -1; }
static int s_broadcast(int l, int n) { return (void)l, (void)n, 5; }
static int s_first(int l, int n) { return (void)l, (void)n, 0; }
static int s_turn_up(int l, int n) { return n == 32 ? (l + 31) % 32 : l ? l - 1 : -1; }
static int s_turn_down(int l, int n) { return n == 32 ? (l + 2) % 32 : l + 2 < n ? l + 2 : -1; }
static int s_quad_xor(int l, int n) { return (l ^ 3) < n ? l ^ 3 : -1; }
static int s_quad_broadcast(int l, int n) { return (void)n, l / 4 * 4 + 1 < n ? l / 4 * 4 + 1 : -1; }

static void shuffles(void)
{
  static const struct {
    const char *name, *expression;
    source_of *source; /* -1: unspecified */
  } all[] = {
      {"simd_shuffle", "simd_shuffle(x, (lane * 7 + 3) % (i < 64 ? 32 : 11))", s_shuffle},
      {"simd_shuffle_xor", "simd_shuffle_xor(x, 1)", s_xor},
      {"simd_shuffle_up", "simd_shuffle_up(x, 3)", s_up},
      {"simd_shuffle_down", "simd_shuffle_down(x, 3)", s_down},
      {"simd_broadcast", "simd_broadcast(x, 5)", s_broadcast},
      {"simd_broadcast_first", "simd_broadcast_first(x)", s_first},
      {"simd_shuffle_rotate_up", "simd_shuffle_rotate_up(x, 1)", s_turn_up},
      {"simd_shuffle_rotate_down", "simd_shuffle_rotate_down(x, 2)", s_turn_down},
      {"quad_shuffle_xor", "quad_shuffle_xor(x, 3)", s_quad_xor},
      {"quad_broadcast", "quad_broadcast(x, 1)", s_quad_broadcast},
      {"vectors", "simd_shuffle_xor(float4(x, 1.0, 2.0, 3.0), 1).x", s_xor},
      {"longs",
       "simd_shuffle_xor(long4(as_type<int>(x), 1, 2, 3), 1).x == as_type<int>(simd_shuffle_xor(x, 1)) ? "
       "simd_shuffle_xor(x, 1) : -1e9",
       s_xor},
      {"fill_up", "simd_shuffle_and_fill_up(x, x, 3, 8)", NULL},
      {"fill_down", "simd_shuffle_and_fill_down(x, 2 * x, 3)", NULL},
  };
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    int wrong = 0;
    if (!run(all[k].name, all[k].expression, QN_F32, out)) continue;
    for (int t = 0; t < THREADS; t++) {
      const int l = t % 32, n = lanes(t), from = all[k].source ? all[k].source(l, n) : -1;
      float want = from >= 0 ? base(t)[from] : out[t];
      if (!strcmp(all[k].name, "fill_up") && n == 32) want = base(t)[l / 8 * 8 + (l % 8 + 5) % 8];
      if (!strcmp(all[k].name, "fill_down") && n == 32) want = l < 29 ? base(t)[l + 3] : 2 * base(t)[l - 29];
      wrong += !words_same(out[t], want);
    }
    check(!wrong, "%s: %d wrong", all[k].name, wrong);
  }
}

static void votes(void)
{
  int wrong = 0;
  if (run("ballot", "uint(simd_ballot(lane % 3 == 0)) + (simd_any(lane == 10) ? 0 : 1) + (simd_all(lane < 31) ? 0 : 2)",
          QN_U32, bits))
    for (int t = 0; t < THREADS; t++) {
      uint32_t want = 0;
      for (int k = 0; k < lanes(t); k += 3) want |= UINT32_C(1) << k;
      wrong += bits[t] != want + (lanes(t) == 32 ? 2 : 0);
    }
  check(!wrong, "simd_ballot, simd_any, simd_all: %d wrong", wrong);
  wrong = 0;
  if (run("first", "(simd_is_first() ? 1 : 0) + (quad_all(lane != 5) ? 2 : 0) + (quad_any(lane == 5) ? 4 : 0)", QN_U32,
          bits))
    for (int t = 0; t < THREADS; t++) wrong += bits[t] != (t % 32 == 0 ? 1u : 0u) + (t % 32 / 4 == 1 ? 4u : 2u);
  check(!wrong, "simd_is_first, quad_all, quad_any: %d wrong", wrong);
}

/* Lanes that returned take no part, nor do those of another branch. */
static void gone(void)
{
  int wrong = 0;
  const use u = {.name = "gone",
                 .inputs = "inp",
                 .body =
                     "uint lane = thread_index_in_simdgroup; uint i = thread_position_in_grid.x; float x = inp[i];\n"
                     "if (lane % 4 == 3) { out[i] = -1; return; }\n"
                     "float y = 0;\n"
                     "if (lane % 4 == 0) y = simd_sum(x);\n"
                     "out[i] = y + 1000 * simd_max(as_type<float>(lane + 1));"};
  const qn_tensor i = ARRAY(in, QN_F32, THREADS), o = ARRAY(out, QN_F32, THREADS);
  const qn_kernel_call call = CALL(.inputs = &i, .outputs = &o, .grid = {THREADS, 1, 1}, .group = {THREADS, 1, 1});
  words_on_gpus("lanes that are gone", &u, &call);
  if (!words_run("lanes that are gone", &u, &call)) return;
  for (int t = 0; t < THREADS; t++) {
    double sum = 0;
    for (int k = 0; k < lanes(t); k += 4) sum += (double)base(t)[k];
    const double want = t % 4 == 3 ? -1 : t % 4 == 0 ? sum : 0;
    wrong += !(fabs((double)out[t] - want) < 1e-5);
  }
  check(!wrong, "lanes that are gone or elsewhere: %d wrong", wrong);
}

/* A block of threads reverses its part through threadgroup memory, and sums with half, vectors and a helper function.
 */
static void memory(void)
{
  int wrong = 0;
  const use u = {.name = "memory",
                 .inputs = "inp",
                 .header = "float last(threadgroup const float *s, uint n) { return s[n - 1]; }\n"
                           "template <typename T> METAL_FUNC T twice(T x) { return x + x; }\n",
                 .body = "threadgroup float s[32]; threadgroup half h[32];\n"
                         "uint l = thread_position_in_threadgroup.x, n = threads_per_threadgroup.x;\n"
                         "uint i = thread_position_in_grid.x;\n"
                         "s[l] = inp[i]; h[l] = half(l);\n"
                         "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);\n"
                         "threadgroup float *p = s;\n"
                         "out[i] = p[n - 1 - l] + 0.5 * float(h[n - 1 - l]) + twice(last(s, n));\n"};
  const qn_tensor i = ARRAY(in, QN_F32, THREADS), o = ARRAY(out, QN_F32, THREADS);
  const qn_kernel_call call = CALL(.inputs = &i, .outputs = &o, .grid = {THREADS, 1, 1}, .group = {32, 1, 1});
  words_on_gpus("threadgroup memory", &u, &call);
  if (!words_run("threadgroup memory", &u, &call)) return;
  for (int t = 0; t < THREADS; t++) {
    const int n = lanes(t), l = t % 32;
    wrong += !words_same(out[t], base(t)[n - 1 - l] + 0.5f * (float)(n - 1 - l) + 2 * base(t)[n - 1]);
  }
  check(!wrong, "threadgroup memory: %d wrong", wrong);
}

/* ---- atomics ---- */
static void atomics_of(const char *name, qn_dtype dtype, const char *header_type, double (*read)(const void *, int))
{
  enum { ADD, SUB, MIN, MAX, EXCHANGE, LOOP, SLOTS };
  unsigned char slots[8 * SLOTS] = {0};
  char body[1024];
  snprintf(body, sizeof body,
           "typedef %s T; uint i = thread_position_in_grid.x;\n"
           "atomic_fetch_add_explicit(&out[0], T(1), memory_order_relaxed);\n"
           "atomic_fetch_sub_explicit(&out[1], T(1), memory_order_relaxed);\n"
           "atomic_fetch_min_explicit(&out[2], T(int(i) - 3 < 0 ? 0 : i), memory_order_relaxed);\n"
           "atomic_fetch_max_explicit(&out[3], T(i %% 100), memory_order_relaxed);\n"
           "atomic_exchange_explicit(out + 4, T(7), memory_order_relaxed);\n"
           "T old = atomic_load_explicit(&out[5], memory_order_relaxed);\n"
           "while (!atomic_compare_exchange_weak_explicit(&out[5], &old, T(old + T(1)), memory_order_relaxed, "
           "memory_order_relaxed)) {}\n",
           header_type);
  const use u = {.name = name, .atomic = 1, .body = body};
  const qn_tensor o = ARRAY(slots, dtype, SLOTS);
  const qn_value init = {.kind = QN_VALUE_INT, .integer = 100};
  qn_pool *pool = NULL;
  check(qn_pool_create(&pool, 4) == QN_OK, "a pool");
  const qn_exec exec = {.size = sizeof exec, .pool = pool};
  const qn_kernel_call call = CALL(.outputs = &o, .grid = {100, 1, 1}, .group = {10, 1, 1}, .init = &init);
  words_on_gpus(name, &u, &call);
  qn_kernel *kernel = use_make(&u);
  check(qn_kernel_launch(kernel, &exec, &call) == QN_OK, "%s runs", name);
  qn_kernel_destroy(&kernel);
  qn_pool_destroy(&pool);
  check(read(slots, ADD) == 200 && read(slots, SUB) == 0 && read(slots, MIN) == 0 && read(slots, MAX) == 100 &&
            read(slots, EXCHANGE) == 7 && read(slots, LOOP) == 200,
        "%s: %g %g %g %g %g %g", name, read(slots, 0), read(slots, 1), read(slots, 2), read(slots, 3), read(slots, 4),
        read(slots, 5));
}
static double read_f32(const void *p, int k) { return (double)((const float *)p)[k]; }
static double read_i32(const void *p, int k) { return ((const int32_t *)p)[k]; }
static double read_u64(const void *p, int k) { return (double)((const uint64_t *)p)[k]; }
static double read_f16(const void *p, int k) { return (double)qn_f16_float(((const uint16_t *)p)[k]); }
static double read_bf16(const void *p, int k) { return (double)qn_bf16_float(((const uint16_t *)p)[k]); }

/* ---- places ---- */
/* Who meets whom where a word is reached in several ways: lanes of a branch among themselves. Each statement gives `r`,
 * which is `odd` in odd lanes and `even` in others; a is 1 in each lane, b 100. */
static const struct {
  const char *what, *statement;
  float odd, even;
} places[] = {
    {"a helper", "if (t % 2) r = total(a); else r = total(b);", 16, 1600},
    {"a helper, twice on a line", "r = t % 2 ? total(a) : total(b);", 16, 1600},
    {"a word, twice on a line", "r = t % 2 ? simd_sum(a) : simd_sum(b);", 16, 1600},
    {"a helper's helper", "if (t % 2) r = outer(a); else r = outer(b);", 16, 1600},
    {"a helper that calls two", "r = either(a, b, t);", 16, 1600},
    {"a macro of words", "r = PICK(t % 2, a, b);", 16, 1600},
    {"a macro of helpers", "r = PICK_TOTAL(t % 2, a, b);", 16, 1600},
    {"a macro that is a statement", "SET(r, t % 2, a, b)", 16, 1600},
    {"a macro that puts a word together", "r = PICK_OF(sum, t % 2, a, b);", 16, 1600},
    {"a macro that makes a helper", "if (t % 2) r = made(a); else r = made(b);", 16, 1600},
    {"a template", "if (t % 2) r = of<float>(a); else r = of<float>(b);", 16, 1600},
    {"a template's two functions", "if (t % 2) r = times<1>(a); else r = times<2>(b);", 16, 3200},
    {"a lambda", "auto f = [&](float x) { return simd_sum(x); };\nif (t % 2) r = f(a); else r = f(b);", 16, 1600},
    {"a lambda passed on",
     "auto f = [&](float x) { return simd_sum(x); };\nif (t % 2) r = apply(f, a);\n"
     "else r = apply(f, b);",
     16, 1600},
    {"an object that is called", "summer s;\nif (t % 2) r = s(a); else r = s(b);", 16, 1600},
    {"a method", "scaled s;\nif (t % 2) r = s.sum(a); else r = s.sum(b);", 16, 3200 / 2},
    {"a class's function", "if (t % 2) r = inner::scaled::one(a); else r = inner::scaled::one(b);", 16, 1600},
    {"a pointer", "float (*f)(float) = total;\nif (t % 2) r = f(a); else r = f(b);", 16, 1600},
    {"a reference is given", "if (t % 2) put(r, a); else put(r, b);", 16, 1600},
    {"a vector is returned", "if (t % 2) r = pair(a).y; else r = pair(b).y;", 16, 1600},
    {"an overload of a word", "if (t % 2) r = simd_min(float2(a, 0)).x; else r = simd_min(float2(b, 0)).x;", 16, 1600},
    {"recursion", "r = t % 2 ? deep(a, 2) : deep(b, 3);", 16, 1600},
    {"a loop", "for (int k = 0; k < 2; k++) {\nif (t % 2) r = total(a);\nelse r = total(b);\n}", 16, 1600},
    {"an uneven loop", "for (uint k = 0; k < 1 + t % 2; k++) r = total(a);", 16, 32},
    {"a call behind a branch", "if (t % 2) r = total(a); else r = a;\nr = total(r);", 272, 272},
    {"a helper as an argument", "r = total(t % 2 ? total(a) : b);", 1856, 1856},
    {"a word as an argument", "r = simd_sum(t % 2 ? simd_sum(simd_max(a)) : min(b, 1000.0f));", 1856, 1856},
};
static const char places_header[] =
    "inline float total(float x) { return simd_sum(x); }\n"
    "inline float outer(float x) { return total(x) + 0; }\n"
    "inline float either(float x, float y, uint t) { return t % 2 ? total(x) : total(y); }\n"
    "#define PICK(c, a, b) ((c) ? simd_sum(a) : simd_sum(b))\n"
    "#define PICK_TOTAL(c, a, b) \\\n  ((c) ? total(a) : total(b))\n"
    "#define SET(r, c, a, b) do { if (c) r = total(a); else r = total(b); } while (0);\n"
    "#define PICK_OF(op, c, a, b) ((c) ? simd_##op(a) : simd_##op(b))\n"
    "#define MAKE(name) inline float name(float x) { return simd_sum(x); }\nMAKE(made)\n"
    "template <class T> inline T of(T x) { return simd_sum(x); }\n"
    "template <int N> inline float times(float x) { return N * simd_sum(x); }\n"
    "template <class F> inline float apply(F g, float x) { return g(x); }\n"
    "struct summer { float operator()(float x) const { return simd_sum(x); } };\n"
    "struct scaled { float by = 1; float sum(float x) const { return simd_sum(x * by); } };\n"
    "namespace inner { struct scaled { static float one(float x) { return simd_sum(x); } }; }\n"
    "inline void put(thread float &r, float x) { r = simd_sum(x); }\n"
    "inline float2 pair(float x) { return float2(0, simd_sum(x)); }\n"
    "inline float2 simd_min(float2 v) { return float2(simd_sum(v.x), simd_sum(v.y)); }\n"
    "inline float deep(float x, int n);\n"
    "inline float deep(float x, int n) { return n ? deep(x, n - 1) : simd_sum(x); }\n";

static void places_of_words(void)
{
  enum { N = sizeof places / sizeof *places, LANES = 64 };
  static float of[N * LANES];
  char body[8192] = "uint t = thread_index_in_threadgroup;\nfloat r, a = inp[t], b = 100 * inp[t];\n";
  for (int k = 0; k < N; k++) {
    const size_t length = strlen(body);
    snprintf(body + length, sizeof body - length, "{\n%s\n}\nout[t + %d] = r;\n", places[k].statement, k * LANES);
  }
  for (int k = 0; k < LANES; k++) of[k] = 1;
  float ones[LANES];
  memcpy(ones, of, sizeof ones);
  const qn_tensor i = ARRAY(ones, QN_F32, LANES), o = ARRAY(of, QN_F32, N * LANES);
  for (int checked = 0; checked < 2; checked++) {
    const qn_kernel_call call =
        CALL(.inputs = &i, .outputs = &o, .grid = {LANES, 1, 1}, .group = {LANES, 1, 1}, .check = checked);
    memset(of, 0, sizeof of);
    words_run("places", &(use){.inputs = "inp", .header = places_header, .body = body}, &call);
    for (int k = 0; k < N; k++) {
      int wrong = 0;
      for (int t = 0; t < LANES; t++) wrong += of[k * LANES + t] != (t % 2 ? places[k].odd : places[k].even);
      check(!wrong, "%s%s: %d lanes are wrong, odd ones %g, even %g", places[k].what, checked ? ", checked" : "", wrong,
            (double)of[k * LANES + 1], (double)of[k * LANES]);
    }
  }
}

int main(void)
{
  for (int t = 0; t < THREADS; t++) in[t] = (float)((t * 37 + 11) % 29 - 14) * 0.37f + 0.01f;
  reductions();
  bitwise();
  prefixes();
  shuffles();
  votes();
  gone();
  places_of_words();
  memory();
  atomics_of("atomic_float", QN_F32, "float", read_f32);
  atomics_of("atomic_int", QN_I32, "int", read_i32);
  atomics_of("atomic_uint", QN_U32, "uint", read_i32);
  atomics_of("atomic_ulong", QN_U64, "ulong", read_u64);
  atomics_of("atomic_half", QN_F16, "half", read_f16);
  atomics_of("atomic_bfloat", QN_BF16, "bfloat", read_bf16);
  return test_end();
}
