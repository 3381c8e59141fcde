/* SPDX-License-Identifier: Apache-2.0 */
/* build.c - see build.h. The one file that is compiled again when the commit changes. */
#include "workbench/build.h"
#include "commit.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char qn_build_commit[] = QN_COMMIT;
#ifdef __clang__
const char qn_build_compiler[] =
    "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__);
#else
const char qn_build_compiler[] = "gcc " TEXT(__GNUC__) "." TEXT(__GNUC_MINOR__) "." TEXT(__GNUC_PATCHLEVEL__);
#endif
const char qn_build_type[] = QN_BUILD_TYPE;
