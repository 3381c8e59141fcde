/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - a launch of a kernel from its body: the call checked, what it makes special found (compiled the first
 * time), the argument filled and handed to the device. The way of a warm launch is short: no lock, no allocation. */
#include "kernel/launch.h"
#include "kernel/call.h"
#include "kernel/sanitize.h"
#include "jit/jit.h"
#include <stdio.h>
#include <string.h>

enum { FLAT_GROUP = 256, MOST_GROUP_Z = 64, PORTABLE_CLUSTER = 8 };

/* ---- what a launch makes special, as bytes to compare ---- */
enum { KEY_BYTES = 2048 };

typedef struct special_key {
  size_t length;
  char bytes[KEY_BYTES];
} special_key;

typedef struct qn_special_entry {
  struct qn_special_entry *next;
  const qn_device_function *function;
  uint64_t stamp;
  qn_device device;
  qn_argument_layout layout;
  qn_function_facts facts;
  size_t key_bytes;
  char key[];
} special_entry;

static qn_status add_key(special_key *key, const qn_kernel *kernel, const void *bytes, size_t n)
{
  qn_require(n <= KEY_BYTES - key->length, "kernel %s: the names of its template values have more than %d characters",
             kernel->source.name, KEY_BYTES - 512);
  memcpy(key->bytes + key->length, bytes, n);
  key->length += n;
  return QN_OK;
}

static uint8_t form_of(const qn_kernel *kernel, const qn_tensor *t, size_t k)
{
  if (!qn_is_input(kernel, k) || t->ndim) return QN_FORM_POINTER;
  return t->device.kind == QN_CPU ? QN_FORM_VALUE : QN_FORM_REFERENCE;
}

static bool ndim_matters(const qn_kernel *kernel, size_t k)
{
  const bool output = !qn_is_input(kernel, k);
  const size_t bit = output ? k - kernel->source.n_inputs : k;
  return (kernel->named_shape[output] | kernel->named_strides[output] | kernel->named_ndim[output]) >> bit & 1;
}

void qn_special_make(const qn_kernel *kernel, qn_device_kind target, const qn_kernel_call *call, qn_special *special)
{
  const uint64_t threads = (uint64_t)call->group[0] * call->group[1] * call->group[2];
  const size_t n = kernel->source.n_inputs + kernel->source.n_outputs;
  memset(special, 0, sizeof *special);
  special->target = target == QN_CUDA ? QN_CUDA : QN_EMULATOR;
  for (size_t k = 0; k < n; k++) {
    const qn_tensor *t = qn_call_tensor(kernel, call, k);
    special->tensor[k].dtype = (uint8_t)t->dtype;
    special->tensor[k].form = form_of(kernel, t, k);
    special->tensor[k].ndim = ndim_matters(kernel, k) ? (uint8_t)t->ndim : 0;
  }
  special->n_templates = call->n_templates;
  special->templates = call->templates;
  special->dims = call->grid[1] * call->grid[2] == 1 && call->group[1] <= 1 && call->group[2] <= 1 ? 1 : 3;
  special->check = call->check && special->target == QN_EMULATOR;
  special->limit =
      call->limit_ns > 0 && special->target == QN_EMULATOR && !special->check; /* checks stop in time too */
  for (size_t k = 0; call->stored_in && k < kernel->source.n_outputs; k++)
    if (call->stored_in[k] >= 0) special->in_place = 1;
  special->items = 1;
  if (special->target == QN_CUDA)
    special->bound = kernel->source.cluster ? (uint16_t)threads : threads <= 256 ? 256 : threads <= 512 ? 512 : 1024;
}

/* CUDA's own three dimensions end at 65,535 along y and z; beyond, blocks are laid along x and their numbers folded
 * back with extents that are compiled in. */
void qn_special_fold(const qn_kernel *kernel, const uint32_t blocks[3], qn_special *special)
{
  enum { MOST = 65535 };
  if (special->target != QN_CUDA || kernel->source.dialect != QN_DIALECT_CUDA) return;
  if (blocks[1] <= MOST && blocks[2] <= MOST) return;
  for (int d = 0; d < 3; d++) special->folded[d] = blocks[d];
}

static qn_status make_key(const qn_kernel *kernel, const qn_special *special, qn_device device, special_key *key)
{
  const size_t n = kernel->source.n_inputs + kernel->source.n_outputs;
  qn_special plain = *special;
  plain.templates = NULL;
  memset(plain.tensor + n, 0, sizeof plain.tensor - n * sizeof *plain.tensor);
  key->length = 0;
  qn_try(add_key(key, kernel, &device, sizeof device));
  qn_try(add_key(key, kernel, plain.tensor, n * sizeof *plain.tensor));
  qn_try(add_key(key, kernel, (const char *)&plain + offsetof(qn_special, n_templates),
                 sizeof plain - offsetof(qn_special, n_templates)));
  for (size_t k = 0; k < special->n_templates; k++) {
    const qn_template *t = &special->templates[k];
    const int64_t value[2] = {(int64_t)t->value.kind,
                              t->value.kind == QN_VALUE_DTYPE ? (int64_t)t->value.dtype : t->value.integer};
    qn_try(add_key(key, kernel, t->name, strlen(t->name) + 1));
    qn_try(add_key(key, kernel, value, sizeof value));
  }
  return QN_OK;
}

/* ---- the code ---- */
static const special_entry *find_entry(const qn_kernel *kernel, const special_key *key, uint64_t stamp)
{
  for (const special_entry *e = atomic_load_explicit(&kernel->entries, memory_order_acquire); e; e = e->next)
    if (e->stamp == stamp && e->key_bytes == key->length && !memcmp(e->key, key->bytes, key->length)) return e;
  return NULL;
}

void qn_launches_forget(qn_kernel *kernel)
{
  for (special_entry *e = atomic_exchange(&kernel->entries, NULL), *next; e; e = next) {
    next = e->next;
    qn_release(e);
  }
}

static const char *const *unit_flags(const qn_kernel *kernel, qn_device_kind target)
{
  static const char *const host[][6] = {
      [QN_MATH_SAFE] = {"-O3"},
      [QN_MATH_RELAXED] = {"-O3", "-ffp-contract=fast", "-fno-signed-zeros"},
      [QN_MATH_FAST] = {"-O3", "-ffp-contract=fast", "-fno-signed-zeros", "-ffinite-math-only", "-freciprocal-math"},
  };
  static const char *const cuda[][6] = {/* a header's functions say nothing of where they run */
                                        [QN_MATH_SAFE] = {"--device-as-default-execution-space"},
                                        [QN_MATH_RELAXED] = {"--device-as-default-execution-space", "--fmad=true"},
                                        [QN_MATH_FAST] = {"--device-as-default-execution-space", "--use_fast_math"}};
  return target == QN_CUDA ? cuda[kernel->source.math] : host[kernel->source.math];
}

/* The line of a file that a compiler's message names, as "FILE:LINE:" or "FILE(LINE):"; 0: none. */
static int line_in(const char *message, const char *file)
{
  const size_t n = strlen(file);
  for (const char *at = message; (at = strstr(at, file)); at += n) {
    int line = 0;
    if ((at[n] == ':' || at[n] == '(') && sscanf(at + n + 1, "%d", &line) == 1 && line > 0) return line;
  }
  return 0;
}

static void log_numbered(const char *text)
{
  for (int number = 1; *text; number++) {
    const size_t length = strcspn(text, "\n");
    qn_log(QN_LOG_WARNING, "%4d | %.*s", number, (int)length, text);
    text += length + (text[length] == '\n');
  }
}

/* The compiler's sentence, and beneath it the line of body or header that it speaks of; the whole body, numbered, goes
 * to the log. */
static qn_status explain(const qn_kernel *kernel, qn_status status)
{
  char why[1024], header[320];
  const qn_kernel_source *s = &kernel->source;
  if (status != QN_COMPILE_ERROR) return status;
  snprintf(why, sizeof why, "%s", qn_last_error());
  snprintf(header, sizeof header, "%s (header)", s->file);
  if (!line_in(why, header) && !line_in(why, s->file) && qn_brackets_check(kernel) != QN_OK)
    snprintf(why, sizeof why, "%s", qn_last_error());
  log_numbered(s->body);
  const int in_header = s->header ? line_in(why, header) : 0, line = in_header ? in_header : line_in(why, s->file);
  char shown[QN_SHOWN_BYTES] = "";
  qn_show_line(in_header ? s->header : s->body, line, shown);
  return qn_fail(status, "kernel %s: %s%s", s->name, why, shown);
}

static qn_status check_argument(const qn_kernel *kernel, const qn_backend *backend, qn_device device,
                                const qn_argument_layout *layout)
{
  size_t most;
  qn_try(backend->argument_limit(device, &most));
  qn_require(layout->bytes <= most,
             "kernel %s: pointers, shapes and values of its tensors have %zu bytes; the device takes at most %zu",
             kernel->source.name, layout->bytes, most);
  return QN_OK;
}

static qn_status compile(const qn_kernel *kernel, const qn_backend *backend, qn_device device,
                         const qn_special *special, special_entry *entry)
{
  char name[64];
  qn_text text = {0};
  const char *flags[QN_UNIT_FLAGS];
  qn_kernel_layout(kernel, special, &entry->layout);
  qn_try(check_argument(kernel, backend, device, &entry->layout));
  snprintf(name, sizeof name, "quern_%s", kernel->source.name);
  qn_status status = qn_brackets_are_plain(kernel) ? qn_brackets_check(kernel) : QN_OK;
  if (status == QN_OK) status = qn_kernel_generate(kernel, special, &entry->layout, &text);
  if (status == QN_OK)
    status = qn_sanitized_flags(special, kernel->needs_group, unit_flags(kernel, special->target), flags);
  if (status == QN_OK) {
    const qn_unit unit = {.source = kernel->source.file,
                          .text = text.at,
                          .flags = *flags ? flags : NULL,
                          .straight = special->dims == 1 && qn_words_straight(kernel)};
    status = qn_jit_function(device, &unit, name, &entry->function);
  }
  if (status == QN_OK && kernel->source.cluster > PORTABLE_CLUSTER)
    status = backend->allow_large_clusters(device, entry->function);
  if (status == QN_OK && backend->function_facts)
    status = backend->function_facts(device, entry->function, &entry->facts);
  qn_text_free(&text);
  return explain(kernel, status);
}

/* ---- a launch, ready ---- */
static void count_blocks(const qn_kernel_call *call, const uint32_t group[3], uint32_t blocks[3])
{
  for (int d = 0; d < 3; d++) blocks[d] = (uint32_t)((call->grid[d] + group[d] - 1) / group[d]);
}

static uint32_t power_over(uint64_t n, uint32_t most)
{
  uint32_t p = 1;
  while (p < n && 2 * p <= most) p *= 2;
  return p;
}

/* Along x first, so that neighbours in memory are neighbours in the group. */
static void choose_group(const qn_kernel_call *call, const qn_special *special, uint32_t best, uint32_t group[3])
{
  if (call->group[0]) {
    memcpy(group, call->group, sizeof call->group);
    return;
  }
  group[0] = special->dims == 1 ? best : power_over(call->grid[0], best);
  group[1] = special->dims == 1 ? 1 : power_over(call->grid[1], best / group[0]);
  group[2] = special->dims == 1 ? 1 : power_over(call->grid[2], best / group[0] / group[1]);
  if (group[2] > 64) group[2] = 64;
}

static qn_status find_code(qn_kernel *kernel, const qn_backend *backend, qn_device device, const qn_special *special,
                           const special_entry **entry)
{
  special_key key;
  const uint64_t stamp = qn_jit_stamp();
  qn_try(make_key(kernel, special, device, &key));
  *entry = find_entry(kernel, &key, stamp);
  if (*entry) return QN_OK;
  special_entry *made;
  qn_try(qn_try_allocate(&made, sizeof *made + key.length, "a kernel's specialisation"));
  memset(made, 0, sizeof *made);
  made->stamp = stamp;
  made->device = device;
  made->key_bytes = key.length;
  memcpy(made->key, key.bytes, key.length);
  const qn_status status = compile(kernel, backend, device, special, made);
  if (status != QN_OK) {
    qn_release(made);
    return status;
  }
  made->next = atomic_load(&kernel->entries);
  while (!atomic_compare_exchange_weak(&kernel->entries, &made->next, made)) continue;
  *entry = made;
  return QN_OK;
}

typedef struct ready {
  const qn_backend *backend;
  qn_device device; /* to which the code belongs: QN_EMULATOR for the processor */
  qn_special special;
  const special_entry *entry;
  uint32_t group[3], blocks[3];
} ready;

/* Its blocks have CUDA's own three dimensions. */
static bool is_native(const qn_kernel *kernel, const ready *r)
{
  return r->special.target == QN_CUDA && kernel->source.dialect == QN_DIALECT_CUDA;
}

/* On the processor a kernel of Metal's dialect has what Metal gives; and what the words need for themselves counts. */
static qn_status check_shared(const qn_kernel *kernel, const qn_kernel_call *call, const ready *r)
{
  enum { OF_METAL = 32 * 1024, OF_WORDS = 256 };
  const qn_function_facts *f = &r->entry->facts;
  const bool host = r->special.target != QN_CUDA, metal = host && kernel->source.dialect == QN_DIALECT_METAL;
  const uint64_t limit = metal ? OF_METAL : f->shared_limit_bytes;
  qn_require((uint64_t)f->shared_bytes + call->shared_bytes <= limit + (host ? OF_WORDS : 0),
             "kernel %s: %zu bytes of shared memory a group, and %d of its own; %s has %llu", kernel->source.name,
             call->shared_bytes, f->shared_bytes,
             metal  ? "Metal"
             : host ? "the largest GPU"
                    : "the device",
             (unsigned long long)limit);
  return QN_OK;
}

static qn_status check_limits(const qn_kernel *kernel, const qn_kernel_call *call, const ready *r)
{
  const uint64_t blocks = (uint64_t)r->blocks[0] * r->blocks[1];
  const uint64_t threads = (uint64_t)r->group[0] * r->group[1] * r->group[2];
  const int most = r->special.items > 1 ? 0 : r->entry->facts.most_threads; /* then groups are of our own making */
  qn_require(blocks <= INT32_MAX && blocks * r->blocks[2] <= INT32_MAX,
             "kernel %s: %u x %u x %u groups, at most %d in all are possible: take larger groups or a smaller grid",
             kernel->source.name, r->blocks[0], r->blocks[1], r->blocks[2], INT32_MAX);
  qn_try(check_shared(kernel, call, r));
  qn_require(!most || threads <= (uint64_t)most,
             "kernel %s: threadgroup (%u, %u, %u) has %llu threads, this kernel can have %d on this device (registers)",
             kernel->source.name, r->group[0], r->group[1], r->group[2], (unsigned long long)threads, most);
  qn_require(!is_native(kernel, r) || r->group[2] <= MOST_GROUP_Z,
             "kernel %s: threadgroup (%u, %u, %u): CUDA takes at most %d along z", kernel->source.name, r->group[0],
             r->group[1], r->group[2], MOST_GROUP_Z);
  return QN_OK;
}

static qn_status check_cluster(const qn_kernel *kernel, const qn_kernel_call *call, const ready *r)
{
  enum { FIRST = 90 };
  const uint32_t cluster = kernel->source.cluster;
  qn_arch arch = {.size = sizeof arch};
  if (!cluster) return QN_OK;
  if (r->special.target == QN_CUDA) qn_try(qn_device_arch(r->device, &arch));
  if (arch.capability < FIRST)
    return qn_fail(QN_UNSUPPORTED, "kernel %s: a cluster of %u blocks needs a GPU of compute capability 9.0 or above",
                   kernel->source.name, cluster);
  qn_require(call->group[0], "kernel %s: with a cluster of blocks a call gives the threadgroup", kernel->source.name);
  const uint64_t whole = (uint64_t)cluster * call->group[0];
  qn_require(call->grid[0] % whole == 0 && call->grid[1] % call->group[1] == 0 && call->grid[2] % call->group[2] == 0,
             "kernel %s: a grid of %llu x %llu x %llu threads is not one of whole clusters of %u groups",
             kernel->source.name, (unsigned long long)call->grid[0], (unsigned long long)call->grid[1],
             (unsigned long long)call->grid[2], cluster);
  return QN_OK;
}

enum { MANY = 1 << 20, ITEM_BYTES = 16, MOST_ITEMS = 8, ITEM_THREADS = 128 };

/* Positions a thread takes where quern launches it (an emitted source has one a thread): so many that it writes 16
 * bytes, where the grid fills a GPU all the same. */
static uint8_t items_of(const qn_kernel *kernel, const qn_kernel_call *call, const qn_special *special)
{
  uint64_t bytes = 0;
  uint8_t items = 1;
  if (special->target != QN_CUDA || !kernel->straight || special->dims != 1 || call->grid[0] < MANY) return 1;
  for (size_t k = 0; k < kernel->source.n_outputs; k++) {
    uint64_t n = qn_dtype_bytes(call->outputs[k].dtype);
    for (int d = 0; d < call->outputs[k].ndim; d++) n *= (uint64_t)call->outputs[k].shape[d];
    bytes += n;
  }
  if (bytes < call->grid[0]) return 1;
  while (items < MOST_ITEMS && 2 * items * (bytes / call->grid[0]) <= ITEM_BYTES) items *= 2;
  return items;
}

static qn_status make_ready(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, ready *r)
{
  qn_try(qn_call_check(kernel, exec, call));
  qn_require(!call->check || exec->device.kind != QN_CUDA, "kernel %s: checks run on the processor, not on cuda:%d",
             kernel->source.name, exec->device.index);
  r->device = exec->device.kind == QN_CPU ? (qn_device){QN_EMULATOR, 0} : exec->device;
  qn_try(qn_backend_of(r->device, &r->backend));
  qn_special_make(kernel, exec->device.kind, call, &r->special);
  qn_try(check_cluster(kernel, call, r));
  r->special.items = items_of(kernel, call, &r->special);
  if (r->special.items > 1) r->special.bound = ITEM_THREADS;
  if (call->group[0]) {
    memcpy(r->group, call->group, sizeof r->group);
    count_blocks(call, r->group, r->blocks);
    qn_special_fold(kernel, r->blocks, &r->special);
  }
  qn_try(find_code(kernel, r->backend, r->device, &r->special, &r->entry));
  if (!call->group[0]) {
    const uint32_t best = r->entry->facts.best_threads;
    choose_group(call, &r->special, best ? best : FLAT_GROUP, r->group);
    count_blocks(call, r->group, r->blocks);
    qn_special_fold(kernel, r->blocks, &r->special);
    if (r->special.folded[0]) qn_try(find_code(kernel, r->backend, r->device, &r->special, &r->entry));
  }
  return check_limits(kernel, call, r);
}

qn_status qn_kernel_prepare(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  ready r;
  qn_try(make_ready(kernel, exec, call, &r));
  qn_try(qn_inputs_prepare(kernel, exec, call));
  return qn_outputs_prepare(kernel, exec, call);
}

/* ---- the argument ---- */
enum { ARGUMENT_BYTES = 16384 };

static void put_strides(const qn_tensor *t, int64_t *to)
{
  int64_t stride = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    to[d] = t->strides ? t->strides[d] : stride;
    stride *= t->shape[d];
  }
}

static void put_member(const qn_argument_member *member, const qn_tensor *t, char *at)
{
  int64_t strides[QN_MAX_NDIM];
  switch ((qn_member_kind)member->kind) {
  case QN_MEMBER_POINTER: memcpy(at, &t->data, sizeof t->data); break;
  case QN_MEMBER_VALUE: memcpy(at, t->data, qn_dtype_bytes(t->dtype)); break;
  case QN_MEMBER_SHAPE:
    for (int d = 0; d < t->ndim; d++) memcpy(at + 4 * d, &(int32_t){(int32_t)t->shape[d]}, 4);
    break;
  case QN_MEMBER_STRIDES:
    put_strides(t, strides);
    memcpy(at, strides, 8 * (size_t)t->ndim);
    break;
  case QN_MEMBER_NDIM: memcpy(at, &(int32_t){t->ndim}, 4); break;
  }
}

static void fill_argument(const qn_kernel *kernel, const qn_kernel_call *call, const qn_tensor *const *tensor,
                          const ready *r, char *argument)
{
  qn_launch_grid g = {.zero = 0};
  (void)kernel;
  for (int d = 0; d < 3; d++) {
    g.grid[d] = (uint32_t)call->grid[d];
    g.group[d] = r->group[d];
    g.blocks[d] = r->blocks[d];
  }
  memcpy(argument, &g, sizeof g);
  for (size_t k = 0; k < r->entry->layout.n; k++) {
    const qn_argument_member *member = &r->entry->layout.member[k];
    put_member(member, tensor[member->tensor], argument + member->offset);
  }
}

static void set_geometry(const qn_kernel *kernel, const ready *r, qn_launch *launch)
{
  const bool native = is_native(kernel, r);
  launch->blocks = r->blocks[0];
  launch->threads = r->group[0];
  if (native) {
    launch->threads_y = r->group[1];
    launch->threads_z = r->group[2];
  } else
    launch->threads *= r->group[1] * r->group[2];
  if (native && !r->special.folded[0]) {
    launch->blocks_y = r->blocks[1];
    launch->blocks_z = r->blocks[2];
  } else
    launch->blocks *= (uint64_t)r->blocks[1] * r->blocks[2];
  if (r->special.items > 1) { /* the body knows no groups, and small ones overlap best */
    launch->threads = ITEM_THREADS;
    launch->blocks = ((uint64_t)r->blocks[0] * r->group[0] + ITEM_THREADS * r->special.items - 1) /
                     (ITEM_THREADS * r->special.items);
  }
}

/* Copies and first values stand before the body's work in the stream. */
static qn_status launch_with(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, const ready *r,
                             const qn_inputs *inputs)
{
  const qn_tensor *tensor[QN_KERNEL_MAX_TENSORS];
  _Alignas(16) char argument[ARGUMENT_BYTES];
  for (size_t k = 0; k < kernel->source.n_inputs + kernel->source.n_outputs; k++)
    tensor[k] = qn_is_input(kernel, k) ? &inputs->tensor[k] : qn_call_tensor(kernel, call, k);
  fill_argument(kernel, call, tensor, r, argument);
  qn_launch launch = {.shared_bytes = (uint32_t)call->shared_bytes,
                      .stream = exec->stream,
                      .pool = exec->pool,
                      .argument = argument,
                      .argument_bytes = r->entry->layout.bytes};
  set_geometry(kernel, r, &launch);
  if (call->init) qn_try(qn_outputs_init(kernel, exec, call));
  if (call->check || call->limit_ns > 0)
    return qn_launch_sanitized(kernel, call, r->group, tensor, r->device, r->entry->function, &launch);
  return r->backend->launch(r->device, r->entry->function, &launch);
}

qn_status qn_kernel_launch(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  ready r;
  qn_inputs inputs;
  qn_try(make_ready(kernel, exec, call, &r));
  qn_try(qn_call_check_memory(kernel, exec, call));
  if (qn_capture_is_on()) qn_try(qn_capture_note(kernel, exec, call));
  qn_try(qn_inputs_copy(kernel, exec, call, &inputs));
  const qn_status status = launch_with(kernel, exec, call, &r, &inputs);
  qn_inputs_release(&inputs);
  return status;
}

/* ---- what is asked of a launch without one ---- */
qn_status qn_kernel_query(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, qn_kernel_info *info)
{
  ready r;
  qn_require(info && info->size == sizeof *info, "qn_kernel_info is NULL or has another size than %zu", sizeof *info);
  qn_try(make_ready(kernel, exec, call, &r));
  const qn_function_facts *f = &r.entry->facts;
  int groups = 0;
  if (r.backend->groups_at_once)
    qn_try(r.backend->groups_at_once(r.device, r.entry->function, r.group[0] * r.group[1] * r.group[2],
                                     (uint32_t)call->shared_bytes, &groups));
  *info = (qn_kernel_info){.size = sizeof *info,
                           .registers = f->registers,
                           .shared_bytes = f->shared_bytes,
                           .local_bytes = f->local_bytes,
                           .most_threads = r.special.items > 1 ? QN_KERNEL_MAX_GROUP : f->most_threads,
                           .group = {r.group[0], r.group[1], r.group[2]},
                           .groups_at_once = groups,
                           .fibers = f->fibers};
  return QN_OK;
}

qn_status qn_kernel_text(qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, char **text)
{
  qn_special special;
  qn_argument_layout layout;
  qn_text made = {0};
  qn_require(text, "where to put the text is NULL");
  *text = NULL;
  qn_try(qn_call_check(kernel, exec, call));
  qn_special_make(kernel, exec->device.kind, call, &special);
  special.items = items_of(kernel, call, &special);
  if (special.items > 1) special.bound = ITEM_THREADS;
  qn_kernel_layout(kernel, &special, &layout);
  const qn_status status = qn_kernel_generate(kernel, &special, &layout, &made);
  if (status == QN_OK)
    *text = made.at;
  else
    qn_text_free(&made);
  return status;
}

void qn_text_release(char **text)
{
  if (!text) return;
  qn_release(*text);
  *text = NULL;
}
