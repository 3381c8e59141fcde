#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# measure.sh QUERN - tools/measure.sh, which makes the files of results/, runs to its end over a list so small that no
# figure means anything, and leaves each line that it should; what it cannot measure is said, and a failure ends it.
set -u
quern=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
. "$root/tests/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
forget_settings
export QUERN_LIBCUDA=/nowhere/libcuda.so.1
measure() { "$root/tools/measure.sh" "$@" >"$work/out" 2>"$work/err" || { tail -n 5 "$work/err"; return 1; }; }
lines() {
  "$quern" list --json >"$work/list" && python3 - "$work" <<'END'
import json, sys
work = sys.argv[1]
lines = [json.loads(line) for line in open(f"{work}/m.jsonl")]
ops = {(op["name"], op.get("workloads", ["2x300"])[0]) for op in json.load(open(f"{work}/list"))["ops"]}
benches = [line for line in lines if "fused" in line]
assert {(line["op"], line["workload"]) for line in benches} == ops, benches
assert all(line["check"]["right"] for line in benches)
lion = [line for line in benches if line["op"] == "lion"]
assert len(lion) == 12 and {line["timer"] for line in lion} == {"event", "simple", "do_bench"}
assert len({(line["types"], line["settings"]) for line in lion}) == 9, lion
assert len(lines) == len(benches) + 2, "a break-even size and ceilings stand beside them"
END
}
printf '#!/bin/sh\n[ "$1" = bench ] && exit 1\nexec "%s" "$@"\n' "$quern" >"$work/wrong" && chmod +x "$work/wrong"

check "it runs to its end" measure cpu "$work/m.jsonl" "$quern" 2x300
check "it leaves every op, Lion in all its forms, a break-even size and ceilings" lines
check "what is too large is said, and is no failure" measure cpu "$work/large.jsonl" "$quern" 4x100G
check "a wrong kernel ends it" sh -c "! '$root/tools/measure.sh' cpu '$work/w.jsonl' '$work/wrong' 2x300 >/dev/null 2>&1"
finish
