/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - what this build was made from and with; recorded beside results, told by `quern version`. */
#ifndef QN_WORKBENCH_BUILD_H
#define QN_WORKBENCH_BUILD_H

extern const char qn_build_commit[];   /* "1a2b3c4d5e6f", "-dirty" behind it where the tree had changes; "" unknown */
extern const char qn_build_compiler[]; /* "gcc 12.2.0" */
extern const char qn_build_type[];     /* meson's buildtype: "debugoptimized" */

#endif
