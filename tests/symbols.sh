#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh ROOT LIBRARY STATIC_LIBRARY - what the shared library exports is what the public headers declare,
# all of it named qn_; it needs libc, libm, libdl and libpthread only; its SONAME has the number of the ABI.
set -u
root=$1 library=$2 static=$3
. "$root/tests/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Sanitizers add names and libraries of their own.
nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | grep -Ev '^(__asan|__ubsan|__tsan|__sancov|__odr_asan)' | sort >"$work/exported"
# A declaration may go over several lines; the first name before a parenthesis is the function's.
cat "$root"/include/quern/*.h | awk '/^QN_API /{on = 1} on {printf "%s ", $0} on && /;/ {print ""; on = 0}' |
  sed -E 's/^[^(]*[ *](qn_[a-z0-9_]+)\(.*/\1/' | sort -u >"$work/declared"
needed() { readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'; }
only_system() { ! needed | grep -Ev '^(libc|libm|libdl|libpthread|ld-linux[a-z0-9-]*|lib(a|t|ub)san|libgcc_s)\.so'; }
all_prefixed() { ! grep -v '^qn_' "$work/exported"; }
soname() { readelf -d "$library" | grep 'SONAME.*\[libquern\.so\.0\]'; }
no_text_relocations() { ! readelf -d "$library" | grep TEXTREL; }
static_prefixed() { ! nm --defined-only --extern-only "$static" | awk 'NF == 3 && $2 ~ /[TDBRVC]/ {print $3}' | grep -Ev '^(qn_|__odr_asan)'; }

check "some symbols are exported" test -s "$work/exported"
check "every exported name begins with qn_" all_prefixed
check "what is exported is what the headers declare" diff "$work/declared" "$work/exported"
check "the static library's names begin with qn_ too" static_prefixed
check "only libc, libm, libdl and libpthread are needed" only_system
check "the SONAME is libquern.so.0" soname
check "no text relocations" no_text_relocations
finish
