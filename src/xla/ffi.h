/* SPDX-License-Identifier: Apache-2.0 */
/* ffi.h - the part of XLA's typed foreign function interface that quern uses, declared by itself so that no header of
 * XLA's is needed: the layout of its structs and its numbers, from the ABI's version 0.3.
 *
 * The rules of that ABI: every struct begins with its size as its maker knows it and a list of extensions; a minor
 * version may add members at a struct's end, never move one; another major version may do anything. So a member is
 * there when the size reaches past it, and a frame's inner structs, behind which others lie, have exactly these sizes.
 */
#ifndef QN_XLA_FFI_H
#define QN_XLA_FFI_H
#include <stddef.h>
#include <stdint.h>

/* The version that these declarations were written from, and the oldest one that has all they need. */
enum { QN_XLA_MAJOR = 0, QN_XLA_MINOR = 3, QN_XLA_LEAST_MINOR = 1 };

struct XLA_FFI_Error; /* XLA's: made and destroyed by its functions */
typedef struct XLA_FFI_Error xla_error;
typedef struct xla_context xla_context; /* of one execution; opaque, and of no meaning after the call */

typedef struct xla_extension {
  size_t size;
  int32_t type; /* XLA_METADATA: this is the head of an xla_metadata_extension */
  struct xla_extension *next;
} xla_extension;
enum { XLA_METADATA = 1 };

/* Every struct that is passed begins so. */
typedef struct xla_head {
  size_t size;
  xla_extension *extensions;
} xla_head;

typedef struct xla_version {
  xla_head head;
  int major, minor;
} xla_version;

/* XLA asks what a handler is by a call with this extension and nothing else. */
typedef struct xla_metadata {
  size_t size;
  xla_version version; /* the ABI that the handler was written for */
  uint32_t traits;
} xla_metadata;
enum { XLA_TRAIT_CAPTURABLE = 1 }; /* always the same device work, so it may be captured into a graph and replayed */
typedef struct xla_metadata_extension {
  xla_extension base;
  xla_metadata *metadata;
} xla_metadata_extension;

/* XLA's primitive types, of which an array's elements and scalar attributes are. */
typedef enum xla_type {
  XLA_PRED = 1,
  XLA_S8 = 2,
  XLA_S16 = 3,
  XLA_S32 = 4,
  XLA_S64 = 5,
  XLA_U8 = 6,
  XLA_U16 = 7,
  XLA_U32 = 8,
  XLA_U64 = 9,
  XLA_F16 = 10,
  XLA_F32 = 11,
  XLA_F64 = 12,
  XLA_BF16 = 16
} xla_type;

typedef struct xla_buffer {
  xla_head head;
  xla_type type;
  void *data; /* device memory of the platform's; in the initialize stage an address only */
  int64_t rank;
  int64_t *extents;
} xla_buffer;

typedef enum xla_kind { XLA_BUFFER = 1 } xla_kind; /* of operands and results */
typedef enum xla_attribute_kind {
  XLA_ARRAY = 1,
  XLA_DICTIONARY = 2,
  XLA_SCALAR = 3,
  XLA_STRING = 4
} xla_attribute_kind;

typedef struct xla_span { /* text: not terminated */
  const char *at;
  size_t length;
} xla_span;
typedef struct xla_scalar {
  xla_type type;
  void *value;
} xla_scalar;
typedef struct xla_array {
  xla_type type;
  size_t n;
  void *data;
} xla_array;

/* Operands, and results: n pointers, each to what its kind says. */
typedef struct xla_values {
  xla_head head;
  int64_t n;
  xla_kind *kinds;
  void **values;
} xla_values;

typedef struct xla_attributes {
  xla_head head;
  int64_t n;
  xla_attribute_kind *kinds;
  xla_span **names; /* sorted */
  void **values;    /* xla_array, xla_scalar or xla_span */
} xla_attributes;

typedef enum xla_stage { XLA_INSTANTIATE, XLA_PREPARE, XLA_INITIALIZE, XLA_EXECUTE } xla_stage;

/* ---- what XLA's functions take ---- */
typedef enum xla_code {
  XLA_INVALID_ARGUMENT = 3,
  XLA_RESOURCE_EXHAUSTED = 8,
  XLA_FAILED_PRECONDITION = 9,
  XLA_UNIMPLEMENTED = 12,
  XLA_INTERNAL = 13
} xla_code;

typedef struct xla_error_create {
  xla_head head;
  const char *message; /* copied */
  xla_code code;
} xla_error_create;
typedef struct xla_error_message {
  xla_head head;
  xla_error *error;
  const char *message; /* out; lives as long as the error */
} xla_error_message;
typedef struct xla_error_destroy {
  xla_head head;
  xla_error *error;
} xla_error_destroy;
typedef struct xla_stream_get {
  xla_head head;
  xla_context *context;
  void *stream; /* out: a CUstream */
} xla_stream_get;
typedef struct xla_schedule {
  xla_head head;
  xla_context *context;
  void (*task)(void *data); /* run later, on some thread of XLA's or on this one */
  void *data;
} xla_schedule;
typedef struct xla_threads_get {
  xla_head head;
  xla_context *context;
  int64_t *n_threads; /* out, through the pointer */
} xla_threads_get;
typedef struct xla_ordinal_get {
  xla_head head;
  xla_context *context;
  int32_t ordinal; /* out: the device's number */
} xla_ordinal_get;

/* XLA's functions. Those that are not called are here for their places only. Errors belong to who gets them. */
typedef void xla_uncalled(void);
typedef struct xla_api {
  xla_head head;
  xla_version version;
  const void *internal;
  xla_error *(*error_create)(xla_error_create *);
  void (*error_message)(xla_error_message *);
  void (*error_destroy)(xla_error_destroy *);
  xla_uncalled *handler_register;
  xla_error *(*stream_get)(xla_stream_get *);
  xla_uncalled *type_register, *context_get, *state_set, *state_get, *memory_allocate, *memory_free;
  xla_error *(*schedule)(xla_schedule *);
  xla_error *(*threads_get)(xla_threads_get *);
  xla_uncalled *future_create, *future_set_available, *future_set_error, *run_id_get;
  xla_error *(*ordinal_get)(xla_ordinal_get *);
} xla_api;

/* One call of a handler. */
struct XLA_FFI_CallFrame {
  xla_head head;
  const xla_api *api;
  xla_context *context;
  xla_stage stage;
  xla_values operands, results;
  xla_attributes attributes;
};
typedef struct XLA_FFI_CallFrame xla_frame;

/* Does a struct whose maker says that it has `bytes` have this member? */
#define xla_reaches(bytes, type, member) ((bytes) >= offsetof(type, member) + sizeof(((type *)0)->member))
#endif
