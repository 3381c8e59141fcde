/* SPDX-License-Identifier: Apache-2.0 */
/* words_rewrite.c - what the rewriter makes of a kernel's text, case by case, and that lines stay. */
#include "kernel/kernel.h"
#include "test.h"

typedef struct rewriting_case {
  const char *in, *out; /* out NULL: as it is */
} rewriting_case;

static const rewriting_case metal_body[] = {
    {"float x = 0.1;", "float x = 0.1f;"},
    {"x = 1e3 + 1.e-2 + .5 + 2.;", "x = 1e3f + 1.e-2f + .5f + 2.f;"},
    {"x = 0x1p-3 + 0x1.8p3;", "x = 0x1p-3f + 0x1.8p3f;"},
    {"x = 1.5f + 2 + 0xff + 0x1f + 10u + 1'000 + 0xbf;", NULL},
    {"x = 1.5h + 2.0H;", "x = half(1.5f) + half(2.0f);"},
    {"x = 1.5bf;", "x = bfloat(1.5f);"},
    {"\"0.1 device\" /* 0.1 device */ // thread 0.1", NULL},
    {"device float *p = a; const device T &r = b;", " float *p = a; const  T &r = b;"},
    {"(device float*)p; thread float t[4];", "( float*)p;  float t[4];"},
    {"threadgroup float s[32];", "QN_THREADGROUP float s[32];"},
    {"threadgroup vec<float, 4> s[32], u;", "QN_THREADGROUP vec<float, 4> s[32], u;"},
    {"threadgroup float *p = s;", " float *p = s;"},
    {"threadgroup T &r = s[0]; const threadgroup T *q = s;", " T &r = s[0]; const  T *q = s;"},
    {"threadgroup atomic_int n;", "QN_THREADGROUP atomic_int n;"},
    {"alignas(16) threadgroup half s[4];", "alignas(16) QN_THREADGROUP half s[4];"},
    {"threadgroup alignas(16) half s[4];", "QN_THREADGROUP alignas(16) half s[4];"},
    {"auto q = (threadgroup float *)s; auto r = static_cast<threadgroup float *>(s);",
     "auto q = ( float *)s; auto r = static_cast< float *>(s);"},
    {"auto f = [&](threadgroup float *p, threadgroup int s[4]) {};", "auto f = [&]( float *p,  int s[4]) {};"},
    {"threadgroup_barrier(mem_flags::mem_threadgroup);", NULL},
    {"float2 a = v.xy;", "float2 a = v.qn_get(qn_swizzle<0, 1>());"},
    {"a = v.bgr + w . wzyx;", "a = v.qn_get(qn_swizzle<2, 1, 0>()) + w . qn_get(qn_swizzle<3, 2, 1, 0>());"},
    {"v.xy = a; v.zw += b; v.xz <<= 2;",
     "v.qn_set(qn_swizzle<0, 1>()) = a; v.qn_set(qn_swizzle<2, 3>()) += b; v.qn_set(qn_swizzle<0, 2>()) <<= 2;"},
    {"b = v.xy == a; c = v.xy <= a; d = v.xy < a; e = v.xy && a;",
     "b = v.qn_get(qn_swizzle<0, 1>()) == a; c = v.qn_get(qn_swizzle<0, 1>()) <= a; d = v.qn_get(qn_swizzle<0, 1>()) < "
     "a; e = v.qn_get(qn_swizzle<0, 1>()) && a;"},
    {"p->xy = q->ab;", "p->qn_set(qn_swizzle<0, 1>()) = q->qn_get(qn_swizzle<3, 2>());"},
    {"v.x = v.r + s.length + t.rgx + u.xyzwx + xy;", NULL},
    {"float2 xy = v.xy; f(xy);", "float2 xy = v.qn_get(qn_swizzle<0, 1>()); f(xy);"},
    {"struct pair { float xy, ab[2]; }; p.xy = p.ab[0];", NULL},
    {"x = v.xy().z;", NULL},
    {"[[unroll]] for (;;) a[b[0]] = 1;", " for (;;) a[b[0]] = 1;"},
    {"using namespace metal; x = 1;", " x = 1;"},
    {"using metal::exp;", NULL},
    {"#define HALF_PI 1.57 /* and */\nx = 1;", "#define HALF_PI 1.57f /* and */\nx = 1;"},
    {"#define F(a) ((a).xy * 0.5)\n", "#define F(a) ((a).qn_get(qn_swizzle<0, 1>()) * 0.5f)\n"},
    {"#include <metal_stdlib>\nx;", "\nx;"},
    {"#pragma METAL fp contract(off)\nx;", "\nx;"},
    {"#if 0.5\n#endif", NULL},
    {"constant float k = 1; const constant int *p = q;", "const float k = 1; const  int *p = q;"},
};

#define W " qn_whole() |= "
#define A " qn_arm() |="
static const rewriting_case choices_body[] = {
    {"y = c ? h : 0;", "y =" W " c ?" A " h : 0;"},
    {"y = c ? 0 : h;", "y =" W " c ? 0 :" A " h;"},
    {"y = c ? h + 1 : 0.5;", "y =" W " c ?" A " h + 1 :" A " 0.5f;"},
    {"y += a < b ? h : k;", "y +=" W " a < b ?" A " h :" A " k;"},
    {"y = a <= b ? h : k;", "y =" W " a <= b ?" A " h :" A " k;"},
    {"y = a ? b ? h : k : d ? e : f;", "y =" W " a ?" A W " b ?" A " h :" A " k :" A W " d ?" A " e :" A " f;"},
    {"f(x, a ? h : k, (b ? h : k));", "f(x," W " a ?" A " h :" A " k, (" W "b ?" A " h :" A " k));"},
    {"return a == b ? h : k;", "return" W " a == b ?" A " h :" A " k;"},
    {"a ? f() : g(); if (a) b ? f() : g(); else b ? f() : g();", NULL},
    {"for (;;) { a ? f() : g(); }", NULL},
    {"switch (a) { case 1: b ? f() : g(); case n ? 1 : 2: break; }", NULL},
    {"int a[n ? 1 : 2]; static_assert(n ? true : false, \"\"); enum e { z = n ? 1 : 2 };", NULL},
    {"half2 v{a ? h : k, h};", "half2 v{" W "a ?" A " h :" A " k, h};"},
    {"vec<int, n ? 2 : 4> v; f<int, n ? 2 : 4>(v);", NULL},
    {"y = a ? m::b : n::c;", "y =" W " a ?" A " m::b :" A " n::c;"},
    {"auto f = [=](half h) { return a ? h : 0; };", "auto f = [=](half h) { return" W " a ?" A " h : 0; };"},
    {"#define F(a, b) (a) ? (b) : 0\ny = F(c, h);", "#define F(a, b)" W " (a) ?" A " (b) : 0\ny = F(c, h);"},
};
static const rewriting_case choices_header[] = {
    {"template <int n, int m = (n > 2) ? 4 : 8> half f() { return n ? h : 0; }",
     "template <int n, int m = (n > 2) ? 4 : 8> half f() { return" W " n ?" A " h : 0; }"},
    {"struct s { half f() const { a ? f() : g(); return h; } };", NULL},
};

static const rewriting_case metal_header[] = {
    {"constant float k = 0.5;", "QN_CONSTANT float k = 0.5f;"},
    {"constant float k[2] = {1, 2.5};", "QN_CONSTANT float k[2] = {1, 2.5f};"},
    {"constexpr constant\nint n = 4;", "QN_CONSTANT\nint n = 4;"},
    {"static constant constexpr half h{1.0h};", "QN_CONSTANT half h{half(1.0f)};"},
    {"namespace a { constant int n = 4; }", "namespace a { QN_CONSTANT int n = 4; }"},
    {"constant float *first(constant float *p) { constant float *q = p; return q; }",
     "const float *first(const float *p) { const float *q = p; return q; }"},
    {"float f(const constant T &x, threadgroup float *s) { return x; }",
     "float f(const  T &x,  float *s) { return x; }"},
    {"#include <metal_stdlib>\n#include \"metal_math\"\n#import <simd/simd.h>\nusing namespace metal;\nint n;",
     "\n\n\n\nint n;"},
    {"template <typename T> T f(T v) { return v.yx; }",
     "template <typename T> T f(T v) { return v.qn_get(qn_swizzle<1, 0>()); }"},
    {"METAL_FUNC float f(float x [[unused]]) { return x * 2.0; }", "METAL_FUNC float f(float x ) { return x * 2.0f; }"},
};

static const rewriting_case cuda_body[] = {
    {"float x = 0.1; float2 a = v.xy;", NULL},
    {"extern __shared__ float s[];", "QN_SHARED_TAIL(s, , float);"},
    {"extern __shared__ __align__(16) unsigned char s[];", "QN_SHARED_TAIL(s, __align__(16), unsigned char);"},
    {"extern __shared__ alignas(8)\n  float2 s [ ] ;", "QN_SHARED_TAIL(s, alignas(8), float2)\n ;"},
    {"static __shared__ float s[4]; __shared__ int n;", " __shared__ float s[4]; __shared__ int n;"},
    {"extern int f(int);", NULL},
    {"#include <cuda_fp16.h>\n#define X 0.1\n", "\n#define X 0.1\n"},
};
static const rewriting_case cuda_header[] = {
    {"extern __shared__ float s[];", "QN_SHARED_TAIL_OUTSIDE(s, , float);"},
    {"__device__ float f() { extern __shared__ float s[]; return s[0]; }",
     "__device__ float f() { QN_SHARED_TAIL(s, , float); return s[0]; }"},
    {"#include <cuda_bf16.h>\n#include <cooperative_groups.h>\n#include <stdint.h>\n", "\n\n\n"},
};

static size_t lines(const char *text)
{
  size_t n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

static void table(qn_rewriting how, const rewriting_case *cases, size_t n)
{
  for (size_t k = 0; k < n; k++) {
    const char *want = cases[k].out ? cases[k].out : cases[k].in;
    qn_tokens tokens;
    qn_text text = {0};
    if (!check(qn_tokens_make(cases[k].in, &tokens) == QN_OK, "tokens of %.30s", cases[k].in)) continue;
    qn_status status = qn_rewrite(&how, &tokens, NULL, &text);
    const char *got = text.at ? text.at : "";
    if (!check(status == QN_OK && !strcmp(got, want) && lines(got) == lines(cases[k].in), "%s: %.40s",
               how.header ? "header" : "body", cases[k].in[0] == '#' ? cases[k].in + 1 : cases[k].in))
      printf("# wanted: %s\n# got:    %s\n", want, got);
    qn_text_free(&text);
    qn_tokens_free(&tokens);
  }
}

static void refused(qn_dialect dialect, const char *in, qn_status status, const char *words)
{
  qn_tokens tokens;
  qn_text text = {0};
  check(qn_tokens_make(in, &tokens) == QN_OK, "tokens of a text to refuse");
  refuses(qn_rewrite(&(qn_rewriting){dialect, true, false}, &tokens, NULL, &text), status, words);
  qn_text_free(&text);
  qn_tokens_free(&tokens);
}

/* A struct of the header, seen in the body. */
static void beside(void)
{
  qn_tokens header, body;
  qn_text text = {0};
  check(qn_tokens_make("struct line { float2 xy; };", &header) == QN_OK && qn_tokens_make("a = l.xy;", &body) == QN_OK,
        "tokens of a header and a body");
  check(qn_rewrite(&(qn_rewriting){QN_DIALECT_METAL, false, false}, &body, &header, &text) == QN_OK &&
            !strcmp(text.at, "a = l.xy;"),
        "a member of the header's struct is no swizzle in the body: %s", text.at);
  qn_text_free(&text);
  qn_tokens_free(&header);
  qn_tokens_free(&body);
}

/* Files that a text may reach into are refused in every spelling that the preprocessor knows. */
static void closed_texts(void)
{
  static const struct {
    const char *text, *words;
  } open[] = {
      {"x;\n#/**/include \"f\"\n", "line 2: #include in this form"},
      {"/* a */ #include \"f\"\n", "line 1"},
      {"/* two\nlines */ # /* b */ include <metal_stdlib>\n", "line 2"},
      {"%:include \"f\"\n", "line 1"},
      {"#inc\\\nlude \"f\"\n", "line 1"},
      {"#inc\\ \t\nlude \"f\"\n", "line 1"},
      {"\\\n#include \"f\"", "line 2"},
      {"%\\\n:import \"f\"", "import"},
      {"/\\\n* *\\\n/ #include \"f\"", "line 3"},
      {"#include_next <f>", "include_next"},
      {"#embed \"f\"", "embed"},
      {"#define F \"f\"\n#include F", "line 2"},
      {"#if 1 && __has_include(\"f\")\n#endif", "__has_include"},
      {"#define H __has_include\n", "__has_include"},
      {"f(LR\"(\" /* )\");\n#/**/include \"f\"\n// */", "line 2"},
      {"R\"x( )\\\nx\" R\"y( )x\";\n#/**/include \"f\"\n// )y\"", "line 3"},
      {"int n = 1'000;\n#/**/include \"f\"\n", "line 2"},
      {"// it's\n#/**/include \"f\" // '\n", "line 2"},
  };
  static const char *const closed[] = {
      "// #/**/include \"f\"\nx;",   "/*\n%:include \"f\"\n*/ x;",         "f(\"\\n#/**/include \\\"f\");",
      "R\"(\n%:include \"f\"\n)\";", "int include, import = 5 % include;", "#define include 1\n#if include\n#endif",
      "f('\"');\n#pragma unroll\n",  "// a \\\n #/**/include \"f\"\n",
  };
  for (size_t k = 0; k < sizeof open / sizeof *open; k++)
    refuses(qn_text_is_closed(open[k].text), QN_BAD_ARGUMENT, open[k].words);
  for (size_t k = 0; k < sizeof closed / sizeof *closed; k++)
    check(qn_text_is_closed(closed[k]) == QN_OK, "closed text %zu: %s", k, qn_last_error());
  refused(QN_DIALECT_CUDA, "%:include <cuda_fp16.h>", QN_BAD_ARGUMENT, "line 1");
}

int main(void)
{
#define TABLE(cases, ...) table((qn_rewriting){__VA_ARGS__}, cases, sizeof(cases) / sizeof *(cases))
  TABLE(metal_body, QN_DIALECT_METAL, false, false);
  TABLE(metal_header, QN_DIALECT_METAL, true, false);
  TABLE(choices_body, QN_DIALECT_METAL, false, true);
  TABLE(choices_header, QN_DIALECT_METAL, true, true);
  TABLE(cuda_body, QN_DIALECT_CUDA, false, false);
  TABLE(cuda_header, QN_DIALECT_CUDA, true, false);
  beside();
  closed_texts();
  refused(QN_DIALECT_METAL, "int n;\n#include \"mine.h\"\n", QN_BAD_ARGUMENT, "line 2: #include \"mine.h\"");
  refused(QN_DIALECT_METAL, "#include <vector>\n", QN_BAD_ARGUMENT, "<vector>");
  refused(QN_DIALECT_CUDA, "\nextern __shared__ float s[][4];", QN_UNSUPPORTED, "line 2");
  return test_end();
}
