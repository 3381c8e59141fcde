/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.sums.cu - op/lopt/lopt.sums.cu for CELO2's network. */
#include "op/celo2/network.h"
#include "op/lopt/lopt.sums.cu"
