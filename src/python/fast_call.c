/* SPDX-License-Identifier: Apache-2.0 */
/* fast_call.c - a call of an op from Python in one entry into C: the arrays are read, the params set, the result is
 * made, the stream found, the call validated and launched. Everything follows from the op's description. What cannot
 * be done, or would be refused, is left alone with the answer NotImplemented: the package's Python then does the call
 * its longer way, and says what is wrong with it. Nothing is remembered from call to call: to validate a call costs as
 * much as to find out that it is like an earlier one. */
#include "core/core.h"
#include "op/call.h"
#include "python/arrays.h"
#include <string.h>

typedef struct fast_call {
  qn_fast_source source;
  qn_fast_word *words;
  void *defaults; /* params */
  size_t n_arguments;
} fast_call;

/* One call. */
typedef struct visit {
  const fast_call *fast;
  qn_object *const *arguments;
  qn_framework framework;
  size_t first;                             /* the role of the first array that is given */
  size_t n;                                 /* arrays of a role */
  qn_py_array arrays[QN_MAX_TENSORS];       /* by role, the first */
  qn_object *objects[QN_MAX_TENSORS];       /* likewise, borrowed; NULL: not given */
  const qn_tensor *tensors[QN_MAX_TENSORS]; /* by role, n of them; NULL: not given */
  qn_object **all;                          /* n of each role: `objects`, or those of lists, of which it holds each */
  void *block;                              /* of lists: their tensors, objects and extents */
  int64_t *extents_of_lists;                /* MOST_LIST_NDIM of a shape, then of strides, for each array of `all` */
  qn_object *made[QN_MAX_TENSORS];          /* results that are made here, ours */
  int64_t extents[QN_MAX_TENSORS][2];       /* of arrays whose first dimensions are one to the op */
  qn_exec exec;
  bool records;             /* autograd does, through a function of the source's */
  qn_object *lent, *holder; /* the workspace, and what holds the pool */
  size_t bytes;             /* of all tensors */
} visit;

enum { MOST_LIST_NDIM = 8 };
enum { SMALL_BYTES = 1 << 16 }; /* of a call on the processor that no pool would share, nor another thread wait for */

static size_t n_roles(const visit *v) { return v->fast->source.op->n_tensors; }

/* ---- arrays ---- */
static bool read_role(visit *v, size_t role, qn_object *object)
{
  const qn_framework framework = qn_framework_of(object);
  if (framework == QN_NO_FRAMEWORK || (v->framework && framework != v->framework)) return false;
  if (!v->framework) v->first = role;
  v->framework = framework;
  v->objects[role] = object;
  v->tensors[role] = &v->arrays[role].tensor;
  return qn_array_read(framework, object, &v->arrays[role]);
}

/* Copies a shape or strides that stand in the array's struct to memory that lasts as long as the call. */
static const int64_t *keep(const qn_py_array *array, const int64_t *numbers, int64_t *room)
{
  if ((uintptr_t)numbers - (uintptr_t)array->extents >= sizeof array->extents) return numbers;
  return memcpy(room, numbers, (size_t)array->tensor.ndim * sizeof *numbers);
}

/* Reads the k-th array of a role's list and takes a reference to it: another thread may change the list. */
static bool read_item(visit *v, size_t role, size_t k, qn_tensor *tensor)
{
  qn_py_array other, *const array = k ? &other : &v->arrays[role];
  const size_t place = role * v->n + k;
  qn_object *const item = qn_sequence_item(v->arguments[role], (ptrdiff_t)k);
  if (!item) {
    qn_py.PyErr_Clear();
    return false;
  }
  qn_py.Py_IncRef(item);
  v->all[place] = item;
  if (k ? qn_framework_of(item) != v->framework || !qn_array_read(v->framework, item, array)
        : !read_role(v, role, item))
    return false;
  if (array->read_only || array->tensor.ndim > MOST_LIST_NDIM) return false;
  int64_t *const room = v->extents_of_lists + place * 2 * MOST_LIST_NDIM;
  *tensor = array->tensor;
  tensor->shape = keep(array, tensor->shape, room);
  tensor->strides = keep(array, tensor->strides, room + MOST_LIST_NDIM);
  return true;
}

/* Reads lists of n arrays each. */
static bool read_lists(visit *v, ptrdiff_t n)
{
  const size_t count = n_roles(v) * (size_t)n;
  if (n < 1 || v->fast->source.results) return false;
  qn_tensor *const tensors =
      qn_allocate(count * (sizeof *tensors + sizeof *v->all + 2 * MOST_LIST_NDIM * sizeof *v->extents_of_lists));
  if (!tensors) return false;
  v->block = tensors;
  v->n = (size_t)n;
  v->all = memset(tensors + count, 0, count * sizeof *v->all);
  v->extents_of_lists = (int64_t *)(v->all + count); /* touched where they are needed alone */
  for (size_t role = 0; role < n_roles(v); role++) {
    qn_tensor *const list = tensors + role * v->n;
    if (v->arguments[role] == qn_py._Py_NoneStruct && !(v->fast->source.required >> role & 1)) continue;
    if (qn_sequence_length(v->arguments[role]) != n) return false;
    for (size_t k = 0; k < v->n; k++)
      if (!read_item(v, role, k, &list[k])) return false;
    v->tensors[role] = list;
  }
  return true;
}

static bool read_singles(visit *v)
{
  for (size_t role = 0; role < n_roles(v); role++)
    if (v->arguments[role] == qn_py._Py_NoneStruct) {
      if (v->fast->source.required >> role & 1) return false;
    } else if (!read_role(v, role, v->arguments[role])) {
      return false;
    }
  return true;
}

static bool read_arrays(visit *v)
{
  const ptrdiff_t n = qn_sequence_length(v->arguments[0]);
  if (!(n < 0 ? read_singles(v) : read_lists(v, n)) || !v->framework) return false;
  if (v->framework != QN_OF_TORCH) return !v->fast->source.only_torch;
  const qn_torch_state state = qn_torch_look(v->all, n_roles(v) * v->n);
  v->records = state == QN_TORCH_RECORDS && v->fast->source.record;
  return state == QN_TORCH_PLAIN || v->records;
}

/* The pattern of a role whose extents have names, "[m, k]", with its first name and their number; 0: there is none. */
static int letters_of(const qn_op_info *op, size_t role, char *letters)
{
  int n = 0;
  for (const char *at = op->tensors[role].shape ? op->tensors[role].shape : ""; *at; at++)
    if (*at >= 'a' && *at <= 'z' && n < QN_MAX_NDIM) letters[n++] = *at;
  return n;
}

/* An array of more dimensions than the op knows, of a role that has the result's first name first: all but the last
 * dimension are one to the op. */
static void flatten(visit *v, size_t role)
{
  qn_tensor *t = &v->arrays[role].tensor;
  int64_t rows = 1;
  for (int d = 0; d + 1 < t->ndim; d++) rows *= t->shape[d];
  v->extents[role][0] = rows;
  v->extents[role][1] = t->shape[t->ndim - 1];
  t->shape = v->extents[role];
  t->ndim = 2;
}

/* The shape of a result: the first array's, or what the names of extents say. */
static int result_shape(const visit *v, size_t role, int64_t *shape)
{
  const qn_op_info *op = v->fast->source.op;
  const qn_tensor *first = v->tensors[v->first];
  char made[QN_MAX_NDIM], letters[QN_MAX_NDIM];
  memcpy(shape, first->shape, (size_t)first->ndim * sizeof *shape);
  if (!op->tensors[role].shape) return first->ndim;
  if (letters_of(op, role, made) != 2 || first->ndim < 2) return -1;
  for (size_t of = 0; of < op->n_tensors; of++) {
    const qn_tensor *t = v->tensors[of];
    const int n = letters_of(op, of, letters);
    if (!t || n > t->ndim) continue;
    for (int d = 0; d < n; d++)
      if (letters[d] == made[1]) {
        shape[first->ndim - 1] = t->shape[t->ndim - n + d];
        return first->ndim;
      }
  }
  return -1;
}

static bool make_results(visit *v)
{
  int64_t shape[QN_MAX_NDIM];
  for (size_t role = 0; role < n_roles(v); role++) {
    if (!(v->fast->source.results >> role & 1) || v->objects[role]) continue;
    const int ndim = result_shape(v, role, shape);
    if (ndim < 0) return false;
    v->made[role] = qn_array_new(v->framework, v->objects[v->first], &v->arrays[v->first], ndim, shape);
    if (!v->made[role]) {
      qn_py.PyErr_Clear();
      return false;
    }
    v->tensors[role] = &v->arrays[role].tensor;
    if (!qn_array_read(v->framework, v->made[role], &v->arrays[role])) return false;
  }
  return true;
}

/* Is it of the kind whose first dimensions are one to the op: its pattern has two names, the first of them the
 * result's? */
static bool has_rows(const visit *v, size_t role, size_t result)
{
  char made[QN_MAX_NDIM], letters[QN_MAX_NDIM];
  const qn_op_info *op = v->fast->source.op;
  return v->tensors[role] && letters_of(op, role, letters) == 2 && letters_of(op, result, made) == 2 &&
         letters[0] == made[0];
}

/* Of arrays with more dimensions than their pattern, all alike in all dimensions but the last. */
static bool flatten_all(visit *v)
{
  const qn_op_info *op = v->fast->source.op;
  size_t result = 0;
  if (!v->fast->source.results) return true;
  while (!(v->fast->source.results >> result & 1)) result++;
  if (!op->tensors[result].shape) return true;
  const int ndim = v->tensors[result]->ndim;
  int64_t shape[QN_MAX_NDIM];
  if (ndim <= 2) return true;
  memcpy(shape, v->tensors[result]->shape, (size_t)ndim * sizeof *shape);
  for (size_t role = 0; role < op->n_tensors; role++) {
    const qn_tensor *t = v->tensors[role];
    if (!has_rows(v, role, result)) continue;
    if (t->strides || t->ndim != ndim || memcmp(t->shape, shape, (size_t)(ndim - 1) * sizeof *shape)) return false;
    flatten(v, role);
  }
  return true;
}

/* ---- params ---- */
static bool set_double(double *to, qn_object *value)
{
  const qn_object *type = qn_type_of(value);
  if (type != qn_py.PyFloat_Type && type != qn_py.PyLong_Type) return false;
  *to = qn_py.PyFloat_AsDouble(value);
  return !(*to == -1.0 && qn_py.PyErr_Occurred());
}

static bool set_u64(uint64_t *to, qn_object *value)
{
  if (qn_type_of(value) != qn_py.PyLong_Type) return false;
  *to = qn_py.PyLong_AsUnsignedLongLong(value);
  return !(*to == UINT64_MAX && qn_py.PyErr_Occurred());
}

/* The number of a name among those that "a|b|c" lists; -1: there is none. */
static int32_t number_of(const char *names, qn_object *value)
{
  char name[64];
  for (int32_t k = 0;; k++) {
    const size_t n = strcspn(names, "|");
    if (n >= sizeof name) return -1;
    memcpy(name, names, n);
    name[n] = 0;
    if (!qn_py.PyUnicode_CompareWithASCIIString(value, name)) return k;
    if (!names[n]) return -1;
    names += n + 1;
  }
}

static bool set_param(const qn_op_param *param, char *params, qn_object *value)
{
  void *const at = params + param->offset;
  int32_t word = value == qn_py._Py_TrueStruct;
  switch (param->type) {
  case QN_PARAM_DOUBLE: return set_double(at, value);
  case QN_PARAM_U64: return set_u64(at, value);
  case QN_PARAM_BOOL:
    if (!word && value != qn_py._Py_FalseStruct) return false;
    break;
  case QN_PARAM_ENUM:
    if (qn_type_of(value) != qn_py.PyUnicode_Type) return false;
    word = number_of(param->values, value);
    if (word < 0) return false;
    break;
  default: return value == qn_py._Py_NoneStruct;
  }
  memcpy(at, &word, sizeof word);
  return true;
}

static bool set_word(const fast_call *fast, const qn_fast_word *word, char *params, qn_object *value)
{
  const qn_op_param *param = &fast->source.op->params[word->first];
  if (value == word->none && !fast->source.only_torch) return true;
  if (word->n == 1) return set_param(param, params, value);
  if (qn_type_of(value) != qn_py.PyTuple_Type || qn_py.PyTuple_Size(value) != (ptrdiff_t)word->n) return false;
  for (size_t k = 0; k < word->n; k++)
    if (!set_param(&param[k], params, qn_py.PyTuple_GetItem(value, (ptrdiff_t)k))) return false;
  return true;
}

static bool set_params(const visit *v, char *params)
{
  const fast_call *fast = v->fast;
  memcpy(params, fast->defaults, fast->source.op->params_bytes);
  for (size_t k = 0; k < fast->source.n_words; k++)
    if (!set_word(fast, &fast->words[k], params, v->arguments[n_roles(v) + k])) {
      qn_py.PyErr_Clear();
      return false;
    }
  return true;
}

/* ---- the call ---- */
static bool find_place(visit *v)
{
  v->bytes = 0;
  for (size_t role = 0; role < n_roles(v); role++)
    for (size_t k = 0; v->tensors[role] && k < v->n; k++)
      v->bytes += qn_tensor_elements(&v->tensors[role][k]) * qn_dtype_bytes(v->tensors[role][k].dtype);
  v->exec = (qn_exec){.size = sizeof v->exec, .device = v->tensors[v->first]->device};
  if (v->exec.device.kind == QN_CUDA) {
    if (qn_stream_current(v->framework, v->exec.device.index, &v->exec.stream)) return true;
  } else if (v->bytes < SMALL_BYTES || qn_pool_current(v->framework, &v->holder, &v->exec.pool)) {
    return true;
  }
  qn_py.PyErr_Clear();
  return false;
}

/* Whatever the workspace needs, of the arrays' framework; its contents are of no concern. */
static bool lend_workspace(visit *v, const qn_call *call)
{
  qn_py_array array;
  const qn_py_array *like = &v->arrays[v->first];
  const size_t bytes = call->op->engine->workspace(call), item = qn_dtype_bytes(like->tensor.dtype);
  const int64_t n = (int64_t)((bytes + item - 1) / item);
  if (!bytes) return true;
  v->lent = qn_array_new(v->framework, v->objects[v->first], like, 1, &n);
  if (!v->lent || !qn_array_read(v->framework, v->lent, &array)) {
    qn_py.PyErr_Clear();
    return false;
  }
  v->exec.workspace = array.tensor.data;
  v->exec.workspace_bytes = bytes;
  return true;
}

/* The array of a role that the call writes and that was given must be writable. */
static bool may_write(const visit *v, const qn_call *call)
{
  for (size_t role = 0; role < n_roles(v); role++)
    if (v->objects[role] && v->arrays[role].read_only && qn_call_access(call, role) & QN_WRITE) return false;
  return true;
}

static bool validate(visit *v, qn_call *call)
{
  return qn_validate_exec_and_params(call) == QN_OK && qn_validate_tensors(call, v->tensors) == QN_OK &&
         may_write(v, call) && lend_workspace(v, call) && qn_call_lend_workspace(call) == QN_OK &&
         qn_check_overlap(call) == QN_OK;
}

static qn_status launch(const visit *v, const qn_call *call)
{
  if (v->exec.device.kind == QN_CPU && v->bytes < SMALL_BYTES) return call->op->engine->run(call);
  void *const thread = qn_py.PyEval_SaveThread();
  const qn_status status = call->op->engine->run(call);
  qn_py.PyEval_RestoreThread(thread);
  return status;
}

static bool count_writes(const visit *v, const qn_call *call)
{
  for (size_t role = 0; role < n_roles(v); role++)
    if (v->objects[role] && qn_call_access(call, role) & QN_WRITE &&
        !qn_arrays_count_writes(v->framework, v->n, &v->all[role * v->n]))
      return false;
  return true;
}

/* With a Python exception set. */
static qn_object *fail(const visit *v, qn_status status)
{
  qn_object *number = qn_py.PyLong_FromLongLong(status);
  qn_object *never = number ? qn_py.PyObject_CallFunctionObjArgs(v->fast->source.check, number, NULL) : NULL;
  if (number) qn_py.Py_DecRef(number);
  if (never) qn_py.Py_DecRef(never);
  return NULL;
}

/* The results, one by itself, several as a tuple; None where the op has none. */
static qn_object *returned(const visit *v)
{
  qn_object *results[QN_MAX_TENSORS], *tuple;
  ptrdiff_t n = 0;
  for (size_t role = 0; role < n_roles(v); role++)
    if (v->fast->source.results >> role & 1) results[n++] = v->made[role] ? v->made[role] : v->objects[role];
  if (n < 2) return qn_answer(n ? results[0] : qn_py._Py_NoneStruct);
  tuple = qn_py.PyTuple_New(n);
  for (ptrdiff_t k = 0; tuple && k < n; k++) qn_py.PyTuple_SetItem(tuple, k, qn_answer(results[k]));
  return tuple;
}

/* The function of the source's calls again, from within autograd. */
static qn_object *record(const visit *v)
{
  const ptrdiff_t n = (ptrdiff_t)v->fast->n_arguments;
  qn_object *all = qn_py.PyTuple_New(n);
  if (!all) return NULL;
  for (ptrdiff_t k = 0; k < n; k++) qn_py.PyTuple_SetItem(all, k, qn_answer(v->arguments[k]));
  qn_object *made = qn_py.PyObject_CallObject(v->fast->source.record, all);
  qn_py.Py_DecRef(all);
  return made;
}

static qn_object *run(visit *v)
{
  _Alignas(16) char params[1024];
  if (!read_arrays(v) || !set_params(v, params)) return qn_answer(qn_py._Py_NotImplementedStruct);
  if (v->records) return record(v);
  if (!make_results(v) || !flatten_all(v) || !find_place(v)) return qn_answer(qn_py._Py_NotImplementedStruct);
  qn_call call = {.op = qn_op_of(v->fast->source.op), .exec = &v->exec, .params = params, .n = v->n};
  const qn_fp_word word = qn_fp_enter();
  const bool good = validate(v, &call);
  const qn_status status = good ? launch(v, &call) : QN_OK;
  qn_fp_leave(word);
  if (!good) return qn_answer(qn_py._Py_NotImplementedStruct);
  if (status != QN_OK) return fail(v, status);
  if (!count_writes(v, &call)) return NULL;
  return returned(v);
}

static qn_object *enter(qn_object *self, qn_object *const *arguments, ptrdiff_t n)
{
  const fast_call *fast = qn_py.PyCapsule_GetPointer(self, NULL);
  visit v;
  if (!fast) return NULL;
  if (n != (ptrdiff_t)fast->n_arguments || arguments[n - 1] != qn_py._Py_NoneStruct)
    return qn_answer(qn_py._Py_NotImplementedStruct);
  v.fast = fast;
  v.arguments = arguments;
  v.framework = QN_NO_FRAMEWORK;
  v.first = 0;
  v.n = 1;
  v.all = v.objects;
  v.block = NULL;
  v.records = false;
  v.lent = v.holder = NULL;
  memset(v.objects, 0, sizeof v.objects);
  memset(v.tensors, 0, sizeof v.tensors);
  memset(v.made, 0, sizeof v.made);
  qn_object *made = run(&v);
  for (size_t k = 0; v.block && k < n_roles(&v) * v.n; k++)
    if (v.all[k]) qn_py.Py_DecRef(v.all[k]);
  qn_release(v.block);
  for (size_t role = 0; fast->source.results >> role; role++)
    if (v.made[role]) qn_py.Py_DecRef(v.made[role]);
  if (v.lent) qn_py.Py_DecRef(v.lent);
  if (v.holder) qn_py.Py_DecRef(v.holder);
  return made;
}

static qn_method method = {"fast_call", enter, QN_METHOD_FAST, "All of a call of an op, or NotImplemented."};

static void end(qn_object *capsule)
{
  void *fast = qn_py.PyCapsule_GetPointer(capsule, NULL);
  qn_release(fast);
}

qn_status qn_fast_create(const qn_fast_source *source, void **callable)
{
  fast_call *made;
  qn_require(source && callable && source->op && source->check && (source->words || !source->n_words) &&
                 !(source->results >> source->op->n_tensors),
             "python: a fast call of nothing");
  qn_require(source->op->params_bytes <= 1024, "python: %s has params of %zu bytes", source->op->name,
             source->op->params_bytes);
  qn_try(qn_python_find());
  const size_t words = (sizeof *made + 15) & ~(size_t)15;
  const size_t params = words + ((source->n_words * sizeof *source->words + 15) & ~(size_t)15);
  qn_try(qn_try_allocate(&made, params + source->op->params_bytes, "a fast call"));
  *made = (fast_call){*source, (qn_fast_word *)((char *)made + words), (char *)made + params,
                      source->op->n_tensors + source->n_words + 1};
  if (source->n_words) memcpy(made->words, source->words, source->n_words * sizeof *source->words);
  qn_try(qn_op_defaults(source->op, made->defaults, source->op->params_bytes));
  return qn_python_function(&method, made, end, callable);
}
