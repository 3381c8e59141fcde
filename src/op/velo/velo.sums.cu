/* SPDX-License-Identifier: Apache-2.0 */
/* velo.sums.cu - op/lopt/lopt.sums.cu for VeLO's network. */
#include "op/velo/network.h"
#include "op/lopt/lopt.sums.cu"
