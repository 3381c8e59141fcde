/* SPDX-License-Identifier: Apache-2.0 */
/* contract.h - a valid call of an op, broken in one place and tried: the tool of leg 4. */
#ifndef QN_WORKBENCH_CONTRACT_H
#define QN_WORKBENCH_CONTRACT_H
#include "workbench/check.h"
#include "workbench/subject.h"

/* After every case the call is valid again. */
typedef struct qn_contract {
  qn_trial *trial;
  qn_subject d;  /* the valid call; a case changes the copies below */
  size_t number; /* of the next case */
  qn_exec exec;
  const qn_exec *exec_given;
  _Alignas(16) unsigned char params[QN_SUBJECT_PARAMS + 64]; /* with room for members of a later version */
  const void *params_given;
  size_t n;
  qn_tensor *tensor[QN_MAX_TENSORS]; /* NULL: the role is not given */
  const qn_tensor *list[QN_MAX_TENSORS];
  const qn_tensor *const *list_given;
  int64_t shape[QN_SUBJECT_NDIM + 1], strides[QN_SUBJECT_NDIM + 1]; /* for a case's use */
} qn_contract;

/* A call of these words (subject.h), or with NULL of the op's sample. Close it in any case. */
qn_status qn_contract_open(qn_contract *c, qn_trial *trial, size_t row, const char *text);
void qn_contract_close(qn_contract *c);

#define QN_WORDS(...) ((const char *[]){__VA_ARGS__, NULL})

/* Step, prepare and plan refuse the call as it stands, in a sentence that contains the op's name and all words. */
void qn_contract_refuses(qn_contract *c, const char *what, const char *const *words);
/* Step and a plan's step refuse it; prepare and plan do not need what is wrong, and accept it. */
void qn_contract_refuses_step(qn_contract *c, const char *what, const char *const *words);
/* A plan of the valid call refuses a step with this role's tensors as they stand now. */
void qn_contract_refuses_moved(qn_contract *c, size_t role, const char *what, const char *const *words);
/* Step, prepare and plan accept it. */
void qn_contract_accepts(qn_contract *c, const char *what);
/* Accepted or refused or, must_refuse, refused. QN_STATUS_COUNT: this case is not to run. */
qn_status qn_contract_tries(qn_contract *c, const char *what, bool must_refuse);

/* contract_cases.c: all that can be wrong with, or unusual in, structs and tensors. */
void qn_contract_refuses_all(qn_contract *c);
void qn_contract_accepts_all(qn_contract *c);
#endif
