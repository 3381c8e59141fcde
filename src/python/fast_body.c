/* SPDX-License-Identifier: Apache-2.0 */
/* fast_body.c - a call of a kernel from its body in one entry into C, where the like of it was made before: what a call
 * is, but for addresses and the values of numbers, is written down as bytes, by which the call that was made then is
 * found. Only what the package's Python has prepared, and the library has taken, is found here; all else is answered
 * with NotImplemented, and goes the longer way. */
#include "core/core.h"
#include "op/call.h"
#include "python/arrays.h"
#include "quern/kernel.h"
#include <stdatomic.h>
#include <string.h>

enum { MOST_KEY = 2048, MOST_ARRAYS = 16, MOST_ENTRIES = 256, MOST_DEPTH = 4 };
enum { INPUTS, SHAPES, DTYPES, GRID, GROUP, TEMPLATE, INIT, SHARED, IN_PLACE, OUT, STREAM, N_ARGUMENTS };
enum { HELD = STREAM, CALL, MAKERS, STORED_IN, ALONE, WORKSPACE, N_LEARNED }; /* what is learned besides */

typedef struct key {
  size_t n;
  bool bad; /* too long, or of something that cannot be written down */
  char bytes[MOST_KEY];
} key;

/* A kind of call. */
typedef struct entry {
  struct entry *next;
  int users; /* calls that run with it now */
  qn_object *held, *makers;
  const qn_kernel_call *call;
  int stored_in[MOST_ARRAYS];
  bool alone; /* a single group, which no pool can share */
  size_t workspace_bytes, key_bytes;
  char key[];
} entry;

typedef struct body {
  qn_kernel *kernel;
  qn_object *check;
  size_t n_inputs, n_outputs, n_entries;
  entry *entries;
  atomic_flag busy; /* somebody reads or changes the entries */
} body;

/* One call. The arrays are the inputs' and behind them the outputs'. */
typedef struct visit {
  body *body;
  qn_object *const *arguments;
  qn_framework framework;
  qn_py_array arrays[MOST_ARRAYS];
  qn_object *objects[MOST_ARRAYS]; /* ours: a list may change meanwhile; NULL: a number, or an output not given */
  qn_object *numbers[MOST_ARRAYS]; /* likewise */
  qn_object *made[MOST_ARRAYS];    /* ours */
  uint64_t cells[MOST_ARRAYS][2];
  qn_object *lent, *holder;
  qn_exec exec;
} visit;

/* ---- keys ---- */
static void put(key *k, const void *bytes, size_t n)
{
  k->bad |= n > MOST_KEY - k->n;
  if (k->bad) return;
  memcpy(k->bytes + k->n, bytes, n);
  k->n += n;
}

static void put_tag(key *k, char tag, uint64_t value)
{
  put(k, &tag, 1);
  put(k, &value, sizeof value);
}

static void put_text(key *k, qn_object *text)
{
  ptrdiff_t n;
  const char *bytes = qn_py.PyUnicode_AsUTF8AndSize(text, &n);
  k->bad |= !bytes;
  if (!bytes) return;
  put_tag(k, 's', (uint64_t)n);
  put(k, bytes, (size_t)n);
}

static void put_number(key *k, const qn_object *type, qn_object *value)
{
  double real;
  if (type == qn_py.PyLong_Type) {
    put_tag(k, 'i', (uint64_t)qn_py.PyLong_AsLongLong(value));
    k->bad |= qn_py.PyErr_Occurred() != NULL;
  } else {
    real = qn_py.PyFloat_AsDouble(value);
    put(k, "f", 1);
    put(k, &real, sizeof real);
  }
}

/* A value with its type: True, 1 and 1.0 differ. */
static void put_value(key *k, qn_object *value, int depth)
{
  const qn_object *type = qn_type_of(value);
  const ptrdiff_t n = k->bad ? -1 : qn_sequence_length(value);
  if (k->bad) return;
  if (value == qn_py._Py_NoneStruct) {
    put_tag(k, 'N', 0);
  } else if (value == qn_py._Py_TrueStruct || value == qn_py._Py_FalseStruct) {
    put_tag(k, 'b', value == qn_py._Py_TrueStruct);
  } else if (type == qn_py.PyLong_Type || type == qn_py.PyFloat_Type) {
    put_number(k, type, value);
  } else if (type == qn_py.PyUnicode_Type) {
    put_text(k, value);
  } else if (n >= 0 && depth < MOST_DEPTH) {
    put_tag(k, '(', (uint64_t)n);
    for (ptrdiff_t at = 0; at < n && !k->bad; at++) put_value(k, qn_sequence_item(value, at), depth + 1);
  } else if (qn_dtype_of_object(value) != QN_NONE) {
    put_tag(k, 'd', qn_dtype_of_object(value));
  } else {
    k->bad = true;
  }
}

static void put_array(key *k, const qn_py_array *array)
{
  const qn_tensor *t = &array->tensor;
  const int64_t head[4] = {t->dtype, t->device.kind, t->device.index, t->ndim};
  put_tag(k, 'a', t->strides != NULL);
  put(k, head, sizeof head);
  put(k, t->shape, (size_t)t->ndim * sizeof *t->shape);
  if (t->strides) put(k, t->strides, (size_t)t->ndim * sizeof *t->strides);
}

/* A number's type alone: its value may be another at each call. An int is of 32 bits where it fits, else of 64. */
static bool put_scalar(key *k, qn_object *value)
{
  const qn_object *type = qn_type_of(value);
  if (value == qn_py._Py_TrueStruct || value == qn_py._Py_FalseStruct) {
    put_tag(k, 'B', 0);
  } else if (type == qn_py.PyFloat_Type) {
    put_tag(k, 'F', 0);
  } else if (type == qn_py.PyLong_Type) {
    const long long number = qn_py.PyLong_AsLongLong(value);
    if (number == -1 && qn_py.PyErr_Occurred()) return false;
    put_tag(k, 'I', number < INT32_MIN || number > INT32_MAX);
  } else {
    return false;
  }
  return true;
}

/* ---- what is given ---- */
static bool read(visit *v, size_t at, qn_object *object, key *k)
{
  const qn_framework framework = qn_framework_of(object);
  if (framework == QN_NO_FRAMEWORK) {
    v->numbers[at] = qn_answer(object);
    return at < v->body->n_inputs && put_scalar(k, object);
  }
  if (v->framework && framework != v->framework) return false;
  v->framework = framework;
  v->objects[at] = qn_answer(object);
  if (!qn_array_read(framework, object, &v->arrays[at])) return false;
  put_array(k, &v->arrays[at]);
  return true;
}

static bool read_all(visit *v, key *k)
{
  qn_object *inputs = v->arguments[INPUTS], *out = v->arguments[OUT];
  const size_t n = v->body->n_inputs;
  if (qn_sequence_length(inputs) != (ptrdiff_t)n) return false;
  for (size_t at = 0; at < n; at++)
    if (!read(v, at, qn_sequence_item(inputs, (ptrdiff_t)at), k)) return false;
  const bool given = out != qn_py._Py_NoneStruct;
  if (given && qn_sequence_length(out) != (ptrdiff_t)v->body->n_outputs) return false;
  for (size_t at = 0; at < v->body->n_outputs; at++) {
    qn_object *one = given ? qn_sequence_item(out, (ptrdiff_t)at) : qn_py._Py_NoneStruct;
    if (one == qn_py._Py_NoneStruct)
      put_tag(k, '-', 0);
    else if (!read(v, n + at, one, k) || v->arrays[n + at].read_only)
      return false;
  }
  put_tag(k, 'w', v->framework);
  if (!v->framework) return false;
  return v->framework != QN_OF_TORCH || qn_torch_look(v->objects, n + v->body->n_outputs) == QN_TORCH_PLAIN;
}

/* False, with no Python exception left: the call is none that can be written down. */
static bool look(visit *v, key *k)
{
  k->n = 0;
  k->bad = false;
  v->framework = QN_NO_FRAMEWORK;
  v->lent = v->holder = NULL;
  memset(v->objects, 0, sizeof v->objects);
  memset(v->numbers, 0, sizeof v->numbers);
  memset(v->made, 0, sizeof v->made);
  if (read_all(v, k))
    for (size_t at = SHAPES; at < OUT; at++) put_value(k, v->arguments[at], 0);
  else
    k->bad = true;
  if (k->bad) qn_py.PyErr_Clear();
  return !k->bad;
}

/* ---- entries ---- */
static entry *find(const body *b, const key *k)
{
  for (entry *e = b->entries; e; e = e->next)
    if (e->key_bytes == k->n && !memcmp(e->key, k->bytes, k->n)) return e;
  return NULL;
}

static entry *take(body *b, const key *k)
{
  if (atomic_flag_test_and_set(&b->busy)) return NULL;
  entry *e = find(b, k);
  if (e) e->users++;
  atomic_flag_clear(&b->busy);
  return e;
}

static void give(body *b, entry *e)
{
  while (atomic_flag_test_and_set(&b->busy)) {}
  e->users--;
  atomic_flag_clear(&b->busy);
}

static void drop(entry *e)
{
  qn_py.Py_DecRef(e->held);
  qn_py.Py_DecRef(e->makers);
  qn_release(e);
}

/* The oldest that no call runs with; NULL: there is none. */
static entry *cut_oldest(body *b)
{
  entry **oldest = NULL;
  for (entry **at = &b->entries; *at; at = &(*at)->next)
    if (!(*at)->users) oldest = at;
  if (!oldest) return NULL;
  entry *cut = *oldest;
  *oldest = cut->next;
  b->n_entries--;
  return cut;
}

/* ---- the call ---- */
static void set_cell(uint64_t *cell, qn_dtype dtype, qn_object *number)
{
  const float real = dtype == QN_F32 ? (float)qn_py.PyFloat_AsDouble(number) : 0;
  const int32_t whole = dtype == QN_I32 ? (int32_t)qn_py.PyLong_AsLongLong(number) : 0;
  cell[0] = 0;
  switch (dtype) {
  case QN_F32: memcpy(cell, &real, sizeof real); break;
  case QN_I32: memcpy(cell, &whole, sizeof whole); break;
  case QN_I64: cell[0] = (uint64_t)qn_py.PyLong_AsLongLong(number); break;
  default: cell[0] = number == qn_py._Py_TrueStruct;
  }
}

/* An array of the call on its device; with that type, if there is one. */
static size_t like(const visit *v, qn_device device, qn_dtype dtype)
{
  size_t found = MOST_ARRAYS;
  for (size_t at = 0; at < v->body->n_inputs + v->body->n_outputs; at++) {
    if (!v->objects[at]) continue;
    const qn_tensor *t = &v->arrays[at].tensor;
    if (t->device.kind != device.kind || t->device.index != device.index) continue;
    if (t->dtype == dtype) return at;
    if (found == MOST_ARRAYS && dtype == QN_NONE) found = at;
  }
  return found;
}

/* A fresh output, ours. */
static qn_object *make(const visit *v, const entry *e, size_t k)
{
  const qn_tensor *wanted = &e->call->outputs[k];
  const size_t at = like(v, v->exec.device, wanted->dtype);
  if (at < MOST_ARRAYS) return qn_array_new(v->framework, v->objects[at], &v->arrays[at], wanted->ndim, wanted->shape);
  qn_object *pair = qn_py.PyObject_CallFunctionObjArgs(qn_py.PyTuple_GetItem(e->makers, (ptrdiff_t)k), NULL);
  if (!pair) return NULL;
  qn_object *made = qn_answer(qn_py.PyTuple_GetItem(pair, 0));
  qn_py.Py_DecRef(pair);
  return made;
}

/* The outputs; false: a Python exception is set, or one of the arrays cannot be used. */
static bool fill_outputs(visit *v, const entry *e, qn_tensor *out)
{
  const size_t n = v->body->n_inputs;
  for (size_t k = 0; k < v->body->n_outputs; k++) {
    const int stored = e->stored_in[k];
    if (stored >= 0) {
      if (!v->objects[stored] || v->objects[n + k] || v->arrays[stored].read_only) return false;
      v->objects[n + k] = qn_answer(v->objects[stored]);
      v->arrays[n + k] = v->arrays[stored];
      out[k] = v->arrays[stored].tensor;
      continue;
    }
    if (!v->objects[n + k]) {
      v->made[k] = make(v, e, k);
      if (!v->made[k] || !qn_array_read(v->framework, v->made[k], &v->arrays[n + k])) return false;
    }
    out[k] = v->arrays[n + k].tensor;
  }
  return true;
}

static void fill_inputs(visit *v, const entry *e, qn_tensor *in)
{
  for (size_t k = 0; k < v->body->n_inputs; k++) {
    in[k] = v->objects[k] ? v->arrays[k].tensor : e->call->inputs[k];
    if (v->objects[k]) continue;
    set_cell(v->cells[k], in[k].dtype, v->numbers[k]);
    in[k].data = v->cells[k];
  }
}

static bool lend(visit *v, const entry *e)
{
  qn_py_array array;
  if (!e->workspace_bytes) return true;
  const size_t at = like(v, v->exec.device, QN_NONE);
  if (at == MOST_ARRAYS) return false;
  const size_t item = qn_dtype_bytes(v->arrays[at].tensor.dtype);
  const int64_t n = (int64_t)((e->workspace_bytes + item - 1) / item);
  v->lent = qn_array_new(v->framework, v->objects[at], &v->arrays[at], 1, &n);
  if (!v->lent || !qn_array_read(v->framework, v->lent, &array)) return false;
  v->exec.workspace = array.tensor.data;
  v->exec.workspace_bytes = e->workspace_bytes;
  return true;
}

static bool find_place(visit *v, const entry *e)
{
  qn_object *stream = v->arguments[STREAM];
  v->exec = (qn_exec){.size = sizeof v->exec, .device = e->call->outputs[0].device};
  if (v->exec.device.kind != QN_CUDA) {
    if (stream != qn_py._Py_NoneStruct) return false;
    return e->alone || qn_pool_current(v->framework, &v->holder, &v->exec.pool);
  }
  if (stream == qn_py._Py_NoneStruct) return qn_stream_current(v->framework, v->exec.device.index, &v->exec.stream);
  v->exec.stream = qn_py.PyLong_AsVoidPtr(stream);
  return !qn_py.PyErr_Occurred();
}

static qn_status launch(const visit *v, const qn_kernel_call *call)
{
  void *const thread = qn_py.PyEval_SaveThread();
  const qn_status status = qn_kernel_launch(v->body->kernel, &v->exec, call);
  qn_py.PyEval_RestoreThread(thread);
  return status;
}

/* The list of outputs; NULL with a Python exception set. */
static qn_object *returned(const visit *v)
{
  const size_t n = v->body->n_inputs;
  qn_object *list = qn_py.PyList_New((ptrdiff_t)v->body->n_outputs);
  for (size_t k = 0; list && k < v->body->n_outputs; k++) {
    if (!v->made[k] && !qn_arrays_count_writes(v->framework, 1, &v->objects[n + k])) {
      qn_py.Py_DecRef(list);
      return NULL;
    }
    qn_py.PyList_SetItem(list, (ptrdiff_t)k, qn_answer(v->made[k] ? v->made[k] : v->objects[n + k]));
  }
  return list;
}

static qn_object *run(visit *v, const entry *e)
{
  qn_tensor in[MOST_ARRAYS], out[MOST_ARRAYS];
  qn_kernel_call call = *e->call;
  if (!find_place(v, e) || !fill_outputs(v, e, out) || !lend(v, e)) {
    qn_py.PyErr_Clear();
    return qn_answer(qn_py._Py_NotImplementedStruct);
  }
  fill_inputs(v, e, in);
  call.inputs = in;
  call.outputs = out;
  const qn_status status = launch(v, &call);
  if (status == QN_OK) return returned(v);
  qn_object *number = qn_py.PyLong_FromLongLong(status);
  qn_object *never = number ? qn_py.PyObject_CallFunctionObjArgs(v->body->check, number, NULL) : NULL;
  if (number) qn_py.Py_DecRef(number);
  if (never) qn_py.Py_DecRef(never);
  return NULL;
}

static void release(qn_object *object)
{
  if (object) qn_py.Py_DecRef(object);
}

static void leave(visit *v)
{
  for (size_t at = 0; at < MOST_ARRAYS; at++) {
    release(v->objects[at]);
    release(v->numbers[at]);
    release(v->made[at]);
  }
  release(v->lent);
  release(v->holder);
}

static qn_object *enter(qn_object *self, qn_object *const *arguments, ptrdiff_t n)
{
  visit v;
  v.body = qn_py.PyCapsule_GetPointer(self, NULL);
  v.arguments = arguments;
  key k;
  if (!v.body) return NULL;
  if (n != N_ARGUMENTS) return qn_answer(qn_py._Py_NotImplementedStruct);
  entry *e = look(&v, &k) ? take(v.body, &k) : NULL;
  qn_object *made = e ? run(&v, e) : qn_answer(qn_py._Py_NotImplementedStruct);
  leave(&v);
  if (e) give(v.body, e);
  return made;
}

/* Of a call that has been made, what is remembered; false: nothing is. */
static bool remember(const visit *v, const key *k)
{
  entry *e, *out = NULL;
  qn_object *const *given = v->arguments;
  if (qn_try_allocate(&e, sizeof *e + k->n, "a call of a kernel") != QN_OK) return false;
  *e = (entry){.held = qn_answer(given[HELD]), .makers = qn_answer(given[MAKERS])};
  e->call = qn_py.PyLong_AsVoidPtr(given[CALL]);
  e->alone = given[ALONE] == qn_py._Py_TrueStruct;
  e->workspace_bytes = (size_t)qn_py.PyLong_AsLongLong(given[WORKSPACE]);
  for (size_t at = 0; at < v->body->n_outputs; at++)
    e->stored_in[at] = (int)qn_py.PyLong_AsLongLong(qn_sequence_item(given[STORED_IN], (ptrdiff_t)at));
  e->key_bytes = k->n;
  memcpy(e->key, k->bytes, k->n);
  if (qn_py.PyErr_Occurred() || atomic_flag_test_and_set(&v->body->busy)) {
    drop(e);
    return false;
  }
  if (v->body->n_entries >= MOST_ENTRIES) out = cut_oldest(v->body);
  e->next = v->body->entries;
  v->body->entries = e;
  v->body->n_entries++;
  atomic_flag_clear(&v->body->busy);
  if (out) drop(out);
  return true;
}

static qn_object *learn(qn_object *self, qn_object *const *arguments, ptrdiff_t n)
{
  visit v;
  key k;
  v.body = qn_py.PyCapsule_GetPointer(self, NULL);
  v.arguments = arguments;
  if (!v.body) return NULL;
  if (n != N_LEARNED) return qn_answer(qn_py._Py_NoneStruct);
  if (look(&v, &k)) remember(&v, &k);
  leave(&v);
  qn_py.PyErr_Clear();
  return qn_answer(qn_py._Py_NoneStruct);
}

static void end(qn_object *capsule)
{
  body *b = qn_py.PyCapsule_GetPointer(capsule, NULL);
  while (b && b->entries) {
    entry *e = b->entries;
    b->entries = e->next;
    drop(e);
  }
  qn_release(b);
}

qn_status qn_fast_body_create(const qn_fast_body *source, void **call, void **learns)
{
  static qn_method calls = {"call", enter, QN_METHOD_FAST, "All of a call of a kernel, or NotImplemented."};
  static qn_method learning = {"learn", learn, QN_METHOD_FAST, "Remembers a kind of call."};
  body *made;
  qn_require(source && call && learns && source->kernel && source->check, "python: a fast call of no kernel");
  qn_require(source->n_inputs + source->n_outputs <= MOST_ARRAYS && source->n_outputs,
             "python: a fast call of %zu arrays", source->n_inputs + source->n_outputs);
  qn_try(qn_python_find());
  qn_try(qn_try_allocate(&made, sizeof *made, "a fast call"));
  *made = (body){source->kernel, source->check, source->n_inputs, source->n_outputs, 0, NULL, ATOMIC_FLAG_INIT};
  qn_object *capsule = qn_py.PyCapsule_New(made, NULL, end);
  *call = capsule ? qn_py.PyCFunction_NewEx(&calls, capsule, NULL) : NULL;
  *learns = capsule ? qn_py.PyCFunction_NewEx(&learning, capsule, NULL) : NULL;
  if (capsule)
    qn_py.Py_DecRef(capsule);
  else
    qn_release(made);
  return *call && *learns ? QN_OK : qn_fail(QN_NO_MEMORY, "python: there is no memory for a function");
}
