#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers.sh ROOT BUILD CC CXX PUBLIC_HEADER... - each public header compiles alone, twice included, as C17 and as C++17,
# is among those that the build installs, and is reached through quern.h.
set -u
root=$1 build=$2 cc=$3 cxx=$4
shift 4
. "$root/tests/tap.sh"
flags="-I$root/include -I$build/src"
strict="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror -fsyntax-only $flags"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
installed=" $* "
listed() { case $installed in *" $1 "*) ;; *) return 1 ;; esac; }
echo '#include <quern/quern.h>' >"$work/umbrella.c"
# shellcheck disable=SC2086
reached=$($cc -std=c17 $flags -M "$work/umbrella.c")
umbrella() { case $reached in *"/quern/$1.h"*) ;; *) return 1 ;; esac; }
check "no header is installed twice" test -z "$(printf '%s\n' "$@" | sort | uniq -d)"
for header in "$root"/include/quern/*.h; do
  name=$(basename "$header" .h)
  printf '#include <quern/%s.h>\n#include <quern/%s.h>\nint main(void);\nint main(void) { return 0; }\n' "$name" "$name" >"$work/alone.c"
  cp "$work/alone.c" "$work/alone.cpp"
  # shellcheck disable=SC2086
  check "$name.h alone as C17" $cc -std=c17 -Wstrict-prototypes -Wmissing-prototypes $strict "$work/alone.c"
  # shellcheck disable=SC2086
  check "$name.h alone as C++17" $cxx -std=c++17 $strict "$work/alone.cpp"
  check "$name.h is installed" listed "$name"
  check "$name.h is reached through quern.h" umbrella "$name"
done
finish
