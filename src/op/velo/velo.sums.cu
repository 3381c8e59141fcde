/* SPDX-License-Identifier: Apache-2.0 */
/* velo.sums.cu - op/lopt/lopt.sums.cu for VeLO's kind of network. */
#include "op/velo/kind.h"
#include "op/lopt/lopt.sums.cu"
