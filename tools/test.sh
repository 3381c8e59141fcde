#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh [LANE...] - the test matrix; without names all lanes. Each builds in a folder of its own and leaves its results
# in build/results, which tools/results.py reads: it fails where a test that should have run did not.
#   gcc       everything, with every CUDA source compiled for every architecture
#   tiers     the ops' tests with each CPU tier that this machine has, by mask
#   valgrind  the contract tests under memcheck
#   asan      everything under AddressSanitizer and UBSan, gcc
#   clang     everything, clang
#   tsan      what uses threads under ThreadSanitizer, clang
#   aarch64   what needs no jansson, cross-compiled, under qemu
set -eu
cd "$(dirname "$0")/.."
lanes=${*:-gcc tiers valgrind asan clang tsan aarch64}
results=build/results
archs="75 80 86 89 90 100 120"
mkdir -p "$results"
# Nothing of the user's is read or written: kernels that tests compile are kept here.
export XDG_CACHE_HOME="$PWD/build/test-cache"
status=0

# configure FOLDER MESON_ARGUMENTS... - once; then compiles.
compile() {
  folder=$1 && shift
  [ -f "$folder/build.ninja" ] || tools/meson.sh setup "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" && exit 1; }
  rm -f "$folder.log"
  tools/meson.sh compile -C "$folder" >"$folder/compile.log" 2>&1 || { cat "$folder/compile.log" && exit 1; }
}

# lane NAME FOLDER MESON_TEST_ARGUMENTS... - runs the tests and keeps their results under the name.
lane() {
  name=$1 folder=$2 && shift 2
  echo "== $name"
  rm -f "$results/$name.xml" "$folder"/meson-logs/testlog*.junit.xml
  tools/meson.sh test -C "$folder" --no-rebuild --print-errorlogs "$@" || status=1
  cp "$folder"/meson-logs/testlog*.junit.xml "$results/$name.xml"
}

for lane in $lanes; do
  case $lane in
  gcc)
    compile build
    # shellcheck disable=SC2086
    QUERN_LIBNVRTC=$(python3 tools/nvrtc.py $archs)
    export QUERN_LIBNVRTC
    lane gcc build
    ;;
  tiers)
    compile build
    for tier in ref avx2 avx512 neon; do
      if QUERN_CPU=$tier build/tests/tier_runs; then QUERN_CPU=$tier lane "tier-$tier" build --suite op; else
        echo "== tier-$tier: not on this machine"
        rm -f "$results/tier-$tier.xml"
      fi
    done
    ;;
  valgrind)
    compile build
    lane valgrind build --setup valgrind --suite core --suite contract
    ;;
  asan)
    CC=gcc compile build-asan -Db_sanitize=address,undefined
    lane asan build-asan --no-suite nvrtc --no-suite text
    ;;
  clang)
    CC=clang compile build-clang
    lane clang build-clang --no-suite nvrtc --no-suite text
    ;;
  tsan)
    CC=clang compile build-tsan -Db_sanitize=thread
    lane tsan build-tsan --suite threads
    ;;
  aarch64)
    compile build-aarch64 --cross-file tools/aarch64.ini -Dcommand=disabled
    lane aarch64 build-aarch64
    ;;
  *)
    echo "test.sh: $lane is no lane: gcc tiers valgrind asan clang tsan aarch64" >&2
    exit 2
    ;;
  esac
done
exit $status
