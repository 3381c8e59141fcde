#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# emit_compile.sh KERNELS OPS - the emitted CUDA C is compiled by nvcc, the HIP C by hipcc for a GPU with waves of 64 lanes and
# for one with 32, warnings being errors; each file must have its launcher. Nothing is run. The MLX programs are emit_mlx.py's
# business. Where a compiler is missing that is said, and `make test` installs hipcc (tools/setup.sh).
set -u
kernels=$1 ops=$2
. "$(dirname "$0")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
outside=${TMPDIR:-/tmp}
mkdir "$work/tmp" && export TMPDIR="$work/tmp" # hipcc leaves folders behind, two for each file
touch "$work/begun"
nothing_outside() { ! find "$outside" -maxdepth 1 -newer "$work/begun" -name '*-??????' -type d | grep -E '/(myexp|spoilt)-[0-9a-f]{6}$'; }
skip() { tests=$((tests + 1)) && echo "ok $tests - # SKIP $1"; }

launcher() { nm "$1" | grep -q " T quern_launch_${2%%.*}\$"; }
cuda() { (cd "$work" && "$nvcc" -std=c++17 -fmad=false -arch="$2" -Werror all-warnings -c "$1.cu" -o "$1.o") && launcher "$work/$1.o" "$1"; }
# hipcc asks for GPUs of this machine, which it need not have, and says so.
hip() { (cd "$work" && hipcc -std=c++17 --offload-arch="$2" -Werror -c "$1.hip" -o "$1.o") && launcher "$work/$1.o" "$1"; }
spoilt() { sed 's/__builtin_memcpy(argument/__builtin_memcpi(argument/' "$work/$1.$2" >"$work/spoilt.$2" && ! "$3" spoilt "$4" >/dev/null 2>&1; }

check "write all forms of kernels" "$kernels" "$work"
check "write all forms of ops" "$ops" "$work"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
for file in "$work"/*.cu; do
  name=$(basename "$file" .cu)
  if [ -x "$nvcc" ]; then
    check "nvcc compiles $name.cu" cuda "$name" sm_90
  else
    skip "no nvcc for $name.cu"
  fi
done
[ ! -x "$nvcc" ] || check "nvcc refuses a spoilt file" spoilt myexp cu cuda sm_90
for file in "$work"/*.hip; do
  name=$(basename "$file" .hip)
  for arch in gfx90a gfx1030; do
    if command -v hipcc >/dev/null; then
      check "hipcc compiles $name.hip for $arch" hip "$name" $arch
    else
      skip "no hipcc for $name.hip"
    fi
  done
done
if command -v hipcc >/dev/null; then
  check "hipcc refuses a spoilt file" spoilt myexp hip hip gfx90a
  check "and leaves no folder outside" nothing_outside
fi
finish
