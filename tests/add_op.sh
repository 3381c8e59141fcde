#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# add_op.sh ROOT CC - adds the ops of docs/adding-an-op.md, one of each kind of engine, to a copy of the tree, as that page
# says: their files, their golden vectors, their words in the list of ops and nothing else. In one build each must then be
# built, listed, completed, checked on every tier and on the emulator, and timed; the first one callable through quern.h
# and from Python; and once their formulas are spoilt, their checks must fail.
set -u
root=$1 cc=$2
. "$root/tests/tap.sh"
. "$root/tests/copy.sh"
ops='ema row_rms joint_lopt'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree build=$work/tree/build
quern=$build/cli/quern
mkdir "$tree"
export XDG_CACHE_HOME="$work/cache" CC="$cc"

# Every fenced block that follows a line <!-- file: PATH --> becomes that file.
take_files() {
  awk -v tree="$tree" '
    /^<!-- file: / { path = tree "/" $3; folder = path; sub(/\/[^\/]*$/, "", folder); next }
    /^```/ && open { close(path); path = ""; open = 0; next }
    /^```/ && path { system("mkdir -p " folder); printf "" > path; open = 1; next }
    open { print > path }' "$tree/docs/adding-an-op.md"
}

add_words() { for op in $ops; do sed -i "s/^ops = \[\(.*\)\]/ops = [\1, '$op']/" "$tree/src/meson.build"; done; }
make_golden() {
  for op in $ops; do
    (cd "$tree/src/op/$op/golden" && python3 make_golden.py >"$op.txt" && grep -q '^want' "$op.txt") || return 1
  done
}
only_the_list_changed() {
  changed=$(diff -rq "$work/before" "$tree" | grep -v "^Only in $tree") && [ "$(printf '%s\n' "$changed" | wc -l)" = 1 ] &&
    [ "$(diff "$work/before/src/meson.build" "$tree/src/meson.build" | grep -c '^[<>]')" = 2 ]
}
all_new_files_are_theirs() {
  diff -rq -x __pycache__ "$work/before" "$tree" | grep "^Only in" | sed 's/: /\//; s/^Only in //' | sort >"$work/new"
  for op in $ops; do printf '%s\n' "$tree/include/quern/$op.h" "$tree/src/op/$op"; done | sort | diff - "$work/new"
}
configure() { "$tree/tools/meson.sh" setup "$build" "$tree" -Dbuildtype=debugoptimized -Ddefault_library=both; }
shared() { echo "src/libquern.so.$(sed -n "s/.*version: '\([0-9.]*\)'.*/\1/p" "$tree/meson.build" | head -1)"; }
compile() { ninja -C "$build" cli/quern cli/quern.bash src/libquern.a "$(shared)" tests/test_description; }
says() { wanted=$1 && shift && "$@" >"$work/said" 2>&1; grep -q "$wanted" "$work/said" || { cat "$work/said" && return 1; }; }
ends_with() { wanted=$1 && shift && "$@"; ended=$? && [ "$ended" = "$wanted" ]; }

cat >"$work/program.c" <<'END'
#include <quern/quern.h>
#include <stdio.h>
int main(void)
{
  float average[2] = {1, 2}, value[2] = {3, -2};
  const int64_t shape[1] = {2};
  const qn_device cpu = {QN_CPU, 0};
  const qn_tensor a = {average, QN_F32, 1, shape, NULL, cpu}, v = {value, QN_F32, 1, shape, NULL, cpu};
  const qn_exec exec = {sizeof(qn_exec), cpu, NULL, NULL, NULL, 0};
  qn_ema_params params = QN_EMA_DEFAULTS;
  params.decay = 0.75;
  qn_status status = qn_ema_step(&exec, &params, 1, &a, &v);
  printf("%s %g %g\n", qn_status_name(status), average[0], average[1]);
  return status != QN_OK || average[0] != 1.5f || average[1] != 1.0f;
}
END
program() {
  # shellcheck disable=SC2086
  $cc -std=c17 -Wall -Wextra -Werror -I"$tree/include" -I"$build/src" "$work/program.c" -o "$work/program" \
    "$build/src/libquern.a" -lm -ldl -lpthread && "$work/program"
}
cat >"$work/program.py" <<'END'
import ctypes
import inspect
import quern
from quern import _stubs

class Floats:  # what NumPy has, without NumPy
    def __init__(self, *values):
        self.memory = (ctypes.c_float * len(values))(*values)
        address = ctypes.addressof(self.memory)
        self.__array_interface__ = {"shape": (len(values),), "typestr": "<f4", "data": (address, False), "version": 3}

average = Floats(1, 2)
quern.ema_([average], [Floats(3, -2)], decay=0.75)
assert list(average.memory) == [1.5, 1.0]
assert str(inspect.signature(quern.ema_)) == "(averages, values, decay=0.999, *, stream=None)"
assert "the share of the average that is kept; in [0, 1]" in quern.ema_.__doc__
assert "def ema_(\n    averages: _Arrays,\n    values: _Arrays,\n    decay: SupportsFloat = 0.999,\n" in _stubs.text()
try:
    quern.ema_(average, Floats(1), decay=0.5)
except ValueError as error:
    assert str(error) == "ema: value[0] has the shape 1 and average[0] has 2"
print("done")
END
python_program() { PYTHONPATH="$tree/python" QUERN_LIBRARY="$build/$(shared)" python3 -B "$work/program.py"; }
in_format() {
  tool=$(command -v clang-format-14 || echo clang-format) # as tools/format.sh
  for op in $ops; do
    "$tool" --dry-run -Werror "$tree/include/quern/$op.h" "$tree/src/op/$op"/*.[ch] || return 1
  done
}
change() { sed -i "s/$2/$3/" "$tree/src/op/$1" && grep -q "$3" "$tree/src/op/$1"; }
spoil() {
  change ema/ema.math.h 'qn_splat(c->decay), average' 'qn_splat(c->one_minus_decay), average' &&
    change row_rms/row_rms.math.h 'qn_splat(share) +' 'qn_splat(share) -' &&
    change joint_lopt/joint_lopt.c '.joint_decay = true' '.joint_decay = false' && compile
}
# What `quern bench` is given of each.
workload() { case $1 in ema) echo 8x4K ;; row_rms) echo decode ;; *) echo 64x64 ;; esac; }

copy_tree "$root" "$tree"
cp -a "$tree" "$work/before"
check "take the files from the page" take_files
check "make the golden vectors" make_golden
check "add the words" add_words
check "nothing else is changed: one line of one list" only_the_list_changed
check "nothing is added but their headers and their folders" all_new_files_are_theirs
check "their files are in the project's format" in_format
check "the page and the files name nothing that is not there" python3 "$tree/tools/check_names.py" "$tree"
check "their names and includes stand where they may" python3 "$tree/tools/check_includes.py" "$tree"
# shellcheck disable=SC2086
check "their golden vectors are made by their scripts" "$tree/tests/golden.sh" "$tree" $ops
check "configure" configure
check "build" compile
[ -x "$quern" ] || finish # the rest could only fail for the same reason
check "quern.h reaches the typed call" program
check "Python has it as a function" says "^done" python_program
check "the headers agree with the descriptions" "$build/tests/test_description"
for op in $ops; do
  check "quern list shows $op" says "^$op - " "$quern" list "$op"
  check "completion knows $op" grep -q "[' ]${op}[' ]" "$build/cli/quern.bash"
  check "quern check proves $op on every tier" "$quern" check "$op" --quick --backend cpu
  check "quern check proves its device source on the host" "$quern" check "$op" --quick --backend emulator
  check "quern check catches every planted bug" "$quern" check "$op" --quick --selftest
  workload=$(workload "$op")
  check "quern bench times it" says "^$op over $workload" "$quern" bench "$op" --workload "$workload" --backend cpu
done
check "spoil the formulas" spoil
for op in $ops; do
  check "quern check finds the spoilt formula of $op" ends_with 1 "$quern" check "$op" --quick --backend cpu
done
finish
