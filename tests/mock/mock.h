/* SPDX-License-Identifier: Apache-2.0 */
/* mock.h - a CUDA driver for tests: memory that works, kernels that only leave a note, and failures on order. A kernel
 * whose name begins with "static1024" has that much static shared memory, one that begins with "heavy" takes blocks of
 * at most 96 threads and holds 640 of them at once. It is a
 * shared library to be named in the option "libcuda"; the test gets its notes through the exported mock_cuda().
 *
 * Its behaviour is in the variable QUERN_MOCK, read when it is loaded, words separated by commas:
 *   version=12020      what cuDriverGetVersion says (13000)
 *   devices=2          how many there are (1)
 *   arch=75            10 * major + minor of all of them (90)
 *   multiprocessors=132  of each (4)
 *   memory=1048576     bytes of each (256 MiB)
 *   busy=5             so many times a stream says that it has work left
 *   missing=cuMemFree  a function that cuGetProcAddress does not know
 *   fail=7:700         the 7th call, of any function, gives error 700 and does nothing */
#ifndef QN_TESTS_MOCK_MOCK_H
#define QN_TESTS_MOCK_MOCK_H
#include <stddef.h>

typedef struct mock_launch {
  char kernel[64];
  int device;
  unsigned blocks, threads; /* along x */
  unsigned blocks_yz[2], threads_yz[2], shared_bytes;
  void *stream;
  int argument; /* the first bytes of it; 0: there is none */
} mock_launch;

typedef struct mock_api {
  size_t (*calls)(const char *function); /* of that name; NULL: of all */
  const char *(*call_name)(size_t k);    /* of the k-th call, from 1 */
  size_t (*launches)(void);
  const mock_launch *(*launch)(size_t k); /* from 0 */
  size_t (*live)(void);                   /* allocations, streams, events and libraries not given back */
  size_t (*live_bytes)(int device);       /* of device memory */
  int (*depth)(void);                     /* of this thread's stack of contexts */
  int (*retained)(int device);            /* primary contexts */
  void (*push)(int device);               /* a caller's doing: that primary context, or below 0 a foreign one */
  void (*fail_next)(size_t k, int error); /* the k-th call from now, 1 being the next, gives this error */
} mock_api;
const mock_api *mock_cuda(void);
#endif
