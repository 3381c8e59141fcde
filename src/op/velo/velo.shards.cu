/* SPDX-License-Identifier: Apache-2.0 */
/* velo.shards.cu - op/lopt/lopt.shards.cu for VeLO's kind of network. */
#include "op/velo/kind.h"
#include "op/lopt/lopt.shards.cu"
