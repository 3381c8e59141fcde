#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh [LANE...] - the test matrix; without names all lanes but those of frameworks (make test). Each builds in a folder
# of its own and leaves its results in build/results, which tools/results.py reads: it fails where a test that should have
# run did not.
#   gcc           everything, with every CUDA source compiled for every architecture
#   valgrind      the contract tests under memcheck
#   asan          everything that runs our code in a way of its own, under AddressSanitizer and UBSan, gcc
#   clang         everything but the kernels that ship, whose code the C++ compiler makes in both; clang
#   tsan          what uses threads under ThreadSanitizer, clang
#   aarch64       what needs no jansson, cross-compiled, under qemu
#   python        the Python package on plain arrays, with no framework
#   python-asan   the same over the library of asan
#   wheel         what pip and a wheel's user get
#   torch         the Python package with the newest frameworks: all its tests (make test-torch)
#   torch-oldest  with the oldest PyTorch that it supports (make test-torch)
# Python lanes run in environments of the tree, .venv-NAME (tools/venv.sh). Each keeps one core busy, so they run side by
# side, beside no other lane, and tell what they have to say when they end.
set -eu
cd "$(dirname "$0")/.."
lanes=${*:-gcc valgrind asan clang tsan aarch64 python python-asan wheel}
results=build/results
archs="75 80 86 89 90 100 120"
[ $# -gt 0 ] || rm -rf "$results"
# Nothing of the user's is read or written: kernels that tests compile are kept here.
export XDG_CACHE_HOME="$PWD/build/test-cache"
export OMP_WAIT_POLICY=passive # frameworks' threads give way to each other
status=0 beside=

# configure FOLDER COMPILER MESON_ARGUMENTS... - once.
configure() {
  folder=$1 compiler=$2 && shift 2
  [ -f "$folder/build.ninja" ] || CC=$compiler tools/meson.sh setup "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" && exit 1; }
  rm -f "$folder.log"
}
# compile FOLDER COMPILER MESON_ARGUMENTS... - configures once, then compiles.
compile() {
  configure "$@"
  tools/meson.sh compile -C "$folder" >"$folder/compile.log" 2>&1 || { tail -n 60 "$folder/compile.log" && exit 1; }
}

# lane NAME FOLDER MESON_TEST_ARGUMENTS... - runs the tests and keeps their results under the name.
lane() {
  join
  name=$1 folder=$2 && shift 2
  echo "== $name"
  mkdir -p "$results"
  rm -f "$results/$name.jsonl" "$folder"/meson-logs/testlog*.json
  start=$(date +%s)
  tools/meson.sh test -C "$folder" --print-errorlogs "$@" || status=1
  echo "$name: $(($(date +%s) - start)) s"
  cp "$folder"/meson-logs/testlog*.json "$results/$name.jsonl" || status=1
}

build_asan() { compile build-asan gcc -Db_sanitize=address,undefined; }

# start NAME COMMAND... - begins a Python lane beside the others; the command is given --junitxml and a file.
start() {
  name=$1 && shift
  mkdir -p "$results"
  rm -f "$results/$name.xml" "$results/$name.status"
  echo "== $name, in the background"
  {
    start=$(date +%s)
    ended=0
    "$@" --junitxml "$PWD/$results/$name.xml" || ended=1
    echo "$name: $(($(date +%s) - start)) s"
    echo $ended >"$results/$name.status"
  } >"$results/$name.log" 2>&1 &
  beside="$beside $name"
}

# join - waits for what was started, and shows it.
join() {
  wait
  for ended in $beside; do
    echo "== $ended" && cat "$results/$ended.log"
    [ "$(cat "$results/$ended.status")" = 0 ] || status=1
  done
  beside=
}

# python_lane NAME ENVIRONMENT BUILD PYTEST_ARGUMENTS... - the tests of the Python package over a build's library.
python_lane() {
  name=$1 environment=$2 library=$PWD/$3/src/libquern.so && shift 3
  python=$(tools/venv.sh "$environment") # one at a time
  # shellcheck disable=SC2086
  start "$name" env ${with:-} QUERN_LIBRARY="$library" "$python" -m pytest -q "$@"
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
    build_asan
    lane asan build-asan --no-suite nvrtc --no-suite text --no-suite build --no-suite alike
    ;;
  clang)
    compile build-clang clang
    lane clang build-clang --no-suite nvrtc --no-suite text --no-suite kernels
    ;;
  tsan)
    configure build-tsan clang -Db_sanitize=thread -Dcommand=disabled
    lane tsan build-tsan --suite threads # compiles what they need
    ;;
  aarch64)
    compile build-aarch64 aarch64-linux-gnu-gcc --cross-file tools/aarch64.ini -Dcommand=disabled
    # The host backend compiles for where it runs; qemu lets it start the cross compiler.
    CXX=aarch64-linux-gnu-g++
    export CXX
    lane aarch64 build-aarch64
    unset CXX
    ;;
  python)
    compile build "${CC:-cc}"
    python_lane python numpy build
    ;;
  python-asan) # Python itself is not built for it: it is loaded first, and what Python never frees is no leak of ours
    build_asan
    with="LD_PRELOAD=$(gcc -print-file-name=libasan.so) PYTHONMALLOC=malloc"
    with="$with ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:protect_shadow_gap=0"
    python_lane python-asan numpy build-asan --ignore python/tests/test_style.py
    with=
    ;;
  wheel)
    tools/venv.sh wheel >/dev/null
    start wheel tools/wheel.sh -q
    ;;
  torch)
    compile build "${CC:-cc}"
    python_lane torch torch build
    ;;
  torch-oldest)
    compile build "${CC:-cc}"
    python_lane torch-oldest torch-oldest build
    ;;
  *)
    echo "test.sh: $lane is no lane; its head lists them" >&2
    exit 2
    ;;
  esac
done
join
# shellcheck disable=SC2086
python3 tools/results.py $lanes || status=1
exit $status
