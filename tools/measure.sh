#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# measure.sh BACKEND FILE.jsonl [QUERN [WORKLOAD]] - the measurements that results/ keeps of a machine: every op over the
# named workloads that fit, Lion with all timers, 16-bit types, first use and the break-even size; the machine's own
# ceilings. Lines are appended to FILE.jsonl. What does not fit is said and passed over; a wrong kernel ends it. A WORKLOAD
# takes the place of all that are named, for a trial.
set -eu
usage="usage: measure.sh BACKEND FILE.jsonl [QUERN [WORKLOAD]]"
backend=${1:?$usage} file=${2:?$usage} quern=${3:-build/cli/quern} only=${4:-}
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# over WORKLOAD OP ARGUMENT... - nothing wrong and nothing too large: status 1 with a sentence about memory is not a failure
# of the kernel, and status 3 is an op that is timed elsewhere, which the sentence names.
over() {
  workload=$1 && shift
  echo "quern bench $* --workload ${only:-$workload}" >&2
  status=0
  "$quern" bench "$@" --workload "${only:-$workload}" --backend "$backend" --json "$file" 2>"$said" || status=$?
  [ $status = 0 ] || cat "$said" >&2
  case $status in
  0) ;;
  1) grep -q "GB are free" "$said" || exit 1 ;;
  3) grep -q "is no op over lists" "$said" || exit 1 ;;
  *) exit 1 ;;
  esac
}

ops=$("$quern" list --json | python3 -c 'import json, sys; print(*(op["name"] for op in json.load(sys.stdin)["ops"]))')
for op in $ops; do
  for workload in 1x67.1M 512x64K gpt2-124m 1x1.5G gpt2-xl; do
    over $workload "$op"
    [ -z "$only" ] || break
  done
done
over 1x67.1M lion --first-use
over gpt2-124m lion --timer simple
over gpt2-124m lion --timer do_bench
for types in "f32 bf16 f32" "bf16 bf16 f32" "bf16 bf16 bf16" "bf16 bf16 bf16 f32" "bf16 bf16 f32 f32"; do
  over gpt2-124m lion --types "$types"
done
over gpt2-124m lion --types "bf16 bf16 bf16" --set rounding=stochastic
over gpt2-124m lion --types "bf16 bf16 bf16" --set rounding=stochastic --set momentum_rounding=stochastic
over gpt2-124m lion --set cautious=1
over gpt2-124m lion --break-even
"$quern" roofline --backend "$backend" --json "$file" ${only:+--largest 1}
