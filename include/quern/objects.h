/* SPDX-License-Identifier: Apache-2.0 */
/* objects.h - tensors that are a framework's objects in Python, many looked at in one call: asking each for its
 * address, type and shape from Python costs several times what a step does. Nothing of Python or of a framework is
 * linked; the caller hands over their functions, and holds the interpreter's lock during the call. */
#ifndef QN_OBJECTS_H
#define QN_OBJECTS_H
#include "tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Python's and DLPack's functions, as addresses. */
typedef struct qn_object_calls {
  /* dltensor_from_py_object_no_sync of DLPack's table for C (DLPackExchangeAPI of DLPack 1): fills a DLTensor whose
   * shape and strides live as long as the object; not 0 with a Python exception set. */
  int (*read)(void *object, void *dl_tensor);
  void *(*at)(void *list, ptrdiff_t k); /* PyList_GetItem: borrowed; NULL with a Python exception set */
  void (*release)(void *object);        /* Py_DecRef */
} qn_object_calls;

/* The tensors of a role: the objects of a list, or an attribute or item of each. */
typedef struct qn_object_part {
  void *list;
  void *(*get)(void *object, void *key); /* PyObject_GetAttr, PyObject_GetItem: a new reference, or NULL with a Python
                                          * exception set; NULL: the object itself */
  void *key;                             /* what get is given, a Python object */
  qn_tensor *tensors;                    /* what they are known to be; their addresses are put here */
} qn_object_part;

typedef enum qn_follow {
  QN_FOLLOW_ERROR = -1, /* a Python exception is set */
  QN_FOLLOW_CHANGED,    /* a tensor is not what it was; the addresses are not to be used */
  QN_FOLLOW_SAME,       /* all are what and where they were */
  QN_FOLLOW_MOVED       /* all are what they were; some are elsewhere */
} qn_follow;

/* Are the n tensors of each part still what is known of them: storage type, extents, layout, device? Where they are,
 * their addresses are put there. found: one a part. Not 0: an error, after which nothing that was found is to be used.
 * Tensors with bits that ask for a conjugate or a negation are not told apart. */
QN_API int qn_objects_follow(const qn_object_calls *calls, size_t n, const qn_object_part *parts, size_t n_parts,
                             qn_follow *found);

/* Are the first n objects of two lists the same ones? The objects themselves are not looked at. */
QN_API int qn_objects_same(const qn_object_calls *calls, size_t n, void *one, void *other);

#ifdef __cplusplus
}
#endif
#endif
