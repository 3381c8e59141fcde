/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - kernels from a body: the actions of `quern kernel`, and the verbs of ops over a kernel's folder; what
 * their options hold, and what every action that runs a kernel opens first. An action is one function and one row of
 * the table in kernel.c. */
#ifndef QN_CLI_KERNEL_H
#define QN_CLI_KERNEL_H
#include "cli/verb.h"
#include "core/source.h"
#include "workbench/kernel_case.h"
#include "workbench/kernel_check.h"
#include "workbench/progress.h"
#include "workbench/search.h"
#include "workbench/tune.h"

enum { QN_KERNEL_SETTINGS = 64 };

typedef struct qn_kernel_order {
  const qn_verb *verb; /* "kernel run": whose complaints they are */
  const char *folder, *against, *backend;
  const char *workload, *out, *form, *dialect, *from, *json_file, *trace;
  int size; /* the how many-th of the folder's, from 1; 0: not said */
  size_t n_set;
  qn_name set[QN_KERNEL_SETTINGS];
  QN_WORD_LIST(QN_KERNEL_SETTINGS) inputs, types;
  uint32_t group[3];
  int threads, seeds, passes;
  uint64_t seed;
  uint32_t ignore;
  double seconds, limit_s;
  qn_tune_order tune;
  bool json, verbose, isolated, quick, selftest, hot, untuned, first_use, first_use_empty;
} qn_kernel_order;

/* A folder opened on a device. */
typedef struct qn_kernel_session {
  const qn_kernel_order *order;
  qn_folder *folder;
  qn_device device;
  qn_pool *pool; /* NULL before the first case */
  qn_arrays given;
  qn_kernel_case *c; /* of an action that runs one; NULL before */
  char tuned[256];   /* the variant that its tune table names: "128x1x1+TILE=4"; "" */
} qn_kernel_session;

qn_status qn_kernel_open(qn_kernel_session *s, const qn_kernel_order *order);
void qn_kernel_close(qn_kernel_session *s);
/* The case of one size as the options want it: set, types, files, tuned values. Starts the session's threads: a session
 * that has none yet may fork. */
qn_status qn_kernel_case_of(qn_kernel_session *s, const qn_folder_size *size, qn_kernel_case_order *order);
/* The size that --size or --workload names, else the first size, else the first workload. */
qn_status qn_kernel_size_of(const qn_kernel_session *s, const qn_folder_size **size);
/* Opens a session for work(), which may set *bad: the exit status is then that of a failure. */
int qn_kernel_act(const qn_kernel_order *order, qn_status (*work)(qn_kernel_session *s, bool *bad));
/* "quern kernel run: sentence", with the body's line where the failure has one; returns the exit status. */
int qn_kernel_complain(const qn_kernel_session *s, qn_status status);

/* A check of the session's kernel, as the options want it. */
qn_status qn_kernel_trial_of(const qn_kernel_session *s, int limit_s, qn_kernel_trial_request *request);
/* work(order), in a process of its own under --isolated. */
int qn_kernel_apart(const qn_kernel_order *order, int (*work)(void *order));

/* The session's kernel, tuned as its order says; results: for all that is timed, or NULL. */
qn_status qn_kernel_tune(qn_kernel_session *s, json_t *results, qn_tune_outcome *out);

/* Whether the path is a kernel's folder, or its kernel.json, and no op's name. */
bool qn_is_kernel_folder(const char *path);
/* The verb over the kernel's folder that an argument names, with its exit status; false: no argument names one, or
 * there is no such action. */
bool qn_kernel_takes(const qn_verb *verb, int argc, char **argv, int *status);
/* For a verb: the options that only a folder has. Without a folder each is refused. */
typedef enum qn_folder_verb {
  QN_FOLDER_CHECK,
  QN_FOLDER_BENCH,
  QN_FOLDER_TUNE,
  QN_FOLDER_EMIT,
  QN_FOLDER_VERBS
} qn_folder_verb;
enum { QN_FOLDER_OPTIONS = 48 };
extern qn_verb_option qn_folder_options[QN_FOLDER_VERBS][QN_FOLDER_OPTIONS];
/* The kernels that ship: files "<name>/kernel.json", and the NULL-terminated names. */
extern const qn_source qn_shipped_kernels[];
size_t qn_shipped_names(const char *const **names);

/* emit.c: QN_EMIT_COUNT: no form is called so; the text into a file, NULL: to standard output. */
qn_emit qn_emit_from_name(const char *name);
qn_status qn_emit_write(const char *path, const char *text);

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
