/* SPDX-License-Identifier: Apache-2.0 */
/* velo.factors.cu - op/lopt/lopt.factors.cu for VeLO's network. */
#include "op/velo/network.h"
#include "op/lopt/lopt.factors.cu"
