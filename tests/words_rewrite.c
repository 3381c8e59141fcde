/* SPDX-License-Identifier: Apache-2.0 */
/* words_rewrite.c - what the rewriter makes of a kernel's text, case by case, and that lines stay. */
#include "kernel/kernel.h"
#include "test.h"

typedef struct rewriting {
  const char *in, *out; /* out NULL: as it is */
} rewriting;

static const rewriting metal_body[] = {
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
    {"constant float k = 1;", " float k = 1;"},
};

static const rewriting metal_header[] = {
    {"constant float k = 0.5;", "QN_CONSTANT float k = 0.5f;"},
    {"constant float k[2] = {1, 2.5};", "QN_CONSTANT float k[2] = {1, 2.5f};"},
    {"constexpr constant\nint n = 4;", "QN_CONSTANT\nint n = 4;"},
    {"static constant constexpr half h{1.0h};", "QN_CONSTANT half h{half(1.0f)};"},
    {"namespace a { constant int n = 4; }", "namespace a { QN_CONSTANT int n = 4; }"},
    {"constant float *first(constant float *p) { constant float *q = p; return q; }",
     " float *first( float *p) {  float *q = p; return q; }"},
    {"float f(const constant T &x, threadgroup float *s) { return x; }",
     "float f(const  T &x,  float *s) { return x; }"},
    {"#include <metal_stdlib>\n#include \"metal_math\"\n#import <simd/simd.h>\nusing namespace metal;\nint n;",
     "\n\n\n\nint n;"},
    {"template <typename T> T f(T v) { return v.yx; }",
     "template <typename T> T f(T v) { return v.qn_get(qn_swizzle<1, 0>()); }"},
    {"METAL_FUNC float f(float x [[unused]]) { return x * 2.0; }", "METAL_FUNC float f(float x ) { return x * 2.0f; }"},
};

static const rewriting cuda_body[] = {
    {"float x = 0.1; float2 a = v.xy;", NULL},
    {"extern __shared__ float s[];", "QN_SHARED_TAIL(s, , float);"},
    {"extern __shared__ __align__(16) unsigned char s[];", "QN_SHARED_TAIL(s, __align__(16), unsigned char);"},
    {"extern __shared__ alignas(8)\n  float2 s [ ] ;", "QN_SHARED_TAIL(s, alignas(8), float2)\n ;"},
    {"static __shared__ float s[4]; __shared__ int n;", " __shared__ float s[4]; __shared__ int n;"},
    {"extern int f(int);", NULL},
    {"#include <cuda_fp16.h>\n#define X 0.1\n", "\n#define X 0.1\n"},
};
static const rewriting cuda_header[] = {
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

static void table(qn_dialect dialect, bool header, const rewriting *cases, size_t n)
{
  for (size_t k = 0; k < n; k++) {
    const char *want = cases[k].out ? cases[k].out : cases[k].in;
    qn_tokens tokens;
    qn_text text = {0};
    if (!check(qn_tokens_make(cases[k].in, &tokens) == QN_OK, "tokens of %.30s", cases[k].in)) continue;
    qn_status status = qn_rewrite(dialect, &tokens, header, NULL, &text);
    const char *got = text.at ? text.at : "";
    if (!check(status == QN_OK && !strcmp(got, want) && lines(got) == lines(cases[k].in), "%s: %.40s",
               header ? "header" : "body", cases[k].in[0] == '#' ? cases[k].in + 1 : cases[k].in))
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
  refuses(qn_rewrite(dialect, &tokens, true, NULL, &text), status, words);
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
  check(qn_rewrite(QN_DIALECT_METAL, &body, false, &header, &text) == QN_OK && !strcmp(text.at, "a = l.xy;"),
        "a member of the header's struct is no swizzle in the body: %s", text.at);
  qn_text_free(&text);
  qn_tokens_free(&header);
  qn_tokens_free(&body);
}

int main(void)
{
#define TABLE(dialect, header, cases) table(dialect, header, cases, sizeof(cases) / sizeof *(cases))
  TABLE(QN_DIALECT_METAL, false, metal_body);
  TABLE(QN_DIALECT_METAL, true, metal_header);
  TABLE(QN_DIALECT_CUDA, false, cuda_body);
  TABLE(QN_DIALECT_CUDA, true, cuda_header);
  beside();
  refused(QN_DIALECT_METAL, "int n;\n#include \"mine.h\"\n", QN_BAD_ARGUMENT, "line 2: #include \"mine.h\"");
  refused(QN_DIALECT_METAL, "#include <vector>\n", QN_BAD_ARGUMENT, "<vector>");
  refused(QN_DIALECT_CUDA, "\nextern __shared__ float s[][4];", QN_UNSUPPORTED, "line 2");
  return test_end();
}
