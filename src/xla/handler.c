/* SPDX-License-Identifier: Apache-2.0 */
/* handler.c - the handlers that XLA calls: what they say of themselves, which versions of the interface they accept,
 * and the step, on XLA's stream or threads. What a frame means is read by call.c. */
#include "quern/xla.h"
#include "core/core.h"
#include "op/device_list.h"
#include "quern/device.h"
#include "xla/call.h"

/* ---- failures ---- */
static xla_code code_of(qn_status status)
{
  switch (status) {
  case QN_BAD_ARGUMENT:
  case QN_BAD_TYPE: return XLA_INVALID_ARGUMENT;
  case QN_NO_MEMORY: return XLA_RESOURCE_EXHAUSTED;
  case QN_UNSUPPORTED: return XLA_UNIMPLEMENTED;
  case QN_NO_DEVICE:
  case QN_NO_LIBRARY:
  case QN_FORKED: return XLA_FAILED_PRECONDITION;
  default: return XLA_INTERNAL;
  }
}

/* A status as XLA's error, NULL for none. The function that makes errors is the first of all since the ABI's 0.0; only
 * a question for metadata may come without (the metadata is then left as it was, and no version that XLA accepts). */
static xla_error *to_error(const xla_api *api, qn_status status)
{
  if (status == QN_OK || !api) return NULL;
  xla_error_create create = {.head = {.size = sizeof create}, .message = qn_last_error(), .code = code_of(status)};
  return api->error_create(&create);
}

/* An error that XLA gave us, as a status with a sentence; it is destroyed. */
static qn_status from_error(const xla_api *api, xla_error *error, const char *function)
{
  if (!error) return QN_OK;
  xla_error_message message = {.head = {.size = sizeof message}, .error = error, .message = ""};
  xla_error_destroy destroy = {.head = {.size = sizeof destroy}, .error = error};
  api->error_message(&message);
  const qn_status status = qn_fail(QN_DRIVER_ERROR, "xla: %s: %s", function, message.message);
  api->error_destroy(&destroy);
  return status;
}

#define has(api, function) (xla_reaches((api)->head.size, xla_api, function) && (api)->function)

/* ---- versions ---- */
static qn_status check_api(const xla_api *api)
{
  qn_require(api->version.major == QN_XLA_MAJOR,
             "xla: its foreign function interface is of version %d.%d, and quern %s knows versions %d.x",
             api->version.major, api->version.minor, qn_version(), QN_XLA_MAJOR);
  qn_require(has(api, stream_get) && api->error_message && api->error_destroy,
             "xla: its foreign function interface %d.%d has %zu bytes of functions, and at least %zu are needed",
             api->version.major, api->version.minor, api->head.size,
             offsetof(xla_api, stream_get) + sizeof api->stream_get);
  return QN_OK;
}

/* Structs that others lie behind have one size; the last may grow. */
static qn_status check_frame(const xla_frame *frame)
{
  qn_require(xla_reaches(frame->head.size, xla_frame, attributes) && frame->operands.head.size == sizeof(xla_values) &&
                 frame->results.head.size == sizeof(xla_values) &&
                 xla_reaches(frame->attributes.head.size, xla_attributes, values),
             "xla: a call frame of %zu bytes with operands of %zu, results of %zu and attributes of %zu is laid out as "
             "no version 0.x known to quern %s",
             frame->head.size, frame->operands.head.size, frame->results.head.size, frame->attributes.head.size,
             qn_version());
  return QN_OK;
}

/* The version is XLA's own where these declarations reach as far, else theirs: then XLA decides whether it still
 * supports that. XLA before its version 0.2 asks without showing its functions, and wants to hear 0.1. A step always
 * makes the same launches, and `initialize` has compiled and loaded them. */
static qn_status describe(const xla_frame *frame)
{
  const xla_metadata_extension *extension = (const xla_metadata_extension *)frame->head.extensions;
  qn_require(xla_reaches(extension->base.size, xla_metadata_extension, metadata) &&
                 xla_reaches(extension->metadata->size, xla_metadata, traits),
             "xla: its question for metadata has structs of %zu and %zu bytes, %zu and %zu are known",
             extension->base.size, extension->metadata->size, sizeof(xla_metadata_extension), sizeof(xla_metadata));
  const int minor = frame->api ? frame->api->version.minor : QN_XLA_LEAST_MINOR;
  xla_metadata *metadata = extension->metadata;
  metadata->version.major = QN_XLA_MAJOR;
  metadata->version.minor = minor < QN_XLA_MINOR ? minor : QN_XLA_MINOR;
  metadata->traits = XLA_TRAIT_CAPTURABLE;
  return QN_OK;
}

/* ---- where a step runs ---- */
static qn_status find_device(const xla_frame *frame, qn_exec *exec)
{
  const xla_api *api = frame->api;
  xla_ordinal_get get = {.head = {.size = sizeof get}, .context = frame->context};
  if (exec->device.kind == QN_CPU) return QN_OK;
  qn_require(has(api, ordinal_get), "xla: its foreign function interface %d.%d does not tell a device's number",
             api->version.major, api->version.minor);
  qn_try(from_error(api, api->ordinal_get(&get), "the device's number"));
  exec->device.index = get.ordinal;
  return QN_OK;
}

static qn_status find_stream(const xla_frame *frame, qn_exec *exec)
{
  xla_stream_get get = {.head = {.size = sizeof get}, .context = frame->context};
  if (exec->device.kind == QN_CPU) return QN_OK;
  qn_try(from_error(frame->api, frame->api->stream_get(&get), "the stream"));
  exec->stream = get.stream;
  return QN_OK;
}

static bool lend(void *user, void (*task)(void *argument), void *argument)
{
  const xla_frame *frame = user;
  xla_schedule schedule = {
      .head = {.size = sizeof schedule}, .context = frame->context, .task = task, .data = argument};
  return from_error(frame->api, frame->api->schedule(&schedule), "a task for its threads") == QN_OK;
}

/* XLA's threads, for the call; where it has none to lend the step is serial. */
static void find_threads(const xla_frame *frame, const qn_exec *exec, qn_lender *lender)
{
  const xla_api *api = frame->api;
  int64_t n = 0;
  xla_threads_get get = {.head = {.size = sizeof get}, .context = frame->context, .n_threads = &n};
  *lender = (qn_lender){.lend = lend, .user = (void *)(uintptr_t)frame, .n_threads = 1};
  if (exec->device.kind != QN_CPU || !has(api, schedule) || !has(api, threads_get)) return;
  if (from_error(api, api->threads_get(&get), "its threads") != QN_OK) return;
  lender->n_threads = n < 1 ? 1 : n > 1024 ? 1024 : (int)n;
}

/* ---- the stages ---- */

/* Results that XLA put elsewhere than their operands begin as copies of them. */
static qn_status copy_operands(const qn_xla_call *call, const qn_exec *exec)
{
  for (size_t role = 0; role < call->op->n_tensors; role++)
    for (size_t k = 0; call->operands[role] && k < call->n; k++) {
      const qn_tensor *t = &call->tensors[role][k];
      const size_t bytes = qn_tensor_elements(t) * qn_dtype_bytes(t->dtype);
      if (t->data == call->operands[role][k] || !bytes) continue;
      qn_try(qn_memory_copy(exec->device, exec->stream, t->data, call->operands[role][k], bytes));
    }
  return QN_OK;
}

static qn_status execute(const xla_frame *frame, const qn_xla_call *call, qn_exec *exec)
{
  qn_lender lender;
  const qn_tensor *const *tensors = (const qn_tensor *const *)call->tensors;
  qn_try(find_stream(frame, exec));
  exec->workspace = call->workspace;
  exec->workspace_bytes = call->workspace_bytes;
  qn_try(copy_operands(call, exec));
  find_threads(frame, exec, &lender);
  exec->pool = qn_pool_borrow(&lender);
  const qn_status status = qn_op_step(call->op, exec, call->params, call->n, tensors);
  qn_pool_give_back(exec->pool);
  return status;
}

static qn_status run(const xla_frame *frame, qn_device_kind kind)
{
  qn_exec exec = {.size = sizeof exec, .device = {kind, 0}};
  qn_xla_call call;
  qn_require(frame->stage == XLA_EXECUTE || (frame->stage == XLA_INITIALIZE && kind != QN_CPU),
             "xla: the handler is registered for stage %d, where it does nothing: register it as \"execute\", and on "
             "CUDA as \"initialize\" too",
             (int)frame->stage);
  qn_try(find_device(frame, &exec));
  qn_status status = qn_xla_call_read(&call, frame, exec.device);
  if (status == QN_OK)
    status = frame->stage == XLA_EXECUTE
                 ? execute(frame, &call, &exec)
                 : qn_op_prepare(call.op, &exec, call.params, call.n, (const qn_tensor *const *)call.tensors);
  qn_xla_call_free(&call);
  return status;
}

static qn_status handle(const xla_frame *frame, qn_device_kind kind)
{
  const xla_extension *extension = frame->head.extensions;
  const bool is_question = extension && extension->type == XLA_METADATA;
  if (frame->api || !is_question) qn_try(check_api(frame->api));
  if (is_question) return describe(frame);
  qn_try(check_frame(frame));
  return run(frame, kind);
}

struct XLA_FFI_Error *qn_xla_cpu_step(struct XLA_FFI_CallFrame *frame)
{
  return to_error(frame->api, handle(frame, QN_CPU));
}

struct XLA_FFI_Error *qn_xla_cuda_step(struct XLA_FFI_CallFrame *frame)
{
  return to_error(frame->api, handle(frame, QN_CUDA));
}
