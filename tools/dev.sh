#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dev.sh BUILD - a build that is surely fresh: a folder that another compiler, another meson or another place made is
# dropped, embedded sources are made again. Then says what was built and how to use it from the tree.
set -eu
cd "$(dirname "$0")/.."
build=$1
cc=${CC:-cc}
made_with="$PWD; $("$cc" --version | head -n 1); meson $(tools/meson.sh --version)"
if [ -d "$build" ] && [ "$(cat "$build/made-with" 2>/dev/null)" != "$made_with" ]; then
  echo "dev: $build was made with something else: dropped"
  rm -rf "$build"
fi
[ -f "$build/build.ninja" ] || tools/meson.sh setup "$build"
echo "$made_with" >"$build/made-with"
find "$build" -name 'embedded*.c' -exec rm -f {} +
tools/meson.sh compile -C "$build"
at=$(cd "$build" && pwd)
cat <<END

compiler  $("$cc" --version | head -n 1)
library   $at/src/libquern.so
version   $("$build/cli/quern" --version | head -n 1)

To use it from the tree:
  export PATH="$at/cli:\$PATH"
  export LD_LIBRARY_PATH="$at/src\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
  export PKG_CONFIG_PATH="$at/meson-uninstalled\${PKG_CONFIG_PATH:+:\$PKG_CONFIG_PATH}"
  export PYTHONPATH="$PWD/python\${PYTHONPATH:+:\$PYTHONPATH}" # python3 -m quern.doctor
  export QUERN_LIBRARY="$at/src/libquern.so"
END
