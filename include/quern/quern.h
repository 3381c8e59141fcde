/* SPDX-License-Identifier: Apache-2.0 */
/* quern.h - everything. Every function is thread-safe unless its header says otherwise. */
#ifndef QN_QUERN_H
#define QN_QUERN_H
#include "arch.h"
#include "cache.h"
#include "device.h"
#include "graph.h"
#include "kernel.h"
#include "lopt.h"
#include "objects.h"
#include "op.h"
#include "runtime.h"
#include "status.h"
#include "stream.h"
#include "tensor.h"
#include "xla.h"

#include "all_ops.h" /* the build makes it from its list of ops, and installs it beside this file */
#endif
