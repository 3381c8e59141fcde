/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - a kernel from its body. The caller writes what one thread does, in the words of Metal or of CUDA C; quern
 * makes the signature, compiles it for the processor or for an NVIDIA GPU, keeps what it compiled, checks each launch
 * and runs it. The model is MLX's metal_kernel and cuda_kernel, whose bodies run here unchanged.
 *
 *     const char *in[] = {"inp"}, *out[] = {"out"};
 *     qn_kernel_source source = {.size = sizeof source, .name = "myexp", .n_inputs = 1, .inputs = in, .n_outputs = 1,
 *         .outputs = out, .body = "uint i = thread_position_in_grid.x; out[i] = metal::exp(inp[i]);"};
 *     qn_kernel *kernel;
 *     qn_kernel_create(&kernel, &source);
 *     qn_kernel_call call = {.size = sizeof call, .inputs = &x, .outputs = &y, .grid = {n, 1, 1}, .group = {256, 1,
 * 1}}; qn_kernel_launch(kernel, &exec, &call); qn_kernel_destroy(&kernel);
 *
 * docs/kernels-from-a-body.md teaches it; this page is the reference. */
#ifndef QN_KERNEL_H
#define QN_KERNEL_H
#include "op.h"
#ifdef __cplusplus
extern "C" {
#endif

enum {
  QN_KERNEL_MAX_TENSORS = 32,
  QN_KERNEL_MAX_TEMPLATES = 32,
  QN_KERNEL_MAX_GROUP = 1024,
  QN_KERNEL_MAX_CLUSTER = 16
};

/* In which words the body is written. They cannot be mixed: float3 has 16 bytes in one and 12 in the other. */
typedef enum qn_dialect { QN_DIALECT_METAL, QN_DIALECT_CUDA } qn_dialect;

/* safe: IEEE arithmetic, every operation rounded once, the same bits on processor and GPU. relaxed: multiply-adds may
 * be contracted; sums keep their order. fast: besides, no NaN, infinity or subnormal need be honoured, and functions
 * may be the hardware's own. Metal's fast:: and precise:: choose for one call. */
typedef enum qn_math { QN_MATH_SAFE, QN_MATH_RELAXED, QN_MATH_FAST } qn_math;

/* The parts of a kernel. All are copied. Names are C identifiers, distinct, and no words of the dialect. */
typedef struct qn_kernel_source {
  size_t size; /* sizeof(qn_kernel_source) */
  const char *name;
  const char *body;   /* statements of one thread */
  const char *header; /* functions, types and constants pasted before it; NULL: none */
  const char *file;   /* the body's name in messages; NULL: the kernel's name */
  qn_dialect dialect;
  qn_math math;
  size_t n_inputs, n_outputs; /* at least one output */
  const char *const *inputs, *const *outputs;
  uint64_t strided; /* bit k: input k comes as it is, with its strides; else a strided one is copied row by row first */
  uint64_t atomic;  /* bit k: output k is of atomic<T>, for the atomic_..._explicit functions */
  /* CUDA's dialect: blocks along x, at most 16, that run at once and reach each other's shared memory. A grid has whole
   * clusters, a call gives the group, and registers are shared out for one block a multiprocessor. On a GPU of compute
   * capability 9.0 and above. 0: none. */
  uint32_t cluster;
  /* The contract: one text per input, then one per output; NULL: no contract. A text has storage types
   * and extents, "f32|f16 [n, h, w, 2]": a number is that extent, a word any extent but the same wherever it stands,
   * "2 * n" is of words before it, "..." any number of leading ones ("...3": up to 3; "1...": of ones), "like x" those
   * of the tensor x before it; "dense" behind it refuses a strided one. Checked before each launch. */
  const char *const *contracts;
} qn_kernel_source;

/* A number or storage type by value. */
typedef enum qn_value_kind { QN_VALUE_NONE, QN_VALUE_BOOL, QN_VALUE_INT, QN_VALUE_FLOAT, QN_VALUE_DTYPE } qn_value_kind;
typedef struct qn_value {
  qn_value_kind kind;
  qn_dtype dtype;  /* of DTYPE */
  int64_t integer; /* of BOOL and INT */
  double real;     /* of FLOAT */
} qn_value;

/* A name that body, header and signature see as a type (DTYPE) or as a constant: bool, int, or long where the number
 * needs it. FLOAT is refused: compile-time floats are no template values in either dialect. */
typedef struct qn_template {
  const char *name;
  qn_value value;
} qn_template;

/* One launch. Lives for the call only.
 *   inputs     as many as the source names. One of 0 dimensions in host memory (device QN_CPU) is a plain value in the
 *              body wherever the kernel runs; the others lie on exec's device
 *   outputs    memory of the caller's, row-major, on exec's device, not overlapping each other or an input
 *   grid       threads in all along x, y, z; each at least 1. Exactly these run
 *   group      threads of a threadgroup (block); all 0: chosen for this kernel and device
 *   init       what outputs hold before the body runs, one value each (NONE: whatever they hold); NULL: nothing
 *   stored_in  per output the input whose memory it is given (in place), or -1; NULL: none
 *   shared_bytes  of `extern __shared__` memory (CUDA) a group
 *   limit_ns   0: none. Processor: compiled to be stoppable, and stopped. GPU: the call waits that long, then says that
 *              the kernel is still running on the stream
 *   check      processor only: report what a GPU would hide (out of bounds, races, divergent barriers, missed lanes,
 *              outputs not written); the first finding is the sentence, qn_kernel_findings() has all of them
 *   seed       check: 0 runs simdgroups in order, others in a random one
 *   ignore     check: bit k leaves out findings of qn_finding_kind k */
typedef struct qn_kernel_call {
  size_t size; /* sizeof(qn_kernel_call) */
  const qn_tensor *inputs, *outputs;
  size_t n_templates;
  const qn_template *templates;
  uint64_t grid[3];
  uint32_t group[3];
  const qn_value *init;
  const int *stored_in;
  size_t shared_bytes;
  int64_t limit_ns;
  int check;
  uint64_t seed;
  uint32_t ignore;
} qn_kernel_call;

typedef struct qn_kernel qn_kernel;

/* Checks names and text; nothing is compiled yet. A kernel may be launched from many threads at once. */
QN_API qn_status qn_kernel_create(qn_kernel **kernel, const qn_kernel_source *source);
QN_API void qn_kernel_destroy(qn_kernel **kernel); /* sets *kernel to NULL; launches in flight are not disturbed */

/* Everything is checked before anything is written; a body that does not compile is QN_COMPILE_ERROR with its file and
 * line. On a GPU the work goes on exec's stream and nothing waits. The first launch of a kind compiles.
 * exec.workspace holds row-major copies of strided inputs: qn_kernel_workspace_bytes says how much; without it the
 * copies are allocated for the call (processor) or the call is refused (GPU). */
QN_API qn_status qn_kernel_launch(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);
/* The same up to the launch: compiles and loads, so that nothing is left for the first one. Data pointers are not used.
 */
QN_API qn_status qn_kernel_prepare(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);
QN_API qn_status qn_kernel_workspace_bytes(const qn_kernel *kernel, const qn_kernel_call *call, size_t *bytes);

/* The compiled kernel of a launch. */
typedef struct qn_kernel_info {
  size_t size;        /* sizeof(qn_kernel_info), set by the caller */
  int registers;      /* a thread's; 0 on the processor */
  int shared_bytes;   /* static, a group's */
  int local_bytes;    /* a thread's spilled memory */
  int most_threads;   /* the largest group of this kernel on this device */
  uint32_t group[3];  /* the group that this launch would take */
  int groups_at_once; /* a multiprocessor holds of them; 0 on the processor */
  int fibers;         /* 1: on the processor its threads are fibers, 0: a loop */
} qn_kernel_info;
QN_API qn_status qn_kernel_query(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call,
                                 qn_kernel_info *info);

/* The generated source of a launch, as the compiler gets it without the words' own text. To be released with
 * qn_text_release. */
QN_API qn_status qn_kernel_text(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, char **text);
/* Sources to keep or to hand to another build: CUDA C for nvcc and HIP C for hipcc (whole files, with the words), Metal
 * source (the kernel function as MLX would generate it), and the Python that makes the same MLX call. */
typedef enum qn_emit { QN_EMIT_CUDA, QN_EMIT_HIP, QN_EMIT_METAL, QN_EMIT_MLX, QN_EMIT_COUNT } qn_emit;
QN_API const char *qn_emit_name(qn_emit form); /* "cuda", "hip", "metal", "mlx" */
QN_API qn_status qn_kernel_emit(const qn_kernel *kernel, qn_emit form, const qn_kernel_call *call, char **text);
/* The same of an op: its device source for one row of types, one tensor of every role, with the coefficients that these
 * params make in it. Not for params with pointers, nor as MLX's Python. */
QN_API qn_status qn_op_emit(const qn_op_info *op, qn_emit form, size_t row, const void *params, char **text);
QN_API void qn_text_release(char **text); /* sets *text to NULL */

/* ---- what a checked launch found, of this thread's latest one ---- */
typedef enum qn_finding_kind {
  QN_FINDING_OUT_OF_BOUNDS,
  QN_FINDING_RACE,
  QN_FINDING_DIVERGENT_BARRIER,
  QN_FINDING_MISSED_LANES,
  QN_FINDING_UNINITIALISED, /* read before anything wrote it */
  QN_FINDING_NOT_WRITTEN,   /* an output, or a part of it */
  QN_FINDING_TIME_LIMIT,
  QN_FINDING_DIVISION,    /* of an integer by zero, which a GPU answers with some number */
  QN_FINDING_SAME_VALUE,  /* threads store equal values to one place with nothing between: a race that does no harm */
  QN_FINDING_MISALIGNED,  /* an access whose type's alignment its address does not have */
  QN_FINDING_ABSENT_LANE, /* memory is written with what a shuffle gave of a lane that was not there */
  QN_FINDING_KIND_COUNT
} qn_finding_kind;
typedef struct qn_finding {
  size_t size; /* sizeof(qn_finding), set by the caller */
  qn_finding_kind kind;
  int line, other_line;         /* of the body, from 1; 0: unknown, or there is no other */
  uint32_t thread[3], other[3]; /* positions in the grid */
  char where[64];               /* "out", "threadgroup memory": which array */
  int64_t first, last;          /* bytes of it; -1 where that says nothing */
  char text[512];               /* the sentence: kernel, line, thread, range */
} qn_finding;
QN_API size_t qn_kernel_finding_count(void);
QN_API qn_status qn_kernel_finding_at(size_t k, qn_finding *finding);
QN_API const char *qn_finding_kind_name(qn_finding_kind kind); /* "out of bounds", "race" ... */
/* "same value, race" as bits for qn_kernel_call.ignore; "" is none. QN_BAD_ARGUMENT: no such kind, with those there
 * are; a time limit cannot be ignored. */
QN_API qn_status qn_finding_kinds(const char *names, uint32_t *kinds);

/* ---- the health buffer: 16 floats that a kernel may have as an output `dbg` ---- */
typedef enum qn_health {
  QN_HEALTH_STARTED = 0, /* 1: the preflight passed */
  QN_HEALTH_M,
  QN_HEALTH_N,
  QN_HEALTH_LEAST,     /* min(m, n) */
  QN_HEALTH_GROUP = 5, /* threads a group */
  QN_HEALTH_THREADS,   /* in all */
  QN_HEALTH_WORK,      /* a thread's */
  QN_HEALTH_VALUE = 8, /* to 11: intermediate values */
  QN_HEALTH_ITERATIONS = 12,
  QN_HEALTH_ERROR, /* 1 matrix too large, 2 work too large, 3 too many iterations, 4 and 5 numerical */
  QN_HEALTH_ERROR_VALUE,
  QN_HEALTH_SUCCESS,
  QN_HEALTH_COUNT
} qn_health;
/* A buffer that was read back to the host: QN_OK where it says success, else QN_KERNEL_ERROR with what it says. */
QN_API qn_status qn_health_status(const char *kernel, const float dbg[QN_HEALTH_COUNT]);

/* ---- capture: every launch of every kernel between the two, each saved to its own folder under `folder` (made), with
 * exact source, options, inputs and launch: `quern kernel replay` runs it elsewhere. Process-wide; slow. On a GPU each
 * captured launch synchronises its stream. ---- */
QN_API qn_status qn_capture_start(const char *folder);
QN_API qn_status qn_capture_stop(size_t *n_launches); /* NULL is fine */

/* ---- a kernel in a folder: kernel.json and the body beside it (docs/kernel-folder.md) ---- */
typedef struct qn_kernel_folder {
  const char *path, *doc;  /* of the folder; one line, or "" */
  qn_kernel_source source; /* for qn_kernel_create */
  size_t n_templates;
  const char *const *templates; /* names */
  uint64_t scalars;             /* bit k: input k has a value in the file */
} qn_kernel_folder;
/* path: the folder, or its kernel.json. All texts are the folder's and live as long as it. QN_BAD_FILE has the file,
 * the member and what is expected there. A folder may be used from many threads at once. */
QN_API qn_status qn_kernel_folder_create(qn_kernel_folder **folder, const char *path);
QN_API void qn_kernel_folder_destroy(qn_kernel_folder **folder); /* sets *folder to NULL */
/* What a launch over these inputs is: a call in memory of its own, to be released before the folder is destroyed. It
 * lacks nothing but the memory of the outputs, whose types and shapes it has: copy call->outputs, set data and device.
 *   given->inputs     types and shapes; the rest is carried over. Type QN_NONE: the file's value, in the call's memory
 *   given->templates  values instead of the file's, of some names
 *   given->group      all 0: the file's
 * Grid, init, stored_in and shared_bytes are the file's, kinds in ignore are added; all else is carried over.
 * QN_BAD_TYPE: an input's type is not its contract's. QN_BAD_ARGUMENT: a shape, a template, or what an expression comes
 * to does not fit; the sentence has the member. */
QN_API qn_status qn_kernel_folder_call(const qn_kernel_folder *folder, const qn_kernel_call *given,
                                       qn_kernel_call **call);
QN_API void qn_kernel_call_release(qn_kernel_call **call); /* sets *call to NULL */

/* The shape of an output of such a call as it follows from the inputs' shapes, for callers whose extents are symbols:
 * a "," behind each extent, which is postfix in words parted by blanks: numbers, "K:D" (extent D of input K, from the
 * end where it is negative), + - * / % and min( max( ceildiv( align( of two. "0:-2 4 ceildiv( , 0:-1 , "; NULL of no
 * extents. To be released with qn_text_release. */
QN_API qn_status qn_kernel_folder_shape(const qn_kernel_call *call, size_t output, char **text);

/* ---- functions with gradients ----
 * vjp: inputs, then cotangents (one an output), then outputs of the forward in (all of these, or none); cotangents of
 * the inputs out: as many outputs as the forward has inputs, in their order, or any of those named "<input>_cotangent"
 * or "<input>_grad". jvp: inputs, then tangents in (one an input, or those named "<input>_tangent"); tangents of the
 * outputs out. A cotangent or tangent has its tensor's shape. Kernels stay the caller's and must outlive it. */
typedef struct qn_function qn_function;
typedef struct qn_function_source {
  size_t size; /* sizeof(qn_function_source) */
  const char *name;
  qn_kernel *forward, *vjp, *jvp; /* vjp and jvp may be NULL */
} qn_function_source;
QN_API qn_status qn_function_create(qn_function **function, const qn_function_source *source);
QN_API void qn_function_destroy(qn_function **function);
QN_API qn_status qn_function_forward(qn_function *function, const qn_exec *exec, const qn_kernel_call *call);
QN_API qn_status qn_function_vjp(qn_function *function, const qn_exec *exec, const qn_kernel_call *call);
QN_API qn_status qn_function_jvp(qn_function *function, const qn_exec *exec, const qn_kernel_call *call);
/* Compares vjp (and jvp where there is one) with central differences, in double on the processor: inputs are f64 in
 * host memory (integers and bools as they are), the calls say grids and templates for that type. Tensors are given by
 * the forward call alone: its inputs are the point and are not changed, its outputs say types and shapes and their data
 * is not used. step: 0 is 1e-6 times the input's largest magnitude. An element that differs by more than `tolerance`
 * (above 0; 1e-6 is a good one) times the largest gradient of its tensor, besides what rounding of the outputs makes of
 * a difference, is QN_KERNEL_ERROR with its place and both values; so is one that is not finite. At a kink, where the
 * slopes of the two sides differ, differences give their mean: check beside it. It launches the
 * forward twice an element. */
typedef struct qn_gradient_check {
  size_t size; /* sizeof(qn_gradient_check) */
  const qn_kernel_call *forward, *vjp, *jvp;
  double step, tolerance;
  uint64_t seed;  /* of the random cotangents and tangents */
  uint32_t input; /* bit k: differentiate with respect to input k; 0: all of floating type */
  double worst;   /* out: the largest difference, over the largest gradient */
} qn_gradient_check;
QN_API qn_status qn_function_check(qn_function *function, qn_gradient_check *check);

#ifdef __cplusplus
}
#endif
#endif
