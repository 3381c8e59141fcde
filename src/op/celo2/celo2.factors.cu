/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.factors.cu - op/lopt/lopt.factors.cu for CELO2's network. */
#include "op/celo2/network.h"
#include "op/lopt/lopt.factors.cu"
