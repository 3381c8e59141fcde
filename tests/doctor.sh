#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doctor.sh QUERN SHARED_LIBRARY CC... - what `quern doctor` must find out: stale build products and a library or headers of
# another version, each made here on purpose, and each told with the command that mends it.
set -u
quern=$(realpath "$1") shared=$(realpath "$2")
shift 2
cc=$*
. "$(dirname "$(realpath "$0")")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
forget_settings
export HOME="$work/home" QUERN_LIBCUDA=/nowhere/libcuda.so.1
unset XDG_CACHE_HOME LD_LIBRARY_PATH
version=$("$quern" --version | sed -n '1s/^quern \([0-9.]*\).*/\1/p')
compiler=$("$quern" --version | sed -n 's/^built with \([^ ]*\) \([^ ,]*\),.*/\2/p')

# says FILE TEXT: a program that prints it
says() {
  printf '#!/bin/sh\necho %s\n' "$2" >"$1" && chmod +x "$1"
}
mkdir "$work/bin" "$work/old"
says "$work/bin/meson" 1.5.0
says "$work/old/meson" 0.61.2
export PATH="$work/bin:$PATH"

# A tree as meson leaves it, with this command in it, made later than its sources.
tree=$work/tree build=$work/tree/build
mkdir -p "$work/home" "$tree/src/op" "$tree/include" "$tree/workbench" "$tree/cli" "$build/meson-info" "$build/cli"
describe() {
  cat >"$build/meson-info/meson-info.json" <<END
{"meson_version": {"full": "$1"}, "directories": {"source": "$tree", "build": "$build"}}
END
  cat >"$build/meson-info/intro-targets.json" <<END
[{"name": "quern", "target_sources": [{"language": "c", "compiler": ["ccache", "$work/cc"], "sources": []}]}]
END
  says "$work/cc" "$2"
}
touch -d '2 minutes ago' "$tree/src/op/x.cu"
cp "$quern" "$build/cli/quern"
examine() { "$build/cli/quern" doctor --backend cpu >"$work/out"; }
# finds WHAT MEND: a line to mend has WHAT in it, and the line below is the command MEND
finds() {
  grep -F -A1 -- "$1" "$work/out" | grep -A1 '^MEND' | grep -qF -- "$2" || { cat "$work/out"; return 1; }
}
clean() { ! grep -A1 '^MEND' "$work/out"; }

describe 1.5.0 "$compiler"
check "a build that is up to date" examine
check "is ok" grep -qF "$build, no source is newer" "$work/out"
check "nothing is to be mended" clean
touch -d '1 minute' "$tree/src/op/x.cu"
check "a newer source makes doctor exit with 1" sh -c "! '$build/cli/quern' doctor --backend cpu >'$work/out'"
check "it names the source, and ninja" finds "src/op/x.cu is newer" "ninja -C '$build'"
touch -d '2 minutes ago' "$tree/src/op/x.cu"
touch -d '1 minute' "$tree/src/op/README.md"
check "a newer text is none" examine
describe 0.0.1 "$compiler"
check "another meson" sh -c "! '$build/cli/quern' doctor --backend cpu >'$work/out'"
check "is named, with the way to set up again" finds "set up by meson 0.0.1" "meson setup --wipe '$build'"
mkdir -p "$tree/.venv/bin"
says "$tree/.venv/bin/meson" 0.0.1
check "unless the tree has its own" examine
rm "$tree/.venv/bin/meson"
describe 1.5.0 1.2.3
check "another compiler" sh -c "! '$build/cli/quern' doctor --backend cpu >'$work/out'"
check "is named, with the way to set up again" finds "$compiler, $work/cc is now version 1.2.3" "meson setup --wipe"
describe 1.5.0 "$compiler"

check "a meson that is too old to build with" sh -c "PATH='$work/old:$PATH' '$build/cli/quern' doctor | \
  grep -A1 '^none  meson .*0.61.2 is too old' | grep -q 'make build'"

mkdir "$work/lib"
cp "$shared" "$work/lib/libquern.so.0"
export LD_LIBRARY_PATH="$work/lib"
check "this version's library on the loader's path" examine
check "is ok, by its path" grep -q "^ok .*programs load $work/lib/libquern.so.0, version $version" "$work/out"
echo 'const char *qn_version(void); const char *qn_version(void) { return "9.9.9"; }' >"$work/other.c"
# shellcheck disable=SC2086
check "a library of another version" $cc -shared -fPIC "$work/other.c" -o "$work/lib/libquern.so.0"
check "makes doctor exit with 1" sh -c "! '$build/cli/quern' doctor --backend cpu >'$work/out'"
check "is named, with the way to install" finds "libquern.so.0, version 9.9.9; this command is $version" "meson install -C '$build'"
cat >"$work/other.c" <<END
#include <stddef.h>
struct info { const char *name; char rest[4096]; } static const lion = {"lion", {1}};
const char *qn_version(void) { return "$version"; }
const void *qn_op_at(size_t k) { return k ? 0 : &lion; }
END
# shellcheck disable=SC2086
check "this version's number, other structs" $cc -shared -fPIC -w "$work/other.c" -o "$work/lib/libquern.so.0"
check "makes doctor exit with 1" sh -c "! '$build/cli/quern' doctor --backend cpu >'$work/out'"
check "the struct is named" finds "qn_lion_params has" "meson install"
unset LD_LIBRARY_PATH

printf 'Name: quern\nDescription: x\nVersion: 9.9.9\n' >"$work/quern.pc"
export PKG_CONFIG_PATH="$work"
check "headers of another version" sh -c "! '$build/cli/quern' doctor --backend cpu >'$work/out'"
check "are told" finds "installed for version 9.9.9" "meson install"
unset PKG_CONFIG_PATH

# Installed, as pip does it: who has it from there builds nothing.
mkdir -p "$work/installed/bin"
cp "$quern" "$work/installed/bin/quern"
"$work/installed/bin/quern" doctor >"$work/out"
check "an installed command finds no library for C" grep -q "^none  library" "$work/out"
check "and speaks of no build" sh -c "! grep -iE 'meson|ninja' '$work/out'"
finish
