/* SPDX-License-Identifier: Apache-2.0 */
/* ruled.c - see ruled.h: the text, the memory, the steps. Comparing is in ruled_compare.c. */
#include "workbench/ruled.h"
#include "core/core.h"
#include "quern/device.h"
#include "workbench/fill.h"
#include "workbench/op_check.h"
#include "workbench/run.h"
#include "workbench/settings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the text ---- */

/* "7x5", "-": one more tensor of the first role. */
static qn_status add_shape(qn_ruled_data *d, const char *word)
{
  qn_ruled_role *first = &d->role[0];
  qn_tensor *t = &first->tensor[d->n];
  qn_require(d->n < QN_RULED_TENSORS, "%s: more than %d tensors in a check", d->op->info.name, QN_RULED_TENSORS);
  for (const char *at = word; *word != '-' && *at;) {
    char *end;
    const long long extent = strtoll(at, &end, 10);
    qn_require(end != at && (!*end || *end == 'x') && extent >= 0 && t->ndim < QN_RULED_NDIM, "%s: %s is no shape",
               d->op->info.name, word);
    first->shape[d->n][t->ndim++] = extent;
    at = *end ? end + 1 : end;
  }
  d->n++;
  return QN_OK;
}

static const qn_op_param *find_param(const qn_op *op, const char *name, size_t *k)
{
  for (*k = 0; *k < op->info.n_params; ++*k)
    if (!strcmp(op->info.params[*k].name, name)) return &op->info.params[*k];
  return NULL;
}

/* "ROLE=X" of what the list has one of and is only read. */
static bool hold(qn_ruled_data *d, const char *word)
{
  const char *equals = strchr(word, '=');
  for (size_t r = 0; r < d->op->info.n_tensors && equals; r++) {
    const char *name = d->op->info.tensors[r].name;
    const bool single = d->op->info.tensors[r].single, read = d->op->info.types[0].tensor[r].access == QN_READ;
    if (!single || !read || strlen(name) != (size_t)(equals - word) || strncmp(name, word, strlen(name))) continue;
    d->role[r].held = true;
    d->role[r].holds = strtod(equals + 1, NULL);
    return true;
  }
  return false;
}

/* "ROLE[k]=X", "ROLE[k,i]=X" or "ROLE[k,*]=X". */
static bool set(qn_ruled_data *d, const char *word)
{
  const char *bracket = strchr(word, '['), *equals = strchr(word, '=');
  if (!bracket || !equals || bracket > equals || d->n_set == QN_RULED_SET) return false;
  for (size_t r = 0; r < d->op->info.n_tensors; r++) {
    const char *name = d->op->info.tensors[r].name;
    char *end;
    if (strlen(name) != (size_t)(bracket - word) || strncmp(name, word, strlen(name)) != 0) continue;
    qn_ruled_set *to = &d->set[d->n_set++];
    *to = (qn_ruled_set){.role = r, .tensor = strtoull(bracket + 1, &end, 10), .element = SIZE_MAX - 1};
    if (*end == ',') to->element = end[1] == '*' ? SIZE_MAX : strtoull(end + 1, NULL, 10);
    to->value = strtod(equals + 1, NULL);
    return true;
  }
  return false;
}

static qn_status take_word(qn_ruled_data *d, const char *word)
{
  size_t k;
  if ((*word >= '0' && *word <= '9') || !strcmp(word, "-")) return add_shape(d, word);
  if (!strcmp(word, "filled"))
    d->filled = true;
  else if (!strcmp(word, "hyper"))
    d->hyper = true;
  else if (!strncmp(word, "steps=", 6))
    d->steps = strtoull(word + 6, NULL, 10);
  else if (!strncmp(word, "gradients=", 10))
    d->gradients = strtod(word + 10, NULL);
  else if (!strncmp(word, "params=", 7))
    d->trained = strtod(word + 7, NULL);
  else if (find_param(d->op, word, &k) && d->op->info.params[k].type == QN_PARAM_HOST_F64)
    d->scaled = true;
  else if (!set(d, word) && !hold(d, word))
    return qn_settings_read(&d->op->info, d->params, word);
  return QN_OK;
}

static qn_status take_text(qn_ruled_data *d, const char *text)
{
  char word[96];
  for (int used; text && sscanf(text, "%95s%n", word, &used) == 1; text += used) qn_try(take_word(d, word));
  return QN_OK;
}

/* ---- what params point to ---- */

static qn_status point(qn_ruled_data *d, size_t k, const void *values, size_t bytes, bool on_host)
{
  char *at = (char *)d->params + d->op->info.params[k].offset;
  qn_require(k < QN_RULED_POINTERS, "%s: its params are too many for a check", d->op->info.name);
  if (!d->values[k]) qn_try(qn_try_allocate(&d->values[k], bytes + 1, "what a param points to"));
  memcpy(d->values[k], values, bytes);
  if (!on_host && !d->pointed[k]) qn_try(qn_memory_allocate(d->exec.device, bytes, &d->pointed[k]));
  if (!on_host) qn_try(qn_memory_write(d->exec.device, d->exec.stream, d->pointed[k], d->values[k], bytes));
  const void *const to = on_host ? d->values[k] : d->pointed[k];
  memcpy(at, &to, sizeof to);
  return QN_OK;
}

static qn_status make_values(qn_ruled_data *d, size_t k)
{
  const qn_op_param *param = &d->op->info.params[k];
  const size_t n = (size_t)param->most;
  float *values;
  qn_try(qn_try_allocate(&values, n * sizeof *values, "the values of a param"));
  qn_op_check_of(d->op)->random_weights(param, values);
  const qn_status status = point(d, k, values, n * sizeof *values, false);
  qn_release(values);
  return status;
}

/* From 1/4 to 1, another for every tensor. */
static qn_status make_scales(qn_ruled_data *d, size_t k)
{
  double scale[QN_RULED_TENSORS];
  for (size_t j = 0; j < d->n; j++) scale[j] = 0.25 + 0.75 * (double)(qn_seed_mix(d->seed, j) >> 40) / 0x1p24;
  return point(d, k, scale, d->n * sizeof *scale, true);
}

static qn_status make_pointers(qn_ruled_data *d)
{
  for (size_t k = 0; k < d->op->info.n_params; k++) {
    if (d->op->info.params[k].type == QN_PARAM_DEVICE_F32S) qn_try(make_values(d, k));
    if (d->op->info.params[k].type == QN_PARAM_HOST_F64 && d->scaled) qn_try(make_scales(d, k));
  }
  return QN_OK;
}

/* Params that may be in device memory, put there. */
static qn_status put_hyper(qn_ruled_data *d)
{
  const qn_op_info *info = &d->op->info;
  _Alignas(16) unsigned char hyper[256] = {0};
  qn_require(info->hyper_bytes <= sizeof hyper, "%s: its struct in device memory is too large for a check", info->name);
  for (size_t k = 0; k < info->n_params; k++) /* doubles and whole numbers of 64 bits */
    if (info->params[k].hyper_offset)
      memcpy(hyper + info->params[k].hyper_offset - 1, d->params + info->params[k].offset, sizeof(double));
  for (size_t k = 0; k < info->n_params; k++)
    if (info->params[k].type == QN_PARAM_DEVICE_HYPER) qn_try(point(d, k, hyper, info->hyper_bytes, false));
  return QN_OK;
}

/* ---- memory ---- */

static qn_status shape_role(qn_ruled_data *d, size_t r)
{
  qn_ruled_role *role = &d->role[r];
  role->single = d->op->info.tensors[r].single;
  role->n = role->single ? 1 : d->n;
  role->access = d->op->info.types[0].tensor[r].access;
  role->dtype = d->op->info.types[0].tensor[r].dtype;
  role->width = qn_dtype_bytes(role->dtype);
  for (size_t k = 0; k < role->n; k++) {
    const qn_tensor *first = &d->role[0].tensor[k];
    if (r)
      qn_try(qn_op_role_shape(&d->op->info, r, d->n, first->ndim, d->role[0].shape[k], &role->tensor[k].ndim,
                              role->shape[k]));
    role->elements[k] = 1;
    for (int e = 0; e < role->tensor[k].ndim; e++) role->elements[k] *= (size_t)role->shape[k][e];
    role->offset[k] = (role->bytes + QN_RULED_GUARD + 63) / 64 * 64 + d->shift / role->width * role->width;
    role->bytes = role->offset[k] + role->elements[k] * role->width;
  }
  if (!d->fenced) role->bytes += QN_RULED_GUARD;
  if (d->shift % 16 == 0) role->bytes = (role->bytes + 63) / 64 * 64; /* or its beginning is no multiple of that */
  return QN_OK;
}

static qn_status make_role(qn_ruled_data *d, size_t r)
{
  qn_ruled_role *role = &d->role[r];
  qn_try(qn_try_allocate(&role->before, role->bytes, "tensors"));
  qn_try(qn_try_allocate(&role->after, role->bytes, "tensors"));
  memset(role->before, 0xa5, role->bytes);
  qn_try(qn_fence_create(d->exec.device, d->fenced, role->bytes, &role->fence));
  role->memory = role->fence.memory;
  for (size_t k = 0; k < role->n; k++) {
    qn_try(qn_try_allocate(&role->value[k], (3 * role->elements[k] + 1) * sizeof(double), "tensors in double"));
    role->was[k] = role->value[k] + role->elements[k];
    role->allowed[k] = role->was[k] + role->elements[k];
    role->tensor[k].data = role->memory + role->offset[k];
    role->tensor[k].dtype = role->dtype;
    role->tensor[k].shape = role->shape[k];
    role->tensor[k].device = d->exec.device;
    memset(role->before + role->offset[k], 0, role->elements[k] * role->width);
    memset(role->value[k], 0, 3 * role->elements[k] * sizeof(double));
  }
  d->list[r] = role->tensor;
  return QN_OK;
}

static void put_image(qn_ruled_data *d, size_t r, size_t k)
{
  qn_ruled_role *role = &d->role[r];
  for (size_t i = 0; i < role->elements[k]; i++)
    role->value[k][i] = qn_number_load(role->dtype, role->before + role->offset[k] + i * role->width);
}

static qn_status send(qn_ruled_data *d, size_t r)
{
  return qn_memory_write(d->exec.device, d->exec.stream, d->role[r].memory, d->role[r].before, d->role[r].bytes);
}

/* What the text says of elements of the tensor. */
static void put_set(qn_ruled_data *d, size_t r, size_t k)
{
  qn_ruled_role *role = &d->role[r];
  for (size_t s = 0; s < d->n_set; s++) {
    const qn_ruled_set *set = &d->set[s];
    if (set->role != r || set->tensor != k) continue;
    for (size_t i = 0; i < role->elements[k]; i++)
      if (set->element == i || set->element == SIZE_MAX || (set->element == SIZE_MAX - 1 && i == role->elements[k] / 2))
        qn_number_store(role->dtype, role->before + role->offset[k] + i * role->width, set->value);
  }
}

static qn_status fill_role(qn_ruled_data *d, size_t r, uint64_t seed, double scale)
{
  const qn_op_tensor *is = &d->op->info.tensors[r];
  const qn_filling filling = {.kind = is->fill, .scale = scale < 0 ? is->fill_scale : scale, .seed = seed, .role = r};
  qn_ruled_role *role = &d->role[r];
  for (size_t k = 0; k < role->n; k++) {
    qn_fill_numbers(&filling, role->dtype, role->before + role->offset[k], role->elements[k], k << 32);
    for (size_t i = 0; i < role->elements[k] && role->held; i++)
      qn_number_store(role->dtype, role->before + role->offset[k] + i * role->width, role->holds);
    put_set(d, r, k);
    put_image(d, r, k);
  }
  return send(d, r);
}

qn_status qn_ruled_put(qn_ruled_data *d, size_t r, size_t k, const double *values)
{
  qn_ruled_role *role = &d->role[r];
  for (size_t i = 0; i < role->elements[k]; i++)
    qn_number_store(role->dtype, role->before + role->offset[k] + i * role->width, values[i]);
  put_set(d, r, k);
  put_image(d, r, k);
  return send(d, r);
}

/* What params point to, where the host reads it. */
static void host_params(const qn_ruled_data *d, unsigned char params[QN_RULED_PARAMS])
{
  memcpy(params, d->params, QN_RULED_PARAMS);
  for (size_t k = 0; k < d->op->info.n_params && k < QN_RULED_POINTERS; k++)
    if (d->values[k]) memcpy(params + d->op->info.params[k].offset, &d->values[k], sizeof d->values[k]);
}

/* What the role holds when the first step comes. */
static qn_status begin_role(qn_ruled_data *d, size_t r)
{
  const qn_op_check *ruled = qn_op_check_of(d->op);
  _Alignas(16) unsigned char params[QN_RULED_PARAMS];
  if (!d->role[r].single || !(d->role[r].access & QN_WRITE) || !ruled->initial_state)
    return !r || d->filled ? fill_role(d, r, d->seed, r ? -1 : d->trained) : send(d, r);
  host_params(d, params);
  ruled->initial_state(params, r, d->filled, d->role[r].shape[0], d->role[r].value[0]);
  return qn_ruled_put(d, r, 0, d->role[r].value[0]);
}

static qn_status lend(qn_ruled_data *d)
{
  const size_t bytes = qn_op_call_workspace_bytes(&d->op->info, &d->exec, d->params, d->n, d->list);
  if (!bytes) return QN_OK;
  const size_t all = QN_RULED_GUARD + (d->fenced ? (bytes + 15) / 16 * 16 : bytes + QN_RULED_GUARD);
  qn_try(qn_fence_create(d->exec.device, d->fenced, all, &d->fence));
  d->lent = d->fence.memory;
  d->exec.workspace = d->lent + QN_RULED_GUARD;
  d->exec.workspace_bytes = bytes;
  return qn_memory_fill(d->exec.device, d->exec.stream, d->lent, 0xa5, all);
}

qn_status qn_ruled_open(qn_ruled_data *d, const qn_ruled_order *order)
{
  const qn_op_info *info = &order->op->info;
  *d = (qn_ruled_data){.op = order->op,
                       .shift = order->shift,
                       .seed = order->seed,
                       .planned = order->planned,
                       .steps = 1,
                       .gradients = -1,
                       .trained = 0.3};
  d->exec = (qn_exec){.size = sizeof d->exec, .device = order->device, .pool = order->pool};
  d->fenced = order->fenced && order->device.kind != QN_CUDA;
  qn_require(info->params_bytes <= sizeof d->params, "%s: its params are too large for a check", info->name);
  qn_try(qn_settings_begin(order->op, d->params));
  qn_try(take_text(d, order->text));
  qn_try(take_text(d, order->more));
  qn_try(qn_stream_create(order->device, &d->exec.stream));
  qn_try(make_pointers(d));
  for (size_t r = 0; r < info->n_tensors; r++) {
    qn_try(shape_role(d, r));
    qn_try(make_role(d, r));
    qn_try(begin_role(d, r));
  }
  return lend(d);
}

void qn_ruled_close(qn_ruled_data *d)
{
  if (d->exec.stream) qn_stream_synchronize(d->exec.device, d->exec.stream);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    for (size_t k = 0; k < d->role[r].n; k++) qn_release(d->role[r].value[k]);
    qn_release(d->role[r].before);
    qn_release(d->role[r].after);
    qn_fence_destroy(&d->role[r].fence);
  }
  for (size_t k = 0; k < QN_RULED_POINTERS; k++) {
    qn_release(d->values[k]);
    if (d->pointed[k]) qn_memory_release(d->exec.device, d->pointed[k]);
  }
  qn_fence_destroy(&d->fence);
  if (d->exec.stream) qn_stream_destroy(d->exec.device, &d->exec.stream);
  *d = (qn_ruled_data){0};
}

/* ---- steps ---- */

qn_status qn_ruled_turn(qn_ruled_data *d, uint64_t t)
{
  size_t k;
  const qn_op_param *count = find_param(d->op, "step", &k);
  uint64_t *const step = count && count->type == QN_PARAM_U64 ? (uint64_t *)(void *)(d->params + count->offset) : NULL;
  if (step && t) ++*step;
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    if (d->role[r].access == QN_READ)
      qn_try(fill_role(d, r, d->seed + 1000 + t, d->role[r].single ? -1 : d->gradients));
  return d->hyper ? put_hyper(d) : QN_OK;
}

/* Where params lie in device memory, those that the call has in their place must not be looked at. */
qn_status qn_ruled_run(qn_ruled_data *d)
{
  static const double bad = -12345.5; /* as a whole number it is a large one */
  const qn_op_info *info = &d->op->info;
  _Alignas(16) unsigned char params[QN_RULED_PARAMS];
  memcpy(params, d->params, sizeof params);
  for (size_t k = 0; k < info->n_params && d->hyper; k++)
    if (info->params[k].hyper_offset) memcpy(params + info->params[k].offset, &bad, sizeof bad);
  return qn_run_once(d->op, &d->exec, params, d->n, d->list, d->planned);
}

qn_status qn_ruled_fetch(qn_ruled_data *d)
{
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    qn_try(qn_memory_read(d->exec.device, d->exec.stream, d->role[r].after, d->role[r].memory, d->role[r].bytes));
  return QN_OK;
}

qn_status qn_ruled_refer(qn_ruled_data *d)
{
  const qn_op_info *info = &d->op->info;
  _Alignas(16) unsigned char params[QN_RULED_PARAMS];
  qn_call call = {.op = d->op, .exec = &d->exec, .params = params, .n = d->n};
  qn_reference reference = {.call = &call};
  host_params(d, params);
  for (size_t r = 0; r < info->n_tensors; r++) {
    qn_ruled_role *role = &d->role[r];
    call.tensors[r] = d->list[r];
    reference.value[r] = role->value, reference.was[r] = role->was;
    if (role->access & QN_WRITE) reference.allowed[r] = role->allowed;
    for (size_t k = 0; k < role->n; k++) memcpy(role->was[k], role->value[k], role->elements[k] * sizeof(double));
  }
  return qn_op_check_of(d->op)->reference(&reference);
}
