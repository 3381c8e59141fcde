/* SPDX-License-Identifier: Apache-2.0 */
/* op_emit.c - Lion as one emitted file: its Metal form compiled as C++ over a small metal_stdlib (tests/metal/op) and
 * run beside the processor's kernel, for every row of types, nearest and by chance, over random bits: same bits. Where
 * clang is there, the same text is read with the tensors' memory in an address space of its own. With a folder as
 * argument the CUDA and HIP forms are written there, for emit_compile.sh. */
#include "base/list_kernel_args.h"
#include "device/backend.h"
#include "jit/jit.h"
#include "op/op.h"
#include "quern/quern.h"
#include "scratch.h"
#include "shim.h"
#include "test.h"

enum { N = 4099, PLACES = 4, THREADS = 256 };

static const char driver[] =
    "\n#undef double\n#undef constant\nextern \"C\" ulong drive_argument_bytes() { return "
    "sizeof(qn_list_args<qn_lion_coef>); }\n"
    "extern \"C\" void drive(const void *argument, ulong first, ulong last, ulong blocks, uint threads)\n{\n"
    "  qn_list_args<qn_lion_coef> a = *static_cast<const qn_list_args<qn_lion_coef> *>(argument);\n"
    "  static_assert(sizeof a.coef == sizeof quern_lion_coef, \"as many bytes\");\n"
    "  __builtin_memcpy(static_cast<void *>(&a.coef), quern_lion_coef, sizeof a.coef);\n"
    "  for (ulong block = first; block < last; block++)\n    for (uint k = 0; k < threads; k++) lion(a, uint(block), "
    "uint(blocks), k, threads);\n}\n";

static const qn_op_info *lion;

static uint32_t draw(uint32_t *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 17;
  return *state ^= *state << 5;
}

/* Any NaN equals any NaN. */
static bool is_nan(qn_dtype dtype, const unsigned char *at)
{
  uint32_t bits = 0;
  memcpy(&bits, at, qn_dtype_bytes(dtype));
  if (dtype == QN_F32) return (bits & 0x7fffffffu) > 0x7f800000u;
  return (bits & 0x7fffu) > (dtype == QN_BF16 ? 0x7f80u : 0x7c00u);
}

static size_t first_difference(qn_dtype dtype, const unsigned char *a, const unsigned char *b)
{
  const size_t bytes = qn_dtype_bytes(dtype);
  for (size_t k = 0; k < N; k++, a += bytes, b += bytes)
    if (memcmp(a, b, bytes) && !(is_nan(dtype, a) && is_nan(dtype, b))) return k;
  return N;
}

/* ---- the emitted text, run ---- */
static qn_status run_text(const char *text, size_t row, void *const *data, bool random)
{
  static const char *const flags[] = {"-O1", "-w", NULL};
  static const qn_device host = {QN_EMULATOR, 0};
  static _Alignas(16) unsigned char argument[512];
  const qn_op_types *types = &lion->types[row];
  const qn_device_function *function = NULL;
  uint32_t slots = 0, pack = 8;
  for (size_t r = 0; r < lion->n_tensors; r++) {
    slots += types->tensor[r].access != QN_ABSENT;
    if (types->tensor[r].dtype == QN_F32) pack = 4;
  }
  const qn_list_offsets o = qn_list_offsets_of(((const qn_op *)lion)->coef_bytes, slots, 1, random);
  memset(argument, 0, sizeof argument);
  memcpy(argument + o.elements, &(uint64_t){N}, 8);
  memcpy(argument + o.head, &(uint32_t){1}, 4);
  slots = 0;
  for (size_t r = 0; r < lion->n_tensors; r++)
    if (types->tensor[r].access != QN_ABSENT) memcpy(argument + o.data + 8 * slots++, &data[r], 8);
  char *shimmed = shim_put(METAL_SHIM "/op/metal_stdlib", text);
  if (!check(shimmed != NULL, "it includes metal_stdlib")) return QN_BAD_ARGUMENT;
  char *whole = malloc(strlen(shimmed) + sizeof driver);
  sprintf(whole, "%s%s", shimmed, driver);
  free(shimmed);
  const qn_unit unit = {.source = "lion.metal", .text = whole, .flags = flags};
  const qn_status status = qn_jit_function(host, &unit, "drive", &function);
  free(whole);
  if (status != QN_OK) return status;
  const uint64_t each = THREADS * pack;
  const qn_launch launch = {
      .blocks = (N + each - 1) / each, .threads = THREADS, .argument = argument, .argument_bytes = o.bytes};
  return qn_backend_emulator.launch(host, function, &launch);
}

static qn_status run_op(const qn_lion_params *params, size_t row, void *const *data)
{
  static const int64_t shape[] = {N};
  const qn_exec exec = {.size = sizeof exec, .device = {QN_CPU, 0}};
  qn_tensor tensor[QN_MAX_TENSORS];
  const qn_tensor *tensors[QN_MAX_TENSORS] = {NULL};
  for (size_t r = 0; r < lion->n_tensors; r++) {
    tensor[r] = (qn_tensor){data[r], lion->types[row].tensor[r].dtype, 1, shape, NULL, {QN_CPU, 0}};
    if (lion->types[row].tensor[r].access != QN_ABSENT) tensors[r] = &tensor[r];
  }
  return qn_op_step(lion, &exec, params, 1, tensors);
}

/* With the tensors' memory apart, as Metal has it; nothing is made. */
static void read_by_clang(const char *text, size_t row)
{
  char command[1024];
  if (system("command -v clang++ >/dev/null")) {
    skip("no clang++ to hold places of pointers in row %zu", row);
    return;
  }
  write_file(scratch_path("lion.metal"), text, strlen(text), 0600);
  snprintf(command, sizeof command,
           "clang++ -x c++ -std=c++17 -fsyntax-only -Wno-unknown-attributes -DMETAL_PLACES -I%s/op %s/lion.metal",
           METAL_SHIM, scratch);
  check(system(command) == 0, "row %zu: clang agrees with the places that pointers say", row);
  const char *place = strstr(text, "const QN_FAR void *from");
  if (row || !check(place != NULL, "a pointer to far memory to take the word from")) return;
  char *spoilt = strdup(text);
  memcpy(spoilt + (place - text), "const        void *from", strlen("const QN_FAR void *from"));
  write_file(scratch_path("lion.metal"), spoilt, strlen(spoilt), 0600);
  strcat(command, " 2>/dev/null");
  check(system(command) != 0, "and does not without one of them");
  free(spoilt);
}

static void same_bits(size_t row, int rounding)
{
  static _Alignas(64) unsigned char wanted[PLACES][4 * N + 64], got[PLACES][4 * N + 64];
  void *reference[PLACES], *driven[PLACES];
  qn_lion_params params;
  uint32_t state = 12345u + (uint32_t)row;
  char *text = NULL;
  for (int r = 0; r < PLACES; r++) {
    reference[r] = wanted[r];
    driven[r] = got[r];
    for (size_t k = 0; k < N; k++) memcpy(wanted[r] + 4 * k, &(uint32_t){draw(&state)}, 4);
    memcpy(got[r], wanted[r], sizeof got[r]);
  }
  qn_op_defaults(lion, &params, sizeof params);
  params.weight_decay = 0.1;
  params.lr = 0.01;
  params.rounding = params.momentum_rounding = rounding;
  params.seed = 77, params.step = 3;
  const qn_op_types *types = &lion->types[row];
  const bool random = rounding && (types->tensor[0].dtype != QN_F32 || types->tensor[2].dtype != QN_F32);
  if (rounding && !random) return;
  check(run_op(&params, row, reference) == QN_OK, "row %zu: the op steps", row);
  check(qn_op_emit(lion, QN_EMIT_METAL, row, &params, &text) == QN_OK, "row %zu: its Metal form is emitted", row);
  if (text && check(run_text(text, row, driven, random) == QN_OK, "row %zu: the text runs", row))
    for (size_t r = 0; r < lion->n_tensors; r++)
      if (types->tensor[r].access & QN_WRITE) {
        const size_t at = first_difference(types->tensor[r].dtype, wanted[r], got[r]);
        check(at == N, "row %zu, %s, %s: same bits (up to %zu)", row, rounding ? "by chance" : "nearest",
              lion->tensors[r].name, at);
      }
  check(text && strstr(text, "(thread const qn_lion_coef *given, qn_u32 flags)") &&
            strstr(text, ", const QN_FAR char *from, "),
        "row %zu: pointers that say no place are the thread's", row);
  if (text) read_by_clang(text, row);
  qn_text_release(&text);
}

static void refusals(void)
{
  qn_lion_params params;
  char *text = (char *)&params;
  float scale = 1;
  qn_op_defaults(lion, &params, sizeof params);
  refuses(qn_op_emit(lion, QN_EMIT_MLX, 0, &params, &text), QN_UNSUPPORTED, "lion: an op has no body that MLX");
  check(!text, "and gives no text");
  refuses(qn_op_emit(lion, QN_EMIT_COUNT, 0, &params, &text), QN_BAD_ARGUMENT, "4 is no form");
  refuses(qn_op_emit(lion, QN_EMIT_HIP, 99, &params, &text), QN_BAD_ARGUMENT, "no row 99");
  refuses(qn_op_emit(lion, QN_EMIT_HIP, 0, NULL, &text), QN_BAD_ARGUMENT, "params are NULL");
  refuses(qn_op_emit(NULL, QN_EMIT_HIP, 0, &params, &text), QN_BAD_ARGUMENT, "op is NULL");
  refuses(qn_op_emit(lion, QN_EMIT_HIP, 0, &params, NULL), QN_BAD_ARGUMENT, "NULL");
  params.beta1 = 2;
  refuses(qn_op_emit(lion, QN_EMIT_HIP, 0, &params, &text), QN_BAD_ARGUMENT, "beta1");
  params.beta1 = 0.9;
  params.grad_scale = &scale;
  refuses(qn_op_emit(lion, QN_EMIT_HIP, 0, &params, &text), QN_BAD_ARGUMENT, "grad_scale is a pointer");
  params.grad_scale = NULL;
  params.cautious = 1;
  refuses(qn_op_emit(lion, QN_EMIT_METAL, 0, &params, &text), QN_UNSUPPORTED, "a phase that counts first");
}

static void write_all(const char *folder)
{
  static const char *const endings[] = {"cu", "hip"};
  static const size_t rows[] = {0, 4, 12};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
    for (int form = 0; form < 2; form++) {
      char path[4096], *text = NULL;
      qn_lion_params params;
      qn_op_defaults(lion, &params, sizeof params);
      params.rounding = k == 1;
      snprintf(path, sizeof path, "%s/lion.row%zu.%s", folder, rows[k], endings[form]);
      FILE *file = qn_op_emit(lion, (qn_emit)form, rows[k], &params, &text) == QN_OK ? fopen(path, "w") : NULL;
      const bool written = file && fputs(text, file) >= 0;
      check((!file || fclose(file) == 0) && written, "%s", path);
      qn_text_release(&text);
    }
}

int main(int argc, char **argv)
{
  if (!check(qn_op_find("lion", &lion) == QN_OK, "lion is there")) return test_end();
  if (argc == 2) {
    write_all(argv[1]);
    return test_end();
  }
  scratch_begin();
  for (size_t row = 0; row < lion->n_types; row++)
    for (int rounding = 0; rounding < 2; rounding++) same_bits(row, rounding);
  refusals();
  return test_end();
}
