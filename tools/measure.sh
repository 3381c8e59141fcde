#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# measure.sh BACKEND FILE.jsonl [QUERN] - the measurements that results/ keeps of a machine: every op over the named
# workloads that fit, with all timers; 16-bit types; first use; the break-even size; the machine's own ceilings. Lines
# are appended to FILE.jsonl. What does not fit is said and passed over; a wrong kernel ends it.
set -eu
backend=${1:?usage: measure.sh BACKEND FILE.jsonl [QUERN]} file=${2:?usage: measure.sh BACKEND FILE.jsonl [QUERN]}
quern=${3:-build/cli/quern}
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# Nothing wrong and nothing too large: status 1 with a sentence about memory is not a failure of the kernel.
bench() {
  echo "quern bench $*" >&2
  "$quern" bench --backend "$backend" --json "$file" "$@" 2>"$said" || {
    cat "$said" >&2
    grep -q "GB are free" "$said" || exit 1
  }
}

bench --workload 1x67.1M --first-use
for workload in 512x64K gpt2-124m 1x1.5G gpt2-xl; do bench --workload "$workload"; done
bench --workload gpt2-124m --timer simple
bench --workload gpt2-124m --timer do_bench
for types in "f32 bf16 f32" "bf16 bf16 f32" "bf16 bf16 bf16" "bf16 bf16 bf16 f32" "bf16 bf16 f32 f32"; do
  bench --workload gpt2-124m --types "$types"
done
bench --workload gpt2-124m --types "bf16 bf16 bf16" --set rounding=stochastic
bench --workload gpt2-124m --types "bf16 bf16 bf16" --set rounding=stochastic --set momentum_rounding=stochastic
bench --workload gpt2-124m --set cautious=1
bench --break-even
"$quern" roofline --backend "$backend" --json "$file"
