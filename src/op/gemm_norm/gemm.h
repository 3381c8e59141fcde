/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - matrix products with an epilogue, inside: the checked problem, and the variants that can solve it on a
 * device. What a caller sees is quern/gemm_norm.h; the epilogue's arithmetic is gemm_norm.math.h.
 *
 * A variant is a device kernel with its tile. Each says itself whether it can serve a problem on a device, and why not;
 * dispatch.c asks them all, and takes what the option says, else the one that expects to take the least time. */
#ifndef QN_OP_GEMM_NORM_GEMM_H
#define QN_OP_GEMM_NORM_GEMM_H
#include "device/backend.h"
#include "op/call.h"
#include "op/gemm_norm/args.h"
#include "op/gemm_norm/flags.h"
#include "quern/arch.h"

typedef enum qn_gemm_precision {
  QN_GEMM_FP32,
  QN_GEMM_TF32,
  QN_GEMM_BF16X3,
  QN_GEMM_TF32X3,
  QN_GEMM_BF16,
  QN_GEMM_F16X3,
  QN_GEMM_PRECISIONS
} qn_gemm_precision;
extern const char *const qn_gemm_precision_names[QN_GEMM_PRECISIONS]; /* dispatch.c */

/* Checked and dense: pointers fit, n is a multiple of args.columns, no extent of y is 0 (k may be). */
typedef struct qn_gemm_problem {
  qn_gemm_args args;
  uint32_t flags;  /* of gemm_norm.math.h: activation, norm, which operands are given */
  int precision;   /* qn_gemm_precision */
  bool short_data; /* x, w and y are bf16 (the class is bf16 then); else f32 */
  bool raw;        /* of a product by itself: y is f32 sums, in slices of k (args.h) */
  int64_t batches; /* so many products, whose x, w and y lie one behind the other; 0 is 1; on a device alone */
  bool alike; /* on the processor, the same bits on every tier: sums in the order of k however few rows there are */
} qn_gemm_problem;

/* The op's tensors, in its order. */
enum {
  QN_GEMM_ROLE_Y,
  QN_GEMM_ROLE_X,
  QN_GEMM_ROLE_W,
  QN_GEMM_ROLE_BIAS,
  QN_GEMM_ROLE_BIAS2,
  QN_GEMM_ROLE_GAMMA,
  QN_GEMM_ROLE_BETA,
  QN_GEMM_ROLES
};

/* Where it runs. */
typedef struct qn_gemm_target {
  qn_device device;
  qn_arch arch; /* of qn_device_arch */
} qn_gemm_target;

/* A call: exec's stream and pool; workspace is NULL in prepare, which compiles and launches nothing. A variant gets its
 * own part of the workspace. */
typedef struct qn_gemm_call {
  const qn_exec *exec;
  const qn_gemm_target *target;
  bool prepare;
  bool early; /* launches begin before the kernel before them ends: one of the same call's */
  void *workspace;
} qn_gemm_call;

typedef struct qn_gemm_variant qn_gemm_variant;
struct qn_gemm_variant {
  const char *name;     /* "plain", "mma-128x128", "wgmma-256x128" */
  uint32_t precisions;  /* bit k: class k. f16x3 is also computed by words of tf32, which are no looser */
  const void *settings; /* the variant's own: its tile, its stages */
  int looseness;        /* of its operands' words, as workbench/op_check.h says */
  int width;            /* the widest group whose norm its tile holds; 0: it writes sums and no more */
  int step;             /* slices of k are multiples of so many columns; 0: it does not cut k */
  bool writes_y;        /* without an epilogue it writes y, of y's type */
  bool whole;           /* it has whole rows of y, and makes y of every problem */
  bool any_rows;        /* it reads rows of any alignment; else they are copied before where they are not aligned */
  bool batches;         /* it takes several products in one launch; else they are taken one by one */
  /* NULL: it can serve; else why not, in a few words. Cheap: every call asks. */
  const char *(*refuses)(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target);
  /* The same of what lies outside, a library; asked last, as the answer may take long the first time. NULL: nothing. */
  const char *(*lacks)(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target);
  size_t (*workspace_bytes)(const qn_gemm_variant *variant, const qn_gemm_problem *problem,
                            const qn_gemm_target *target); /* of its own; NULL: 0 */
  /* The product, with the epilogue unless it is raw, of rows as the variant reads them: the plan sees to that. */
  qn_status (*run)(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_call *call);
  /* Of f16x3: whether words of f16 are thought to be faster than those of tf32. NULL: it does not choose. */
  bool (*f16_pays)(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target);
  /* Estimate of the time of that in microseconds, which the rule compares. */
  double (*guess_us)(const qn_gemm_variant *variant, const qn_gemm_problem *problem, const qn_gemm_target *target);
};

/* The families, each an array that ends with a name of NULL. dispatch.c lists them. */
extern const qn_gemm_variant qn_gemm_hopper[], qn_gemm_mma[], qn_gemm_sliced[], qn_gemm_cores[],
    qn_gemm_rows[];                            /* gemm.device.c */
extern const qn_gemm_variant qn_gemm_whole[];  /* gemm.whole.c */
extern const qn_gemm_variant qn_gemm_cublas[]; /* cublas.c */
extern const qn_gemm_variant qn_gemm_plain[];  /* plain.c: CUDA cores and the emulator; every problem */

qn_gemm_problem qn_gemm_problem_of(const qn_call *call); /* gemm_norm.c; of a validated call */

/* ---- dispatch.c: the variant that the option "gemm" names, else the tune tables', else the one that is thought to be
 * the fastest ---- */
qn_status qn_gemm_device_run(const qn_gemm_problem *problem, const qn_exec *exec, bool prepare);
size_t qn_gemm_device_workspace(const qn_gemm_problem *problem, const qn_exec *exec);
const char *qn_gemm_variant_name(size_t k); /* NULL past the last */
int qn_gemm_looseness(const char *variant);
qn_status qn_gemm_option_check(void); /* refuses a name in the option that no variant has */
/* Which one a call would take, and why, in words that last until the thread's next question; NULL: a sentence. */
const char *qn_gemm_device_choice(const qn_gemm_problem *problem, qn_device device, const char **why);
/* Why variant k cannot do this; NULL: it can. */
const char *qn_gemm_device_refusal(const qn_gemm_problem *problem, qn_device device, size_t k);
/* What the tables' entry for it is found by: y/x/w's types, m, n, k, the class, and the columns of a norm's group (1
 * without a norm). */
void qn_gemm_tune_key(const qn_gemm_problem *problem, struct qn_tune_key *key);

/* ---- plan.c: what a variant is surrounded by. Rows that it cannot read are copied to aligned ones before; a product
 * whose norm its tile does not hold, or that is cut into slices of k, writes sums, and a second kernel makes y of them.
 * All of that is one choice: a variant, and how many slices. ---- */
typedef struct qn_gemm_choice {
  const qn_gemm_variant *variant; /* NULL: none */
  int64_t slices;                 /* 0, before it is guessed: as many as are thought to be the fastest */
} qn_gemm_choice;

qn_status qn_gemm_choice_run(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_call *call);
size_t qn_gemm_choice_bytes(qn_gemm_choice choice, const qn_gemm_problem *problem, const qn_gemm_target *target);
/* The variant's best number of slices, or how many there are where so many are asked for; and the guessed time of all
 * that is launched then. */
double qn_gemm_choice_guess(qn_gemm_choice *choice, const qn_gemm_problem *problem, const qn_gemm_target *target);
/* Of x, w and all slices of the sums, once. */
double qn_gemm_bytes(const qn_gemm_problem *problem);
/* Microseconds that bytes take to or from memory, of which a call uses `in_all`: the second-level cache's if it fits.
 */
double qn_gemm_memory_us(const qn_gemm_target *target, double bytes, double in_all);
/* Can rows of x and w be read in parts of 16 bytes? */
bool qn_gemm_rows_aligned(const qn_gemm_problem *problem);
/* Can y be written four columns at once, and the vectors read so? */
bool qn_gemm_in_fours(const qn_gemm_problem *problem);
/* What a kernel that includes epilogue.h is compiled with, whose blocks have 256 threads and whose sums such a pitch.
 */
void qn_gemm_epilogue_text(const qn_gemm_problem *problem, int64_t pitch, char *text, size_t size);
double qn_gemm_epilogue_us(const qn_gemm_problem *problem, int64_t pitch); /* that a thread of it takes */

/* What the fastest kernel takes on an H200, from its launch to its end, in microseconds. */
#define QN_GEMM_BEGIN_US 4.68
/* The guess of a kernel that the emulator imitates lane by lane: another computes the same plainly. */
#define QN_GEMM_IMITATED_US 1e9

static inline int64_t qn_gemm_pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }
static inline int64_t qn_gemm_batches(const qn_gemm_problem *problem)
{
  return problem->batches ? problem->batches : 1;
}
/* Whether kernels of this class may take a GPU's own power and reciprocal (base/activation.h): operands are rounded far
 * more. */
static inline bool qn_gemm_is_near(const qn_gemm_problem *problem)
{
  return problem->precision != QN_GEMM_FP32 && problem->precision != QN_GEMM_TF32X3 &&
         problem->precision != QN_GEMM_F16X3;
}
static inline bool qn_gemm_is_normed(const qn_gemm_problem *problem)
{
  return qn_gemm_norm_of(problem->flags) != QN_GEMM_NO_NORM;
}

/* ---- plain.c, for other variants too ---- */
/* The kernel `name` of a source, specialised for the problem: QN_GEMM_FLAGS, QN_GEMM_PRECISION, QN_GEMM_SHORT (y, x and
 * w are bf16), QN_GEMM_RAW (y is f32 sums), and what `more` adds, apart by spaces. Compiled at the first call. */
qn_status qn_gemm_function(const qn_gemm_problem *problem, const qn_gemm_call *call, const char *source,
                           const char *name, const char *more, const qn_device_function **function);
/* A launch of it, or nothing in prepare. */
qn_status qn_gemm_launch(const qn_gemm_call *call, const qn_device_function *function, uint64_t blocks,
                         uint32_t threads, uint32_t shared_bytes, const void *argument, size_t argument_bytes);
#endif
