/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.c cpu|emulator - strided ops on tensors that are not dense: rows at a distance, halves of one tensor, even
 * and odd columns, a column of two alone; lists that mix them; some geometries. The results are those of the reference
 * on dense copies, bit for bit, and no other byte has changed. On the emulator each kind is a compilation, so there few
 * run. */
#include "core/core.h"
#include "op/op.h"
#include "op/share.h"
#include "quern/quern.h"
#include "small_stack.h"
#include "test.h"

enum { ROLES = 5, PLACES = 6, GUARD = 160 };

/* Rows and columns: ragged last tiles, whole ones, rows shorter than a pack, than those that share a buffer, than a
 * block. */
static const int64_t extents[PLACES][2] = {{1, 11009}, {3, 14337}, {4, 16384}, {5, 3}, {37, 70}, {11, 200}};

/* A role's place in a block of memory that roles may share. */
typedef struct place {
  int block; /* role whose block it is in */
  int from;  /* columns, in units of cols; -1: element 1 */
  int wide;  /* of the block, in columns of the tensor */
  int more;  /* elements behind each row */
  int step;
} place;
typedef struct arrangement {
  const char *name;
  place role[ROLES];
} arrangement;

#define DENSE(r)                                                                                                       \
  {                                                                                                                    \
    r, 0, 1, 0, 1                                                                                                      \
  }
#define PITCHED(r)                                                                                                     \
  {                                                                                                                    \
    r, 0, 1, 5, 1                                                                                                      \
  }
#define WIDE(r)                                                                                                        \
  {                                                                                                                    \
    r, 0, 1, 8, 1                                                                                                      \
  } /* rows stay aligned where columns are */
#define HALF(r, k)                                                                                                     \
  {                                                                                                                    \
    r, k, 2, 0, 1                                                                                                      \
  }
#define EVEN(r)                                                                                                        \
  {                                                                                                                    \
    r, 0, 2, 0, 2                                                                                                      \
  }
#define ODD(r)                                                                                                         \
  {                                                                                                                    \
    r, -1, 2, 0, 2                                                                                                     \
  }

/* c, a, b */
static const arrangement forward[] = {
    {"dense", {DENSE(0), DENSE(1), DENSE(2)}},
    {"rows at a distance", {PITCHED(0), WIDE(1), DENSE(2)}},
    {"halves", {DENSE(0), HALF(1, 0), HALF(1, 1)}},
    {"interleaved", {DENSE(0), EVEN(1), ODD(1)}},
    {"interleaved, the gate odd", {WIDE(0), ODD(1), EVEN(1)}},
    {"even columns of two tensors", {DENSE(0), EVEN(1), ODD(2)}},
    {"written to even columns beside what is read", {EVEN(0), ODD(0), HALF(2, 1)}},
    {"rows at an aligned distance", {WIDE(0), WIDE(1), WIDE(2)}},
};
/* dc, a, b, da, db */
static const arrangement backward[] = {
    {"halves into halves", {DENSE(0), HALF(1, 0), HALF(1, 1), HALF(3, 0), HALF(3, 1)}},
    {"interleaved into interleaved", {DENSE(0), EVEN(1), ODD(1), EVEN(3), ODD(3)}},
    {"halves into interleaved, odd first", {WIDE(0), HALF(1, 0), HALF(1, 1), ODD(3), EVEN(3)}},
    {"one gradient into even columns", {EVEN(0), PITCHED(1), DENSE(2), EVEN(3), DENSE(4)}},
};
static const arrangement over[] = {
    {"over halves", {DENSE(0), HALF(1, 0), HALF(1, 1)}},
    {"over interleaved columns", {WIDE(0), EVEN(1), ODD(1)}},
};

typedef struct call {
  const qn_op_info *op;
  qn_dtype dtype;
  size_t roles, from, n; /* roles that are given, the first ones; the place of the first tensor, and how many */
  unsigned char *block[PLACES][ROLES], *before[PLACES][ROLES];
  size_t bytes[PLACES][ROLES];
  qn_tensor tensor[ROLES][PLACES], dense[ROLES][PLACES];
  int64_t strides[ROLES][PLACES][2];
  const qn_tensor *list[QN_MAX_TENSORS], *dense_list[QN_MAX_TENSORS];
  void *params;
} call;

static qn_swiglu_params forward_params = QN_SWIGLU_DEFAULTS;
static qn_swiglu_backward_params backward_params = QN_SWIGLU_BACKWARD_DEFAULTS;
static qn_device device;

static uint32_t state = 1;
static uint32_t draw(void) { return state = state * 1664525u + 1013904223u; }

/* A moderate number as its type stores it. */
static uint32_t number(qn_dtype dtype)
{
  const uint32_t sign = draw() >> 31, rest = draw() >> 8;
  if (dtype == QN_F32) return sign << 31 | (0x3d800000u + rest % 0x03000000u);
  return dtype == QN_BF16 ? sign << 15 | (0x3d80u + rest % 0x300u) : sign << 15 | (0x2c00u + rest % 0x1800u);
}

/* Tensor k of role r in its block, which is made by the first role in it. */
static void put(call *c, const arrangement *how, size_t r, size_t k)
{
  const place *p = &how->role[r];
  const int64_t *shape = extents[c->from + k], rows = shape[0], cols = shape[1], pitch = cols * p->wide + p->more;
  const size_t width = qn_dtype_bytes(c->dtype);
  unsigned char **block = &c->block[k][p->block];
  if (!*block) {
    c->bytes[k][p->block] = (size_t)(rows * pitch) * width + GUARD;
    *block = aligned_alloc(64, (c->bytes[k][p->block] + 63) / 64 * 64);
    for (size_t at = 0; at < c->bytes[k][p->block]; at += width) {
      const uint32_t x = number(c->dtype);
      memcpy(*block + at, &x, width);
    }
  }
  const int64_t first = p->from < 0 ? 1 : p->from * cols;
  c->strides[r][k][0] = pitch, c->strides[r][k][1] = p->step;
  c->tensor[r][k] = (qn_tensor){*block + 64 + (size_t)first * width, c->dtype, 2, shape, c->strides[r][k], device};
}

static unsigned char *at(const qn_tensor *t, int64_t i, int64_t j)
{
  return (unsigned char *)t->data +
         (size_t)(t->strides ? i * t->strides[0] + j * t->strides[1] : i * t->shape[1] + j) * qn_dtype_bytes(t->dtype);
}

static void copy(const qn_tensor *to, const qn_tensor *from)
{
  for (int64_t i = 0; i < to->shape[0]; i++)
    for (int64_t j = 0; j < to->shape[1]; j++) memcpy(at(to, i, j), at(from, i, j), qn_dtype_bytes(to->dtype));
}

static void make(call *c, const qn_op_info *op, const arrangement *const how[PLACES], qn_dtype dtype, size_t roles,
                 size_t from, size_t n)
{
  *c = (call){.op = op, .dtype = dtype, .roles = roles, .from = from, .n = n};
  c->params = roles == 3 && op->n_tensors == 3 ? (void *)&forward_params : (void *)&backward_params;
  for (size_t k = 0; k < n; k++)
    for (size_t r = 0; r < roles; r++) {
      put(c, how[k], r, k);
      const int64_t *shape = extents[from + k];
      c->dense[r][k] = (qn_tensor){NULL, dtype, 2, shape, NULL, {QN_CPU, 0}};
      c->dense[r][k].data = malloc((size_t)(shape[0] * shape[1]) * qn_dtype_bytes(dtype));
    }
  for (size_t r = 0; r < roles; r++) c->list[r] = c->tensor[r], c->dense_list[r] = c->dense[r];
  for (size_t k = 0; k < n; k++)
    for (size_t r = 0; r < roles; r++) copy(&c->dense[r][k], &c->tensor[r][k]);
}

static void drop(call *c)
{
  for (size_t k = 0; k < c->n; k++)
    for (size_t r = 0; r < c->roles; r++) {
      free(c->block[k][r]);
      free(c->before[k][r]);
      free(c->dense[r][k].data);
    }
}

static bool is_written(const call *c, size_t r)
{
  if (c->op->n_tensors == 3) return r == 0;
  return c->roles == 3 ? r > 0 : r > 2;
}

/* What all of memory must hold afterwards: as it is, with the reference's results where the op writes. */
static qn_status expect(call *c)
{
  const qn_exec exec = {.size = sizeof exec, .device = {QN_CPU, 0}};
  char tier[32];
  if (qn_option_text(QN_OPTION_CPU, tier, sizeof tier) != QN_OK || qn_option_set("cpu", "ref") != QN_OK)
    return QN_BAD_ARGUMENT;
  const qn_status status = qn_op_step(c->op, &exec, c->params, c->n, c->dense_list);
  qn_option_set("cpu", tier);
  for (size_t k = 0; k < c->n; k++) {
    for (size_t r = 0; r < c->roles; r++) {
      if (!c->block[k][r]) continue;
      c->before[k][r] = malloc(c->bytes[k][r]);
      memcpy(c->before[k][r], c->block[k][r], c->bytes[k][r]);
    }
    for (size_t r = 0; r < c->roles; r++) {
      if (!is_written(c, r)) continue;
      copy(&c->tensor[r][k], &c->dense[r][k]);
    }
    for (size_t r = 0; r < c->roles; r++) { /* now `before` becomes what is expected, and memory what it was */
      if (!c->block[k][r]) continue;
      for (size_t b = 0; b < c->bytes[k][r]; b++) {
        const unsigned char kept = c->before[k][r][b];
        c->before[k][r][b] = c->block[k][r][b];
        c->block[k][r][b] = kept;
      }
    }
  }
  return status;
}

static bool as_expected(const call *c)
{
  for (size_t k = 0; k < c->n; k++)
    for (size_t r = 0; r < c->roles; r++)
      for (size_t b = 0; c->block[k][r] && b < c->bytes[k][r]; b++) {
        if (c->block[k][r][b] == c->before[k][r][b]) continue;
        printf("# tensor %zu (%lld x %lld), block %zu: byte %zu differs\n", k, (long long)c->dense[0][k].shape[0],
               (long long)c->dense[0][k].shape[1], r, b);
        return false;
      }
  return true;
}

/* Both multipliers, of all calls from here on. */
static void multiply(double by)
{
  forward_params.gate_multiplier = forward_params.down_multiplier = by;
  backward_params.gate_multiplier = backward_params.down_multiplier = by;
}

/* One call over n sizes; ran: what must have run. */
static void run_some(const qn_op_info *op, const arrangement *how, qn_dtype dtype, size_t roles, size_t from, size_t n,
                     const char *ran)
{
  const arrangement *const all[PLACES] = {how, how, how, how, how, how};
  const qn_exec exec = {.size = sizeof exec, .device = device};
  call c;
  make(&c, op, all, dtype, roles, from, n);
  check(!expect(&c) && !qn_op_step(op, &exec, c.params, c.n, c.list) && as_expected(&c) &&
            strstr(qn_op_last_variant(), ran),
        "%s %s, times %g, %s, %zu from %zu: %s", op->name, qn_dtype_name(dtype), forward_params.gate_multiplier,
        how->name, n, from, qn_op_last_variant());
  drop(&c);
}

static void run(const qn_op_info *op, const arrangement *how, qn_dtype dtype, size_t roles, const char *ran)
{
  run_some(op, how, dtype, roles, 0, PLACES, ran);
}

static const qn_op_info *op_of(const char *name)
{
  const qn_op_info *op = NULL;
  return qn_op_find(name, &op) == QN_OK ? op : NULL;
}

#define EACH(table) (size_t k = 0; k < sizeof(table) / sizeof *(table); k++)

/* All arrangements and types, on the tier that QUERN_CPU says. */
static void on_cpu(double by)
{
  multiply(by);
  for (qn_dtype dtype = QN_F32; dtype <= QN_F16; dtype++) {
    for
      EACH(forward) run(op_of("swiglu"), &forward[k], dtype, 3, "the processor's best");
    for
      EACH(backward) run(op_of("swiglu_backward"), &backward[k], dtype, 5, "the processor's best");
    for
      EACH(over) run(op_of("swiglu_backward"), &over[k], dtype, 3, "the processor's best");
  }
}

/* A lone tensor in nothing but whole, aligned packs has kernels of its own; one whose rows' distance, or columns, are
 * not such must not get them. */
static void lone(void)
{
  qn_option_set("launch_shape", "tiles-128x8x1");
  run_some(op_of("swiglu"), &forward[7], QN_BF16, 3, 2, 1, "tiles-128x8x1");
  run_some(op_of("swiglu"), &forward[7], QN_BF16, 3, 1, 1, "tiles-128x8x1");
  run_some(op_of("swiglu"), &forward[1], QN_BF16, 3, 2, 1, "tiles-128x8x1");
  qn_option_set("launch_shape", "flat-128x4x1");
  run_some(op_of("swiglu"), &forward[0], QN_BF16, 3, 2, 1, "flat-128x4x1");
  run_some(op_of("swiglu"), &forward[0], QN_BF16, 3, 0, 1, "flat-128x4x1");
  qn_option_set("launch_shape", NULL);
}

/* Some of each; `quern check` walks through all geometries and arrangements (workbench/leg_layouts.c). */
static void on_host(void)
{
  static const struct {
    const char *geometry;
    qn_dtype dtype;
    int how; /* forward, or 10 + backward, or 20 + over */
    const char *ran;
  } cases[] = {
      {NULL, QN_BF16, 1, "tiles-256x4x1 (the rule)"},
      {NULL, QN_BF16, 3, "tiles-256x4x1 (the rule)"},
      {"flat-128x8x1", QN_BF16, 2, "tiles-128x8x1 (flat was asked for, which takes dense tensors only)"},
      {"tiles-64x4x2-p2", QN_F32, 4, "tiles-64x4x2-p2 (forced)"},
      {"tiles-1024x8x1", QN_F16, 6, "tiles-1024x8x1 (forced)"},
      {"rows-128x4x1", QN_F32, 11, "rows-128x4x1 (forced)"},
      {"rows-256x8x2", QN_F16, 13, "rows-256x8x2 (forced)"},
      {NULL, QN_BF16, 21, "tiles-256x4x1 (the rule)"},
  };
  for
    EACH(cases)
    {
      const int how = cases[k].how % 10, table = cases[k].how / 10;
      qn_option_set("launch_shape", cases[k].geometry);
      run(op_of(table ? "swiglu_backward" : "swiglu"),
          table == 0   ? &forward[how]
          : table == 1 ? &backward[how]
                       : &over[how],
          cases[k].dtype, table == 1 ? 5 : 3, cases[k].ran);
    }
  qn_option_set("launch_shape", NULL);
}

/* A list whose tensors are laid out differently: one call, as few launches as there are kinds. */
static void mixed(void)
{
  const arrangement *const all[PLACES] = {&forward[3], &forward[0], &forward[1], &forward[3], &forward[3], &forward[1]};
  const qn_exec exec = {.size = sizeof exec, .device = device};
  call c;
  make(&c, op_of("swiglu"), all, QN_BF16, 3, 0, PLACES);
  check(!expect(&c) && !qn_op_step(c.op, &exec, c.params, c.n, c.list) && as_expected(&c), "a list of several kinds");
  drop(&c);
}

/* A plan's tensors move: from the columns of one tensor to another's, then one of them elsewhere, which parts them. */
static void planned(void)
{
  const arrangement *const all[PLACES] = {&forward[3], &forward[3], &forward[3], &forward[3], &forward[3], &forward[3]};
  const arrangement *const apart[PLACES] = {&forward[5], &forward[5], &forward[5],
                                            &forward[5], &forward[5], &forward[5]};
  const qn_exec exec = {.size = sizeof exec, .device = device};
  call one, other;
  qn_plan *plan = NULL;
  make(&one, op_of("swiglu"), all, QN_BF16, 3, 0, PLACES);
  make(&other, one.op, apart, QN_BF16, 3, 0, PLACES);
  check(!qn_op_plan_create(&plan, one.op, &exec, one.params, PLACES, one.list), "a plan of interleaved columns");
  /* Both at once: an option that is set makes a plan forget its launch, which is what the second step is about. */
  check(!expect(&one) && !expect(&other), "what is expected of two steps");
  check(!qn_op_plan_step(plan, &exec, one.params, NULL) && as_expected(&one), "its step");
  check(!qn_op_plan_step(plan, &exec, one.params, other.list) && as_expected(&other),
        "a step over columns of two tensors");
  other.tensor[1][4].strides = NULL;
  refuses(qn_op_plan_step(plan, &exec, one.params, other.list), QN_BAD_ARGUMENT,
          "a[4] moved and is laid out otherwise");
  qn_plan_destroy(&plan);
  drop(&one);
  drop(&other);
}

/* ---- refusals ---- */
static qn_tensor view(void *data, int64_t strides[2], const int64_t *shape)
{
  return (qn_tensor){data, QN_F32, 2, shape, strides, device};
}

static void refused(void)
{
  static float x[4096];
  static const int64_t shape[] = {4, 16}, cube[] = {2, 3, 4};
  int64_t wide[] = {64, 1}, two[] = {64, 2}, three[] = {64, 3}, close[] = {15, 1}, between[] = {30, 2},
          columns[] = {1, 4}, gaps[] = {200, 37, 1}, far[] = {INT64_MAX / 2, 1}, back[] = {-64, 1};
  const qn_exec exec = {.size = sizeof exec, .device = device};
  qn_tensor c = view(x, wide, shape), a = view(x + 16, wide, shape), b = view(x + 32, wide, shape);
#define STEP() qn_swiglu_step(&exec, &forward_params, 1, &c, &a, &b)
  check(!STEP(), "thirds of one tensor");
  a.data = x + 15;
  refuses(STEP(), QN_BAD_ARGUMENT, "c[0]");
  a.data = x + 16;
  c.strides = two, c.data = x, a.strides = two, a.data = x + 1;
  check(!STEP(), "even columns written, odd ones read; the other role begins behind");
  a.data = x + 2;
  refuses(STEP(), QN_BAD_ARGUMENT, "share memory");
  a.data = x + 3, b.data = x + 30;
  refuses(STEP(), QN_BAD_ARGUMENT, "share memory"); /* b's first column is c's last */
  b.data = x + 33, a.data = x + 1;
  a.strides = three;
  refuses(STEP(), QN_BAD_ARGUMENT, "a[0] (4x16) is not dense");
  a.strides = close;
  refuses(STEP(), QN_BAD_ARGUMENT, "columns 1 or 2 elements apart");
  a.strides = between; /* a row's last element is the next one's first */
  refuses(STEP(), QN_BAD_ARGUMENT, "columns 1 or 2 elements apart");
  a.strides = back;
  refuses(STEP(), QN_BAD_ARGUMENT, "a[0]");
  a.strides = far;
  refuses(STEP(), QN_BAD_ARGUMENT, "lead out of memory");
  a.strides = columns, a.data = x + 1024;
  refuses(STEP(), QN_BAD_ARGUMENT, "laid out in another order than");
  c.strides = b.strides = NULL, c.data = x + 2048, b.data = x + 3072;
  a.shape = b.shape = c.shape = cube, a.ndim = b.ndim = c.ndim = 3, a.strides = gaps;
  refuses(STEP(), QN_BAD_ARGUMENT, "not dense");
#undef STEP
}

/* ---- do two share an element: against every element of both ---- */
static bool share_slowly(const qn_rows *a, const qn_rows *b)
{
  static unsigned char taken[4096];
  memset(taken, 0, sizeof taken);
  for (uint64_t i = 0; i < a->rows; i++)
    for (uint64_t j = 0; j < a->cols; j++)
      memset(taken + a->begin + i * a->pitch + j * a->step * a->width, 1, a->width);
  for (uint64_t i = 0; i < b->rows; i++)
    for (uint64_t j = 0; j < b->cols; j++)
      for (uint64_t k = 0; k < b->width; k++)
        if (taken[b->begin + i * b->pitch + j * b->step * b->width + k]) return true;
  return false;
}

static qn_rows any_rows(uint64_t pitch)
{
  qn_rows r = {.begin = draw() >> 8, .rows = 1 + (draw() >> 8) % 6, .cols = 1 + (draw() >> 8) % 9};
  r.step = 1 + (draw() >> 12) % 2;
  r.width = 4;
  r.begin = r.begin % 64 * 4;
  const uint64_t reach = ((r.cols - 1) * r.step + 1) * 4;
  r.pitch = reach + (draw() >> 8) % 8 * 4;
  if (pitch >= reach) r.pitch = pitch;
  return r;
}

static void shared(void)
{
  size_t wrong = 0, n = 0;
  for (size_t k = 0; k < 200000; k++) {
    const qn_rows a = any_rows(0), b = any_rows(k % 2 ? a.pitch : 0);
    const bool want = share_slowly(&a, &b);
    n += want;
    if (qn_rows_share(&a, &b) == want && qn_rows_share(&b, &a) == want) continue;
    if (!wrong++)
      printf("# %zu: %llux%llu step %llu pitch %llu at %llu, %llux%llu step %llu pitch %llu at %llu\n", k,
             (unsigned long long)a.rows, (unsigned long long)a.cols, (unsigned long long)a.step,
             (unsigned long long)a.pitch, (unsigned long long)a.begin, (unsigned long long)b.rows,
             (unsigned long long)b.cols, (unsigned long long)b.step, (unsigned long long)b.pitch,
             (unsigned long long)b.begin);
  }
  check(!wrong && n > 20000 && n < 180000, "200000 pairs of which %zu share an element, %zu told wrongly", n, wrong);
}

static void *on_little_stack(void *user)
{
  on_cpu(1);
  return user;
}

/* ---- lists that are worth another thread ---- */
static bool count(void *user, void (*task)(void *argument), void *argument)
{
  (void)task, (void)argument;
  ++*(int *)user;
  return false;
}

/* How many other threads swiglu over `tensors` tensors of n elements asks for. */
static int asked(qn_dtype dtype, size_t tensors, int64_t n)
{
  int lent = 0;
  const qn_lender lender = {.lend = count, .user = &lent, .n_threads = 4};
  const qn_op_info *op = op_of("swiglu");
  qn_exec exec = {.size = sizeof exec, .device = {QN_CPU, 0}, .pool = qn_pool_borrow(&lender)};
  _Alignas(16) char params[256];
  double *data = calloc(3 * (size_t)n * tensors, sizeof *data);
  qn_tensor *all = calloc(3 * tensors, sizeof *all);
  const qn_tensor *roles[QN_MAX_TENSORS] = {all, all + tensors, all + 2 * tensors};
  for (size_t k = 0; k < 3 * tensors; k++)
    all[k] = (qn_tensor){.data = data + k * (size_t)n, .dtype = dtype, .ndim = 1, .shape = &n};
  check(op && exec.pool && data && all && !qn_op_defaults(op, params, op->params_bytes), "a list of %zu", tensors);
  check(!qn_op_step(op, &exec, params, tensors, roles), "%zu tensors of %d elements", tensors, (int)n);
  qn_pool_give_back(exec.pool);
  free(all);
  free(data);
  return lent;
}

static void few_and_many(void)
{
  check(!asked(QN_F32, 1, 32640), "32,640 elements are the caller's alone");
  check(asked(QN_F32, 1, 32641) == 1, "from there on they are shared");
  check(!asked(QN_BF16, 254, 1), "so are 254 tensors of an element");
  check(asked(QN_BF16, 255, 1) == 1, "a longer list is shared");
  check(asked(QN_F64, 1, 16385) == 1, "as are doubles, which take longer, wherever they can be cut");
}

int main(int argc, char **argv)
{
  const bool host = argc == 2 && !strcmp(argv[1], "emulator");
  device.kind = host ? QN_EMULATOR : QN_CPU;
  if (host) {
    multiply(1.3); /* by 1 `quern check` walks through more than these */
    on_host();
    lone();
  } else {
    check(!small_stack_run(64, on_little_stack, NULL), "is enough for every layout");
    on_cpu(1.3);
  }
  mixed();
  planned();
  refused();
  if (!host) shared();
  if (!host) few_and_many();
  return test_end();
}
