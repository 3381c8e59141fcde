/* SPDX-License-Identifier: Apache-2.0 */
/* python.h - the interpreter's own functions, found at run time in the process that loaded the library: nothing of
 * Python is linked, and only names of its stable ABI are used. Whoever calls them holds the interpreter's lock. */
#ifndef QN_PYTHON_PYTHON_H
#define QN_PYTHON_PYTHON_H
#include "quern/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct qn_object qn_object; /* any Python object */

#define QN_PYTHON_FUNCTIONS(X)                                                                                         \
  X(void, Py_IncRef, (qn_object *))                                                                                    \
  X(void, Py_DecRef, (qn_object *))                                                                                    \
  X(void, PyErr_Clear, (void))                                                                                         \
  X(qn_object *, PyObject_Type, (qn_object *))                                                                         \
  X(qn_object *, PyObject_GetAttr, (qn_object *, qn_object *))                                                         \
  X(qn_object *, PyObject_GetItem, (qn_object *, qn_object *))                                                         \
  X(int, PyObject_IsTrue, (qn_object *))                                                                               \
  X(int, PyObject_RichCompareBool, (qn_object *, qn_object *, int))                                                    \
  X(qn_object *, PyObject_CallObject, (qn_object *, qn_object *))                                                      \
  X(qn_object *, PyObject_CallFunctionObjArgs, (qn_object *, ...))                                                     \
  X(qn_object *, PyObject_CallMethodObjArgs, (qn_object *, qn_object *, ...))                                          \
  X(qn_object *, PyCFunction_NewEx, (struct qn_method *, qn_object *, qn_object *))                                    \
  X(qn_object *, PyCapsule_New, (void *, const char *, void (*)(qn_object *)))                                         \
  X(void *, PyCapsule_GetPointer, (qn_object *, const char *))                                                         \
  X(void *, PyEval_SaveThread, (void))                                                                                 \
  X(void, PyEval_RestoreThread, (void *))                                                                              \
  X(double, PyFloat_AsDouble, (qn_object *))                                                                           \
  X(qn_object *, PyLong_FromLongLong, (long long))                                                                     \
  X(long long, PyLong_AsLongLong, (qn_object *))                                                                       \
  X(unsigned long long, PyLong_AsUnsignedLongLong, (qn_object *))                                                      \
  X(void *, PyLong_AsVoidPtr, (qn_object *))                                                                           \
  X(qn_object *, PyErr_Occurred, (void))                                                                               \
  X(const char *, PyUnicode_AsUTF8AndSize, (qn_object *, ptrdiff_t *))                                                 \
  X(qn_object *, PyList_New, (ptrdiff_t))                                                                              \
  X(ptrdiff_t, PyList_Size, (qn_object *))                                                                             \
  X(qn_object *, PyList_GetItem, (qn_object *, ptrdiff_t))                                                             \
  X(int, PyList_SetItem, (qn_object *, ptrdiff_t, qn_object *))                                                        \
  X(qn_object *, PyUnicode_InternFromString, (const char *))                                                           \
  X(int, PyUnicode_CompareWithASCIIString, (qn_object *, const char *))                                                \
  X(qn_object *, PyTuple_New, (ptrdiff_t))                                                                             \
  X(ptrdiff_t, PyTuple_Size, (qn_object *))                                                                            \
  X(qn_object *, PyTuple_GetItem, (qn_object *, ptrdiff_t))                                                            \
  X(int, PyTuple_SetItem, (qn_object *, ptrdiff_t, qn_object *))

/* Objects that are part of the interpreter. */
#define QN_PYTHON_OBJECTS(X)                                                                                           \
  X(_Py_NoneStruct)                                                                                                    \
  X(_Py_TrueStruct)                                                                                                    \
  X(_Py_FalseStruct)                                                                                                   \
  X(_Py_NotImplementedStruct)                                                                                          \
  X(PyFloat_Type)                                                                                                      \
  X(PyLong_Type)                                                                                                       \
  X(PyList_Type)                                                                                                       \
  X(PyTuple_Type)                                                                                                      \
  X(PyUnicode_Type)

/* Attributes that are asked for, as Python's strings. */
#define QN_PYTHON_NAMES(X)                                                                                             \
  X(acquire)                                                                                                           \
  X(address)                                                                                                           \
  X(copy_)                                                                                                             \
  X(cuda_stream)                                                                                                       \
  X(data_ptr)                                                                                                          \
  X(dtype)                                                                                                             \
  X(get_device)                                                                                                        \
  X(is_cpu)                                                                                                            \
  X(is_cuda)                                                                                                           \
  X(new_empty)                                                                                                         \
  X(release)                                                                                                           \
  X(requires_grad)                                                                                                     \
  X(shape)                                                                                                             \
  X(stream)                                                                                                            \
  X(stride)                                                                                                            \
  X(training)                                                                                                          \
  X(_current_level)                                                                                                    \
  X(_version)

/* PyMethodDef, of a function that takes its arguments as an array. */
typedef struct qn_method {
  const char *name;
  qn_object *(*call)(qn_object *self, qn_object *const *arguments, ptrdiff_t n);
  int flags;
  const char *doc;
} qn_method;
enum { QN_METHOD_FAST = 0x80 }; /* METH_FASTCALL */

typedef struct qn_python {
#define X(result, name, arguments) result(*name) arguments;
  QN_PYTHON_FUNCTIONS(X)
#undef X
#define X(name) qn_object *name;
  QN_PYTHON_OBJECTS(X)
#undef X
  struct {
#define X(name) qn_object *name;
    QN_PYTHON_NAMES(X)
#undef X
  } word;
} qn_python;
extern qn_python qn_py;

/* Fills qn_py, once. A name that this process has not is refused. */
qn_status qn_python_find(void);

/* callable: a new reference to a function whose `self` is a capsule of `data`, which `end` releases with it; where
 * there is no memory for it, at once. */
qn_status qn_python_function(qn_method *method, void *data, void (*end)(qn_object *capsule), void **callable);

/* Another reference to the object. */
static inline qn_object *qn_answer(qn_object *object)
{
  qn_py.Py_IncRef(object);
  return object;
}

/* The exact type; borrowed, which is enough for a comparison with a type that somebody holds. */
static inline qn_object *qn_type_of(qn_object *object)
{
  qn_object *type = qn_py.PyObject_Type(object);
  qn_py.Py_DecRef(type);
  return type;
}
#endif
