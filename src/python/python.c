/* SPDX-License-Identifier: Apache-2.0 */
/* python.c - finds the interpreter's functions and objects by their names. */
#include "python/python.h"
#include "core/core.h"
#include <dlfcn.h>
#include <string.h>

qn_python qn_py;

static qn_status find(const char *name, void *to)
{
  void *found = dlsym(RTLD_DEFAULT, name);
  qn_require(found, "python: this process has no %s", name);
  memcpy(to, &found, sizeof found);
  return QN_OK;
}

qn_status qn_python_find(void)
{
  if (qn_py.word.address) return QN_OK;
#define X(result, name, arguments) qn_try(find(#name, &qn_py.name));
  QN_PYTHON_FUNCTIONS(X)
#undef X
#define X(name) qn_try(find(#name, &qn_py.name));
  QN_PYTHON_OBJECTS(X)
#undef X
#define X(name)                                                                                                        \
  qn_py.word.name = qn_py.PyUnicode_InternFromString(#name);                                                           \
  qn_require(qn_py.word.name, "python: there is no memory for a string");
  QN_PYTHON_NAMES(X)
#undef X
  return QN_OK;
}

qn_status qn_python_function(qn_method *method, void *data, void (*end)(qn_object *capsule), void **callable)
{
  qn_object *capsule = qn_py.PyCapsule_New(data, NULL, end);
  *callable = capsule ? qn_py.PyCFunction_NewEx(method, capsule, NULL) : NULL;
  if (capsule)
    qn_py.Py_DecRef(capsule);
  else
    qn_release(data);
  return *callable ? QN_OK : qn_fail(QN_NO_MEMORY, "python: there is no memory for a function");
}
