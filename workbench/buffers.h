/* SPDX-License-Identifier: Apache-2.0 */
/* buffers.h - the tensors of one call of an op: a list of tensors in every role of a row of the type table, in a
 * device's memory, each between guard bytes, at a chosen alignment, with an image of all of it on the host. Kernels see
 * the device's memory only; what is compared are images. */
#ifndef QN_WORKBENCH_BUFFERS_H
#define QN_WORKBENCH_BUFFERS_H
#include "quern/quern.h"
#include "workbench/fill.h"
#include "workbench/walls.h"

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

typedef struct qn_role {
  qn_dtype dtype;
  qn_access access;
  size_t bytes;          /* of the image, guards included */
  size_t *offset;        /* one a tensor: of its first byte in the image */
  unsigned char *image;  /* on the host */
  unsigned char *before; /* the image as it was at the latest upload */
  unsigned char *memory; /* on the device */
  unsigned char *base;   /* of the block that it lies in */
  unsigned char *spare;  /* the block that qn_buffers_move took it from; NULL: never moved */
  size_t moves;
  qn_walled walled; /* both blocks */
} qn_role;

typedef struct qn_buffers {
  const qn_op_info *op;
  size_t row, n;
  qn_device device;
  void *stream;
  int64_t *elements; /* one a tensor; their shapes point here */
  qn_role role[QN_MAX_TENSORS];
  qn_tensor *tensor[QN_MAX_TENSORS];     /* by role, n each; NULL: the row has none */
  const qn_tensor *list[QN_MAX_TENSORS]; /* the same, as ops take them */
} qn_buffers;

/* Everything in one go, or nothing. stream is used for all transfers and is the caller's. */
qn_status qn_buffers_create(qn_buffers **buffers, const qn_op_info *op, size_t row, qn_device device, void *stream,
                            size_t n, const size_t *elements, qn_alignment alignment);
void qn_buffers_destroy(qn_buffers **buffers);

/* Fills the image: guards with their pattern, what the op reads with numbers, what it only writes with NaN.
 * only_read: leaves what the op writes as it is, so that a next step has new read-only tensors and goes on. */
void qn_buffers_fill(qn_buffers *buffers, uint64_t seed, bool odd, bool only_read);
/* The image of another set of the same list, which may be aligned otherwise and elsewhere. */
void qn_buffers_copy(qn_buffers *to, const qn_buffers *from);
qn_status qn_buffers_upload(qn_buffers *buffers);   /* image to device; `before` remembers it; walls go up */
qn_status qn_buffers_download(qn_buffers *buffers); /* walls go down; device to image */

/* What is only read goes to other memory (its contents with the next upload); where it was, all bytes become 0xFF. The
 * third time, and each third one from there, it begins one element off where it would, but for what lies at walls. */
qn_status qn_buffers_move(qn_buffers *buffers);

/* The first place where an image is not as it must be. */
typedef enum qn_fault { QN_FAULT_NONE, QN_FAULT_VALUE, QN_FAULT_GUARD, QN_FAULT_READ_ONLY } qn_fault;
typedef struct qn_difference {
  qn_fault fault;
  size_t role, tensor, index; /* GUARD: index is the byte behind the tensor's end, or before its start if negative */
  size_t count;               /* VALUE: how many elements differ in all */
} qn_difference;

/* Every element of every role against `want` (another set of the same list), every guard byte against its pattern and
 * every read-only tensor, byte for byte, against what was uploaded. */
qn_difference qn_buffers_compare(const qn_buffers *got, const qn_buffers *want);
/* Nothing at all has changed since the upload, to the byte: what a refused call must leave. */
qn_difference qn_buffers_unchanged(const qn_buffers *buffers);
/* One element of an image. */
static inline void *qn_buffers_at(const qn_buffers *buffers, size_t role, size_t tensor, size_t index)
{
  const qn_role *r = &buffers->role[role];
  return r->image + r->offset[tensor] + index * qn_dtype_bytes(r->dtype);
}
static inline void *qn_buffers_before(const qn_buffers *buffers, size_t role, size_t tensor, size_t index)
{
  const qn_role *r = &buffers->role[role];
  return r->before + r->offset[tensor] + index * qn_dtype_bytes(r->dtype);
}

#endif
