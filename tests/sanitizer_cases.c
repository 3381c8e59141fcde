/* SPDX-License-Identifier: Apache-2.0 */
/* sanitizer_cases.c - kernels with one fault each that a GPU may hide, which checked launches find at their line, and
 * kernels like them that are right, of which nothing is said: values of lanes that are not there, arrays of a thread's
 * own, alignment, divergent barriers in helpers, order by fences and atomics. QUERN_CXX says with which compiler. */
#include "kernel_use.h"

enum { N = 256, GROUP = 64, RIGHT = -1 };
static float x[N], y[N], part[N / GROUP];
static uint32_t flag[N / GROUP];

typedef struct planted {
  const char *what;
  qn_dialect dialect;
  int kind, line; /* of the finding; RIGHT: none */
  const char *header, *body;
} planted;
#define METAL QN_DIALECT_METAL
#define CUDA QN_DIALECT_CUDA
/* Metal: i and t; CUDA: i, t, b; on line 1. */
#define BARRIER "threadgroup_barrier(mem_flags::mem_threadgroup);\n"

static const planted cases[] = {
    /* ---- lanes that are not there ---- */
    {"a shuffle of a lane in the other branch", METAL, QN_FINDING_ABSENT_LANE, 3, NULL,
     "float v = 0;\nif (t % 32 < 16) v = simd_shuffle(inp[i], 20);\nout[i] = v;"},
    {"a shuffle beyond a small simdgroup, stored later", METAL, QN_FINDING_ABSENT_LANE, 3, NULL,
     "float v = inp[i];\nif (t % 32 < 30) v += simd_shuffle_down(v, 2);\nthreadgroup float s[64];\ns[t] = v;\n" BARRIER
     "out[i] = s[t];"},
    {"a shuffle of a lane that returned", CUDA, QN_FINDING_ABSENT_LANE, 3, NULL,
     "if (t % 32 >= 24) { out[i] = 0; return; }\nout[i] = __shfl_down_sync(0xffffffu, inp[i], 8);"},
    {"a value that came by another lane", CUDA, QN_FINDING_ABSENT_LANE, 3, NULL,
     "float v = inp[i];\nif (t % 32 < 8) { v = __shfl_down_sync(255u, v, 4);\n v = __shfl_xor_sync(255u, v, 7); }\n"
     "if (t % 32 == 0) out[i] = v; else if (t % 32 >= 8) out[i] = 0; else if (t % 32 > 3) out[i] = 1;"},
    {"a tree of shuffles that drops what is not there", CUDA, RIGHT, 0, NULL,
     "float v = inp[i];\nif (t % 32 < 8) for (int d = 4; d; d /= 2) v += __shfl_down_sync(255u, v, d);\n"
     "if (t % 32 == 0) out[i] = v;\nv = __shfl_sync(~0u, v, 0);\nif (t % 32) out[i] = v;"},
    {"a prefix sum of the lanes in a branch", METAL, RIGHT, 0, NULL,
     "float v = 1;\nif (t < 2) v = simd_prefix_exclusive_sum(inp[i]);\n" BARRIER "out[i] = v;"},
    /* ---- arrays of the thread's own ---- */
    {"a write far behind an array of its own", METAL, QN_FINDING_OUT_OF_BOUNDS, 4, NULL,
     "float a[4] = {inp[i], 0, 0, 0};\nthread float *p = a;\nfor (int k = 0; k < int(inp_shape[0]); k++) p[k] = "
     "inp[k];\n"
     "out[i] = p[1];"},
    {"a write through a function that knows no size", METAL, QN_FINDING_OUT_OF_BOUNDS, 3,
     "__attribute__((noinline)) void fill(thread float *p, int n, float v)\n{\n  for (int k = 0; k < n; k++) p[k] = "
     "v;\n}\n",
     "float a[4];\nfill(a, int(inp_shape[0]) * 100, inp[i]);\nout[i] = a[1];"},
    {"a read behind an array of its own", METAL, QN_FINDING_OUT_OF_BOUNDS, 5, NULL,
     "float a[4];\nfor (int k = 0; k < 4; k++) a[k] = inp[i] * k;\nthread float *p = a;\n"
     "out[i] = p[int(inp_shape[0]) / 64 + 2];"},
    {"a vector's element that it has not", METAL, QN_FINDING_OUT_OF_BOUNDS, 3, NULL,
     "float4 v = float4(inp[i], 1, 2, 3);\nout[i] = v[int(inp_shape[0]) / 32];"},
    {"an array of its own, filled by a function", METAL, RIGHT, 0,
     "__attribute__((noinline)) void fill(thread float *p, int n, float v)\n{\n  for (int k = 0; k < n; k++) p[k] = "
     "v;\n}\n",
     "float a[4];\nfill(a, 4, inp[i]);\nout[i] = a[i % 4];"},
    /* ---- alignment ---- */
    {"a vector at any float", METAL, QN_FINDING_MISALIGNED, 2, NULL,
     "float4 v = *(device const float4 *)(inp + min(i, 252u));\nout[i] = v.x + v.w;"},
    {"a vector at an odd float of shared memory", CUDA, QN_FINDING_MISALIGNED, 6, NULL,
     "__shared__ float s[66];\ns[t] = inp[i];\nif (t < 2) s[64 + t] = 0;\n__syncthreads();\n"
     "float2 v = *(float2 *)&s[t + 1];\nout[i] = v.x + v.y;"},
    {"a store of a vector", CUDA, QN_FINDING_MISALIGNED, 2, NULL,
     "if (i < 63) *(float4 *)(out + 4 * i + 1) = make_float4(1, 2, 3, 4); else if (i == 63) out[0] = inp[0];"},
    {"vectors where they may be", CUDA, RIGHT, 0, NULL,
     "if (i < 64) { float4 v = ((const float4 *)inp)[i]; v.x += 1; *(float4 *)(out + 4 * i) = v; }"},
    /* ---- barriers ---- */
    {"a helper's barrier, called from two branches", METAL, QN_FINDING_DIVERGENT_BARRIER, 4,
     "inline float swap(threadgroup float *s, float v, uint t)\n{\n  s[t] = v;\n  " BARRIER "  return s[63 - t];\n}\n",
     "threadgroup float s[64];\nfloat r;\nif (t < 32) r = swap(s, inp[i], t);\nelse r = swap(s, 2 * inp[i], t);\n"
     "out[i] = r;"},
    {"two barriers on a line", METAL, QN_FINDING_DIVERGENT_BARRIER, 4, NULL,
     "threadgroup float s[64];\ns[t] = inp[i];\nif (t < 32) { "
     "threadgroup_barrier(mem_flags::mem_threadgroup); } else "
     "{ threadgroup_barrier(mem_flags::mem_threadgroup); }\nout[i] = s[63 - t];"},
    {"uneven loops that add up", METAL, QN_FINDING_DIVERGENT_BARRIER, 4,
     "inline void wait() { "
     "threadgroup_barrier(mem_flags::mem_threadgroup); }\n",
     "threadgroup float s[64];\ns[t] = inp[i];\nfor (uint k = 0; k < 2 - t / 32; k++) wait();\nif (t >= 32) wait();\n"
     "out[i] = s[63 - t];"},
    /* ---- fences and atomics: between groups ---- */
    {"a look-back that does not wait", CUDA, QN_FINDING_RACE, 6, NULL,
     "if (t == 0) {\n  part[b] = inp[i];\n  __threadfence();\n  atomicAdd(&flag[b], 1u);\n"
     "  out[i] = b ? part[b - 1] : 0;\n} else out[i] = 0;"},
    {"an atomic of something else", CUDA, QN_FINDING_RACE, 4, NULL,
     "if (t == 0) { part[b] = inp[i]; __threadfence(); atomicAdd(&flag[0], 1u); }\nif (t) atomicAdd(&flag[1], 1u);\n"
     "out[i] = b ? inp[i] * part[b - 1] : inp[i];"},
    {"another thread's atomic", CUDA, QN_FINDING_RACE, 4, NULL,
     "if (t == 0) { part[b] = inp[i]; __threadfence(); }\nif (t == 0 || t == 40) atomicAdd(&flag[0], 1u);\n"
     "out[i] = t == 41 && b ? part[b - 1] : 0;"},
    {"a fence for the block alone", CUDA, QN_FINDING_RACE, 3, NULL,
     "if (t == 0) { part[b] = inp[i]; __threadfence_block(); atomicAdd(&flag[0], 1u); }\n"
     "out[i] = t == 0 && b ? part[b - 1] : 0;"},
    {"a fence before the write", CUDA, QN_FINDING_RACE, 3, NULL,
     "if (t == 0) { __threadfence(); part[b] = inp[i]; atomicAdd(&flag[0], 1u); }\n"
     "out[i] = t == 0 && b ? part[b - 1] : 0;"},
    {"a group's read that others' reads follow", CUDA, QN_FINDING_RACE, 4, NULL,
     "out[i] = b == 1 || t == 0 ? part[0] : 0;\n__syncthreads();\nif (b == 1 && t == 0) part[0] = 1;"},
    {"the last group, by its first thread and a barrier", CUDA, RIGHT, 0, NULL,
     "__shared__ bool last;\nif (t == 32) part[b] = inp[i];\n__syncthreads();\n"
     "if (t == 0) { __threadfence(); last = atomicAdd(&flag[0], 1u) == 3; }\n__syncthreads();\n"
     "out[i] = last ? part[t % 4] : 0;"},
    {"a chain of groups, each behind the one before", CUDA, RIGHT, 0, NULL,
     "out[i] = 0;\nif (t == 0) {\n  while (b && !atomicAdd(&flag[b - 1], 0u)) {}\n  __threadfence();\n"
     "  part[b] = inp[i] + (b > 1 ? part[b - 2] : 0);\n  __threadfence();\n  atomicExch(&flag[b], 1u);\n}"},
    /* ---- and within a group ---- */
    {"a flag without a fence", CUDA, QN_FINDING_RACE, 7, NULL,
     "__shared__ unsigned ready;\n__shared__ float v;\nif (t == 0) ready = 0;\n__syncthreads();\n"
     "if (t == 32) { v = inp[i]; atomicExch(&ready, 1u); }\nout[i] = t == 0 && atomicAdd(&ready, 0u) ? v : 0;"},
    {"a lock that a thread does not take", CUDA, QN_FINDING_RACE, 8, NULL,
     "__shared__ int lock;\n__shared__ float v;\nif (t == 0) { lock = 0; v = 0; }\n__syncthreads();\nif (t % 32 == 0) "
     "{\n"
     "  if (t == 32) while (atomicCAS(&lock, 0, 1)) {}\n  v += inp[i]; __threadfence_block();\n  atomicExch(&lock, "
     "0);\n}\n"
     "__syncthreads();\nout[i] = v;"},
    {"a flag behind a fence", CUDA, RIGHT, 0, NULL,
     "__shared__ unsigned ready;\n__shared__ float v;\nif (t == 0) ready = 0;\n__syncthreads();\n"
     "if (t == 32) { v = inp[i]; __threadfence_block(); atomicExch(&ready, 1u); }\n"
     "float r = -1;\nif (t < 32) { if (t == 0 && atomicAdd(&ready, 0u)) r = v; __syncwarp();\n"
     "  r = __shfl_sync(~0u, r, 0); }\nout[i] = r;"},
    {"a lock", CUDA, RIGHT, 0, NULL,
     "__shared__ int lock;\n__shared__ float v;\nif (t == 0) { lock = 0; v = 0; }\n__syncthreads();\nif (t % 32 == 0) "
     "{\n"
     "  while (atomicCAS(&lock, 0, 1)) {}\n  __threadfence_block();\n  v += inp[i];\n  __threadfence_block();\n"
     "  atomicExch(&lock, 0);\n}\n__syncthreads();\nout[i] = v;"},
    {"an exchange that gives shared memory its first value", CUDA, RIGHT, 0, NULL,
     "__shared__ unsigned ticket;\nif (t == 0) atomicExch(&ticket, 7u);\n__syncthreads();\nout[i] = ticket;"},
};

/* The launch's first finding is this one, or there is none. */
static void try_case(const planted *c, uint64_t seed)
{
  char body[2048];
  snprintf(body, sizeof body, "%s\n%s",
           c->dialect == CUDA ? "unsigned t = threadIdx.x, b = blockIdx.x, i = b * blockDim.x + t;"
                              : "uint i = thread_position_in_grid.x, t = thread_index_in_threadgroup;",
           c->body);
  qn_kernel *kernel = use_make(
      &(use){.dialect = c->dialect, .inputs = "inp", .outputs = "out part flag", .header = c->header, .body = body});
  const qn_tensor inputs[] = {ARRAY(x, QN_F32, N)};
  const qn_tensor outputs[] = {ARRAY(y, QN_F32, N), ARRAY(part, QN_F32, N / GROUP), ARRAY(flag, QN_U32, N / GROUP)};
  const qn_value init[] = {{.kind = QN_VALUE_NONE}, {.kind = QN_VALUE_FLOAT}, {.kind = QN_VALUE_INT}};
  const qn_kernel_call call = CALL(.inputs = inputs, .outputs = outputs, .grid = {N, 1, 1}, .group = {GROUP, 1, 1},
                                   .init = init, .check = 1, .seed = seed);
  const qn_status status = qn_kernel_launch(kernel, &serial, &call);
  qn_finding f = {.size = sizeof f, .kind = QN_FINDING_KIND_COUNT};
  if (qn_kernel_finding_count()) qn_kernel_finding_at(0, &f);
  if (c->kind == RIGHT)
    check(status == QN_OK && !qn_kernel_finding_count(), "%s: nothing is found: %s", c->what,
          status ? qn_last_error() : "");
  else
    check(status == QN_KERNEL_ERROR && (int)f.kind == c->kind && f.line == c->line, "%s: %s at line %d, not %d: %s",
          c->what, qn_finding_kind_name(f.kind), f.line, c->line, status ? qn_last_error() : "nothing is found");
  qn_kernel_destroy(&kernel);
}

/* Threadgroup memory that no GPU has, and what Metal gives. */
static void too_much(void)
{
  static const struct {
    qn_dialect dialect;
    const char *declared, *said;
  } sizes[] = {{CUDA, "__shared__ float s[64 * 1024];", "262144"},
               {CUDA, "__shared__ float s[227 * 256];", NULL},
               {METAL, "threadgroup float s[8 * 1024 + 128];", "Metal has 32768"},
               {METAL, "threadgroup float s[8 * 1024];", NULL}};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    char body[256];
    snprintf(body, sizeof body, "%s\ns[%s] = inp[0];\nout[0] = s[0];", sizes[k].declared,
             sizes[k].dialect == CUDA ? "threadIdx.x" : "thread_index_in_threadgroup");
    qn_kernel *kernel = use_make(&(use){.dialect = sizes[k].dialect, .inputs = "inp", .body = body});
    const qn_tensor in = ARRAY(x, QN_F32, N), out = ARRAY(y, QN_F32, 1);
    const qn_kernel_call call = CALL(.inputs = &in, .outputs = &out, .grid = {1, 1, 1}, .group = {1, 1, 1});
    const qn_status status = qn_kernel_launch(kernel, &serial, &call);
    if (sizes[k].said && k)
      refuses(status, QN_BAD_ARGUMENT, sizes[k].said);
    else if (sizes[k].said)
      refuses(status, QN_BAD_ARGUMENT, "the largest GPU has 232448");
    else
      check(status == QN_OK, "%s is possible: %s", sizes[k].declared, status ? qn_last_error() : "");
    qn_kernel_destroy(&kernel);
  }
}

int main(void)
{
  for (int k = 0; k < N; k++) x[k] = 1;
  const char *compiler = getenv("QUERN_CXX");
  const bool clang = compiler && strstr(compiler, "clang");
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    if (clang && (cases[k].kind == QN_FINDING_MISALIGNED || strstr(cases[k].what, "a read behind an array of its own")))
      skip("%s: clang tells nothing of it", cases[k].what);
    else
      try_case(&cases[k], 0);
  too_much();
  return test_end();
}
