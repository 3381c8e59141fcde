/* SPDX-License-Identifier: Apache-2.0 */
/* fast_plan.c - a call of a plan in the place of a module's forward in one entry into C, where it is like the call for
 * which the function was made. All else is answered with NotImplemented, and goes the package's longer way. No object
 * is held here: the caller hands over at each call what the function works with, so that the interpreter's collector
 * sees it. */
#include "core/core.h"
#include "python/arrays.h"
#include <string.h>

/* The parts, as quern/objects.h lists them. */
enum { VALUES, SLOTS, PLACES, CONSTANTS, VERSIONS, MODULES, TRAINING, SWITCHES, ANSWERS };
enum { USERS = ANSWERS + 1, RUN, GRAPHS, REPLAYS, LOCK, COUNT, DETACH, FINISH, N_PARTS };
enum { REPLAY, OUTPUTS, STORAGES, HOLDERS, ADDRESSES, COPIES }; /* of a graph */
enum { MOST_ARGUMENTS = 4096, EQUAL = 2 /* Py_EQ */ };

typedef struct remembered {
  qn_py_array array; /* of type QN_NONE: no tensor */
  void *last;        /* where the tensor was in the call before, by a graph */
} remembered;

/* What is remembered of the arguments. */
typedef struct plan {
  size_t n;
  qn_device device; /* of the first tensor */
  remembered arguments[];
} plan;

/* One call. */
typedef struct visit {
  plan *plan;
  qn_object *parts;
  qn_object *const *arguments;
  void *data[MOST_ARGUMENTS]; /* tensors' addresses */
  bool may_record;            /* autograd would, where a tensor asks for it */
} visit;

static qn_object *item(qn_object *tuple, size_t at) { return qn_py.PyTuple_GetItem(tuple, (ptrdiff_t)at); }
static qn_object *part(const visit *v, size_t which) { return item(v->parts, which); }
static size_t length(qn_object *tuple) { return (size_t)qn_py.PyTuple_Size(tuple); }
static size_t number(qn_object *tuple, size_t at) { return (size_t)qn_py.PyLong_AsLongLong(item(tuple, at)); }
static qn_object *call(qn_object *function) { return qn_py.PyObject_CallFunctionObjArgs(function, NULL); }

/* Releases the answer; there is none where a Python exception is set. */
static bool is_true(qn_object *answer)
{
  const bool is = answer && qn_py.PyObject_IsTrue(answer) == 1;
  if (answer) qn_py.Py_DecRef(answer);
  return is;
}

static long long take_number(qn_object *answer)
{
  const long long found = answer ? qn_py.PyLong_AsLongLong(answer) : 0;
  if (answer) qn_py.Py_DecRef(answer);
  return found;
}

static bool records(const visit *v, qn_object *tensor)
{
  return v->may_record && is_true(qn_py.PyObject_GetAttr(tensor, qn_py.word.requires_grad));
}

/* ---- what is looked at ---- */
/* The tensor of a slot, ours; NULL: there is none of the exact types. */
static qn_object *tensor_of(const visit *v, size_t slot, void **address)
{
  qn_object *slots = part(v, SLOTS);
  qn_object *tensor = qn_py.PyObject_GetItem(item(slots, 2 * slot), item(slots, 2 * slot + 1));
  if (tensor && qn_framework_of(tensor) == QN_OF_TORCH && qn_torch_address(tensor, address)) return tensor;
  if (tensor) qn_py.Py_DecRef(tensor);
  return NULL;
}

static bool fits_slot(const visit *v, size_t k)
{
  void *address;
  qn_object *tensor = tensor_of(v, k, &address);
  const bool same = tensor && address == qn_py.PyLong_AsVoidPtr(item(part(v, PLACES), k)) && !records(v, tensor);
  if (tensor) qn_py.Py_DecRef(tensor);
  return same;
}

/* A tensor that counts no versions, as those of inference mode, has 0. */
static bool fits_version(const visit *v, size_t k)
{
  void *address;
  qn_object *tensor = tensor_of(v, number(part(v, CONSTANTS), k), &address);
  if (!tensor) return false;
  qn_object *version = qn_py.PyObject_GetAttr(tensor, qn_py.word._version);
  if (!version) qn_py.PyErr_Clear();
  qn_py.Py_DecRef(tensor);
  return take_number(version) == (long long)number(part(v, VERSIONS), k);
}

static bool fits_module(const visit *v, size_t k)
{
  qn_object *training = qn_py.PyObject_GetAttr(item(part(v, MODULES), k), qn_py.word.training);
  if (training) qn_py.Py_DecRef(training);
  return training && training == item(part(v, TRAINING), k);
}

static bool is_alike(const qn_tensor *now, const qn_tensor *then)
{
  const size_t bytes = (size_t)then->ndim * sizeof *then->shape;
  if (now->dtype != then->dtype || now->ndim != then->ndim || !now->strides != !then->strides) return false;
  if (now->device.kind != then->device.kind || now->device.index != then->device.index) return false;
  return !bytes ||
         (!memcmp(now->shape, then->shape, bytes) && (!now->strides || !memcmp(now->strides, then->strides, bytes)));
}

static bool fits_argument(visit *v, size_t k)
{
  qn_py_array now;
  const qn_py_array *then = &v->plan->arguments[k].array;
  qn_object *given = v->arguments[k], *was = item(part(v, VALUES), k);
  v->data[k] = NULL;
  if (then->tensor.dtype == QN_NONE)
    return given == was ||
           (qn_type_of(given) == qn_type_of(was) && qn_py.PyObject_RichCompareBool(given, was, EQUAL) == 1);
  if (qn_framework_of(given) != QN_OF_TORCH || !qn_array_read(QN_OF_TORCH, given, &now)) return false;
  v->data[k] = now.tensor.data;
  return now.as_new == then->as_new && is_alike(&now.tensor, &then->tensor) && !qn_torch_negates(given) &&
         !records(v, given);
}

static bool fits_switch(const visit *v, size_t k)
{
  qn_object *now = call(item(part(v, SWITCHES), k));
  const bool same = now && qn_py.PyObject_RichCompareBool(now, item(part(v, ANSWERS), k), EQUAL) == 1;
  if (now) qn_py.Py_DecRef(now);
  return same;
}

static bool fits_each(const visit *v, size_t n, bool (*one)(const visit *, size_t))
{
  size_t k = 0;
  while (k < n && one(v, k)) k++;
  return k == n;
}

static bool fits(visit *v)
{
  if (!qn_torch_is_free(&v->may_record)) return false;
  for (size_t k = 0; k < v->plan->n; k++)
    if (!fits_argument(v, k)) return false;
  return fits_each(v, length(part(v, SWITCHES)), fits_switch) && fits_each(v, length(part(v, MODULES)), fits_module) &&
         fits_each(v, length(part(v, PLACES)), fits_slot) && fits_each(v, length(part(v, CONSTANTS)), fits_version);
}

/* ---- the call ---- */
/* The result of a list of outputs, which is released. */
static qn_object *finish(const visit *v, qn_object *outputs)
{
  qn_object *how = part(v, FINISH), *made = NULL;
  if (how == qn_py._Py_NoneStruct) {
    made = qn_py.PyList_GetItem(outputs, 0);
    if (made) qn_py.Py_IncRef(made);
  } else {
    made = qn_py.PyObject_CallFunctionObjArgs(how, outputs, NULL);
  }
  qn_py.Py_DecRef(outputs);
  return made;
}

static qn_object *run(const visit *v)
{
  qn_object *users = part(v, USERS), *values = qn_py.PyTuple_New((ptrdiff_t)length(users));
  if (!values) return NULL;
  for (size_t k = 0; k < length(users); k++)
    qn_py.PyTuple_SetItem(values, (ptrdiff_t)k, qn_answer(v->arguments[number(users, k)]));
  qn_object *outputs = qn_py.PyObject_CallObject(part(v, RUN), values);
  qn_py.Py_DecRef(values);
  return outputs ? finish(v, outputs) : NULL;
}

/* Does it read the values where they are, or copy those that move, and does nobody hold its outputs? A value that is
 * copied though it is where it was in the call before is one that may stay: this is the longer way's to count. */
static bool may_run(const visit *v, qn_object *graph)
{
  qn_object *users = part(v, USERS), *addresses = item(graph, ADDRESSES), *storages = item(graph, STORAGES);
  for (size_t k = 0; k < length(users); k++) {
    const size_t at = number(users, k);
    if (item(addresses, k) == qn_py._Py_NoneStruct ? v->data[at] == v->plan->arguments[at].last
                                                   : v->data[at] != qn_py.PyLong_AsVoidPtr(item(addresses, k)))
      return false;
  }
  for (size_t k = 0; k < length(storages); k++) {
    qn_object *holders = qn_py.PyObject_CallFunctionObjArgs(part(v, COUNT), item(storages, k), NULL);
    if (!holders || take_number(holders) != (long long)number(item(graph, HOLDERS), k)) return false;
  }
  return true;
}

/* A list of tensors of their own in a graph's memory, by which it is known who holds it. */
static qn_object *hand_out(const visit *v, qn_object *outputs)
{
  const size_t n = length(outputs);
  qn_object *list = qn_py.PyList_New((ptrdiff_t)n);
  for (size_t k = 0; list && k < n; k++) {
    qn_object *one = item(outputs, k);
    one = qn_framework_of(one) == QN_OF_TORCH ? qn_py.PyObject_CallFunctionObjArgs(part(v, DETACH), one, NULL)
                                              : qn_answer(one);
    if (one) {
      qn_py.PyList_SetItem(list, (ptrdiff_t)k, one);
    } else {
      qn_py.Py_DecRef(list);
      list = NULL;
    }
  }
  return list;
}

static bool copy_values(const visit *v, qn_object *copies)
{
  qn_object *users = part(v, USERS);
  for (size_t k = 0; k < length(copies); k++) {
    if (item(copies, k) == qn_py._Py_NoneStruct) continue;
    qn_object *value = v->arguments[number(users, k)];
    qn_object *done = qn_py.PyObject_CallMethodObjArgs(item(copies, k), qn_py.word.copy_, value, NULL);
    if (!done) return false;
    qn_py.Py_DecRef(done);
  }
  return true;
}

static qn_object *replay(const visit *v)
{
  qn_object *graphs = part(v, GRAPHS), *outputs = NULL;
  for (size_t k = 0; k < length(graphs) && !outputs; k++) {
    qn_object *graph = item(graphs, k);
    if (!may_run(v, graph)) continue;
    outputs = hand_out(v, item(graph, OUTPUTS));
    qn_object *done = outputs && copy_values(v, item(graph, COPIES)) ? call(item(graph, REPLAY)) : NULL;
    if (!done && outputs) qn_py.Py_DecRef(outputs);
    if (!done) return NULL;
    qn_py.Py_DecRef(done);
  }
  for (size_t k = 0; k < v->plan->n; k++) v->plan->arguments[k].last = v->data[k];
  return outputs;
}

/* Is the current stream that of the last replay, so that the graphs' memory is free in its order? */
static bool is_in_order(const visit *v)
{
  void *stream = NULL, *last = NULL;
  const qn_device device = v->plan->device;
  qn_object *of_last = qn_py.PyObject_GetAttr(part(v, REPLAYS), qn_py.word.stream);
  qn_object *handle = of_last ? qn_py.PyObject_GetAttr(of_last, qn_py.word.cuda_stream) : NULL;
  if (of_last) qn_py.Py_DecRef(of_last);
  if (!handle) return false;
  last = qn_py.PyLong_AsVoidPtr(handle);
  qn_py.Py_DecRef(handle);
  return (device.kind != QN_CUDA || qn_stream_current(QN_OF_TORCH, device.index, &stream)) && stream == last;
}

/* NULL: it cannot be run by a graph, or with a Python exception set, that of an interrupted wait. */
static qn_object *by_graph(const visit *v)
{
  qn_object *outputs = NULL, *lock = part(v, LOCK);
  qn_object *taken = qn_py.PyObject_CallMethodObjArgs(lock, qn_py.word.acquire, NULL);
  if (!taken) return NULL;
  qn_py.Py_DecRef(taken);
  if (is_in_order(v)) outputs = replay(v);
  qn_py.PyErr_Clear(); /* what failed does so again the longer way */
  qn_object *released = qn_py.PyObject_CallMethodObjArgs(lock, qn_py.word.release, NULL);
  if (released) qn_py.Py_DecRef(released);
  return outputs;
}

static qn_object *enter(qn_object *self, qn_object *const *arguments, ptrdiff_t n)
{
  visit v;
  v.plan = qn_py.PyCapsule_GetPointer(self, NULL);
  if (!v.plan) return NULL;
  qn_object *outputs = NULL;
  v.parts = n < 1 ? NULL : arguments[0];
  v.arguments = n < 1 ? NULL : arguments + 1;
  if (v.parts && (size_t)n == v.plan->n + 1 && length(v.parts) == N_PARTS && fits(&v)) {
    if (part(&v, GRAPHS) == qn_py._Py_NoneStruct) return run(&v);
    outputs = by_graph(&v);
    if (!outputs && qn_py.PyErr_Occurred()) return NULL;
  }
  if (outputs) return finish(&v, outputs);
  qn_py.PyErr_Clear();
  return qn_answer(qn_py._Py_NotImplementedStruct);
}

/* ---- what is remembered ---- */
static bool remember(qn_object *argument, qn_py_array *array)
{
  array->tensor.dtype = QN_NONE;
  if (qn_framework_of(argument) != QN_OF_TORCH) return true;
  if (!qn_array_read(QN_OF_TORCH, argument, array)) return false;
  qn_tensor *t = &array->tensor; /* the tensor itself is not held */
  const size_t bytes = (size_t)t->ndim * sizeof *t->shape;
  if (bytes) t->shape = memmove(array->extents, t->shape, bytes);
  if (bytes && t->strides) t->strides = memmove(array->extents + QN_MAX_NDIM, t->strides, bytes);
  return true;
}

static void end(qn_object *capsule)
{
  void *made = qn_py.PyCapsule_GetPointer(capsule, NULL);
  qn_release(made);
}

qn_status qn_fast_plan_create(void *parts, void *arguments, void **callable)
{
  static qn_method method = {"fast_plan", enter, QN_METHOD_FAST, "All of a call of a plan, or NotImplemented."};
  plan *made;
  qn_require(parts && arguments && callable, "python: a fast call of no plan");
  qn_try(qn_python_find());
  qn_require(length(parts) == N_PARTS, "python: a plan has %zu parts, it must have %d", length(parts), N_PARTS);
  const size_t n = length(arguments);
  qn_require(n <= MOST_ARGUMENTS, "python: a plan of %zu arguments, at most %d have fast calls", n, MOST_ARGUMENTS);
  qn_try(qn_try_allocate(&made, sizeof *made + n * sizeof *made->arguments, "a fast call"));
  made->n = n;
  made->device = (qn_device){QN_CPU, 0};
  for (size_t k = n; k-- > 0;) {
    remembered *one = &made->arguments[k];
    const qn_tensor *t = &one->array.tensor;
    if (!remember(item(arguments, k), &one->array)) {
      qn_release(made);
      return qn_fail(QN_UNSUPPORTED, "python: argument %zu is a tensor that has no fast calls", k);
    }
    one->last = NULL;
    if (t->dtype == QN_NONE) continue;
    made->device = t->device;
    one->last = t->data;
  }
  return qn_python_function(&method, made, end, callable);
}
