/* SPDX-License-Identifier: Apache-2.0 */
/* objects.h - tensors that are a framework's objects in Python, many looked at in one call: asking each for its
 * address, type and shape from Python costs several times what a step does. Nothing of Python or of a framework is
 * linked; the caller hands over their functions, and holds the interpreter's lock during the call. */
#ifndef QN_OBJECTS_H
#define QN_OBJECTS_H
#include "op.h"
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

/* ---- fast calls: a Python callable that is all of a call, from the arrays to the launch, in one entry into C ---- */
enum { QN_PYTHON_DTYPES = 32, QN_PYTHON_GUARDS = 8 };

/* A framework's object for a storage type; NULL ends an array of them. */
typedef struct qn_python_dtype {
  void *object;
  int code; /* qn_dtype */
} qn_python_dtype;

/* Objects of NumPy's and PyTorch's, which live as long as the process. `pool` is a function of no arguments that gives
 * None or an object with the `address` of a qn_pool, which it holds. */
typedef struct qn_numpy_objects {
  size_t head_bytes; /* of an object: what precedes the members of PyArrayObject */
  void *array, *empty, *empty_like, *pool;
  void *probe, *probe_data; /* an array of shape (2, 3) whose columns are 2 elements apart, and its address */
  qn_python_dtype dtypes[QN_PYTHON_DTYPES];
} qn_numpy_objects;

typedef struct qn_torch_objects {
  void *tensor, *parameter, *size; /* the types */
  const void *table;               /* DLPackExchangeAPI of DLPack 1; NULL: there is none */
  void *guards[QN_PYTHON_GUARDS]; /* functions of no arguments: true where a call must go another way; NULL ends them */
  void *forward_ad;               /* the module */
  void *is_grad_enabled, *pool;   /* functions of no arguments */
  void *is_neg;                   /* of a tensor */
  void *count_writes;             /* of a tuple of tensors */
  void *empty_like;               /* of a tensor */
  void *raw_stream;               /* of a device's number */
  qn_python_dtype dtypes[QN_PYTHON_DTYPES];
} qn_torch_objects;
QN_API qn_status qn_numpy_bind(const qn_numpy_objects *objects);
QN_API qn_status qn_torch_bind(const qn_torch_objects *objects);

/* callable: a new reference to a function of tensors, None among them, that says whether a call of them is 0: plain,
 * 1: one that autograd records, 2: to be left to PyTorch, for a mode, a transform or what they are. */
QN_API qn_status qn_torch_state_create(void **callable);

/* An argument that sets params: `n` of them from number `first` on, a tuple where there are several. */
typedef struct qn_fast_word {
  size_t first, n;
  void *none; /* the object that leaves the params at their defaults; not with only_torch, whose words must be said */
} qn_fast_word;

typedef struct qn_fast_source {
  const qn_op_info *op;
  const qn_fast_word *words;
  size_t n_words;
  void *record;      /* a function of all arguments, for calls that autograd is to record; NULL: they are left alone */
  int only_torch;    /* 1: arrays that are no tensors of PyTorch's are left alone */
  uint32_t required; /* roles, as bits, that must be given */
  uint32_t results;  /* roles, as bits, whose arrays are made where None is given */
  void *check;       /* a function of a status, which raises the exception for it */
} qn_fast_source;

/* callable: a new reference to a function of one array, a list or tuple of them, or None a role, the words' values, and
 * a stream; lists have as many arrays each, and no results are made of them. It returns the arrays of `results`,
 * several as a tuple, or None, or NotImplemented where the call is out of the ordinary or would be refused: then
 * nothing has happened. A failure of the device or the launch is raised. The interpreter's lock is held.
 */
QN_API qn_status qn_fast_create(const qn_fast_source *source, void **callable);

typedef struct qn_fast_body {
  struct qn_kernel *kernel;
  size_t n_inputs, n_outputs;
  void *check; /* as above */
} qn_fast_body;

/* The same of a kernel from its body, for calls whose like was made before. call: a function of inputs, output_shapes,
 * output_dtypes, grid, threadgroup, template, init_value, shared_memory, in_place, out and a stream (an int or None),
 * which returns the list of outputs, or NotImplemented. learn: a function of the same but the stream, and, of the call
 * that was made: an object that keeps it, the address of its qn_kernel_call, by output a function that makes it (in a
 * tuple with its address) and the number of the input that it is stored in (or -1), whether it is a single group, and
 * the bytes of its workspace. */
QN_API qn_status qn_fast_body_create(const qn_fast_body *source, void **call, void **learn);

/* The same for a plan that takes the place of a module's forward. arguments: a tuple of the arguments of a call that
 * was made. The function remembers the values' kinds, and holds no tensor. It is called with `parts` and the arguments
 * of a call. It runs the call where parts 0 to 8 still describe the module, the arguments and PyTorch. parts is a
 * tuple: 0 a tuple of the arguments; the entry of a tensor is not read 1 a tuple of a table and a key for each tensor
 * of the module    2 a tuple of the tensors' addresses 3 a tuple of numbers: the tensors that constants are made from
 * 4 a tuple of the versions of these tensors 5 a tuple of modules                                            6 a tuple
 * of bools: their `training` 7 a tuple of functions without arguments                        8 a tuple of their answers
 *  9 a tuple of numbers: the arguments that the plan takes
 * 10 the plan: a function of these arguments that returns a list; None where part 11 has graphs
 * 11 None, or a tuple of CUDA graphs that run instead of the plan. Each is a tuple:
 *      a function without arguments that replays it; a tuple of its outputs;
 *      a tuple of the outputs' storages, as numbers; a tuple of each storage's users while nobody has an output;
 *      a tuple with an entry for each argument of 9: the address that the graph reads, or None where it reads a copy;
 *      a tuple likewise: the tensor that the argument is copied to, or None
 * 12 an object whose `stream` is that of the last replay; its `cuda_stream` is the handle
 * 13 the graphs' lock: an object with `acquire` and `release`
 * 14 a function of a storage's number that returns how many users it has
 * 15 a function of a tensor that returns a new tensor with the same memory
 * 16 a function of the list of outputs that returns the result, or None: the result is the first output
 * QN_UNSUPPORTED: an argument is a tensor that cannot be read here. */
QN_API qn_status qn_fast_plan_create(void *parts, void *arguments, void **callable);

#ifdef __cplusplus
}
#endif
#endif
