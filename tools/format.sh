#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# format.sh [-i] - holds every C file in git (and every new one that git does not ignore) against .clang-format, in TAP;
# -i brings them into it instead. The layout is that of clang-format 14; other versions differ in small things.
set -eu
cd "$(dirname "$0")/.."
tool=clang-format-14
command -v $tool >/dev/null || tool=clang-format
files=$(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' ':!workbench/new' | sort -u | while read -r f; do [ -f "$f" ] && echo "$f"; done)
if [ "${1:-}" = -i ]; then
  # shellcheck disable=SC2086
  exec $tool -i $files
fi
n=0 bad=0
for file in $files; do
  n=$((n + 1))
  if $tool --dry-run --Werror "$file" >/dev/null 2>&1; then echo "ok $n - $file"; else
    echo "not ok $n - $file (make format)"
    bad=1
  fi
done
echo "1..$n"
exit $bad
