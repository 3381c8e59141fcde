/* SPDX-License-Identifier: Apache-2.0 */
/* velo.shards.cu - op/lopt/lopt.shards.cu for VeLO's network. */
#include "op/velo/network.h"
#include "op/lopt/lopt.shards.cu"
