#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh [LANE...] - the test matrix; without names all lanes. Each builds in a folder of its own and leaves its results
# in build/results, which tools/results.py reads: it fails where a test that should have run did not.
#   gcc       everything, with every CUDA source compiled for every architecture
#   valgrind  the contract tests under memcheck
#   asan      everything that runs our code, under AddressSanitizer and UBSan, gcc
#   clang     everything, clang
#   tsan      what uses threads under ThreadSanitizer, clang
#   aarch64   what needs no jansson, cross-compiled, under qemu
set -eu
cd "$(dirname "$0")/.."
lanes=${*:-gcc valgrind asan clang tsan aarch64}
results=build/results
archs="75 80 86 89 90 100 120"
[ $# -gt 0 ] || rm -rf "$results"
# Nothing of the user's is read or written: kernels that tests compile are kept here.
export XDG_CACHE_HOME="$PWD/build/test-cache"
status=0

# compile FOLDER COMPILER MESON_ARGUMENTS... - configures once, then compiles.
compile() {
  folder=$1 compiler=$2 && shift 2
  [ -f "$folder/build.ninja" ] || CC=$compiler tools/meson.sh setup "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" && exit 1; }
  rm -f "$folder.log"
  tools/meson.sh compile -C "$folder" >"$folder/compile.log" 2>&1 || { tail -n 60 "$folder/compile.log" && exit 1; }
}

# lane NAME FOLDER MESON_TEST_ARGUMENTS... - runs the tests and keeps their results under the name.
lane() {
  name=$1 folder=$2 && shift 2
  echo "== $name"
  mkdir -p "$results"
  rm -f "$results/$name.jsonl" "$folder"/meson-logs/testlog*.json
  tools/meson.sh test -C "$folder" --no-rebuild --print-errorlogs "$@" || status=1
  cp "$folder"/meson-logs/testlog*.json "$results/$name.jsonl" || status=1
}

for lane in $lanes; do
  case $lane in
  gcc)
    compile build "${CC:-cc}"
    # shellcheck disable=SC2086
    QUERN_LIBNVRTC=$(python3 tools/nvrtc.py $archs)
    export QUERN_LIBNVRTC
    lane gcc build
    ;;
  valgrind)
    compile build "${CC:-cc}"
    lane valgrind build --setup valgrind --suite contract
    ;;
  asan)
    compile build-asan gcc -Db_sanitize=address,undefined
    lane asan build-asan --no-suite nvrtc --no-suite text --no-suite build
    ;;
  clang)
    compile build-clang clang
    lane clang build-clang --no-suite nvrtc --no-suite text
    ;;
  tsan)
    compile build-tsan clang -Db_sanitize=thread
    lane tsan build-tsan --suite threads
    ;;
  aarch64)
    compile build-aarch64 aarch64-linux-gnu-gcc --cross-file tools/aarch64.ini -Dcommand=disabled
    # The host backend compiles for where it runs; qemu lets it start the cross compiler.
    CXX=aarch64-linux-gnu-g++
    export CXX
    lane aarch64 build-aarch64
    unset CXX
    ;;
  *)
    echo "test.sh: $lane is no lane: gcc valgrind asan clang tsan aarch64" >&2
    exit 2
    ;;
  esac
done
# shellcheck disable=SC2086
python3 tools/results.py $lanes || status=1
exit $status
