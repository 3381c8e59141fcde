/* SPDX-License-Identifier: Apache-2.0 */
/* sanitizer.c - checked and limited launches on the processor: each kind of fault planted in a body, in Metal's words
 * and in CUDA's, and found with its line, thread and bytes; right kernels found to be right, whatever the order; loops
 * without an end stopped. QUERN_CXX says with which compiler; both gcc's and clang's have their turn in meson.build. */
#include "kernel_use.h"

enum { N = 256, GROUP = 64 };
static float x[N + 64], y[N + 64];

typedef struct expected {
  qn_finding_kind kind;
  int line, other_line;
  uint32_t thread[3], other[3];
  const char *where;
  int64_t first, last;
  const char *words; /* of the sentence */
} expected;

static bool with_clang(void)
{
  const char *compiler = getenv("QUERN_CXX");
  return compiler && strstr(compiler, "clang");
}

static qn_finding finding_at(size_t k)
{
  qn_finding f = {.size = sizeof f};
  qn_kernel_finding_at(k, &f);
  return f;
}

static void show_findings(void)
{
  for (size_t k = 0; k < qn_kernel_finding_count(); k++) {
    const qn_finding f = finding_at(k);
    printf("# [%s] line %d, %d; %s %lld to %lld: %s\n", qn_finding_kind_name(f.kind), f.line, f.other_line, f.where,
           (long long)f.first, (long long)f.last, f.text);
  }
}

static bool same_thread(const uint32_t a[3], const uint32_t b[3])
{
  return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

static bool is_expected(const qn_finding *f, const expected *e)
{
  return f->kind == e->kind && f->line == e->line && f->other_line == e->other_line &&
         same_thread(f->thread, e->thread) && same_thread(f->other, e->other) && !strcmp(f->where, e->where) &&
         f->first == e->first && f->last == e->last && (!e->words || strstr(f->text, e->words));
}

/* Beneath the sentence is the line. */
static bool shows(const use *u, const qn_finding *f)
{
  char wanted[128];
  const char *at = u->body;
  for (int k = 1; k < f->line && at; k++) at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
  snprintf(wanted, sizeof wanted, "\n%5d | %.*s", f->line, at ? (int)strcspn(at, "\n") : 0, at ? at : "");
  return f->line == 0 || strstr(qn_last_error(), wanted);
}

/* The launch reports exactly this. */
static void finds(const char *what, const use *u, qn_kernel_call call, expected e)
{
  qn_kernel *kernel = use_make(u);
  call.check = 1;
  const qn_status status = qn_kernel_launch(kernel, &serial, &call);
  const qn_finding f = qn_kernel_finding_count() ? finding_at(0) : (qn_finding){0};
  const bool right = status == QN_KERNEL_ERROR && qn_kernel_finding_count() == 1 && is_expected(&f, &e) &&
                     !strncmp(qn_last_error(), f.text, strlen(f.text)) && shows(u, &f);
  check(right, "%s: %s", what, qn_last_error());
  if (!right) show_findings();
  qn_kernel_destroy(&kernel);
}

/* With the same outcome for each of some orders. */
static void finds_nothing(const char *what, const use *u, qn_kernel_call call)
{
  qn_kernel *kernel = use_make(u);
  unsigned wrong = 0;
  call.check = 1;
  for (uint64_t seed = 0; seed < 5; seed++) {
    call.seed = seed;
    wrong += qn_kernel_launch(kernel, &serial, &call) != QN_OK || qn_kernel_finding_count() != 0;
  }
  check(!wrong, "%s: nothing is found in 5 orders", what);
  if (wrong) show_findings();
  qn_kernel_destroy(&kernel);
}

#define IN_OUT(in, n_in, out, n_out)                                                                                   \
  .inputs = (qn_tensor[]){ARRAY(in, QN_F32, n_in)}, .outputs = (qn_tensor[]) { ARRAY(out, QN_F32, n_out) }
#define GRID(n, threads) .grid = {(n), 1, 1}, .group = {(threads), 1, 1}

/* ---- out of bounds ---- */
static void outside(void)
{
  finds("a read behind an input",
        &(use){.inputs = "inp", .body = "uint i = thread_position_in_grid.x;\nfloat v = inp[i + 1];\nout[i] = v;"},
        CALL(IN_OUT(x, N, y, N), GRID(N, GROUP)),
        (expected){QN_FINDING_OUT_OF_BOUNDS, 2, 0, {N - 1, 0, 0}, {0}, "inp", 4 * N, 4 * N + 3, "reads bytes 1024"});
  for (int k = 0; k < N + 64; k++) y[k] = 7;
  finds(
      "a write behind an output",
      &(use){
          .inputs = "inp",
          .body =
              "uint i = thread_position_in_grid.x;\n\nout[i + (i > 250 ? 6 : 0)] = inp[i];\nif (i > 250) out[i] = 1;"},
      CALL(IN_OUT(x, N, y, N), GRID(N, GROUP)),
      (expected){QN_FINDING_OUT_OF_BOUNDS, 3, 0, {251, 0, 0}, {0}, "out", 4 * 257, 4 * 257 + 3, "writes bytes 1028"});
  unsigned touched = 0;
  for (int k = N; k < N + 64; k++) touched += y[k] != 7;
  check(!touched, "%u floats behind the output were touched", touched);
  finds("a read before an input",
        &(use){.inputs = "inp", .body = "int i = thread_position_in_grid.x;\nout[i] = inp[i - 1];"},
        CALL(IN_OUT(x + 8, N, y, N), GRID(N, GROUP)),
        (expected){QN_FINDING_OUT_OF_BOUNDS, 2, 0, {0, 0, 0}, {0}, "inp", -4, -1, "reads bytes -4 to -1"});
  finds("a write to an input",
        &(use){.inputs = "inp",
               .body = "uint i = thread_position_in_grid.x;\nout[i] = 1;\nif (i == 70) ((device float *)inp)[i] = 2;"},
        CALL(IN_OUT(x, N, y, N), GRID(N, GROUP)),
        (expected){QN_FINDING_OUT_OF_BOUNDS, 3, 0, {70, 0, 0}, {0}, "inp", 280, 283, "may only read"});
}

static void wild(void)
{
  finds("a NULL",
        &(use){.body = "uint i = thread_position_in_grid.x;\nout[i] = 1;\nif (i == 3) {\n  volatile device float *p = "
                       "0;\n  *p = 1;\n}"},
        CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, GRID(N, GROUP)),
        (expected){QN_FINDING_OUT_OF_BOUNDS, 5, 0, {3, 0, 0}, {0}, "", 0, 3, "no array of the launch"});
  finds("a huge index",
        &(use){.inputs = "inp", .body = "uint i = thread_position_in_grid.x;\nout[i] = inp[i * 1000000000ul];"},
        CALL(IN_OUT(x, N, y, N), GRID(N, GROUP)),
        (expected){
            QN_FINDING_OUT_OF_BOUNDS, 2, 0, {1, 0, 0}, {0}, "inp", INT64_C(4000000000), INT64_C(4000000003), "inp"});
  finds("an index outside an array of the thread's own",
        &(use){.body = "uint i = thread_position_in_grid.x;\nfloat a[4] = {1, 2, 3, 4};\nout[i] = a[i / 32];"},
        CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, GRID(N, GROUP)),
        (expected){QN_FINDING_OUT_OF_BOUNDS, 3, 0, {128, 0, 0}, {0}, "float[4]", 4, -1, "element 4 of a float[4]"});
  finds("a division by zero",
        &(use){.body = "uint i = thread_position_in_grid.x;\nout[i] = 1;\nout[i] = 100 / (int(i) - 40);"},
        CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, GRID(N, GROUP)),
        (expected){QN_FINDING_DIVISION, 3, 0, {40, 0, 0}, {0}, "", -1, -1, "divides"});
  finds("calls without an end",
        &(use){.header = "float down(float v, int n);\nfloat down(float v, int n)\n{\n  volatile float w = v;\n  "
                         "return n < 0 ? 0 : down(w, n + 1) + w;\n}\n",
               .body = "uint i = thread_position_in_grid.x;\nout[i] = i == 9 ?\n  down(1, i) : 1;"},
        CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, GRID(N, GROUP)),
        (expected){QN_FINDING_OUT_OF_BOUNDS, 3, 0, {9, 0, 0}, {0}, "stack", -1, -1, "stack"});
}

/* ---- what was not written ---- */
static void unwritten(void)
{
  finds("an output that nothing wrote in part",
        &(use){.body = "uint i = thread_position_in_grid.x;\nif (i < 100 || i > 227) out[i] = 1;"},
        CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, GRID(N, GROUP)),
        (expected){QN_FINDING_NOT_WRITTEN, 0, 0, {0}, {0}, "out", 400, 911, "128 of the 256 elements"});
  finds_nothing("an output with a first value",
                &(use){.body = "uint i = thread_position_in_grid.x;\nif (i < 100 || i > 227) out[i] += 1;"},
                CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, GRID(N, GROUP),
                     .init = (qn_value[]){{.kind = QN_VALUE_FLOAT, .real = 0}}));
  finds("a read of an output before it is written", &(use){.body = "uint i = thread_position_in_grid.x;\nout[i] += 1;"},
        CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, 1)}, GRID(1, 1)),
        (expected){QN_FINDING_UNINITIALISED, 2, 0, {0}, {0}, "out", 0, 3, "before anything wrote"});
  finds_nothing("an output in the place of an input",
                &(use){.inputs = "inp", .body = "uint i = thread_position_in_grid.x;\nout[i] = inp[i] * 2;"},
                CALL(IN_OUT(x, N, x, N), GRID(N, GROUP), .stored_in = (int[]){0}));
}

/* ---- races ---- */
static void races(void)
{
  finds(
      "a race of two groups", &(use){.body = "uint i = thread_position_in_grid.x;\nout[i % 64] = i;\n\n"},
      CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, GROUP)}, GRID(2 * GROUP, GROUP)),
      (expected){QN_FINDING_RACE, 2, 2, {64, 0, 0}, {0, 0, 0}, "out", 0, 3, "which thread (0, 0, 0) wrote at line 2"});
  finds(
      "a race in place",
      &(use){.inputs = "inp", .body = "uint i = thread_position_in_grid.x;\nfloat v = inp[(i + 1) % 64];\nout[i] = v;"},
      CALL(IN_OUT(x, GROUP, x, GROUP), GRID(GROUP, GROUP), .stored_in = (int[]){0}),
      (expected){QN_FINDING_RACE, 3, 2, {1, 0, 0}, {0, 0, 0}, "out", 4, 7, "read at line 2"});
}

/* ---- groups: barriers, threadgroup memory, simdgroups ---- */
#define BARRIER "threadgroup_barrier(mem_flags::mem_threadgroup);\n"

/* Findings of a kind that is ignored are none. */
static void ignores(const char *what, const use *u, qn_kernel_call call, const char *kinds)
{
  check(qn_finding_kinds(kinds, &call.ignore) == QN_OK && call.ignore, "%s: %s", what, kinds);
  finds_nothing(what, u, call);
}

static void same_values(void)
{
  const qn_kernel_call call = CALL(IN_OUT(x, GROUP, y, GROUP), GRID(GROUP, GROUP));
  const use zeros = {.inputs = "inp",
                     .body = "uint i = thread_position_in_grid.x;\nthreadgroup float part[2];\npart[i / 32] = 0;\n"
                             "threadgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = part[i / 32] + inp[i];"};
  const use firsts = {.inputs = "inp",
                      .body = "uint i = thread_position_in_grid.x;\nif (i != 32) out[i] = 1;\nif (i > 2) return;\n"
                              "out[32] = i > 1 ? 2 : 1;"};
  uint32_t kinds = 7;
  finds("lanes that store the same value", &zeros, call,
        (expected){QN_FINDING_SAME_VALUE, 3, 3, {1, 0, 0}, {0, 0, 0}, "part", 0, 3, "the values are equal"});
  finds("equal values but for one", &firsts, call,
        (expected){QN_FINDING_RACE, 4, 4, {1, 0, 0}, {0, 0, 0}, "out", 128, 131, "which thread (0, 0, 0) wrote"});
  ignores("equal values, ignored", &zeros, call, "same value");
  ignores("a race, ignored", &firsts, call, "division by zero,same-value, race");
  check(qn_finding_kinds("", &kinds) == QN_OK && !kinds, "no kinds");
  check(qn_finding_kinds("race, rice", &kinds) == QN_BAD_ARGUMENT && strstr(qn_last_error(), "\"rice\" is no kind") &&
            strstr(qn_last_error(), "out of bounds, race,") && strstr(qn_last_error(), "same value"),
        "an unknown kind: %s", qn_last_error());
  check(qn_finding_kinds("time limit", &kinds) == QN_BAD_ARGUMENT && !strstr(qn_last_error(), "zero, time limit"),
        "a time limit cannot be ignored: %s", qn_last_error());
}

static void group_races(void)
{
  const qn_kernel_call call = CALL(IN_OUT(x, N, y, N), GRID(N, GROUP));
  finds("a barrier left out, in an order that happens to work",
        &(use){.inputs = "inp",
               .body = "uint t = thread_index_in_threadgroup;\nthreadgroup float tile[64];\n"
                       "tile[t] = inp[thread_position_in_grid.x];\n"       /* 3 */
                       "\nout[thread_position_in_grid.x] = tile[t / 2];"}, /* 5 */
        call, (expected){QN_FINDING_RACE, 5, 3, {1, 0, 0}, {0, 0, 0}, "tile", 0, 3, "reads bytes 0 to 3 of tile"});
  finds("a barrier left out between two rounds",
        &(use){.inputs = "inp",
               .body =
                   "uint t = thread_index_in_threadgroup;\nthreadgroup float tile[64];\nfloat sum = 0;\n"
                   "for (int k = 0; k < 2; k++) {\n  tile[t] = inp[thread_position_in_grid.x] + k;\n  " BARRIER /* 6 */
                   "  sum += tile[63 - t];\n}\nout[thread_position_in_grid.x] = sum;"},
        call, (expected){QN_FINDING_RACE, 7, 5, {0, 0, 0}, {63, 0, 0}, "tile", 252, 255, "tile"});
  finds("threadgroup memory that nothing wrote",
        &(use){.inputs = "inp",
               .body = "uint t = thread_index_in_threadgroup;\nthreadgroup float tile[80];\n"
                       "tile[t] = inp[thread_position_in_grid.x];\n" BARRIER
                       "out[thread_position_in_grid.x] = tile[t + 1];"},
        call, (expected){QN_FINDING_UNINITIALISED, 5, 0, {63, 0, 0}, {0}, "tile", 256, 259, "before anything wrote"});
  finds("an index outside a threadgroup array",
        &(use){.inputs = "inp",
               .body = "uint t = thread_index_in_threadgroup;\nthreadgroup float tile[64];\n"
                       "tile[t] = inp[thread_position_in_grid.x];\n" BARRIER
                       "out[thread_position_in_grid.x] = tile[t + 1];"},
        call, (expected){QN_FINDING_OUT_OF_BOUNDS, 5, 0, {63, 0, 0}, {0}, "float[64]", 64, -1, "element 64"});
  finds("simdgroups that only their own barrier orders",
        &(use){.inputs = "inp",
               .body = "uint t = thread_index_in_threadgroup;\nthreadgroup float tile[64];\ntile[t] = 0;\n" BARRIER
                       "tile[t] = inp[thread_position_in_grid.x];\nsimdgroup_barrier(mem_flags::mem_threadgroup);\n"
                       "out[thread_position_in_grid.x] = tile[(t + 1) % 64];"},
        call, (expected){QN_FINDING_RACE, 5, 7, {0, 0, 0}, {63, 0, 0}, "tile", 0, 3, "writes bytes 0 to 3"});
}

static void diverged(void)
{
  const qn_kernel_call call = CALL(IN_OUT(x, N, y, N), GRID(N, GROUP));
  finds("a thread that returns before a barrier",
        &(use){.inputs = "inp",
               .body = "uint i = thread_position_in_grid.x;\nout[i] = inp[i];\nif (i == 70)\n  return;\n" BARRIER},
        call, (expected){QN_FINDING_DIVERGENT_BARRIER, 5, 2, {64, 0, 0}, {70, 0, 0}, "", -1, -1, "has returned"});
  finds("threads at two barriers",
        &(use){.inputs = "inp",
               .body = "uint i = thread_position_in_grid.x;\nout[i] = inp[i];\nif (i % 64 < 32)\n  " BARRIER
                       "else\n  " BARRIER},
        CALL(IN_OUT(x, GROUP, y, GROUP), GRID(GROUP, GROUP)),
        (expected){QN_FINDING_DIVERGENT_BARRIER, 4, 6, {0, 0, 0}, {32, 0, 0}, "", -1, -1, "another (line 6)"});
  finds_nothing(
      "words of the lanes that are together, others at a barrier or gone",
      &(use){.inputs = "inp",
             .body = "uint i = thread_position_in_grid.x;\nfloat v = inp[i];\nif (i % 32 >= 24) {\n  out[i] = 0;\n"
                     "  if (i % 32 >= 28) return;\n}\nif (i % 32 < 16)\n  v = simd_sum(v) + simd_max(v) + "
                     "simd_prefix_inclusive_sum(v) + simd_any(v > 0);\nelse\n  v += simd_min(v);\nout[i] = v;"},
      CALL(IN_OUT(x, GROUP, y, GROUP), GRID(GROUP, GROUP)));
  finds("lanes that miss their simdgroup's barrier",
        &(use){.inputs = "inp",
               .body = "uint i = thread_position_in_grid.x;\nfloat v = inp[i];\nif (i % 32 < 16)\n"
                       "  simdgroup_barrier(mem_flags::mem_none);\n" BARRIER "out[i] = v;"},
        CALL(IN_OUT(x, GROUP, y, GROUP), GRID(GROUP, GROUP)),
        (expected){QN_FINDING_MISSED_LANES, 4, 5, {0, 0, 0}, {16, 0, 0}, "", -1, -1, "lanes 0x0000ffff"});
}

/* ---- where a line is told ---- */
static void headers(void)
{
  finds("a function of the header, told by the line that calls it",
        &(use){.inputs = "inp",
               .header = "float far(const device float *p, uint i)\n{\n  float sum = 0;\n"
                         "  for (uint k = 0; k < 3; k++) sum += p[i + k];\n  return sum;\n}\n",
               .body = "uint i = thread_position_in_grid.x;\nfloat a = far(inp, i / 2);\n\nout[i] = a + far(inp, i);",
               .file = "far.metal"},
        CALL(IN_OUT(x, N, y, N), GRID(N, GROUP)),
        (expected){QN_FINDING_OUT_OF_BOUNDS, 4, 0, {N - 2, 0, 0}, {0}, "inp", 4 * N, 4 * N + 3, "far.metal, line 4"});
}

/* ---- CUDA's words ---- */
static void in_cuda(void)
{
  const qn_kernel_call call = CALL(IN_OUT(x, N, y, N), GRID(N, GROUP));
  finds(
      "CUDA: a read behind an input",
      &(use){
          .dialect = QN_DIALECT_CUDA,
          .inputs = "inp",
          .body =
              "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\nout[i] = inp[i + (i == 99) * 200];"}, /* in x, past
                                                                                                             what is
                                                                                                             lent */
      call, (expected){QN_FINDING_OUT_OF_BOUNDS, 2, 0, {99, 0, 0}, {0}, "inp", 1196, 1199, "reads bytes 1196"});
  finds("CUDA: a write to NULL",
        &(use){.dialect = QN_DIALECT_CUDA,
               .inputs = "inp",
               .body = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\nout[i] = inp[i];\nif (i == 5)\n"
                       "  *(volatile int *)0 = 1;"},
        call, (expected){QN_FINDING_OUT_OF_BOUNDS, 4, 0, {5, 0, 0}, {0}, "", 0, 3, "no array of the launch"});
  finds("CUDA: __syncthreads left out",
        &(use){.dialect = QN_DIALECT_CUDA,
               .inputs = "inp",
               .body = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n__shared__ float tile[64];\n"
                       "tile[threadIdx.x] = inp[i];\n\nout[i] = tile[threadIdx.x / 2];"},
        call, (expected){QN_FINDING_RACE, 5, 3, {1, 0, 0}, {0, 0, 0}, "tile", 0, 3, "tile"});
  finds("CUDA: a shuffle whose mask has lanes that never come",
        &(use){.dialect = QN_DIALECT_CUDA,
               .inputs = "inp",
               .body = "unsigned i = threadIdx.x;\nfloat v = inp[i];\nif (i < 16)\n  v = __shfl_xor_sync(~0u, v, 1);\n"
                       "else\n  __syncthreads();\nout[i] = v;"},
        CALL(IN_OUT(x, 32, y, 32), GRID(32, 32)),
        (expected){QN_FINDING_MISSED_LANES, 4, 6, {0, 0, 0}, {16, 0, 0}, "", -1, -1, "lanes 0x0000ffff"});
  finds("CUDA: a shuffle in a branch, its mask right",
        &(use){.dialect = QN_DIALECT_CUDA,
               .inputs = "inp",
               .body = "unsigned i = threadIdx.x;\nfloat v = inp[i];\nif (i < 16)\n"
                       "  v = __shfl_xor_sync(0xffff, v, 1);\nelse\n  v = 0;\n__syncthreads();\nout[i] = v;\n"
                       "if (i == 3) out[i] = tile(out, i);",
               .header = "__device__ float tile(const float *p, int i) { return p[i + 64]; }"},
        CALL(IN_OUT(x, GROUP, y, GROUP), GRID(GROUP, GROUP)),
        (expected){QN_FINDING_OUT_OF_BOUNDS, 9, 0, {3, 0, 0}, {0}, "out", 268, 271, "out"}); /* the mask was right */
  finds("CUDA: atomics beside a plain write",
        &(use){.dialect = QN_DIALECT_CUDA,
               .inputs = "inp",
               .body =
                   "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i < 64)\n  atomicAdd(&out[0], inp[i]);\n"
                   "else if (i == 64)\n  out[0] = 1;"},
        CALL(IN_OUT(x, N, y, 1), GRID(N, GROUP), .init = (qn_value[]){{.kind = QN_VALUE_FLOAT, .real = 0}}),
        (expected){QN_FINDING_RACE, 5, 3, {64, 0, 0}, {63, 0, 0}, "out", 0, 3, "out"});
}

static void right_in_cuda(void)
{
  finds_nothing("CUDA: threads that return before __syncthreads",
                &(use){.dialect = QN_DIALECT_CUDA,
                       .inputs = "inp",
                       .body = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;\n"
                               "__shared__ float s[64];\ns[t] = inp[i];\n__syncthreads();\nout[i] = s[t ^ 32];\n"
                               "if (t >= 32 || t == 3) return;\n__syncthreads();\nout[i] += s[t];"},
                CALL(IN_OUT(x, N, y, N), GRID(N, GROUP)));
  finds_nothing("CUDA: warps that sum by shuffles",
                &(use){.dialect = QN_DIALECT_CUDA,
                       .inputs = "inp",
                       .body = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n__shared__ float part[2];\n"
                               "float v = inp[i];\nfor (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);\n"
                               "if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;\n__syncthreads();\n"
                               "out[i] = part[0] + part[1];"},
                CALL(IN_OUT(x, N, y, N), GRID(N, GROUP)));
  finds_nothing("CUDA: the last block sums what all have written",
                &(use){.dialect = QN_DIALECT_CUDA,
                       .inputs = "inp",
                       .outputs = "out count",
                       .body = "__shared__ bool last;\nif (threadIdx.x == 0) {\n  out[blockIdx.x] = inp[blockIdx.x];\n"
                               "  __threadfence();\n  last = atomicAdd(&count[0], 1.0f) == gridDim.x - 1;\n}\n"
                               "__syncthreads();\nif (last && threadIdx.x == 0) {\n"
                               "  __threadfence();\n  for (unsigned k = 0; k < gridDim.x; k++) out[4] += out[k];\n}"},
                CALL(.inputs = (qn_tensor[]){ARRAY(x, QN_F32, 4)},
                     .outputs = (qn_tensor[]){ARRAY(y, QN_F32, 5), ARRAY(y + 8, QN_F32, 1)}, GRID(N, GROUP),
                     .init = (qn_value[]){{.kind = QN_VALUE_FLOAT, .real = 0}, {.kind = QN_VALUE_FLOAT, .real = 0}}));
}

/* ---- right kernels ---- */
static void right(void)
{
  qn_kernel_call call = CALL(IN_OUT(x, N, y, N), GRID(N, GROUP));
  finds_nothing("e^x",
                &(use){.inputs = "inp", .body = "uint i = thread_position_in_grid.x;\nout[i] = metal::exp(inp[i]);"},
                call);
  finds_nothing("sums of simdgroups, a barrier between",
                &(use){.inputs = "inp",
                       .body = "uint i = thread_position_in_grid.x, t = thread_index_in_threadgroup;\n"
                               "threadgroup float part[2];\nfloat sum = simd_sum(inp[i]);\n"
                               "if (t % 32 == 0) part[t / 32] = sum;\n" BARRIER "out[i] = part[0] + part[1];"},
                call);
  finds_nothing("words of a simdgroup in branches, which are for the lanes there",
                &(use){.inputs = "inp",
                       .body = "uint i = thread_position_in_grid.x, t = thread_index_in_threadgroup;\nfloat r;\n"
                               "if (t % 2) r = simd_prefix_exclusive_sum(inp[i]); else r = simd_max(inp[i]);\n"
                               "if (t < 40) r += simd_sum(r);\n" BARRIER "out[i] = simd_any(t == 7) ? r : 0;"},
                call);
  finds_nothing("a tree of sums in threadgroup memory",
                &(use){.inputs = "inp",
                       .body = "uint i = thread_position_in_grid.x, t = thread_index_in_threadgroup;\n"
                               "threadgroup float s[64];\ns[t] = inp[i];\nfor (uint d = 32; d > 0; d /= 2) {\n" BARRIER
                               "if (t < d) s[t] += s[t + d];\n}\n" BARRIER "out[i] = s[0];"},
                call);
  finds_nothing("a row of simdgroup barriers",
                &(use){.inputs = "inp",
                       .body = "uint i = thread_position_in_grid.x, t = thread_index_in_threadgroup;\n"
                               "threadgroup half s[64];\nfor (uint k = 0; k < 4; k++) {\ns[t] = inp[i] + k;\n"
                               "simdgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = s[t ^ 1];\n"
                               "simdgroup_barrier(mem_flags::mem_threadgroup);\n}"},
                call);
  finds_nothing("a histogram by atomics",
                &(use){.inputs = "inp",
                       .outputs = "out",
                       .atomic = 1,
                       .body = "uint i = thread_position_in_grid.x;\n"
                               "atomic_fetch_add_explicit(&out[i % 8], 1.0f + 0 * inp[i], memory_order_relaxed);"},
                CALL(IN_OUT(x, N, y, 8), GRID(N, GROUP), .init = (qn_value[]){{.kind = QN_VALUE_FLOAT, .real = 0}}));
  call.grid[0] = 200;
  call.outputs = (qn_tensor[]){ARRAY(y, QN_F32, 200)};
  finds_nothing("a group at the edge",
                &(use){.inputs = "inp", .body = "uint i = thread_position_in_grid.x;\nout[i] = inp[i];"}, call);
}

/* ---- time ---- */
static void stops(const char *what, const use *u, int line, int last, int check_too)
{
  qn_kernel *kernel = use_make(u);
  qn_kernel_call call =
      CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, GRID(N, GROUP), .limit_ns = 50000000, .check = check_too);
  const qn_status status = qn_kernel_launch(kernel, &serial, &call);
  const qn_finding f = qn_kernel_finding_count() ? finding_at(0) : (qn_finding){0};
  check(status == QN_KERNEL_ERROR && f.kind == QN_FINDING_TIME_LIMIT && f.line >= line && f.line <= last &&
            strstr(qn_last_error(), "longer than 50 ms"),
        "%s is stopped: %s", what, qn_last_error());
  qn_kernel_destroy(&kernel);
}

static void limits(void)
{
  const int empty = with_clang() ? 4 : 3; /* gcc knows no line of a loop with nothing in it */
  stops("an empty loop",
        &(use){.body = "uint i = thread_position_in_grid.x;\n\nif (i == 77)\n  for (;;);\nout[i] = 1;"}, empty, empty,
        0);
  stops(
      "a loop over memory",
      &(use){.body = "uint i = thread_position_in_grid.x;\nout[i] = 0;\nwhile (i == 77)\n  out[i] += 1;\nout[i] = 1;"},
      3, 4, 0);
  stops(
      "a checked loop",
      &(use){.body = "uint i = thread_position_in_grid.x;\nout[i] = 0;\nwhile (i == 77)\n  out[i] += 1;\nout[i] = 1;"},
      3, 4, 1);
  qn_kernel *kernel = use_make(&(use){.body = "uint i = thread_position_in_grid.x;\nout[i] = i;"});
  qn_kernel_call call = CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, GRID(N, GROUP), .limit_ns = INT64_MAX);
  check(qn_kernel_launch(kernel, &serial, &call) == QN_OK && y[N - 1] == N - 1 && !qn_kernel_finding_count(),
        "the next kernel works, within its limit");
  qn_kernel_destroy(&kernel);
}

/* Several tasks at once, of which all but the first few would never end: each is stopped, and there is one sentence. */
static void limits_on_a_pool(void)
{
  enum { MANY = 8192 };
  static float z[MANY];
  qn_pool *pool = NULL;
  check(qn_pool_create(&pool, 3) == QN_OK, "a pool");
  const qn_exec shared = {.size = sizeof shared, .pool = pool};
  qn_kernel *kernel = use_make(&(use){.inputs = "from",
                                      .body = "uint i = thread_position_in_grid.x;\nout[i] = i;\n"
                                              "while (i >= uint(from))\n  out[i] += 1;\nout[i] = i + 1;"});
  float from = 3000;
  qn_tensor bound = VALUE(QN_F32, &from);
  qn_kernel_call call =
      CALL(.inputs = &bound, .outputs = (qn_tensor[]){ARRAY(z, QN_F32, MANY)}, GRID(MANY, GROUP), .limit_ns = 50000000);
  const qn_status status = qn_kernel_launch(kernel, &shared, &call);
  check(status == QN_KERNEL_ERROR && qn_kernel_finding_count() == 1 && finding_at(0).kind == QN_FINDING_TIME_LIMIT &&
            strstr(qn_last_error(), "longer than 50 ms"),
        "a limit over a pool's threads: %s", qn_last_error());
  from = MANY;
  call.limit_ns = INT64_MAX;
  int wrong = qn_kernel_launch(kernel, &shared, &call) != QN_OK || qn_kernel_finding_count();
  for (int k = 0; k < MANY; k++) wrong += z[k] != (float)(k + 1);
  check(!wrong, "the same kernel within its limit there: %d wrong", wrong);
  qn_kernel_destroy(&kernel);
  qn_pool_destroy(&pool);
}

/* A frame that would pass over the page beneath a fiber's stack is refused by the compiler; one that fits runs. */
static void frames(void)
{
  static const char *const body = "float t[SIZE];\nfor (int k = 0; k < SIZE; k++) t[k] = inp[(k * 7) & 255];\n"
                                  "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
                                  "uint i = thread_position_in_grid.x;\nout[i] = t[int(inp[i])];";
  for (int k = 0; k < N; k++) x[k] = (float)k;
  for (int checked = 0; checked < 2; checked++) {
    qn_kernel *kernel = use_make(&(use){.inputs = "inp", .body = body});
    qn_template size = {"SIZE", {.kind = QN_VALUE_INT, .integer = 20000}};
    qn_kernel_call call = CALL(IN_OUT(x, N, y, N), GRID(N, GROUP), .check = checked);
    call.templates = &size;
    call.n_templates = 1;
    refuses(qn_kernel_launch(kernel, &serial, &call), QN_COMPILE_ERROR, "57344");
    size.value.integer = 5000;
    check(qn_kernel_launch(kernel, &serial, &call) == QN_OK && y[3] == 21 && !qn_kernel_finding_count(),
          "20,000 bytes fit");
    qn_kernel_destroy(&kernel);
  }
}

/* More threadgroup arrays than a sanitizer holds: refused, since an array that it forgot would be reported falsely. */
static void too_many(void)
{
  char body[16384] = "uint i = thread_position_in_grid.x;\nout[i] = 0;\n";
  size_t at = strlen(body);
  for (int k = 0; k < 150; k++)
    at += (size_t)snprintf(body + at, sizeof body - at, "threadgroup float t%d[4]; t%d[i] = i;\n", k, k);
  at += (size_t)snprintf(body + at, sizeof body - at, "threadgroup_barrier(mem_flags::mem_threadgroup);\n");
  for (int k = 0; k < 150; k++) at += (size_t)snprintf(body + at, sizeof body - at, "out[i] += t%d[3 - i];\n", k);
  qn_kernel *kernel = use_make(&(use){.body = body});
  qn_kernel_call call = CALL(.outputs = (qn_tensor[]){ARRAY(y, QN_F32, 4)}, GRID(4, 4), .check = 1);
  refuses(qn_kernel_launch(kernel, &serial, &call), QN_UNSUPPORTED, "may have 128 threadgroup arrays");
  call.check = 0;
  check(qn_kernel_launch(kernel, &serial, &call) == QN_OK && y[0] == 450, "and runs unsanitized");
  qn_kernel_destroy(&kernel);
}

int main(void)
{
  outside();
  wild();
  unwritten();
  races();
  same_values();
  group_races();
  diverged();
  headers();
  in_cuda();
  right_in_cuda();
  right();
  limits();
  limits_on_a_pool();
  frames();
  too_many();
  return test_end();
}
