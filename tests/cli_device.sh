#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cli_device.sh QUERN DRIVER NVRTC - where the command works: --backend, else QUERN_DEVICE, else the best there is, one GPU
# of several among them; and how long work looks on a terminal and in a pipe. The GPUs are the mock's (mock/), whose
# kernels do nothing: what runs on them is found wrong, and that is how one sees that it ran there.
set -u
quern=$(realpath "$1") driver=$(realpath "$2") nvrtc=$(realpath "$3")
. "$(dirname "$(realpath "$0")")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
forget_settings
unset XDG_CACHE_HOME LD_LIBRARY_PATH NO_COLOR COLUMNS
export HOME="$work" QUERN_LIBCUDA=/nowhere/libcuda.so.1
out=$work/out err=$work/err

# runs STATUS WORDS ARGUMENT...: exits with it, and WORDS are in what it says
runs() {
  status=$1 words=$2 && shift 2
  "$quern" "$@" >"$out" 2>"$err"
  got=$?
  [ $got = "$status" ] && cat "$out" "$err" | grep -q -- "$words" && return
  echo "exit status $got, not $status, or no: $words"
  cat "$out" "$err"
  return 1
}
on() { runs "$1" "on  *$2" bench lion --workload 3x3000 "$3" "$4"; }
device() {
  QUERN_DEVICE=$1
  export QUERN_DEVICE
}

check "without a GPU: the CPU" on 0 "cpu " --seconds 0.1
check "nothing stands on standard error in a pipe" test ! -s "$err"
check "no escapes, no carriage returns" sh -c "! grep -q '$(printf '[\033\r]')' '$out'"
check "on a terminal the line comes and goes" sh -c "TERM=xterm script -qefc '$quern bench lion --workload 3x3000 --seconds 0.3' \
  /dev/null </dev/null | tr '\r' '\n' | grep -q '^lion .*0:00'"
device emulator
check "QUERN_DEVICE=emulator" on 0 "emulator " --seconds 0.1
check "--backend comes before it" on 0 "cpu " --backend cpu
device cuda
check "QUERN_DEVICE=cuda without a GPU" runs 3 '^quern bench: cuda: there is none here: .*/nowhere/libcuda.so.1' bench lion
check "check says so too" runs 3 '^quern check: cuda: there is none here' check lion --quick --leg golden
check "and proves nothing by skipping" test ! -s "$out"
unset QUERN_DEVICE
check "check --backend cuda" runs 3 '^quern check: cuda: there is none here' check --backend cuda
device emulator
check "check under QUERN_DEVICE=emulator" runs 0 '^# [1-9][0-9]* passed, 0 failed, 0 skipped' check lion --quick --leg contract
check "runs there and nowhere else" sh -c "grep '^ok' '$out' | grep -v leg4/emulator | wc -l | grep -qx 0"
device gpu
check "QUERN_DEVICE=gpu" runs 2 'QUERN_DEVICE: "gpu" is not one of' bench lion
unset QUERN_DEVICE

export QUERN_LIBCUDA="$driver" QUERN_LIBNVRTC="$nvrtc" QUERN_MOCK=devices=2,memory=4294967296
export QUERN_LIBCUBLAS=/nowhere/libcublasLt.so
check "list says of a library that is missing why products do without" sh -c "'$quern' list gemm_norm | grep -q 'cublas  *serves  0, is given  0  the option libcublas names'"
check "and what they take" sh -c "'$quern' list gemm_norm | grep -q 'wgmma-256x128 *serves [1-9 ][0-9], is given  [1-9]'"
check "with GPUs: the first" on 1 "cuda .*Mock GPU 0" --seconds 0.1
check "a wrong kernel gets no time" sh -c "grep -q 'WRONG, so it gets no time' '$out' && ! grep -q 'fused  *[0-9]' '$out'"
device cuda:1
check "QUERN_DEVICE=cuda:1" on 1 "cuda .*Mock GPU 1" --seconds 0.1
check "--backend cuda:0 comes before it" on 1 "cuda .*Mock GPU 0" --backend cuda:0
check "check under QUERN_DEVICE=cuda:1 finds its kernels wrong" runs 1 '^not ok .*leg3/cuda/' check lion --quick --leg golden
check "every one of them" sh -c "! grep '^ok' '$out'"
device cuda:2
check "check under QUERN_DEVICE=cuda:2" runs 3 "cuda:2: there are 2, counted from 0" check lion --quick --leg golden
check "QUERN_DEVICE=cuda:2" runs 3 "cuda:2: there are 2, counted from 0" bench lion
finish
