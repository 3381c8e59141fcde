/* SPDX-License-Identifier: Apache-2.0 */
/* arrays.h - reads NumPy's arrays and PyTorch's tensors without a Python call where these allow it, makes new ones, and
 * finds the streams and memory that belong to them. What is out of the ordinary is not read: it is left to the
 * package's Python, which refuses it with a sentence or knows a longer way. */
#ifndef QN_PYTHON_ARRAYS_H
#define QN_PYTHON_ARRAYS_H
#include "python/python.h"
#include "quern/objects.h"
#include "quern/stream.h"
#include <stdbool.h>

typedef enum qn_framework { QN_NO_FRAMEWORK, QN_OF_NUMPY, QN_OF_TORCH } qn_framework;

typedef struct qn_py_array {
  qn_tensor tensor; /* strides are NULL where the array is row-major */
  bool read_only;
  bool as_new;                      /* strides are those of a new array, of extents of 1 too */
  int64_t extents[2 * QN_MAX_NDIM]; /* room for a shape and strides that no other memory holds */
} qn_py_array;

/* By its exact type. */
qn_framework qn_framework_of(qn_object *object);
/* The length of a list, a tuple or a torch.Size; -1: the object is none of these. */
ptrdiff_t qn_sequence_length(qn_object *object);
/* Its item at an index, borrowed; NULL with a Python exception set. */
qn_object *qn_sequence_item(qn_object *object, ptrdiff_t at);
/* Of an object that is a framework's for a storage type; QN_NONE: it is none. */
qn_dtype qn_dtype_of_object(const qn_object *object);
/* False: it is none that can be read here. */
bool qn_array_read(qn_framework framework, qn_object *object, qn_py_array *array);
/* Where a tensor of PyTorch's is; false with a Python exception set. */
bool qn_torch_address(qn_object *tensor, void **address);
bool qn_torch_negates(qn_object *tensor); /* it is a view that negates what memory has */
/* What stands between a call and these tensors (NULL among them is none): a mode, a transform, tracing, forward-mode
 * tangents, a view that negates; or nothing but autograd, which would record the call; or nothing. */
typedef enum qn_torch_state { QN_TORCH_PLAIN, QN_TORCH_RECORDS, QN_TORCH_OTHER } qn_torch_state;
bool qn_torch_is_free(bool *may_record); /* none of them but autograd; may_record: it does where a tensor asks for it */
qn_torch_state qn_torch_look(qn_object *const *tensors, size_t n);
/* A row-major array of that shape, of the other's framework, type and device; NULL with a Python exception set. */
qn_object *qn_array_new(qn_framework framework, qn_object *like, const qn_py_array *seen, int ndim,
                        const int64_t *shape);
/* Counts a write of each of n arrays in PyTorch's autograd. Returns false with a Python exception set. */
bool qn_arrays_count_writes(qn_framework framework, size_t n, qn_object *const *arrays);
/* The stream of the framework's for work on that CUDA device. */
bool qn_stream_current(qn_framework framework, int index, void **stream);

/* The threads that calls on the framework's arrays use, as an object that holds them; NULL: one thread. */
bool qn_pool_current(qn_framework framework, qn_object **holder, qn_pool **pool);
#endif
