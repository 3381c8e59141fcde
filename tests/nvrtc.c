/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.c ARCH [OP] - compiles every op's device kernels, or one op's, for one GPU architecture, no GPU needed: each
 * row of the type table with each option that changes the kernel, as a launch would, and the unfused forms; of ops with
 * kernels of their own the units that they list; then src/base/maths.h, and kernels of plans that only this
 * architecture has. Registers and spills stand in each line; a spill fails. The sources ask of an architecture only
 * whether it is older than sm_80: beyond that, two of them differ by what ptxas makes of the same PTX. So all options
 * meet the oldest and the one that results come from; on each other one every row has its plainest and its fullest
 * kernel, and the options in between are dealt out, each to one of them.
 */
#include "core/core.h"
#include "device/backend.h"
#include "maths.h"
#include "maths_unit.h"
#include "op/device_variant.h"
#include "test.h"
#include "workbench/op_check.h"

enum { CAPACITY = 160, MAX_SETS = 64 };

typedef struct usage {
  int registers, spill_stores, spill_loads;
} usage;

/* The compiler's words as comments of TAP. */
static void quote(const char *log)
{
  for (size_t n; log && *log; log += n + (log[n] == '\n')) printf("# %.*s\n", (int)(n = strcspn(log, "\n")), log);
}

/* ptxas's line on the kernel: "... 8 bytes spill stores, 8 bytes spill loads" and "Used 32 registers". */
static bool read_log(const char *log, usage *u)
{
  const char *used = log ? strstr(log, "Used ") : NULL, *stack = log ? strstr(log, "bytes stack frame, ") : NULL;
  return used && stack && sscanf(used, "Used %d registers", &u->registers) == 1 &&
         sscanf(stack, "bytes stack frame, %d bytes spill stores, %d bytes spill loads", &u->spill_stores,
                &u->spill_loads) == 2;
}

/* most: bytes that may be spilled. */
static void compile_within(const char *arch, const qn_unit *unit, const char *what, int most)
{
  qn_image image = {0};
  usage u = {0};
  qn_status status = qn_cuda_compile_for(arch, unit, &image);
  if (status != QN_OK) {
    check(status == QN_OK, "%s %s: %s", arch, what, qn_last_error());
    return;
  }
  bool told = read_log(image.log, &u);
  if (!check(told && image.bytes > 0 && u.spill_stores <= most && (most || !u.spill_loads),
             "%s %s: %d registers, %d bytes spilled", arch, what, u.registers, u.spill_stores))
    quote(image.log);
  qn_image_free(&image);
}

static void compile(const char *arch, const qn_unit *unit, const char *what) { compile_within(arch, unit, what, 0); }

/* "bf16 f32 f32" of a row of the type table. */
static void name_row(const qn_op *op, size_t row, char *text, size_t bytes)
{
  size_t n = 0;
  text[0] = 0;
  for (size_t r = 0; r < op->info.n_tensors && n < bytes; r++)
    if (op->info.types[row].tensor[r].access != QN_ABSENT)
      n += (size_t)snprintf(text + n, bytes - n, "%s%s", n ? " " : "",
                            qn_dtype_name(op->info.types[row].tensor[r].dtype));
}

/* Sets a parameter to something that is not its default; false where its kind has nothing to say to a kernel. */
static bool set_param(const qn_op_param *param, void *params)
{
  static const uint64_t something[16] = {0};
  const void *pointer = something;
  const int32_t one = 1;
  char *at = (char *)params + param->offset;
  switch (param->type) {
  case QN_PARAM_BOOL:
  case QN_PARAM_ENUM: memcpy(at, &one, sizeof one); return true;
  case QN_PARAM_DEVICE_F32:
  case QN_PARAM_DEVICE_I64:
  case QN_PARAM_DEVICE_HYPER: memcpy(at, &pointer, sizeof pointer); return true;
  case QN_PARAM_DOUBLE:
  case QN_PARAM_U64:
  case QN_PARAM_HOST_U64:
  case QN_PARAM_HOST_F64:
  case QN_PARAM_DEVICE_F32S:
  case QN_PARAM_HOST_STRUCT: break;
  }
  return false;
}

/* Flags that a row's kernels are specialised by, and whether there is a counting phase before such a step. */
typedef struct flag_set {
  uint32_t flags;
  bool counts;
} flag_set;

/* None, each parameter alone, all together; each set once, the last being all together. */
static size_t flag_sets(const qn_op *op, size_t row, flag_set *sets)
{
  size_t n = 0;
  for (size_t k = 0; k <= op->info.n_params + 1; k++) {
    char params[1024] = {0};
    if (op->info.params_bytes > sizeof params || qn_op_defaults(&op->info, params, op->info.params_bytes) != QN_OK)
      return 0;
    for (size_t p = 0; p < op->info.n_params; p++)
      if (k == p + 1 || k == op->info.n_params + 1) set_param(&op->info.params[p], params);
    const flag_set set = {op->flags ? op->flags(params, row) : 0, op->phases && op->phases(params) > 1};
    size_t same = 0;
    while (same < n && sets[same].flags != set.flags) same++;
    if (same == n && n < MAX_SETS) sets[n++] = set;
    if (same < n) sets[same].counts |= set.counts;
  }
  return n;
}

/* Is this set of the row compiled for this architecture? (The file's head says which are.) */
static bool has_turn(const char *arch, size_t row, size_t set, size_t n_sets)
{
  static const char *const others[] = {"sm_80", "sm_86", "sm_89", "sm_100", "sm_120"};
  enum { N_OTHERS = sizeof others / sizeof *others };
  if (!set || set + 1 == n_sets) return true;
  for (size_t k = 0; k < N_OTHERS; k++)
    if (!strcmp(arch, others[k])) return (set + row) % N_OTHERS == k;
  return true;
}

static void compile_row(const char *arch, const qn_op *op, size_t row)
{
  char types[64], what[160];
  flag_set sets[MAX_SETS];
  size_t n = flag_sets(op, row, sets);
  name_row(op, row, types, sizeof types);
  check(n > 0, "%s %s (%s): %zu specialisations", arch, op->info.name, types, n);
  for (size_t s = 0; s < n; s++)
    for (int counts = 0; has_turn(arch, row, s, n) && counts <= sets[s].counts; counts++) {
      qn_list_unit unit;
      qn_device_list_unit(op, row, sets[s].flags, CAPACITY, counts, NULL, &unit);
      snprintf(what, sizeof what, "%s (%s) flags %#x%s", op->info.name, types, sets[s].flags,
               counts ? " counting" : "");
      compile(arch, &(qn_unit){.source = op->device_source, .defines = unit.defines}, what);
    }
}

/* Every shape of geometry, and tensors that are not dense: rows at a distance, two roles' columns in one tensor,
 * columns two apart alone. Of the two read roles behind the first, whatever the op. */
static void compile_forms(const char *arch, const qn_op *op)
{
  static const struct {
    const char *geometry;
    bool pitched;
    uint32_t steps, odds, pairs;
    bool whole, each, peel;
  } forms[] = {
      {"flat-128x8x4-p2", false, 0, 0, 0, false, false, false},
      {"tiles-128x8x1", false, 0, 0, 0, false, false, false},
      {"rows-512x8x2", true, 0, 0, 0, false, false, false},
      {"tiles-256x8x1-p1", true, 6, 4, 0x230, false, false, false},
      {"tiles-1024x4x1", true, 6, 2, 0x230, false, false, false},
      {"rows-256x8x1", true, 2, 0, 0, false, false, false},
      {"flat-128x4x1", false, 0, 0, 0, true, false, false},
      {"tiles-128x8x1", true, 0, 0, 0, true, false, false},
      {"flat-64x4x1", false, 0, 0, 0, false, true, false},
      {"tiles-128x8x1", true, 0, 0, 0, false, true, false},
      {"flat-256x8x1", false, 0, 0, 0, false, false, true},
      {"tiles-256x8x1", true, 0, 0, 0, false, false, true},
  };
  const size_t row = 1; /* of 16 bits */
  for (size_t k = 0; k < sizeof forms / sizeof *forms && qn_op_is_strided(&op->info); k++) {
    qn_list_form form = {.pitched = forms[k].pitched,
                         .whole = forms[k].whole,
                         .each = forms[k].each,
                         .near = forms[k].whole || forms[k].each,
                         .lanes = forms[k].pitched && (forms[k].whole || forms[k].each) ? 7 : 0,
                         .peel = forms[k].peel,
                         .steps = forms[k].steps,
                         .odds = forms[k].odds,
                         .pairs = forms[k].pairs};
    qn_list_unit unit;
    char what[160];
    if (!check(qn_launch_shape_from_name(forms[k].geometry, &form.launch) == QN_OK, "%s", forms[k].geometry)) return;
    qn_device_list_unit(op, row, 0, form.whole || form.each ? 1 : CAPACITY, false, &form, &unit);
    snprintf(what, sizeof what, "%s %s, steps %#x%s", op->info.name, forms[k].geometry, forms[k].steps,
             form.whole  ? ", whole"
             : form.each ? ", each"
             : form.peel ? ", peel"
                         : "");
    compile(arch, &(qn_unit){.source = op->device_source, .defines = unit.defines}, what);
  }
}

static void compile_unfused(const char *arch, const qn_op *op)
{
  for (int pass = 0; pass < op->unfused_passes; pass++) {
    char define[32], what[96];
    const char *const defines[] = {define, NULL};
    snprintf(define, sizeof define, "QN_PASS=%d", pass);
    snprintf(what, sizeof what, "%s unfused, pass %d", op->info.name, pass);
    compile(arch, &(qn_unit){.source = op->unfused_source, .defines = defines}, what);
  }
}

static void compile_units(const char *arch, const qn_op *op)
{
  char what[256];
  for (const qn_device_unit *u = qn_op_check_of(op)->units; u->source; u++) {
    if (u->arch && strcmp(u->arch, arch) != 0) continue;
    size_t n = (size_t)snprintf(what, sizeof what, "%s, %s", op->info.name, u->source);
    for (size_t k = 0; u->defines[k] && n < sizeof what; k++)
      n += (size_t)snprintf(what + n, sizeof what - n, " %s", u->defines[k]);
    compile(arch, &(qn_unit){.source = u->source, .defines = u->defines}, what);
  }
}

/* The functions of base/maths.h, each in a kernel of its own. */
static void compile_maths(const char *arch)
{
  for (int f = 0; f < MATHS_COUNT; f++) {
    char define[64];
    const char *const defines[] = {define, NULL};
    snprintf(define, sizeof define, "QN_MATHS=qn_%s", maths_all[f].name);
    compile(arch, &(qn_unit){.source = MATHS_UNIT_SOURCE, .defines = defines, .text = MATHS_UNIT_TEXT},
            maths_all[f].name);
  }
}

/* Fills and copies of src/kernel/move.c, for every size of an element. */
static void compile_moves(const char *arch)
{
  static const char *const words[][2] = {{"QN_WORD=qn_u8"}, {"QN_WORD=qn_u16"}, {"QN_WORD=qn_u32"}, {"QN_WORD=qn_u64"}};
  for (size_t k = 0; k < sizeof words / sizeof *words; k++)
    compile(arch, &(qn_unit){.source = "kernel/move.cu", .defines = words[k]}, words[k][0]);
}

#include "nvrtc_plans.h"

int main(int argc, char **argv)
{
  char path[512] = "";
  int version = 0;
  if (argc != 2 && argc != 3) return EXIT_FAILURE;
  if (!check(qn_cuda_compiler(&version, path, sizeof path) == QN_OK, "NVRTC %d.%d", version / 1000,
             version % 1000 / 10))
    return test_end();
  for (size_t k = 0; qn_ops[k]; k++) {
    if (!qn_ops[k]->device_source || (argc == 3 && strcmp(argv[2], qn_ops[k]->info.name) != 0)) continue;
    if (qn_op_check_of(qn_ops[k])->units) {
      compile_units(argv[1], qn_ops[k]);
      continue;
    }
    for (size_t row = 0; row < qn_op_rows(&qn_ops[k]->info, QN_CUDA); row++) compile_row(argv[1], qn_ops[k], row);
    compile_unfused(argv[1], qn_ops[k]);
    compile_forms(argv[1], qn_ops[k]);
  }
  if (argc == 2) compile_maths(argv[1]);
  if (argc == 2 || !strcmp(argv[2], "moves")) compile_moves(argv[1]);
  if (!strcmp(argv[1], "sm_90a") && (argc == 2 || !strcmp(argv[2], "plans"))) compile_recurrent(argv[1]);
  return test_end();
}
