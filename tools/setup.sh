#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup.sh demo|python|test|all - makes sure that what is needed is there: for building (demo), for environments of Python
# besides (python), for a contributor's tests (test), for all tests (all). It looks for the tools themselves, not for
# packages; what is missing it installs with apt-get as root or by sudo, and where it may not it says which command to
# run and fails. Without a few tools `make test` leaves something out instead, and says so. Debian 12, Ubuntu 22.04 and
# 24.04.
set -eu
part=${1:-demo}
root=$(cd "$(dirname "$0")/.." && pwd)
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'int main(void) { return 0; }' >"$work/main.c"
printf '#include <xxhash.h>\nint main(void) { return 0; }\n' >"$work/hash.c"

have() { command -v "$1" >/dev/null 2>&1; }
compiles() { "$@" -o "$work/out" >/dev/null 2>&1; }
new_enough() { "$1" -c 'import sys; sys.exit(tuple(map(int, sys.argv[1].split(".")[:2])) < (1, 0))' "$("$2" --version 2>/dev/null || echo 0.0)"; }
venv_here() { python3 -c 'import venv, ensurepip'; }
meson_here() {
  if [ -x "$root/.venv/bin/meson" ]; then return 0; fi
  have meson && have python3 && new_enough python3 meson
}

# need TEST... -- PACKAGE...: adds the packages if the test fails.
missing=
need() {
  test=
  while [ "$1" != -- ]; do test="$test $1" && shift; done
  shift
  # shellcheck disable=SC2086
  $test >/dev/null 2>&1 || missing="$missing $*"
}

# want TOOL LOSS PACKAGE: needed for all tests; without it a contributor's lose what is said.
want() {
  have "$1" && return 0
  missing="$missing $3"
  if [ "$part" != all ]; then spared="$spared $3" losses="$losses  without $3 $2
"; fi
}

look() {
  missing='' spared='' losses=''
  need compiles "$cc" "$work/main.c" -- gcc libc6-dev
  need have c++ -- g++
  need have make -- make
  need have python3 -- python3
  need have ninja -- ninja-build
  need have pkg-config -- pkg-config
  need meson_here -- meson
  need pkg-config --exists jansson -- libjansson-dev
  need compiles "$cc" "$work/hash.c" -- libxxhash-dev
  [ "$part" != demo ] || return 0
  need venv_here -- python3-venv
  [ "$part" != python ] || return 0
  need have git -- git
  want help2man "there are no man pages, and nothing holds them" help2man
  want clang-format-14 "the layout of C files is not looked at" clang-format-14
  want ccache "what was compiled before is compiled again" ccache
  [ "$part" = all ] || return 0
  need have gcc -- gcc
  need compiles clang -fsanitize=address,undefined "$work/main.c" -- clang libclang-rt-dev
  need compiles clang -fsanitize=thread "$work/main.c" -- clang libclang-rt-dev
  need compiles gcc -fsanitize=address,undefined "$work/main.c" -- gcc
  need have valgrind -- valgrind
  need compiles aarch64-linux-gnu-gcc -pthread "$work/main.c" -- gcc-aarch64-linux-gnu libc6-dev-arm64-cross
  need have aarch64-linux-gnu-g++ -- g++-aarch64-linux-gnu
  need have qemu-aarch64 -- qemu-user
}

# may_not WHY - what is missing is said; it is an end unless tests can spare all of it.
may_not() {
  if [ "$missing" = "$spared" ]; then
    printf 'setup: %s\n%s' "$1" "$losses" >&2
    exit 0
  fi
  echo "setup: $1" >&2
  exit 1
}

install() {
  have apt-get || may_not "missing here, and there is no apt-get to install it with:$missing"
  if [ "$(id -u)" = 0 ]; then as="env"
  elif sudo -n true 2>/dev/null; then as="sudo -n env"
  else may_not "missing here, please run:  sudo apt-get install --no-install-recommends$missing"
  fi
  echo "setup: installing$missing"
  $as DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null || may_not "apt-get update failed; missing here:$missing"
  known=
  for package in $missing; do # not every release splits the compilers' run-time libraries off
    if apt-cache show "$package" >/dev/null 2>&1; then known="$known $package"; fi
  done
  # shellcheck disable=SC2086
  $as DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $known </dev/null >"$work/apt" 2>&1 ||
    { cat "$work/apt" >&2 && may_not "apt-get failed; missing here:$missing"; }
}

# Ubuntu 22.04 has a meson that is too old: take one from PyPI into the tree's own environment.
own_meson() {
  echo "setup: meson 1.0 or newer goes into .venv"
  python3 -m venv "$root/.venv" || { echo "setup: please run:  sudo apt-get install python3-venv" >&2; exit 1; }
  "$root/.venv/bin/pip" install -q 'meson>=1.0,<2'
}

look
[ -z "$missing" ] || { install && look; }
case $missing in
*meson*) own_meson && look ;;
esac
# hipcc compiles what is emitted as HIP C (tests/emit_compile.sh). Not every release has it; without it those tests say so.
if [ "$part" = all ] && [ -z "$missing" ] && ! have hipcc && apt-cache show hipcc >/dev/null 2>&1; then
  (missing=" hipcc" && install) || echo "setup: no hipcc, so that emitted HIP C is not compiled here" >&2
fi
[ -z "$missing" ] || may_not "still missing after the installation:$missing"
