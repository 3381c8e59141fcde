/* SPDX-License-Identifier: Apache-2.0 */
/* subject.h - a call of an op, set up from a line of text: guarded memory for the tensors of every role, data from a
 * seed, what params point to, workspace, and the same tensors in double, which the op's reference (op_check.h) steps.
 * Checks, benches and tuning of ops with such a reference are made of it. No op is named here. */
#ifndef QN_WORKBENCH_SUBJECT_H
#define QN_WORKBENCH_SUBJECT_H
#include "op/role_shape.h"
#include "workbench/case.h"
#include "workbench/op_check.h"
#include "workbench/walls.h"
#include "workbench/workload.h"

enum { QN_SUBJECT_NDIM = 8, QN_SUBJECT_GUARD = 256, QN_SUBJECT_PARAMS = QN_PARAMS_BYTES, QN_SUBJECT_SETS = 8 };
enum { QN_SUBJECT_LINE = 128 }; /* elements: what lean tensors begin at multiples of, and what lies between them */
enum { QN_SUBJECT_REFERENCE = 100000000 }; /* operations of a reference that large calls are proved by */

/* Where tensors begin: at multiples of 64 bytes; 16 or 32 bytes behind one; one element behind one; each role another
 * number of elements behind one. At walls (walls.h) each ends at one or begins behind one, wherever that is; of
 * a list of more than QN_ALIGN_WALLS tensors the last, or the first. */
typedef enum qn_alignment {
  QN_ALIGN_64,
  QN_ALIGN_16,
  QN_ALIGN_ELEMENT,
  QN_ALIGN_MIXED,
  QN_ALIGN_END,
  QN_ALIGN_BEGIN,
  QN_ALIGN_COUNT
} qn_alignment;
enum { QN_ALIGN_WALLS = 100 };
const char *qn_alignment_name(qn_alignment alignment);
size_t qn_alignment_shift(qn_alignment alignment, size_t role, size_t tensor, size_t width); /* bytes behind 64 */

/* How the tensors of a strided op lie to each other: kinds 0 to QN_ARRANGEMENTS - 2 lay all tensors of a role out
 * alike, dense under the first; under the last one each has the next kind. */
enum { QN_ARRANGEMENTS = 9, QN_ARRANGEMENT_DENSE = 0 };
const char *qn_arrangement_name(size_t kind);

/* Where a tensor lies in its role's memory: `rows` runs of `cols` elements, `pitch` elements from one to the next. */
typedef struct qn_subject_place {
  size_t offset; /* of its first byte */
  size_t elements, rows, cols, pitch;
  uint32_t *at; /* where each element lies, in bytes; NULL: rows and pitch say so */
  int ndim;
  int64_t shape[QN_SUBJECT_NDIM], strides[QN_SUBJECT_NDIM];
} qn_subject_place;

/* All tensors of a role, in one piece of memory. */
typedef struct qn_subject_role {
  qn_dtype dtype;
  size_t width;     /* bytes of an element */
  qn_access access; /* QN_ABSENT: not given */
  bool single;      /* one for the whole list */
  size_t apart;     /* elements between rows, besides those of all roles */
  bool other;       /* its shape is the one behind "or" */
  enum { QN_SUBJECT_NUMBERS, QN_SUBJECT_VALUE, QN_SUBJECT_SWEEP } filled;
  double all;      /* of QN_SUBJECT_VALUE: every element, at every step */
  size_t n, bytes; /* tensors; of the memory, guards included */
  qn_subject_place *place;
  qn_tensor *tensor;
  size_t home;           /* the role whose memory it is; another only where tensors are arranged */
  qn_walled walls;       /* within the memory */
  qn_fence fence, spare; /* the memory; that of a role that moved, before it did */
  size_t moves;
  unsigned char *memory, *before, *after; /* on the device; on the host, as it was filled and as it was fetched */
  double **value, **was, **allowed;       /* in double, from the first reference on; op_check.h says what they are */
} qn_subject_role;

/* One element of a tensor that is another number than the data are: of what is only read at every step, else before the
 * first one. */
typedef struct qn_subject_set {
  size_t role, tensor, element; /* SIZE_MAX: all; SIZE_MAX - 1: the one in the middle */
  double value;
} qn_subject_set;

/* One entry of a call's list: a tensor or a part of one. */
typedef struct qn_subject_cut {
  size_t tensor, first, n;
  int64_t extent; /* n, as its shape */
} qn_subject_cut;

typedef struct qn_subject {
  const qn_op *op;
  const qn_op_check *check;
  qn_op_rules own_rules; /* of an op that is not of the list */
  const qn_op_rules *rules;
  size_t row; /* of the type table */
  qn_exec exec;
  size_t n;  /* of the list; 1 where a call is of one tensor a role */
  bool list; /* it takes lists, and a step goes on from where the last one ended */
  qn_alignment alignment;
  qn_way way;
  size_t behind;        /* elements that data stand behind their alignment */
  size_t apart;         /* elements between rows, of roles whose rows may be apart */
  uint64_t seed, steps; /* steps: as the text says, 1 unless it does */
  double gradients,
      trained;     /* standard deviations of what is only read, and of the first role; below 0: as described */
  bool fenced;     /* memory may not be touched behind the last tensor of a role, on the processor and the emulator */
  bool bare, lean; /* no memory; no images on the host: it can be stepped alone */
  bool nan, halves, odd, filled, arranged;
  bool hyper; /* params lie in device memory */
  const struct qn_subject *like;
  bool own_stream;
  int64_t extent[26]; /* by letter; -1: not said */
  qn_subject_set set[QN_SUBJECT_SETS];
  size_t n_set;
  _Alignas(16) unsigned char params[QN_SUBJECT_PARAMS];
  qn_setting given; /* of params that are pointers: which are given, and with what; its params are not used */
  uint64_t *numbers[QN_PARAMS_MOST];                      /* of arrays, as the text says them */
  void *values[QN_PARAMS_MOST], *pointed[QN_PARAMS_MOST]; /* by param: on the host, in the device's memory */
  size_t value_bytes[QN_PARAMS_MOST];
  qn_subject_role role[QN_MAX_TENSORS];
  const qn_tensor *tensors[QN_MAX_TENSORS];
  qn_subject_cut *cut; /* the tensors, or their shards */
  size_t n_calls;      /* of these */
  qn_tensor *piece[QN_MAX_TENSORS];
  const qn_tensor *pieces[QN_MAX_TENSORS];
  qn_plan *plan;
  qn_fence lent;
  int referred;  /* 1 + the looseness of the reference that `value` is of; 0: it is not stepped yet */
  int64_t *rows; /* of the extent that results do not depend on each other along, those in `value`; NULL: all */
  int64_t n_rows;
} qn_subject;

/* The text, in words:
 *   m=128, 7x5 or 11 or -     an extent by its letter; one more tensor of the list, - of no dimensions
 *   24*7x5                    24 tensors of that shape
 *   NAME=VALUE                a param
 *   -ROLE, ~ROLE              a role that is not given; one whose shape is the one behind its "or"
 *   steps=N                   as many steps
 *   gradients=X, params=X     the standard deviation of what is only read, and of the first role
 *   filled                    what is updated begins as in the middle of a run, else as before the first step
 *   PARAM                     a param that is a pointer is given, with values made from the seed; "hyper" is such a one
 *   PARAM=X  PARAM=X,Y...     the same, with this value in device memory, or these of an array
 *   shift=N                   data begin N elements behind a multiple of 64 bytes
 *   apart=N, ROLE+N           N elements lie between rows, where they may; N more between one role's
 *   odd                       zeros of both signs, tiny and huge numbers, infinities and NaN among the others
 *   nan, halves               the first tensor that is read has a NaN; f32 that is read but in one dimension is as
 *                             qn_fill_halves makes it
 *   ROLE=X, ROLE=sweep        all elements of what is only read are X, at every step, or qn_fill_sweep's
 *   ROLE[k]=X ROLE[k,i]=X ROLE[k,*]=X   of tensor k the element in the middle, element i, or all */
typedef struct qn_subject_order {
  const qn_op *op;
  size_t row;
  qn_device device;
  qn_pool *pool;
  void *stream;                              /* NULL: a new one */
  const char *text, *more, *const *settings; /* behind the text; NULL: nothing */
  size_t n_settings;
  const qn_workload *list;   /* the list's tensors; NULL: the text says them */
  const qn_layout *elements; /* the list's tensors of one dimension, likewise */
  const void *params;        /* those that the text goes on from; NULL: the defaults, and what the op requires */
  const qn_setting *setting; /* the same, with what pointers point to */
  const qn_subject *like;    /* whose numbers it is filled with, at every step; NULL: its own */
  qn_alignment alignment;
  qn_way way;
  uint64_t seed;
  bool fenced, bare, lean;
  bool unfilled; /* lean, and its tensors hold nothing yet */
  bool arranged; /* of alike roles: one piece of memory holds all */
  size_t arrangement;
} qn_subject_order;

/* Words for lists of element-wise ops: zeros of both signs and the like, in what is written too. */
#define QN_SUBJECT_ODD "filled params=-1 odd"
enum { QN_SUBJECT_WRONG = 1024 }; /* bytes of a sentence that says what is wrong */

/* The text of one of the op's workloads, or the name itself where it is a text. */
qn_status qn_subject_find(const qn_op *op, const char *name, const char **text);
/* Reads a text's words (subject_text.c). */
qn_status qn_subject_read(qn_subject *subject, const char *text);
/* The same while it is open: what params point to follows. */
qn_status qn_subject_change(qn_subject *subject, const char *text);
/* All params from here on; a plan stays, and knows nothing of it. */
qn_status qn_subject_use(qn_subject *subject, const qn_setting *setting);

/* The order becomes that of what `got` must equal: its list and numbers on the processor, stepped by the ref tier's
 * function alone. */
const qn_subject_order *qn_subject_reference_order(qn_subject_order *order, const qn_subject *got);
/* Close it in any case. */
qn_status qn_subject_open(qn_subject *subject, const qn_subject_order *order);
void qn_subject_close(qn_subject *subject);

/* Workspace of what the call asks for now, between guards. */
qn_status qn_subject_lend(qn_subject *subject);
/* Step t > 0 is next: new numbers in what is only read, the count of steps, params in device memory. */
qn_status qn_subject_turn(qn_subject *subject, uint64_t t);
/* A param `step` counts up. */
qn_status qn_subject_count_step(qn_subject *subject);
/* Written tensors get their first contents again, on the device. */
qn_status qn_subject_rewind(qn_subject *subject);
qn_status qn_subject_run(qn_subject *subject);   /* the step, not waited for */
qn_status qn_subject_fetch(qn_subject *subject); /* waits, and reads all back */
/* Workspace, the step, and all of it on the host. */
qn_status qn_subject_step(qn_subject *subject);

/* A tensor's values, all of them, to the device and to the tensors in double. */
qn_status qn_subject_put(qn_subject *subject, size_t role, size_t tensor, const double *values);
uint64_t qn_subject_elements(const qn_subject *subject); /* of all roles */
/* Element i of a tensor, in its role's image. */
size_t qn_subject_at(const qn_subject *subject, size_t role, size_t tensor, size_t i);
double qn_subject_number(const qn_subject *subject, const unsigned char *image, size_t role, size_t tensor, size_t i);
/* ---- subject_double.c ---- */
/* The same step in double, of a variant of that looseness; where all of it would take more than `most` operations, over
 * some of the rows that do not depend on each other. */
qn_status qn_subject_refer(qn_subject *subject, int looseness, double most);
/* Of the variant that ran last. */
int qn_subject_looseness(const qn_subject *subject);
size_t qn_subject_count(const qn_subject *subject, size_t role, size_t tensor);              /* elements in double */
size_t qn_subject_referred(const qn_subject *subject, size_t role, size_t tensor, size_t i); /* which one the i-th is */
/* The call as an engine and a reference see it. */
qn_call qn_subject_call(const qn_subject *subject, qn_call_mode mode);
double qn_subject_operations(const qn_subject *subject);
double qn_subject_bytes(const qn_subject *subject); /* of all tensors, read and written once each */

/* ---- subject_compare.c ---- */
/* Compares the fetched tensors with those in double: the element that is worst in terms of what is allowed; guards and
 * what is only read must be as they were. False: a sentence. */
bool qn_subject_right(const qn_subject *subject, char *wrong, size_t bytes, uint64_t *elements, double *worst);
/* Guards and what is only read alone. */
bool qn_subject_intact(const qn_subject *subject, char *wrong, size_t bytes);
/* Two calls of one order: every written element bit for bit, any NaN being equal to any NaN. */
bool qn_subject_same(const qn_subject *a, const qn_subject *b, char *wrong, size_t bytes);
/* The same bytes in all memory as it was filled with. */
bool qn_subject_untouched(const qn_subject *subject, char *wrong, size_t bytes);

/* Two calls of one order: of an op that says bits, or has a reference in double, those; else as near as its class says,
 * in the oracle's units. Guards and what is only read in any case. */
bool qn_subject_agree(const qn_subject *got, const qn_subject *want, char *wrong, size_t bytes);
/* An element as it was fetched, the number that it must be, and what is read there before the step, of `was`. */
void qn_subject_tell(const qn_subject *subject, const qn_subject *was, size_t role, size_t tensor, size_t element,
                     const void *want, char *wrong, size_t bytes);

/* ---- between its files ---- */
/* subject_place.c: shapes, and where a role's tensors lie. */
qn_status qn_subject_place_role(qn_subject *subject, size_t role);
qn_status qn_subject_arrange(qn_subject *subject, size_t kind); /* subject_arrange.c */
/* subject_params.c */
qn_status qn_subject_point(qn_subject *subject); /* what params point to */
void qn_subject_take_setting(qn_subject *subject, const qn_setting *setting);
void qn_subject_call_params(const qn_subject *subject, unsigned char params[QN_SUBJECT_PARAMS]);
/* subject_run.c */
qn_status qn_subject_cut_up(qn_subject *subject);
qn_status qn_subject_move(qn_subject *subject);
qn_status qn_subject_allocate(qn_subject *subject, size_t role, qn_fence *fence); /* the memory of a role */
qn_status qn_subject_send(qn_subject *subject, size_t role); /* its image as it was filled, to the device */
const qn_shape_rule *qn_subject_rule(const qn_subject *subject, size_t role); /* its shape's */
/* The params with pointers to what the host reads. */
void qn_subject_host_params(const qn_subject *subject, unsigned char params[QN_SUBJECT_PARAMS]);
/* A role's tensors in double, if there are any, are those that it is filled with. */
void qn_subject_refresh(qn_subject *subject, size_t role);
void qn_subject_forget(qn_subject *subject); /* all tensors in double */
#endif
