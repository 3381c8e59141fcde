#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# measure.sh BACKEND FILE.jsonl [QUERN [WORKLOAD]] - the measurements that results/ keeps of a machine: every op over the
# named workloads that fit, or its own, Lion with all timers, 16-bit types, first use and the break-even size; the machine's own
# ceilings. Lines are appended to FILE.jsonl. What does not fit is said and passed over; a wrong kernel ends it. A WORKLOAD
# takes the place of all that are named, for a trial; of its own an op then runs the first.
set -eu
usage="usage: measure.sh BACKEND FILE.jsonl [QUERN [WORKLOAD]]"
backend=${1:?$usage} file=${2:?$usage} quern=${3:-build/cli/quern} only=${4:-}
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# over WORKLOAD OP ARGUMENT... - nothing wrong and nothing too large: status 1 with a sentence about memory is not a failure
# of the kernel.
over() {
  workload=$1 && shift
  echo "quern bench $* --workload $workload" >&2
  status=0
  "$quern" bench "$@" --workload "$workload" --backend "$backend" --json "$file" 2>"$said" || status=$?
  [ $status = 0 ] || cat "$said" >&2
  case $status in
  0) ;;
  1) grep -q "GB are free" "$said" || exit 1 ;;
  *) exit 1 ;;
  esac
}

all=$("$quern" list --json | python3 -c '
import json, sys
most = 1 if sys.argv[1] else None
for op in json.load(sys.stdin)["ops"]:
    for workload in op.get("workloads", sys.argv[2:])[:most]:
        print(op["name"] + ":" + workload)' "$only" ${only:-1x67.1M 512x64K gpt2-124m 1x1.5G gpt2-xl})
for one in $all; do over "${one#*:}" "${one%%:*}"; done
lion() {
  named=$1 && shift
  over "${only:-$named}" lion "$@"
}
lion 1x67.1M --first-use
lion gpt2-124m --timer simple
lion gpt2-124m --timer do_bench
for types in "f32 bf16 f32" "bf16 bf16 f32" "bf16 bf16 bf16" "bf16 bf16 bf16 f32" "bf16 bf16 f32 f32"; do
  lion gpt2-124m --types "$types"
done
lion gpt2-124m --types "bf16 bf16 bf16" --set rounding=stochastic
lion gpt2-124m --types "bf16 bf16 bf16" --set rounding=stochastic --set momentum_rounding=stochastic
lion gpt2-124m --set cautious=1
"$quern" bench lion --break-even --backend "$backend" --json "$file"
"$quern" roofline --backend "$backend" --json "$file" ${only:+--largest 1}
