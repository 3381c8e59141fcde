/* SPDX-License-Identifier: Apache-2.0 */
/* device_variant.h - one specialisation of an op's device kernel: what it depends on, where things stand in its
 * argument, and its compiled function. Which one a launch takes, and what goes into the argument, is device_list.c's.
 */
#ifndef QN_OP_DEVICE_VARIANT_H
#define QN_OP_DEVICE_VARIANT_H
#include "base/list_kernel_args.h"
#include "device/backend.h"
#include "op/device_list.h"
#include "op/launch_shape.h"

/* Beside types and flags: the launch shape, and what tensors that are not dense ask for. Numbers are by role. */
struct qn_list_form {
  qn_launch_shape launch;
  bool pitched;         /* rows have a pitch of their own in each role; never flat */
  bool whole;           /* a lone tensor, every pack of which is whole and aligned, with no columns two apart */
  bool each;            /* elements are taken one by one: of a lone tensor off its boundary, or small and ragged; of any
                           list where the launch shape's vectors have one */
  bool peel;            /* rows begin off a vector's boundary, equally far in all roles: see list_kernel.h */
  bool near;            /* a lone tensor, every index of which has 32 bits */
  uint32_t lanes;       /* 1 + log2 of the threads of a lone tensor's row; 0: rows differ, or there are none */
  uint32_t steps, odds; /* bits: columns two apart; those that lie between another role's */
  uint32_t pairs;       /* digits: 1 + the role whose columns lie between this one's, or whose this one's lie between */
};

/* What one kernel is specialised for. */
typedef struct qn_list_variant {
  const qn_op *op;
  qn_device device;
  uint32_t row, flags, capacity, counts;
  qn_list_form form;
  const char *tier; /* the emulator compiles for it; NULL: a GPU. One of tier.c's names, so pointers compare */
} qn_list_variant;

/* Where things stand in the argument of a variant, and how its blocks are cut. */
typedef struct qn_list_layout {
  qn_list_offsets offsets;
  int slot[QN_MAX_TENSORS]; /* of a role among those given; -1: absent */
  uint32_t block_shift;     /* log2 of a block's elements: a division for each tensor would cost more than the rest */
} qn_list_layout;

qn_list_layout qn_list_layout_of(const qn_list_variant *v);
/* The capacity for a list of n tensors; the rest of the variant is set. Few capacities, so that few kernels are
 * compiled; the largest that the parameter limit allows last. */
qn_status qn_list_choose_capacity(qn_list_variant *v, size_t n);
/* Compiled or found. */
qn_status qn_list_find_function(const qn_list_variant *v, const qn_device_function **function);
#endif
