/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - what a call returns, and the sentence behind it. Compiles alone as C and as C++. */
#ifndef QN_STATUS_H
#define QN_STATUS_H
#include <stddef.h>

#define QN_VERSION_MAJOR 0
#define QN_VERSION_MINOR 1
#define QN_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QN_API __attribute__((visibility("default")))
#else
#define QN_API
#endif

/* One line per status: the enum, its name and its text all come from here. Each text says what kind of thing to mend;
 * qn_last_error() says which. */
#define QN_STATUS_MAP(X)                                                                                               \
  X(QN_OK, "ok")                                                                                                       \
  X(QN_BAD_ARGUMENT, "an argument breaks the contract: correct the call")                                              \
  X(QN_BAD_TYPE, "a storage type is not among the supported ones: convert the tensor")                                 \
  X(QN_BAD_FILE, "a file is not what it claims to be: replace it")                                                     \
  X(QN_UNSUPPORTED, "not supported by this machine or build: choose another way")                                      \
  X(QN_NO_DEVICE, "there is no such device: choose another or mend the driver")                                        \
  X(QN_NO_LIBRARY, "a shared library or compiler is missing: install it or name its path")                             \
  X(QN_NO_MEMORY, "out of memory: free some or ask for less")                                                          \
  X(QN_DRIVER_ERROR, "the device driver reported an error")                                                            \
  X(QN_COMPILE_ERROR, "device source did not compile")                                                                 \
  X(QN_IO_ERROR, "the file system reported an error")                                                                  \
  X(QN_FORKED, "the device was opened before fork: open it in the child only")                                         \
  X(QN_KERNEL_ERROR, "a kernel ran and reports a fault, or was stopped: mend its body")

typedef enum qn_status {
#define X(name, text) name,
  QN_STATUS_MAP(X)
#undef X
      QN_STATUS_COUNT
} qn_status;

/* The enumerator's spelling ("QN_BAD_ARGUMENT") and its text; for an unknown value "QN_UNKNOWN". Static storage. */
QN_API const char *qn_status_name(qn_status status);
QN_API const char *qn_status_text(qn_status status);

/* This thread's latest failure as one sentence with the offending values; "" before the first. Never NULL. It stays
 * until the thread's next failure; a call that succeeds does not clear it. */
QN_API const char *qn_last_error(void);

/* The version of the library that was loaded, "0.1.0"; compare with the QN_VERSION_* that the caller compiled with. */
QN_API const char *qn_version(void);

/* sizeof a public struct by its name ("qn_tensor"), 0 if there is none: a binding in another language holds its own
 * layout against it when it loads the library. Sizes of hyper structs: see qn_op_info. */
QN_API size_t qn_struct_bytes(const char *name);

#ifdef __cplusplus
}
#endif
#endif
