/* SPDX-License-Identifier: Apache-2.0 */
/* tiers.c - every instruction-set tier that runs here gives the reference's bits, for each op, row of its types and
 * option, over random bits, lengths round the vectors' widths and odd alignments. `quern check` proves much more; this
 * is what also runs where the command is not built: NEON, under an emulator. */
#include "core/core.h"
#include "op/op.h"
#include "test.h"

enum { MOST = 1027, GUARD = 64, MAX_BYTES = (MOST + 8) * 8 + 2 * GUARD };

static uint64_t state;

static uint64_t next(void) /* xorshift64* */
{
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (state * UINT64_C(2685821657736338717)) >> 8;
}

/* One in four any bits at all (NaN, infinite, denormal ...), the others of middling size; zeros among them. */
static void fill(unsigned char *at, qn_dtype dtype, size_t n)
{
  size_t bytes = qn_dtype_bytes(dtype);
  for (size_t k = 0; k < n; k++) {
    uint64_t kind = next() % 8, bits = next();
    if (kind > 2 && dtype == QN_F32) bits = (bits & 0x807FFFFF) | (110 + bits % 30) << 23;
    if (kind > 2 && dtype == QN_BF16) bits = (bits & 0x807F) | (110 + (bits >> 16) % 30) << 7;
    if (kind > 2 && dtype == QN_F16) bits = (bits & 0x83FF) | (8 + (bits >> 16) % 12) << 10;
    if (kind == 2) bits &= UINT64_C(1) << (8 * bytes - 1);
    memcpy(at + k * bytes, &bits, bytes);
  }
}

static bool is_nan(const unsigned char *at, qn_dtype dtype)
{
  uint32_t bits = 0;
  memcpy(&bits, at, qn_dtype_bytes(dtype));
  if (dtype == QN_F32) return (bits & 0x7FFFFFFF) > 0x7F800000;
  return dtype == QN_BF16 ? (bits & 0x7FFF) > 0x7F80 : (bits & 0x7FFF) > 0x7C00;
}

/* The same bits, but any NaN equals any NaN; outside the n elements every byte. */
static bool same(const unsigned char *a, const unsigned char *b, qn_dtype dtype, size_t from, size_t n)
{
  size_t bytes = qn_dtype_bytes(dtype), end = from + n * bytes;
  if (memcmp(a, b, from) || memcmp(a + end, b + end, MAX_BYTES - end)) return false;
  for (size_t at = from; at < end; at += bytes)
    if (memcmp(a + at, b + at, bytes) && !(is_nan(a + at, dtype) && is_nan(b + at, dtype))) return false;
  return true;
}

/* ---- params: the defaults with one of them changed, and memory for what pointers point to ---- */

static struct {
  float scale;
  int64_t agreement[2];
  uint64_t place[1];
  _Alignas(16) char hyper[256];
} memory;

static bool change(const qn_op_info *op, const qn_op_param *param, char *params)
{
  const int32_t one = 1;
  const void *pointer = NULL;
  if (param->type == QN_PARAM_BOOL || param->type == QN_PARAM_ENUM) memcpy(params + param->offset, &one, sizeof one);
  if (param->type == QN_PARAM_DEVICE_F32) pointer = &memory.scale;
  if (param->type == QN_PARAM_DEVICE_I64) pointer = memory.agreement;
  if (param->type == QN_PARAM_HOST_U64) pointer = memory.place;
  if (param->type == QN_PARAM_DEVICE_HYPER) {
    pointer = memory.hyper;
    for (size_t k = 0; k < op->n_params; k++)
      if (op->params[k].hyper_offset)
        memcpy(memory.hyper + op->params[k].hyper_offset - 1, params + op->params[k].offset, 8);
  }
  if (pointer) memcpy(params + param->offset, &pointer, sizeof pointer);
  return pointer || param->type == QN_PARAM_BOOL || param->type == QN_PARAM_ENUM;
}

/* ---- one step ---- */

typedef struct trial {
  const qn_op_info *op;
  size_t row, n, odd; /* elements, and how many elements off alignment */
  const char *params;
  void *workspace;
} trial;

static unsigned char before[QN_MAX_TENSORS][MAX_BYTES], reference[QN_MAX_TENSORS][MAX_BYTES],
    after[QN_MAX_TENSORS][MAX_BYTES];

static size_t start_of(const trial *t, size_t role)
{
  return GUARD + t->odd * qn_dtype_bytes(t->op->types[t->row].tensor[role].dtype);
}

static qn_status step(const trial *t, qn_tier tier, unsigned char (*data)[MAX_BYTES])
{
  const qn_device cpu = {QN_CPU, 0};
  const int64_t shape[1] = {(int64_t)t->n};
  qn_tensor tensor[QN_MAX_TENSORS];
  const qn_tensor *roles[QN_MAX_TENSORS] = {NULL};
  qn_exec exec = {.size = sizeof exec, .device = cpu, .workspace = t->workspace, .workspace_bytes = 4096};
  memcpy(data, before, sizeof before);
  for (size_t r = 0; r < t->op->n_tensors; r++) {
    if (t->op->types[t->row].tensor[r].access == QN_ABSENT) continue;
    tensor[r] = (qn_tensor){data[r] + start_of(t, r), t->op->types[t->row].tensor[r].dtype, 1, shape, NULL, cpu};
    roles[r] = &tensor[r];
  }
  qn_try(qn_option_set("cpu", qn_tier_name(tier)));
  return qn_op_step(t->op, &exec, t->params, 1, roles);
}

/* Whether the tier equals the reference for this trial. */
static bool agrees(const trial *t, qn_tier tier)
{
  for (size_t r = 0; r < t->op->n_tensors; r++)
    if (t->op->types[t->row].tensor[r].access != QN_ABSENT)
      fill(before[r] + start_of(t, r), t->op->types[t->row].tensor[r].dtype, t->n);
  if (step(t, QN_TIER_REF, reference) != QN_OK || step(t, tier, after) != QN_OK) return false;
  for (size_t r = 0; r < t->op->n_tensors; r++)
    if (t->op->types[t->row].tensor[r].access != QN_ABSENT &&
        !same(reference[r], after[r], t->op->types[t->row].tensor[r].dtype, start_of(t, r), t->n))
      return false;
  return true;
}

static bool agrees_everywhere(trial *t, qn_tier tier)
{
  static const size_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 255, 1000, MOST};
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
    for (t->odd = 0; t->odd < 4; t->odd++) {
      t->n = lengths[k];
      memory.agreement[0] = (int64_t)(t->n / 2);
      memory.agreement[1] = (int64_t)t->n;
      if (!agrees(t, tier)) {
        printf("# %zu elements, %zu off alignment\n", t->n, t->odd);
        return false;
      }
    }
  return true;
}

/* The defaults with one or two params changed; false where there is nothing to change. */
static bool set_params(const qn_op_info *op, size_t i, size_t j, char *params, size_t bytes)
{
  if (op->params_bytes > bytes || qn_op_defaults(op, params, op->params_bytes) != QN_OK) return false;
  return (i == op->n_params || change(op, &op->params[i], params)) &&
         (j == op->n_params || j == i || change(op, &op->params[j], params));
}

/* Every param alone and every two together; what the op refuses (an option that wants another) is not counted. */
static void test_row(const qn_op_info *op, size_t row, qn_tier tier, void *workspace)
{
  _Alignas(16) char params[1024];
  trial t = {.op = op, .row = row, .n = 1, .params = params, .workspace = workspace};
  size_t wrong = 0, tried = 0, refused = 0;
  for (size_t i = 0; i <= op->n_params; i++)
    for (size_t j = i; j <= op->n_params; j++) {
      if (!set_params(op, i, j, params, sizeof params)) continue;
      if (step(&t, QN_TIER_REF, reference) == QN_BAD_ARGUMENT) {
        refused++;
        continue;
      }
      tried++;
      if (agrees_everywhere(&t, tier)) continue;
      wrong++;
      printf("# params %zu and %zu of %zu; %s\n", i, j, op->n_params, qn_last_error());
    }
  check(tried > refused && !wrong, "%s row %zu, %s: %zu settings of the params give the reference's bits", op->name,
        row, qn_tier_name(tier), tried);
}

int main(void)
{
  void *workspace = qn_allocate(4096);
  state = 20261120;
  memory.scale = 3.0f;
  memory.place[0] = 5;
  memset(before, 0xA5, sizeof before);
  for (size_t k = 0; k < qn_op_count(); k++)
    for (int tier = QN_TIER_REF + 1; tier <= QN_TIER_NEON; tier++) {
      if (!qn_ops[k]->cpu[tier] || !qn_tier_runs_here((qn_tier)tier)) continue;
      for (size_t row = 0; row < qn_op_rows(qn_op_at(k), QN_CUDA); row++)
        test_row(qn_op_at(k), row, (qn_tier)tier, workspace);
    }
  if (!test_count) skip("this processor runs no tier besides the reference");
  qn_release(workspace);
  return test_end();
}
