#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# two_commands.sh ROOT - README's two commands in README's order, in a copy of the tree, on a machine that lacks what is
# not needed to build: `make demo`, then what depends on the tools that `make test` installs after it. apt-get is played
# by a script: nothing is installed here.
set -u
root=$1
. "$root/tests/tap.sh"
. "$root/tests/copy.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree" "$work/bin"
copy_tree "$root" "$work/tree"
cd "$work/tree" || exit 1
unset MAKEFLAGS MAKELEVEL MFLAGS XDG_CACHE_HOME

ninja=$(command -v ninja) help2man=$(command -v help2man) || { echo "1..0 # SKIP no help2man to play with" && exit 0; }

# A PATH of links to all tools but the optional ones; compilers go on to be run by ccache where they were.
hidden="help2man ccache valgrind clang-format clang-format-14 hipcc apt-get apt-cache sudo"
by_ccache=
for folder in $(echo "$PATH" | tr : ' '); do
  case $folder in
  *ccache*) by_ccache=$folder: ;;
  *) ln -s "$folder"/* "$work/bin" 2>/dev/null ;;
  esac
done
for tool in $hidden; do rm -f "$work/bin/$tool"; done
export PATH="$by_ccache$work/bin"
hides() { for tool in $hidden; do ! command -v "$tool" || return 1; done; }
says() { words=$1 && shift && "$@" >"$work/said" 2>&1 && grep -qF -- "$words" "$work/said" || { tail -n 30 "$work/said" && return 1; }; }
fails() { words=$1 && shift && ! "$@" >"$work/said" 2>&1 && grep -qF -- "$words" "$work/said" || { tail -n 30 "$work/said" && return 1; }; }
# What apt-get and sudo do of what tools/setup.sh asks of them; man pages are made by what is linked then.
play_apt() {
  printf '#!/bin/sh\nln -sf "%s" "%s/help2man"\n' "$help2man" "$work/bin" >"$work/bin/apt-get"
  printf '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n' >"$work/bin/sudo"
  printf '#!/bin/sh\nexit 0\n' >"$work/bin/apt-cache"
  chmod +x "$work/bin/apt-get" "$work/bin/sudo" "$work/bin/apt-cache"
}
page() { test -s build/cli/quern.1; }

check "optional tools are hidden" hides
check "make demo proves and times Lion without them" says "lion over gpt2-124m" make demo
check "and makes no man page" sh -c "! test -e build/cli/quern.1"
check "without apt-get a contributor goes on, and is told what is left out" says "without help2man" tools/setup.sh test
check "but not where everything is to run" fails "missing here" tools/setup.sh all
rm "$work/bin/ninja"
check "nor without what building needs" fails "ninja-build" tools/setup.sh test
ln -s "$ninja" "$work/bin/ninja"
play_apt
check "make test installs help2man after that, and the man pages are made, installed and right" \
  says "0 failed" make test LANES="quick --tests=install,manual,headers"
check "the page is there" page
check "make dev says how Python finds the tree's package" says "export PYTHONPATH=" make dev
variables() { sed -n 's/^  \(export .*\)/\1/p' "$work/said"; }
python_finds() {
  eval "$(variables)" && cd / && python3 -c "import quern; from quern import _library
assert quern.__file__.startswith('$work/tree/python/') and _library.path.startswith('$work/tree/build/'), _library.path"
}
check "and it does" python_finds
finish
