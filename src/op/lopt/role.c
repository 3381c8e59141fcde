/* SPDX-License-Identifier: Apache-2.0 */
/* role.c - what the descriptions of learned optimizers share beside the engine: the rules by which the shapes of roles
 * follow from a parameter's, and which device sources tests compile, and under which settings. */
#include "op/lopt/lopt.h"

const char *const qn_lopt_rules[QN_LOPT_ROLES] = {QN_LOPT_RULES};

int qn_lopt_role_shape(size_t role, size_t n, int ndim, const int64_t *shape, int64_t *role_shape)
{
  (void)n;
  return qn_lopt_shape(QN_LOPT_TIES_LATER, qn_lopt_state_of[role], ndim, shape, -1, role_shape);
}

const char *const qn_lopt_variations[] = {"precision=fp32", NULL};

#define DEFINES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define PLAIN "QN_LOPT_ELO=0", "QN_LOPT_BOUNDED=0", "QN_LOPT_COMPAT=0"
#define OTHER "QN_LOPT_ELO=1", "QN_LOPT_BOUNDED=1", "QN_LOPT_COMPAT=1"
#define FIRST_PHASE "QN_LOPT_PRECISION=0", "QN_LOPT_PHASE=0", "QN_LOPT_PIECE=4080"
#define OTHER_PHASE "QN_LOPT_PRECISION=0", "QN_LOPT_PHASE=1", "QN_LOPT_PIECE=500"
#define UPDATE(precision, warpgroups, threads, what, arch)                                                             \
  {                                                                                                                    \
    "op/lopt/lopt.update.cu",                                                                                          \
        DEFINES(what, "QN_LOPT_PRECISION=" #precision, "QN_LOPT_PHASE=0", "QN_LOPT_PIECE=500",                         \
                "QN_LOPT_WARPGROUPS=" #warpgroups, "QN_THREADS=" #threads),                                            \
        arch                                                                                                           \
  }
/* Below sm_80 all is computed as fp32, class 0. */
#define FOLD(precision, arch)                                                                                          \
  {                                                                                                                    \
    "op/lopt/lopt.fold.cu", DEFINES(PLAIN, "QN_LOPT_PRECISION=" #precision, "QN_LOPT_PHASE=0", "QN_LOPT_PIECE=500"),   \
        arch                                                                                                           \
  }
#define ALL(...)                                                                                                       \
  {"op/lopt/lopt.elements.cu", DEFINES(__VA_ARGS__), NULL}, {"op/lopt/lopt.fold.cu", DEFINES(__VA_ARGS__), NULL},      \
      {"op/lopt/lopt.sides.cu", DEFINES(__VA_ARGS__), NULL}, {"op/lopt/lopt.stats.cu", DEFINES(__VA_ARGS__), NULL},    \
      {"op/lopt/lopt.sums.cu", DEFINES(__VA_ARGS__), NULL},                                                            \
  {                                                                                                                    \
    "op/lopt/lopt.table.cu", DEFINES(__VA_ARGS__), NULL                                                                \
  }
const qn_shaped_unit qn_lopt_units[] = {ALL(PLAIN, FIRST_PHASE),
                                        UPDATE(0, 0, 256, PLAIN, NULL),
                                        UPDATE(3, 0, 256, PLAIN, "sm_80"),
                                        UPDATE(1, 0, 256, PLAIN, "sm_90a"),
                                        UPDATE(2, 1, 384, PLAIN, "sm_90a"),
                                        UPDATE(3, 1, 384, PLAIN, "sm_90a"),
                                        UPDATE(4, 0, 384, PLAIN, "sm_90a"),
                                        UPDATE(3, 0, 256, PLAIN, "sm_120"),
                                        FOLD(3, "sm_80"),
                                        FOLD(3, "sm_90a"),
                                        FOLD(4, "sm_90a"),
                                        {NULL, NULL, NULL}};
const qn_shaped_unit qn_lopt_elo_units[] = {
    ALL(OTHER, OTHER_PHASE), UPDATE(0, 0, 256, OTHER, NULL), UPDATE(3, 1, 384, OTHER, "sm_90a"), {NULL, NULL, NULL}};

#define VELO(source, ...)                                                                                              \
  {                                                                                                                    \
    "op/" source, DEFINES("QN_LOPT_VELO=1", "QN_LOPT_ELO=0", "QN_LOPT_BOUNDED=0", __VA_ARGS__), NULL                   \
  }
const qn_shaped_unit qn_lopt_velo_units[] = {VELO("velo/velo.list.cu", "QN_LOPT_COMPAT=0", FIRST_PHASE),
                                             VELO("velo/velo.tiles.cu", "QN_LOPT_COMPAT=0", FIRST_PHASE),
                                             VELO("velo/velo.tiles.cu", "QN_LOPT_COMPAT=1", OTHER_PHASE),
                                             VELO("lopt/lopt.elements.cu", "QN_LOPT_COMPAT=0", FIRST_PHASE),
                                             VELO("lopt/lopt.elements.cu", "QN_LOPT_COMPAT=1", OTHER_PHASE),
                                             VELO("lopt/lopt.sides.cu", "QN_LOPT_COMPAT=0", FIRST_PHASE),
                                             VELO("lopt/lopt.sums.cu", "QN_LOPT_COMPAT=0", FIRST_PHASE),
                                             {NULL, NULL, NULL}};
