#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doctor_cuda.sh QUERN DRIVER NVRTC - `quern doctor` before GPUs that tests make (mock/): each way in which a driver or a
# compiler can be unfit is told with what mends it, and a GPU whose kernels do nothing is never called working.
set -u
quern=$(realpath "$1") driver=$(realpath "$2") nvrtc=$(realpath "$3")
. "$(dirname "$(realpath "$0")")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
forget_settings
unset XDG_CACHE_HOME LD_LIBRARY_PATH
export HOME="$work" QUERN_LIBCUDA="$driver" QUERN_LIBNVRTC="$nvrtc" QUERN_CACHE=off
out=$work/out

# finds STATUS DRIVER'S-SCRIPT NVRTC'S-SCRIPT LINE-TO-MEND ITS-MEND ARGUMENT...
finds() {
  status=$1 cuda=$2 compiler=$3 line=$4 mend=$5 && shift 5
  QUERN_MOCK=$cuda QUERN_MOCK_NVRTC=$compiler "$quern" doctor --backend cuda "$@" >"$out" 2>"$work/err"
  got=$?
  [ $got = "$status" ] && grep -A1 "^MEND  $line" "$out" | tail -n 1 | grep -q -- "^ *$mend" && return
  echo "exit status $got"
  cat "$out" "$work/err"
  return 1
}
check "a kernel that does nothing" finds 1 devices=1 '' 'cuda:0 .*wrong bits' 'quern check lion'
check "the GPU is named nevertheless" grep -q '^ok    cuda:0    Mock GPU 0, sm_90' "$out"
check "--require cuda does not believe it" finds 3 devices=1 '' 'cuda:0 .*wrong bits' 'quern check' --require cuda
check "a driver that is too old" finds 1 version=11080 '' 'cuda .*CUDA 11.8; quern needs CUDA 12.0' 'apt-get install'
check "a driver without a function" finds 1 missing=cuMemFree '' 'cuda .*lacks cuMemFree' 'apt-get install'
check "a driver that fails" finds 1 fail=3:700 '' 'cuda:0 .*(700)' 'nvidia-smi'
check "a driver that sees no GPU" finds 1 devices=0 '' 'cuda .*sees no device' 'unset QUERN_LIBCUDA'
check "a kernel that fails" finds 1 fail=40:700 '' 'cuda:0 .*step failed.*(700)' 'quern check'
check "an NVRTC that does not know the GPU" finds 1 arch=90 archs=75:80 'nvrtc .*sm_75 to sm_80; the GPU is sm_90' 'pip install'
check "an NVRTC newer than the driver" finds 1 version=12020 '' 'nvrtc .*13.0.*the driver for CUDA 12.2' 'unset QUERN_LIBNVRTC'
check "an NVRTC that does not compile" finds 1 devices=1 fail=nvrtcCompileProgram:6 'cuda:0 .*step failed' 'quern check'
check "two GPUs" finds 1 devices=2 '' 'cuda:1 .*wrong bits' 'quern check'
check "both are looked at" grep -q '^MEND  cuda:0' "$out"
check "driver and NVRTC are told once" test "$(grep -cE '^ok    (driver|nvrtc)' "$out")" = 2
check "one of two" finds 3 devices=2 '' 'cuda:1 .*wrong bits' 'quern check' --require cuda:1
check "the other is left alone" sh -c "! grep cuda:0 '$out'"
check "a third of two" finds 3 devices=2 '' 'cuda .*cuda:2: there are 2' 'quern doctor' --require cuda:2
finish
