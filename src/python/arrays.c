/* SPDX-License-Identifier: Apache-2.0 */
/* arrays.c - see arrays.h. A NumPy array is read as compiled extensions read it: the head of its struct is the same in
 * NumPy 1 and 2. A PyTorch tensor is read by DLPack's table where there is one, from PyTorch 2.10 on, and by its own
 * methods before. */
#include "python/arrays.h"
#include "op/call.h"
#include "python/dlpack.h"
#include <string.h>

static const qn_numpy_objects *numpy; /* NULL: not bound */
static const qn_torch_objects *torch;

static qn_dtype code_of(const qn_python_dtype *dtypes, const void *dtype)
{
  for (int k = 0; k < QN_PYTHON_DTYPES && dtypes[k].object; k++)
    if (dtypes[k].object == dtype) return (qn_dtype)dtypes[k].code;
  return QN_NONE;
}

/* Leaves the strides out where they say nothing. */
static void see_strides(qn_py_array *array)
{
  qn_tensor *t = &array->tensor;
  int64_t step = 1;
  bool row_major = true;
  array->as_new = true;
  for (int d = t->ndim; d-- > 0 && t->strides;) {
    array->as_new &= t->strides[d] == step;
    row_major &= t->strides[d] == step || t->shape[d] == 1;
    step *= t->shape[d];
  }
  if (row_major) t->strides = NULL;
}

/* ---- NumPy ---- */
/* What follows the object's head: the first members of PyArrayObject. */
typedef struct numpy_fields {
  void *data;
  int ndim;
  const int64_t *shape, *strides; /* strides in bytes */
  void *base, *dtype;
  int flags;
} numpy_fields;
enum { NUMPY_ROW_MAJOR = 1, NUMPY_WRITEABLE = 0x400 };

static bool read_numpy(const char *object, qn_py_array *array)
{
  numpy_fields fields;
  memcpy(&fields, object + numpy->head_bytes, sizeof fields);
  const qn_dtype dtype = code_of(numpy->dtypes, fields.dtype);
  const int64_t item = (int64_t)qn_dtype_bytes(dtype);
  if (!item || fields.ndim < 0 || fields.ndim > QN_MAX_NDIM) return false;
  array->read_only = !(fields.flags & NUMPY_WRITEABLE);
  array->tensor = (qn_tensor){fields.data, dtype, fields.ndim, fields.shape, NULL, {QN_CPU, 0}};
  array->as_new = fields.flags & NUMPY_ROW_MAJOR;
  if (array->as_new) return true;
  for (int d = 0; d < fields.ndim; d++) {
    if (fields.strides[d] % item) return false;
    array->extents[d] = fields.strides[d] / item;
  }
  array->tensor.strides = array->extents;
  return true;
}

qn_status qn_numpy_bind(const qn_numpy_objects *objects)
{
  qn_py_array array;
  const qn_numpy_objects *const before = numpy;
  qn_try(qn_python_find());
  qn_require(objects, "python: what NumPy has is NULL");
  numpy = objects;
  if (read_numpy(objects->probe, &array) && array.tensor.data == objects->probe_data && array.tensor.ndim == 2 &&
      array.tensor.shape[0] == 2 && array.tensor.shape[1] == 3 && array.tensor.strides && array.extents[1] == 2)
    return QN_OK;
  numpy = before;
  return qn_fail(QN_UNSUPPORTED, "python: this NumPy's arrays are laid out otherwise than those of NumPy 1 and 2");
}

/* ---- PyTorch ---- */
qn_status qn_torch_bind(const qn_torch_objects *objects)
{
  qn_try(qn_python_find());
  qn_require(objects, "python: what PyTorch has is NULL");
  torch = objects;
  return QN_OK;
}

static qn_object *get(qn_object *object, qn_object *name) { return qn_py.PyObject_GetAttr(object, name); }
static qn_object *ask(qn_object *object, qn_object *name)
{
  return qn_py.PyObject_CallMethodObjArgs(object, name, NULL);
}

/* Releases the answer; a missing one is an exception, which is dropped. */
static bool is_true(qn_object *answer)
{
  const bool is = answer == qn_py._Py_TrueStruct;
  if (answer)
    qn_py.Py_DecRef(answer);
  else
    qn_py.PyErr_Clear();
  return is;
}

/* Integers of a tuple, which is released; their number, or -1. */
static int take_tuple(qn_object *tuple, int64_t *numbers)
{
  const ptrdiff_t n = tuple ? qn_py.PyTuple_Size(tuple) : -1;
  for (ptrdiff_t k = 0; k < n && n <= QN_MAX_NDIM; k++)
    numbers[k] = qn_py.PyLong_AsLongLong(qn_py.PyTuple_GetItem(tuple, k));
  if (tuple) qn_py.Py_DecRef(tuple);
  return n >= 0 && n <= QN_MAX_NDIM && !qn_py.PyErr_Occurred() ? (int)n : -1;
}

static bool ask_address(qn_object *object, void **address)
{
  qn_object *found = ask(object, qn_py.word.data_ptr);
  if (!found) return false;
  *address = qn_py.PyLong_AsVoidPtr(found);
  qn_py.Py_DecRef(found);
  return true;
}

static bool read_by_methods(qn_object *object, qn_py_array *array)
{
  qn_tensor *t = &array->tensor;
  if (!ask_address(object, &t->data)) return false;
  qn_object *dtype = get(object, qn_py.word.dtype);
  if (!dtype) return false;
  t->dtype = code_of(torch->dtypes, dtype);
  qn_py.Py_DecRef(dtype);
  t->device = (qn_device){QN_CPU, 0};
  if (!is_true(get(object, qn_py.word.is_cpu))) {
    if (!is_true(get(object, qn_py.word.is_cuda))) return false;
    qn_object *index = ask(object, qn_py.word.get_device);
    if (!index) return false;
    t->device = (qn_device){QN_CUDA, (int)qn_py.PyLong_AsLongLong(index)};
    qn_py.Py_DecRef(index);
  }
  t->shape = array->extents;
  t->strides = array->extents + QN_MAX_NDIM;
  t->ndim = take_tuple(get(object, qn_py.word.shape), array->extents);
  return t->ndim >= 0 && take_tuple(ask(object, qn_py.word.stride), array->extents + QN_MAX_NDIM) == t->ndim;
}

static bool read_torch(qn_object *object, qn_py_array *array)
{
  array->read_only = false;
  if (torch->table) {
    qn_dl_tensor found;
    if (((const qn_dl_table *)torch->table)->read(object, &found)) {
      qn_py.PyErr_Clear();
      return false;
    }
    array->tensor = qn_dl_seen(&found);
  } else if (!read_by_methods(object, array)) {
    qn_py.PyErr_Clear();
    return false;
  }
  const qn_tensor *t = &array->tensor;
  if (t->dtype == QN_NONE || t->dtype == QN_C64 || t->device.kind == QN_EMULATOR || t->ndim > QN_MAX_NDIM) return false;
  if (!t->data && qn_tensor_elements(t)) return false; /* freed, or zeros that nobody has stored */
  see_strides(array);
  return true;
}

bool qn_torch_address(qn_object *tensor, void **address)
{
  qn_dl_tensor found;
  if (!torch->table) return ask_address(tensor, address);
  if (((const qn_dl_table *)torch->table)->read(tensor, &found)) return false;
  *address = (char *)found.data + found.byte_offset;
  return true;
}

/* Does it answer with something that is not 0 or False? One that fails does. */
static bool is_active(qn_object *answer)
{
  const int is = answer ? qn_py.PyObject_IsTrue(answer) : 1;
  if (answer) qn_py.Py_DecRef(answer);
  if (is) qn_py.PyErr_Clear();
  return is != 0;
}

static bool has_tangents(void)
{
  qn_object *level = get(torch->forward_ad, qn_py.word._current_level);
  const long long number = level ? qn_py.PyLong_AsLongLong(level) : 0;
  if (level) qn_py.Py_DecRef(level);
  if (number >= 0) qn_py.PyErr_Clear();
  return number >= 0;
}

static qn_object *call(qn_object *function) { return qn_py.PyObject_CallFunctionObjArgs(function, NULL); }

bool qn_torch_negates(qn_object *tensor)
{
  return is_active(qn_py.PyObject_CallFunctionObjArgs(torch->is_neg, tensor, NULL));
}

bool qn_torch_is_free(bool *may_record)
{
  if (!torch) return false;
  for (int k = 0; k < QN_PYTHON_GUARDS && torch->guards[k]; k++)
    if (is_active(call(torch->guards[k]))) return false;
  if (has_tangents()) return false;
  *may_record = is_active(call(torch->is_grad_enabled));
  return true;
}

qn_torch_state qn_torch_look(qn_object *const *tensors, size_t n)
{
  bool records = false, may_record;
  if (!qn_torch_is_free(&may_record)) return QN_TORCH_OTHER;
  for (size_t k = 0; k < n; k++) {
    if (!tensors[k]) continue;
    if (qn_torch_negates(tensors[k])) return QN_TORCH_OTHER;
    records |= may_record && is_active(get(tensors[k], qn_py.word.requires_grad));
  }
  return records ? QN_TORCH_RECORDS : QN_TORCH_PLAIN;
}

/* ---- either ---- */
qn_framework qn_framework_of(qn_object *object)
{
  const void *type = qn_type_of(object);
  if (torch && (type == torch->tensor || type == torch->parameter)) return QN_OF_TORCH;
  return numpy && type == numpy->array ? QN_OF_NUMPY : QN_NO_FRAMEWORK;
}

static bool is_list(qn_object *object) { return qn_type_of(object) == qn_py.PyList_Type; }

ptrdiff_t qn_sequence_length(qn_object *object)
{
  if (is_list(object)) return qn_py.PyList_Size(object);
  const qn_object *type = qn_type_of(object);
  const bool is_size = torch && (const void *)type == torch->size;
  return type == qn_py.PyTuple_Type || is_size ? qn_py.PyTuple_Size(object) : -1;
}

qn_object *qn_sequence_item(qn_object *object, ptrdiff_t at)
{
  return is_list(object) ? qn_py.PyList_GetItem(object, at) : qn_py.PyTuple_GetItem(object, at);
}

qn_dtype qn_dtype_of_object(const qn_object *object)
{
  const qn_dtype found = torch ? code_of(torch->dtypes, object) : QN_NONE;
  return found == QN_NONE && numpy ? code_of(numpy->dtypes, object) : found;
}

bool qn_array_read(qn_framework framework, qn_object *object, qn_py_array *array)
{
  if (framework == QN_OF_TORCH) return read_torch(object, array);
  return framework == QN_OF_NUMPY && read_numpy((const char *)object, array);
}

static qn_object *tuple_of(int n, const int64_t *numbers)
{
  qn_object *made = qn_py.PyTuple_New(n);
  for (int k = 0; made && k < n; k++) qn_py.PyTuple_SetItem(made, k, qn_py.PyLong_FromLongLong(numbers[k]));
  return made;
}

static bool has_shape(const qn_tensor *t, int ndim, const int64_t *shape)
{
  return t->ndim == ndim && (!ndim || !memcmp(t->shape, shape, (size_t)ndim * sizeof *shape));
}

qn_object *qn_array_new(qn_framework framework, qn_object *like, const qn_py_array *seen, int ndim,
                        const int64_t *shape)
{
  qn_object *made = NULL;
  if (seen->as_new && has_shape(&seen->tensor, ndim, shape))
    return qn_py.PyObject_CallFunctionObjArgs(framework == QN_OF_TORCH ? torch->empty_like : numpy->empty_like, like,
                                              NULL);
  qn_object *extents = tuple_of(ndim, shape);
  if (!extents) return NULL;
  if (framework == QN_OF_TORCH) {
    made = qn_py.PyObject_CallMethodObjArgs(like, qn_py.word.new_empty, extents, NULL);
  } else {
    qn_object *dtype = get(like, qn_py.word.dtype);
    if (dtype) {
      made = qn_py.PyObject_CallFunctionObjArgs(numpy->empty, extents, dtype, NULL);
      qn_py.Py_DecRef(dtype);
    }
  }
  qn_py.Py_DecRef(extents);
  return made;
}

bool qn_arrays_count_writes(qn_framework framework, size_t n, qn_object *const *arrays)
{
  if (framework != QN_OF_TORCH || !n) return true;
  qn_object *all = qn_py.PyTuple_New((ptrdiff_t)n);
  if (!all) return false;
  for (size_t k = 0; k < n; k++) {
    qn_py.Py_IncRef(arrays[k]);
    qn_py.PyTuple_SetItem(all, (ptrdiff_t)k, arrays[k]);
  }
  qn_object *done = qn_py.PyObject_CallFunctionObjArgs(torch->count_writes, all, NULL);
  qn_py.Py_DecRef(all);
  if (done) qn_py.Py_DecRef(done);
  return done != NULL;
}

bool qn_stream_current(qn_framework framework, int index, void **stream)
{
  *stream = NULL;
  if (framework != QN_OF_TORCH) return false;
  if (torch->table) return !((const qn_dl_table *)torch->table)->current_stream(QN_DL_CUDA, index, stream);
  qn_object *number = qn_py.PyLong_FromLongLong(index);
  qn_object *handle = number ? qn_py.PyObject_CallFunctionObjArgs(torch->raw_stream, number, NULL) : NULL;
  if (number) qn_py.Py_DecRef(number);
  if (!handle) return false;
  *stream = qn_py.PyLong_AsVoidPtr(handle);
  qn_py.Py_DecRef(handle);
  return true;
}

static qn_object *state(qn_object *self, qn_object *const *arguments, ptrdiff_t n)
{
  qn_object *tensors[QN_MAX_TENSORS];
  qn_py_array array;
  qn_torch_state found = QN_TORCH_OTHER;
  ptrdiff_t k = 0;
  (void)self;
  for (; n <= QN_MAX_TENSORS && k < n; k++) {
    tensors[k] = arguments[k] == qn_py._Py_NoneStruct ? NULL : arguments[k];
    if (tensors[k] && (qn_framework_of(tensors[k]) != QN_OF_TORCH || !read_torch(tensors[k], &array))) break;
  }
  if (n && k == n) found = qn_torch_look(tensors, (size_t)n);
  return qn_py.PyLong_FromLongLong(found);
}

qn_status qn_torch_state_create(void **callable)
{
  static qn_method method = {"state", state, QN_METHOD_FAST, "What stands between a call and tensors."};
  qn_require(callable, "python: the place for a function is NULL");
  qn_try(qn_python_find());
  *callable = qn_py.PyCFunction_NewEx(&method, NULL, NULL);
  return *callable ? QN_OK : qn_fail(QN_NO_MEMORY, "python: there is no memory for a function");
}

bool qn_pool_current(qn_framework framework, qn_object **holder, qn_pool **pool)
{
  qn_object *address;
  *pool = NULL;
  *holder = call(framework == QN_OF_TORCH ? torch->pool : numpy->pool);
  if (!*holder || *holder == qn_py._Py_NoneStruct) return *holder != NULL;
  address = get(*holder, qn_py.word.address);
  if (!address) return false;
  *pool = qn_py.PyLong_AsVoidPtr(address);
  qn_py.Py_DecRef(address);
  return true;
}
