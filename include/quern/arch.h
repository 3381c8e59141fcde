/* SPDX-License-Identifier: Apache-2.0 */
/* arch.h - what a device is, as one value: what variants of ops are chosen by and tune tables are keyed by. Asked of
 * the driver once a device, then remembered; see device.h for what changes (free memory) and for names of products. */
#ifndef QN_ARCH_H
#define QN_ARCH_H
#include "stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_arch {
  size_t size;   /* sizeof(qn_arch), set by the caller */
  char name[16]; /* "sm_90"; a processor's is the best tier that may run, "avx512"; "emulator" */
  char
      family[16]; /* "turing", "ampere", "ada", "hopper", "blackwell" ...; "x86-64", "aarch64"; "emulator"; "unknown" */
  int capability; /* CUDA: 10 * major + minor, 90 for an H200; else 0 */
  int multiprocessors;             /* CUDA: streaming multiprocessors; CPU and HOST: hardware threads to be used */
  int64_t l2_bytes;                /* CUDA: of L2; CPU and HOST: of the last level's cache, 0 if unknown */
  int shared_block_bytes;          /* shared memory that a block can have at most; 0 on CPU */
  int shared_multiprocessor_bytes; /* that a multiprocessor has; 0 on CPU */
  int registers_multiprocessor;    /* 32-bit registers of a multiprocessor; 0 on CPU */
  int threads_multiprocessor;      /* most threads at once on a multiprocessor; 0 on CPU */
  int imitated; /* 1: HOST under the option "arch", which takes name, family and limits of that architecture */
} qn_arch;

/* The device's architecture. The emulator's is "emulator", or what the option "arch" (QUERN_ARCH=sm_100) says that it
 * imitates; a GPU and the processor are always what they are. QN_BAD_ARGUMENT for a value of that option that is no
 * architecture. */
QN_API qn_status qn_device_arch(qn_device device, qn_arch *arch);

/* The architecture whose tune tables count for the device: the option "arch" where it is set, else the device's own. */
QN_API qn_status qn_tune_arch(qn_device device, qn_arch *arch);

#ifdef __cplusplus
}
#endif
#endif
