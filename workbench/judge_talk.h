/* SPDX-License-Identifier: Apache-2.0 */
/* judge_talk.h - what the judge and the process that holds a kernel say to each other, over two pipes; tensors lie in
 * memory that both have mapped. Inside this machine and this build, so structures travel as they are. */
#ifndef QN_WORKBENCH_JUDGE_TALK_H
#define QN_WORKBENCH_JUDGE_TALK_H
#include "workbench/kernel_case.h"
#include "workbench/sampler.h"

/* Descriptors of the process that holds a kernel. */
enum { QN_TALK_ASKS = 3, QN_TALK_ANSWERS = 4, QN_TALK_ARENA = 5 };
enum { QN_TALK_SPECS = 96, QN_TALK_SLOTS = 4, QN_TALK_PATH = 4096, QN_TALK_TEXT = 1024 };

/* Sent first: whose body, and where it runs. */
typedef struct qn_talk_job {
  char problem[QN_TALK_PATH];   /* the folder */
  char candidate[QN_TALK_PATH]; /* "": the folder's own body; a body's file; or a folder */
  qn_device device;
  int32_t threads;
  uint64_t arena_bytes;
  bool tuned;
} qn_talk_job;

/* A launch's numbers: one of the folder's sizes or workloads, extents that replace its own, storage types of inputs. */
typedef struct qn_talk_spec {
  bool workload;
  uint32_t base;
  bool drawn; /* extent[] holds */
  int64_t extent[QN_FOLDER_NAMES];
  uint8_t dtype[QN_KERNEL_MAX_TENSORS];
} qn_talk_spec;

typedef enum qn_talk_what {
  QN_TALK_EXPECT,  /* `is` will be prepared; behind the `last` one, all begin to compile side by side */
  QN_TALK_PREPARE, /* number `spec` is this one: compile it */
  QN_TALK_LOCK,    /* no system calls from now on */
  QN_TALK_SLOT,    /* slot `slot` is spec number `spec`, its memory is at `offset` of the arena */
  QN_TALK_RUN,     /* run the slot once, by `timer` */
  QN_TALK_INSPECT  /* the slot in checking mode, with an order of simdgroups by `seed` */
} qn_talk_what;

typedef struct qn_talk_ask {
  uint64_t nonce;
  int32_t what, slot, spec, timer;
  uint64_t offset, seed;
  double limit_s;  /* of INSPECT */
  bool check;      /* EXPECT, PREPARE: for INSPECT */
  bool last;       /* EXPECT */
  qn_talk_spec is; /* of EXPECT, PREPARE */
} qn_talk_ask;

/* Statuses besides qn_status: it made system call number `ns`; checking mode was stopped after `limit_s`. */
enum { QN_TALK_FORBIDDEN = -1, QN_TALK_STOPPED = -2 };

typedef struct qn_talk_answer {
  uint64_t nonce;
  int32_t status;  /* qn_status */
  int32_t threads; /* that the process has more than when it began to work; -1: not known */
  double ns;
  char text[QN_TALK_TEXT]; /* what was wrong */
} qn_talk_answer;

/* The problem's folder, with the candidate's body in its place. The kernel's own folder stays open beside it: its texts
 * are in use. */
typedef struct qn_judged_kernel {
  qn_folder *problem, *own; /* own: NULL where the candidate is no folder */
  qn_folder merged;
  char *text; /* of a body's file */
} qn_judged_kernel;
qn_status qn_judged_kernel_read(const char *problem, const char *candidate, qn_judged_kernel *kernel);
void qn_judged_kernel_free(qn_judged_kernel *kernel);

/* The order of a spec's case over this folder. `set` lives as long as the order. */
void qn_talk_order(const qn_folder *folder, const qn_talk_spec *spec, qn_name set[QN_FOLDER_NAMES],
                   qn_kernel_case_order *order);

/* The process that holds a kernel: answers until nobody asks. Returns its exit status. */
int qn_judge_inside(const char *phase); /* "compile", "run", "both" */
#endif
