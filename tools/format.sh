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
command -v $tool >/dev/null || { echo "1..0 # SKIP no clang-format" && exit 0; }
# Fifty files a process: one says what it finds of each, "FILE:LINE:...".
# shellcheck disable=SC2086
said=$(printf '%s\n' $files | xargs -n 50 -P 2 $tool --dry-run --Werror 2>&1) && none=1 || none=0
n=0 bad=0
for file in $files; do
  n=$((n + 1))
  case "$said" in
  "$file:"* | *"
$file:"*) echo "not ok $n - $file (make format)" && bad=1 ;;
  *) echo "ok $n - $file" ;;
  esac
done
n=$((n + 1))
if [ $none = 1 ] || [ $bad = 1 ]; then echo "ok $n - $tool looked at all of them"; else
  echo "not ok $n - $tool looked at all of them" && printf '# %s\n' "$said" && bad=1
fi
echo "1..$n"
exit $bad
