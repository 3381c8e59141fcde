/* SPDX-License-Identifier: Apache-2.0 */
/* find.h - where NVIDIA's libraries are put by toolkits, drivers and Python packages. Whether one will do is for who
 * searches to say. */
#ifndef QN_DEVICE_CUDA_FIND_H
#define QN_DEVICE_CUDA_FIND_H
#include <stdbool.h>

/* A search for libSTEM.so.MAJOR, by memory of its owner. */
typedef struct qn_cuda_search qn_cuda_search;
struct qn_cuda_search {
  const char *stem;
  int least_major;    /* that is asked of the loader by name */
  int driver_version; /* of qn_cuda_driver_peek, with its path; 0: there is none */
  char driver_path[256];
  bool (*take)(qn_cuda_search *search, const char *path); /* a file: will it do? What it notes is its own */
  bool found;                                             /* one did; nothing more is looked at */
};

/* The 13 of libnvrtc.so.13; 0 where the name does not tell. */
int qn_cuda_library_major(const char *stem, const char *path);
/* Searches: where `named`, an option's text, is not empty, that file or what the loader finds by that name; else what
 * is loaded already, then the places below, then what the loader finds. What the loader found stays loaded, as it is
 * about to be used. Sets errno to 0, or to why the named file cannot be had. */
void qn_cuda_search_run(qn_cuda_search *search, const char *named);
#define QN_CUDA_SEARCHED                                                                                               \
  "looked in the loader's path, beside the driver, in lib64 of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda*, and for "  \
  "the Python package %s in $VIRTUAL_ENV, $CONDA_PREFIX, ~/.local, /usr/local and /usr/lib; install that package or "  \
  "name the library in the option %s"
#endif
