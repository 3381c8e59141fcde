/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_emit_metal.c - emitted Metal source compiled as C++ behind tests/metal/metal_stdlib, nothing of it changed,
 * and run over the call's grid by the executor of groups: same bits as the body itself gives. What stands between the
 * source and the executor is made here, from the emitted signature: buffers by number, attributes by name. */
#include "device/backend.h"
#include "emit_kernels.h"
#include "jit/jit.h"
#include "kernel/kernel.h"
#include "shim.h"

enum { CALL_BYTES = 4096 };

/* Metal's definition of each attribute, in the words of src/kernel/dialect/thread_position.h. */
static const struct {
  const char *name, *value;
} attributes[] = {
    {"dispatch_quadgroups_per_threadgroup", "(g.group[0] * g.group[1] * g.group[2] + 3) / 4"},
    {"dispatch_simdgroups_per_threadgroup", "(g.group[0] * g.group[1] * g.group[2] + 31) / 32"},
    {"dispatch_threads_per_threadgroup", "uint3(g.group[0], g.group[1], g.group[2])"},
    {"grid_origin", "uint3(0, 0, 0)"},
    {"grid_size", "uint3(g.grid[0], g.grid[1], g.grid[2])"},
    {"quadgroup_index_in_threadgroup", "p.index / 4"},
    {"quadgroups_per_threadgroup", "(p.size.x * p.size.y * p.size.z + 3) / 4"},
    {"simdgroup_index_in_threadgroup", "p.index / 32"},
    {"simdgroups_per_threadgroup", "(p.size.x * p.size.y * p.size.z + 31) / 32"},
    {"thread_execution_width", "32"},
    {"thread_index_in_quadgroup", "p.index % 4"},
    {"thread_index_in_simdgroup", "p.index % 32"},
    {"thread_index_in_threadgroup", "p.index"},
    {"thread_position_in_grid", "uint3(p.position.x, p.position.y, p.position.z)"},
    {"thread_position_in_threadgroup", "uint3(p.thread.x, p.thread.y, p.thread.z)"},
    {"threadgroup_position_in_grid", "uint3(p.block.x, p.block.y, p.block.z)"},
    {"threadgroups_per_grid", "uint3(g.blocks[0], g.blocks[1], g.blocks[2])"},
    {"threads_per_grid", "uint3(g.grid[0], g.grid[1], g.grid[2])"},
    {"threads_per_simdgroup", "32"},
    {"threads_per_threadgroup", "uint3(p.size.x, p.size.y, p.size.z)"},
};

static const char before[] =
    "#define QN_WORDS quern_metal\n#define QN_MATH 0\n#include \"kernel/dialect/thread_position.h\"\n"
    "#include \"base/group.h\"\nextern \"C\" const qn_group_words *quern_group;\n"
    "const qn_group_words *quern_group;\n#include \"kernel/dialect/metal_types.h\"\n"
    "#include \"kernel/dialect/half.h\"\n#include \"kernel/dialect/vector.h\"\n"
    "#include \"kernel/dialect/metal.h\"\n#include \"kernel/dialect/atomic.h\"\n"
    "#include \"kernel/dialect/simd.h\"\n#line 1 \"emitted.metal\"\n";
static const char driver[] =
    "\n#undef device\n#undef constant\n#undef thread\n#undef threadgroup\n#undef kernel\n"
    "struct drive_argument { qn_launch_grid geometry; void *buffer[32]; };\n"
    "extern \"C\" decltype(sizeof 0) drive_argument_bytes() { return sizeof(drive_argument); }\n"
    "extern \"C\" void drive(const void *, qn_u64, qn_u64, qn_u64, qn_u32) {}\n"
    "struct drive_buffer { void *at; template <class T> operator T *() const { return static_cast<T *>(at); } };\n"
    "template <class T> const T &drive_value(void *at) { return *static_cast<const T *>(at); }\n"
    "extern \"C\" void drive_thread(const void *argument, qn_u64 block, qn_u64, qn_u32 number, qn_u32)\n{\n"
    "  const drive_argument &a = *static_cast<const drive_argument *>(argument);\n"
    "  const qn_launch_grid &g = a.geometry;\n  qn_place_of_thread p = qn_place_of_block(g, block);\n"
    "  if (!qn_place_thread(g, p, number)) return;\n  *quern_group->slot() = &number;\n  ";

/* ---- the call, from the signature ---- */
/* One parameter's argument; its text ends before `end`. Values come by reference, so that their type is wanted. */
static bool add_argument(const char *at, const char *end, char *call)
{
  char parameter[512], type[128], *mark;
  int buffer;
  snprintf(parameter, sizeof parameter, "%.*s", (int)(end - at), at);
  mark = strstr(parameter, "[[");
  if (!mark) return false;
  call += strlen(call);
  if (sscanf(mark, "[[buffer(%d)]]", &buffer) == 1) {
    if (!strchr(parameter, '&')) return sprintf(call, "drive_buffer{a.buffer[%d]}", buffer) > 0;
    return sscanf(parameter, " const constant %127[^&]", type) == 1 &&
           sprintf(call, "drive_value<%s>(a.buffer[%d])", type, buffer) > 0;
  }
  for (size_t k = 0; k < sizeof attributes / sizeof *attributes; k++) {
    const size_t n = strlen(attributes[k].name);
    if (!strncmp(mark + 2, attributes[k].name, n) && !strcmp(mark + 2 + n, "]]"))
      return sprintf(call, "%s", attributes[k].value) > 0;
  }
  return false;
}

/* "custom_kernel_myexp<float>(arguments);" of an emitted source. */
static bool make_call(const char *source, char call[CALL_BYTES])
{
  const char *at = strstr(source, "[[kernel]] void "), *open = at ? strchr(at, '(') : NULL;
  const char *instance = strstr(source, "decltype("), *close = open ? strstr(open, ") {") : NULL;
  if (!close) return false;
  at += strlen("[[kernel]] void ");
  if (instance) instance += strlen("decltype(");
  sprintf(call, "%.*s(", (int)(instance ? strchr(instance, ')') - instance : open - at), instance ? instance : at);
  for (at = open + 1; at < close;) {
    const char *end = strstr(at, ",\n");
    if (!end || end > close) end = close;
    if (at != open + 1) strcat(call, ", ");
    if (!add_argument(at, end, call)) return false;
    at = end + (end < close ? 2 : 0);
  }
  strcat(call, ");\n}\n");
  return true;
}

/* ---- the launch ---- */
typedef struct drive_argument {
  qn_launch_grid geometry;
  void *buffer[32];
} drive_argument;

typedef struct shapes {
  int32_t shape[EMIT_MOST][4], ndim[EMIT_MOST];
  int64_t strides[EMIT_MOST][4];
} shapes;

/* As MLX binds them. */
static uint64_t fill(const emit_case *c, const qn_kernel *kernel, const qn_tensor *out, shapes *s, drive_argument *a)
{
  uint64_t blocks = 1;
  int n = 0;
  for (int d = 0; d < 3; d++) {
    a->geometry.grid[d] = (uint32_t)c->call.grid[d];
    a->geometry.group[d] = c->call.group[d];
    a->geometry.blocks[d] = (uint32_t)((c->call.grid[d] + c->call.group[d] - 1) / c->call.group[d]);
    blocks *= a->geometry.blocks[d];
  }
  for (size_t k = 0; k < c->source.n_inputs; k++) {
    const qn_tensor *t = &c->in[k];
    a->buffer[n++] = t->data;
    s->ndim[k] = t->ndim;
    for (int d = 0; d < t->ndim; d++) {
      s->shape[k][d] = (int32_t)t->shape[d];
      s->strides[k][d] = t->strides ? t->strides[d] : 0;
    }
    if (t->ndim && kernel->named_shape[0] >> k & 1) a->buffer[n++] = s->shape[k];
    if (t->ndim && kernel->named_strides[0] >> k & 1) a->buffer[n++] = s->strides[k];
    if (t->ndim && kernel->named_ndim[0] >> k & 1) a->buffer[n++] = &s->ndim[k];
  }
  for (size_t k = 0; k < c->source.n_outputs; k++) a->buffer[n++] = out[k].data;
  return blocks;
}

static qn_status run_source(const emit_case *c, const qn_kernel *kernel, const char *source, const qn_tensor *out)
{
  static const char *const flags[] = {"-O1", "-w", "-fsingle-precision-constant", NULL};
  static const qn_device host = {QN_EMULATOR, 0};
  const qn_device_function *function = NULL;
  drive_argument argument = {.buffer = {NULL}};
  static shapes s;
  char call[CALL_BYTES] = "";
  if (!check(make_call(source, call), "%s: its signature is read", c->source.name)) return QN_BAD_ARGUMENT;
  char *shimmed = shim_put(METAL_SHIM "/metal_stdlib", source);
  if (!check(shimmed != NULL, "%s: it includes metal_stdlib", c->source.name)) return QN_BAD_ARGUMENT;
  const size_t bytes = sizeof before + strlen(shimmed) + sizeof driver + sizeof call;
  char *text = malloc(bytes);
  snprintf(text, bytes, "%s%s%s%s", before, shimmed, driver, call);
  free(shimmed);
  qn_status status =
      qn_jit_function(host, &(qn_unit){.source = c->source.name, .text = text, .flags = flags}, "drive", &function);
  free(text);
  if (status != QN_OK) return status;
  const uint64_t blocks = fill(c, kernel, out, &s, &argument);
  const qn_launch launch = {.blocks = blocks,
                            .threads = c->call.group[0] * c->call.group[1] * c->call.group[2],
                            .argument = &argument,
                            .argument_bytes = sizeof argument};
  return qn_backend_emulator.launch(host, function, &launch);
}

/* The outputs' contents before the launch. */
static void begin_outputs(const emit_case *c, unsigned char data[EMIT_MOST][EMIT_BYTES], qn_tensor *out)
{
  for (size_t k = 0; k < c->source.n_outputs; k++) {
    memset(data[k], 0xa5, EMIT_BYTES);
    out[k] = c->out[k];
    out[k].data = data[k];
    for (size_t i = 0; c->call.init && i < EMIT_BYTES / 4; i++)
      memcpy(data[k] + 4 * i, &(int32_t){(int32_t)c->init[k].integer}, 4);
  }
}

static size_t bytes_of(const qn_tensor *t)
{
  size_t n = qn_dtype_bytes(t->dtype);
  for (int d = 0; d < t->ndim; d++) n *= (size_t)t->shape[d];
  return n;
}

static void same_bits(void (*make)(emit_case *))
{
  static emit_case c;
  static _Alignas(64) unsigned char wanted[EMIT_MOST][EMIT_BYTES], got[EMIT_MOST][EMIT_BYTES];
  qn_tensor direct[EMIT_MOST], driven[EMIT_MOST];
  const qn_exec exec = {.size = sizeof exec, .device = {QN_CPU, 0}};
  char *source = NULL;
  make(&c);
  if (c.source.dialect != QN_DIALECT_METAL) return;
  qn_kernel *kernel = emit_create(&c);
  begin_outputs(&c, wanted, direct);
  begin_outputs(&c, got, driven);
  c.call.outputs = direct;
  check(qn_kernel_launch(kernel, &exec, &c.call) == QN_OK, "%s: the body runs", c.source.name);
  check(qn_kernel_emit(kernel, QN_EMIT_METAL, &c.call, &source) == QN_OK, "%s: the source is emitted", c.source.name);
  if (check(source && run_source(&c, kernel, source, driven) == QN_OK, "%s: the source runs", c.source.name))
    for (size_t k = 0; k < c.source.n_outputs; k++) {
      const size_t bytes = bytes_of(&c.out[k]);
      size_t first = 0;
      while (first < bytes && wanted[k][first] == got[k][first]) first++;
      check(first == bytes, "%s: %s has the same %zu bytes (equal up to %zu)", c.source.name, c.outputs[k], bytes,
            first);
    }
  qn_text_release(&source);
  qn_kernel_destroy(&kernel);
}

int main(void)
{
  qn_device_info info = {.size = sizeof info};
  if (qn_device_query((qn_device){QN_EMULATOR, 0}, &info) != QN_OK || strstr(info.compiler_path, "clang")) {
    skip("the C++ compiler %s takes no attributes on an instance, as GCC does", info.compiler_path);
    return test_end();
  }
  for (size_t k = 0; k < EMIT_CASES; k++) same_bits(emit_makers[k]);
  return test_end();
}
