/* SPDX-License-Identifier: Apache-2.0 */
/* contract.h - a valid call of an op, to be broken in one place and tried: the tool of leg 4. */
#ifndef QN_WORKBENCH_CONTRACT_H
#define QN_WORKBENCH_CONTRACT_H
#include "workbench/buffers.h"
#include "workbench/check.h"

enum { QN_CONTRACT_TENSORS = 3 };

/* After every try the call is made valid again. */
typedef struct qn_contract {
  qn_trial *trial;
  const qn_op *op;
  size_t row, number; /* number: of the case to come */
  qn_device device;
  qn_buffers *buffers;
  qn_exec exec;
  const qn_exec *exec_given;
  _Alignas(16) unsigned char params[QN_PARAMS_BYTES + 64]; /* with room for members of a later version */
  const void *params_given;
  size_t n;
  qn_tensor tensor[QN_MAX_TENSORS][QN_CONTRACT_TENSORS];
  const qn_tensor *list[QN_MAX_TENSORS];
  const qn_tensor *const *list_given;
  int64_t shape[8], strides[8]; /* free for a try's use */
  void *spare;                  /* device memory for it, of SPARE bytes */
} qn_contract;
enum { QN_CONTRACT_SPARE = 4096 };

qn_status qn_contract_open(qn_contract *c, qn_trial *trial, size_t row);
void qn_contract_close(qn_contract *c);

/* One case: the call as it stands must be refused by step, prepare and plan, with a sentence that contains all words.
 */
void qn_contract_refuses(qn_contract *c, const char *what, const char *const *words);
/* The same of what only a step needs: step and a plan's step refuse it, prepare and plan take it. */
void qn_contract_refuses_step(qn_contract *c, const char *what, const char *const *words);
/* The same of a role that moved: a plan of the valid call refuses a step with this role's tensors as they stand now. */
void qn_contract_refuses_moved(qn_contract *c, size_t role, const char *what, const char *const *words);
/* One case: it must be taken. */
void qn_contract_takes(qn_contract *c, const char *what);
/* One case: taken or refused, or (must_refuse) refused. QN_STATUS_COUNT: this case is not to run. */
qn_status qn_contract_tries(qn_contract *c, const char *what, bool must_refuse);

/* Everything that can be wrong with, or unusual in, structs and tensors. */
void qn_contract_refuses_all(qn_contract *c);
void qn_contract_takes_all(qn_contract *c);

#endif
