/* SPDX-License-Identifier: Apache-2.0 */
/* core.h - what no kernel knows: options as values, the log, allocation, hashing, text, the pool's inner side. */
#ifndef QN_CORE_CORE_H
#define QN_CORE_CORE_H
#include "core/status.h"
#include "quern/runtime.h"
#include "quern/stream.h"
#include <stdbool.h>

/* ---- options (options.c): by number, so that a spelling mistake does not compile ---- */
#define QN_OPTION_MAP(X)                                                                                               \
  X(CPU, "cpu", "QUERN_CPU", "auto", "auto|ref|avx2|avx512|avx512bf16|amx|neon", "the best CPU tier that may run")     \
  X(DEVICE, "device", "QUERN_DEVICE", "", "cpu|cuda[:N]|emulator",                                                     \
    "the command's device; tests and Python choose theirs")                                                            \
  X(CACHE, "cache", "QUERN_CACHE", "on", "on|off", "keep compiled kernels on disk")                                    \
  X(CACHE_DIR, "cache_dir", "QUERN_CACHE_DIR", "", "path", "where; default: $XDG_CACHE_HOME/quern or ~/.cache/quern")  \
  X(CACHE_BYTES, "cache_bytes", "QUERN_CACHE_BYTES", "256M", "bytes",                                                  \
    "size of that directory; the oldest use goes first")                                                               \
  X(LIBCUDA, "libcuda", "QUERN_LIBCUDA", "", "path", "the CUDA driver's library; default: libcuda.so.1")               \
  X(LIBNVRTC, "libnvrtc", "QUERN_LIBNVRTC", "", "path", "the CUDA run-time compiler's library")                        \
  X(LIBCUBLAS, "libcublas", "QUERN_LIBCUBLAS", "", "path", "cuBLAS's library for products, libcublasLt")               \
  X(CXX, "cxx", "QUERN_CXX", "", "path", "the C++ compiler of the emulator; default: $CXX, else c++")                  \
  X(ARCH, "arch", "QUERN_ARCH", "", "name", "the architecture that the emulator and the tune tables take: sm_100")     \
  X(TUNE_DIR, "tune_dir", "QUERN_TUNE_DIR", "", "path",                                                                \
    "where tune tables of your own are; default: $XDG_DATA_HOME/quern/tune or ~/.local/share/quern/tune")              \
  X(LAUNCH_SHAPE, "launch_shape", "QUERN_LAUNCH_SHAPE", "", "name",                                                    \
    "how device launches of element-wise ops are cut: tiles-128x8x1")                                                  \
  X(GEMM, "gemm", "QUERN_GEMM", "", "name", "the variant that matrix products on a device take: plain, cublas ...")

typedef enum qn_option {
#define X(id, name, variable, value, values, doc) QN_OPTION_##id,
  QN_OPTION_MAP(X)
#undef X
      QN_OPTION_COUNT
} qn_option;

/* The text in force, copied into text (cut to fit is an error). */
qn_status qn_option_text(qn_option option, char *text, size_t bytes);
qn_status qn_option_bytes(qn_option option, int64_t *bytes); /* "256M" as 268435456 */
unsigned
qn_option_generation(void); /* from 1 on, grows with every successful set: what was derived from options may be stale */

/* ---- log (log.c) ---- */
void qn_log(qn_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- allocation (alloc.c): sizes are kept so that hooks get them back; alignment 64 ---- */
void *qn_allocate(size_t bytes); /* not cleared; NULL when there is none; 0 bytes give a pointer */
void *qn_allocate_aligned(size_t bytes, size_t alignment); /* a power of 2; at least 64 is given */
void *qn_allocate_zero(size_t count, size_t bytes);        /* overflow of the product is NULL */
void *qn_reallocate(void *memory, size_t bytes);           /* as realloc: on NULL the old one stands */
void qn_release(void *memory);                             /* NULL is fine */
char *qn_duplicate(const char *text);
/* `qn_try_allocate(&p, bytes, "the plan's table")`: QN_NO_MEMORY with what it was for and how much. */
qn_status qn_try_allocate(void *pointer_to_pointer, size_t bytes, const char *what);

/* ---- hash (hash.c): XXH3, 128 bits; and with a secret key, against somebody who chooses the bytes ---- */
typedef struct qn_hash128 {
  uint64_t low, high;
} qn_hash128;
qn_hash128 qn_hash(const void *data, size_t bytes);
qn_hash128 qn_hash_keyed(const uint64_t key[2], const void *data, size_t bytes);

bool qn_dtype_is_float(qn_dtype dtype); /* (tensor.c) f16, bf16, f32, f64; not c64 */

/* ---- text (text.c) ---- */
typedef struct qn_text {
  char *at;
  size_t length, capacity;
  bool failed;
} qn_text; /* growing; zero is empty */
void qn_text_add(qn_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void qn_text_add_bytes(qn_text *text, const void *bytes, size_t n);
void qn_text_free(qn_text *text);
/* strtod, with a point in every locale; end may be NULL. */
double qn_text_real(const char *digits, const char **end);
/* The name nearest to `word` by edit distance among candidates (NULL-terminated), or NULL when none is near. */
const char *qn_nearest(const char *word, const char *const *candidates);
/* That name as "; did you mean X?" in a buffer of this thread until the next call, or "" when none is near. */
const char *qn_suggest(const char *word, const char *const *candidates);

/* ---- control word (fp.c): flush-to-zero, denormals-are-zero and rounding set to IEEE defaults on entry, the caller's
 * word put back on leaving. Frameworks set them, threads inherit them, and bits would change. ---- */
typedef uint64_t qn_fp_word;
qn_fp_word qn_fp_enter(void);
void qn_fp_leave(qn_fp_word word);

/* ---- pool (pool.c): run task 0..n-1, each once, in any order, on the pool's threads and the caller; returns when all
 * are done. Tasks run with IEEE control words. pool NULL, or busy with another caller's run: serially. ---- */
void qn_pool_run(qn_pool *pool, size_t n_tasks, void (*task)(void *user, size_t k), void *user);

/* Threads of somebody else's: lend queues task(argument), to be run once on one of them (or on the caller's), now or
 * late, even after the pool was given back; false: it will not be run. */
typedef struct qn_lender {
  bool (*lend)(void *user, void (*task)(void *argument), void *argument);
  void *user;
  int n_threads; /* that may run at once, the caller's among them */
} qn_lender;
/* A pool of such threads; the lender must live until it is given back. NULL, which is serial, for one thread, in a
 * forked child, or where all pools of this kind are in use. */
qn_pool *qn_pool_borrow(const qn_lender *lender);
void qn_pool_give_back(qn_pool *pool); /* NULL is fine */

/* ---- safetensors (safetensors.c): the header's names, dtypes, shapes; every number is hostile ---- */
typedef struct qn_safetensor {
  const char *name;
  char dtype[16]; /* as the file says it: "BF16"; unknown ones are kept */
  int ndim;
  int64_t shape[QN_MAX_NDIM];
  uint64_t begin, end;
} qn_safetensor;
typedef struct qn_safetensors {
  size_t n;
  qn_safetensor *tensor;
  void *storage;
  uint64_t data_begin; /* of a file that was read: where the data begins in it */
} qn_safetensors;
qn_status qn_safetensors_read(const char *path, qn_safetensors *out); /* header only; data is not touched */
/* A tensor's bytes, end - begin of them, from the file whose list it is in; QN_BAD_FILE if the file got shorter. */
qn_status qn_safetensors_read_data(const char *path, const qn_safetensors *list, const qn_safetensor *tensor,
                                   void *target);
qn_status qn_safetensors_parse(const void *header, size_t bytes, uint64_t data_bytes, const char *path,
                               qn_safetensors *out);
void qn_safetensors_free(qn_safetensors *list);

/* ---- safetensors written (safetensors_write.c): a new file, the tensors in the order given. dtype is the library's;
 * data is row-major, in host memory. metadata: names and values by turns, then NULL; NULL: none. ---- */
typedef struct qn_safetensor_made {
  const char *name;
  qn_dtype dtype;
  int ndim;
  const int64_t *shape;
  const void *data;
} qn_safetensor_made;
qn_status qn_safetensors_write(const char *path, const qn_safetensor_made *tensors, size_t n,
                               const char *const *metadata);

/* ---- JSON written (json.c; json.h reads it): a string with its quotes and escapes; bytes that are not UTF-8 become
 * U+FFFD. A number that reads back as the same double; what JSON has no number for as a string, "nan", "inf", "-inf".
 * ---- */
void qn_json_add_string(qn_text *text, const char *string);
void qn_json_add_real(qn_text *text, double value);
#endif
