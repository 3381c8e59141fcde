/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - `quern kernel`: its actions, what their options hold, and what every action that runs a kernel opens
 * first. An action is one function and one row of the table in kernel.c. */
#ifndef QN_CLI_KERNEL_H
#define QN_CLI_KERNEL_H
#include "cli/verb.h"
#include "workbench/kernel_case.h"
#include "workbench/progress.h"

enum { QN_KERNEL_SETTINGS = 64 };

typedef struct qn_kernel_order {
  const qn_verb *verb; /* "kernel run": whose complaints they are */
  const char *folder, *against, *backend;
  const char *workload, *out, *form, *dialect, *from, *json_file;
  int size; /* the how many-th of the folder's, from 1; 0: not said */
  size_t n_set, n_inputs, n_types;
  qn_name set[QN_KERNEL_SETTINGS];
  const char *input[QN_KERNEL_SETTINGS], *type[QN_KERNEL_SETTINGS];
  uint32_t group[3];
  int threads, seeds, passes;
  uint64_t seed;
  uint32_t ignore;
  double seconds, limit_s;
  bool json, verbose, isolated, quick, selftest, hot, dry_run, untuned, first_use, first_use_empty;
} qn_kernel_order;

/* A folder opened on a device. */
typedef struct qn_kernel_session {
  const qn_kernel_order *order;
  qn_folder *folder;
  qn_device device;
  qn_pool *pool;
  qn_arrays given;
  char tuned[256]; /* what tuned.json changed: "threadgroup 128, TILE=4"; "" */
} qn_kernel_session;

qn_status qn_kernel_open(qn_kernel_session *s, const qn_kernel_order *order);
void qn_kernel_close(qn_kernel_session *s);
/* The case of one size as the options want it: set, types, files, tuned values. */
qn_status qn_kernel_case_of(qn_kernel_session *s, const qn_folder_size *size, qn_kernel_case_order *order);
/* The size that --size or --workload names, else the first size, else the first workload. */
qn_status qn_kernel_size_of(const qn_kernel_session *s, const qn_folder_size **size);
/* "quern kernel run: sentence", with the body's line where the failure has one; returns the exit status. */
int qn_kernel_complain(const qn_kernel_session *s, qn_status status);

/* ---- actions ---- */
int qn_action_new(const qn_kernel_order *order);
int qn_action_list(const qn_kernel_order *order);
int qn_action_run(const qn_kernel_order *order);
int qn_action_check(const qn_kernel_order *order);
int qn_action_bench(const qn_kernel_order *order);
int qn_action_sanitize(const qn_kernel_order *order);
int qn_action_tune(const qn_kernel_order *order);
int qn_action_emit(const qn_kernel_order *order);
int qn_action_replay(const qn_kernel_order *order);
int qn_action_watch(const qn_kernel_order *order);
#endif
