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

/* dltensor_from_py_object_no_sync of DLPack's table for C (DLPackExchangeAPI of DLPack 1): fills a DLTensor whose shape
 * and strides live as long as the object; not 0 with a Python exception set. */
typedef int qn_object_read(void *object, void *dl_tensor);
/* PyList_GetItem: the k-th object of a list, borrowed; NULL with a Python exception set. */
typedef void *qn_object_at(void *list, ptrdiff_t k);

typedef enum qn_follow {
  QN_FOLLOW_ERROR = -1, /* a Python exception is set */
  QN_FOLLOW_CHANGED,    /* a tensor is not what it was; the addresses are not to be used */
  QN_FOLLOW_SAME,       /* all are what and where they were */
  QN_FOLLOW_MOVED       /* all are what they were; some are elsewhere */
} qn_follow;

/* Are the objects of the list still what `tensors` says: storage type, extents, layout, device? Where they are, their
 * addresses are put there. Tensors with bits that ask for a conjugate or a negation are not told apart. */
QN_API qn_follow qn_objects_follow(qn_object_read *read, qn_object_at *at, void *list, size_t n, qn_tensor *tensors);

#ifdef __cplusplus
}
#endif
#endif
