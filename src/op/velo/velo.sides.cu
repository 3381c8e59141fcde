/* SPDX-License-Identifier: Apache-2.0 */
/* velo.sides.cu - op/lopt/lopt.sides.cu for VeLO's kind of network. */
#include "op/velo/kind.h"
#include "op/lopt/lopt.sides.cu"
