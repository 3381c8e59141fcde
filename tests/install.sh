#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh ROOT BUILD CC CXX - installs into an empty folder, and builds a C and a C++ program against what is there
# with pkg-config: shared and static. Nothing of the source tree is used by them.
set -u
root=$1 build=$2 cc=$3 cxx=$4
. "$root/tests/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/program.c" <<'END'
#include <quern/quern.h>
#include <stdio.h>
int main(void)
{
  float p[3] = {1, 2, 3}, g[3] = {1, -1, 0}, m[3] = {0, 0, 0};
  const int64_t shape[1] = {3};
  const qn_device cpu = {QN_CPU, 0};
  const qn_tensor param = {p, QN_F32, 1, shape, NULL, cpu}, grad = {g, QN_F32, 1, shape, NULL, cpu},
                  momentum = {m, QN_F32, 1, shape, NULL, cpu};
  qn_exec exec = {sizeof(qn_exec), cpu, NULL, NULL, NULL, 0};
  qn_lion_params params = QN_LION_DEFAULTS;
  params.lr = 0.5;
  qn_status status = qn_lion_step(&exec, &params, 1, &param, &grad, &momentum, NULL);
  printf("%s %g %g %g\n", status ? qn_last_error() : qn_version(), p[0], p[1], p[2]);
  return status != QN_OK || p[0] != 0.5f || p[1] != 2.5f || p[2] != 3.0f;
}
END
cp "$work/program.c" "$work/program.cpp"
check "install into an empty folder" env DESTDIR="$work/to" meson install -C "$build" --no-rebuild
pc=$(find "$work/to" -name quern.pc)
check "there is a quern.pc" test -f "$pc"
export PKG_CONFIG_SYSROOT_DIR="$work/to" PKG_CONFIG_PATH="${pc%/*}"
check "quern.pc gives the version of the header" test "$(pkg-config --modversion quern)" = \
  "$(awk '/define QN_VERSION_/ {printf "%s%s", n++ ? "." : "", $3}' "$root/include/quern/status.h")"
libdir=$(pkg-config --variable=libdir quern)
libdir=$work/to${libdir#"$work/to"} # pkgconf puts the sysroot in front, pkg-config does not
flags=$(pkg-config --cflags --libs quern)
static=$(pkg-config --cflags --libs --static quern | sed "s|-lquern|$libdir/libquern.a|")
# shellcheck disable=SC2086
{
  check "a C program, shared" $cc -std=c17 -Wall -Wextra -Werror "$work/program.c" -o "$work/c" $flags
  check "it steps" env LD_LIBRARY_PATH="$libdir" "$work/c"
  check "a C++ program, shared" $cxx -std=c++17 -Wall -Wextra -Werror "$work/program.cpp" -o "$work/cxx" $flags
  check "it steps" env LD_LIBRARY_PATH="$libdir" "$work/cxx"
  check "a C program, static" $cc -std=c17 "$work/program.c" -o "$work/static-c" $static
  check "it steps without the shared library" "$work/static-c"
  check "a C++ program, static" $cxx -std=c++17 "$work/program.cpp" -o "$work/static-cxx" $static
  check "it steps without the shared library" "$work/static-cxx"
}
# The example as its user builds it, with what each call of it says when it fails; README shows a part of it.
example=$root/examples/c/lion.c
# shellcheck disable=SC2086
{
  check "the example" $cc -std=c17 -Wall -Wextra -Wpedantic -Werror "$example" -o "$work/lion" $flags
  check "trains" env LD_LIBRARY_PATH="$libdir" "$work/lion"
  sed 's/params.lr = 0.03;/params.lr = -1;/' "$example" >"$work/create.c"
  sed 's/params.lr = 0.03 [*].*/params.lr = -1;/' "$example" >"$work/step.c"
  for call in create step; do
    check "the example with a wrong learning rate in $call" $cc "$work/$call.c" -o "$work/$call" $flags
    check "says so" sh -c "! LD_LIBRARY_PATH='$libdir' '$work/$call' 2>'$work/err' && grep -q '^lion: .*lr is -1' '$work/err'"
  done
}
shown() {
  sed -n '/README: begin/,/README: end/p' "$example" | sed '1d;$d;s/^  //' >"$work/part"
  sed -n '/^```c$/,/^```$/p' "$root/README.md" | sed '1,3d;$d' | diff "$work/part" -
}
check "README shows a part of it" shown
quern=$(find "$work/to" -path '*/bin/quern')
check "the command is installed and runs" env LD_LIBRARY_PATH="$libdir" "$quern" --version
check "with its completion" grep -q 'complete -F _quern quern' "$(find "$work/to" -name quern.bash)"
if command -v help2man >/dev/null; then
  check "and its man page" grep -q '^.SH SYNOPSIS' "$(find "$work/to" -name quern.1)"
fi
finish
