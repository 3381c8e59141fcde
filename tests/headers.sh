#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers.sh ROOT CC CXX - each public header compiles alone, twice included, as C17 and as C++17, and is installed.
set -u
root=$1 cc=$2 cxx=$3
. "$root/tests/tap.sh"
strict="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror -fsyntax-only -I$root/include"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umbrella() { grep -q "#include \"$1.h\"" "$root/include/quern/quern.h"; }
listed() { grep -q "public_headers = .*'$1'" "$root/src/meson.build"; }
for header in "$root"/include/quern/*.h; do
  name=$(basename "$header" .h)
  printf '#include <quern/%s.h>\n#include <quern/%s.h>\nint main(void);\nint main(void) { return 0; }\n' "$name" "$name" >"$work/alone.c"
  cp "$work/alone.c" "$work/alone.cpp"
  # shellcheck disable=SC2086
  check "$name.h alone as C17" $cc -std=c17 -Wstrict-prototypes -Wmissing-prototypes $strict "$work/alone.c"
  # shellcheck disable=SC2086
  check "$name.h alone as C++17" $cxx -std=c++17 $strict "$work/alone.cpp"
  check "$name.h is installed" listed "$name"
  [ "$name" = quern ] || check "$name.h is in quern.h" umbrella "$name"
done
finish
