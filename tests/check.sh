#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh QUERN - `quern check` as its users and CI meet it: what it says of mistakes, exit statuses, TAP and JSON, and that
# every variant that `quern list` knows is accounted for: it ran, or a line says why not.
set -u
quern=$(realpath "$1")
. "$(dirname "$(realpath "$0")")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
forget_settings
export QUERN_LIBCUDA=/nowhere/libcuda.so.1
out=$work/out err=$work/err

# ends STATUS ARGUMENT...
ends() {
  want=$1 && shift
  "$quern" check "$@" >"$out" 2>"$err"
  got=$?
  [ "$got" = "$want" ] || { echo "exit status $got, not $want"; cat "$out" "$err"; return 1; }
}
# refuses WORDS ARGUMENT...
refuses() {
  words=$1 && shift
  ends 2 "$@" && grep -qF -- "$words" "$err" || { cat "$err"; return 1; }
}
has() { grep -qE -- "$1" "$out" || { echo "no line matches $1"; cat "$out"; return 1; }; }
plan_holds() {
  planned=$(sed -n 's/^1\.\.//p' "$out") told=$(grep -cE '^(not )?ok ' "$out")
  [ "$planned" = "$told" ] || { echo "$planned planned, $told told"; return 1; }
}
unknown_case() { ends 1 --only leg3/cpu/ref/row0/case99999 && has "^not ok 1 " && has "rerun: quern check .*row0"; }
golden() { ends 0 lion --backend cpu --leg golden --quick && plan_holds && has '^ok 1 - [a-z0-9_]+ leg3/cpu/ref/row0 '; }
one_case() { ends 0 lion --only leg3/cpu/ref/row0/case0 -j1 && plan_holds && has ": 1 cases"; }
same_again() {
  ends 0 lion --only leg1/cpu/ref/row0 --seed 5 --quick && cp "$out" "$work/first"
  ends 0 lion --only leg1/cpu/ref/row0 --seed 5 --quick -j1 && cmp "$out" "$work/first"
}
no_gpu() { ends 3 --backend cuda --quick && grep -qF /nowhere/libcuda.so.1 "$err"; }
no_gpu_by_default() { ends 0 lion --leg variants --quick --only leg1/cuda && has '^ok 1 .* # SKIP .*no CUDA driver'; }
mask() {
  QUERN_CPU=ref ends 0 lion --backend cpu --leg golden --quick && has ' leg3/cpu/ref/row' && ! grep -qE '^ok .* leg3/cpu/(avx|neon)' "$out"
}
tier_not_here() {
  tier=neon && [ "$(uname -m)" = aarch64 ] && tier=avx2
  QUERN_CPU=$tier ends 0 lion --backend cpu --leg contract --quick && has "^ok 1 .* # SKIP cpu tier $tier: "
}
device() { QUERN_DEVICE=emulator ends 0 lion --leg contract --quick && has 'leg4/emulator' && ! grep -q 'leg4/cpu' "$out"; }
json() {
  ends 0 lion --backend cpu --leg golden --json && python3 - "$out" <<'EOF'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert lines and all(line["result"] == "passed" and line["leg"] == 3 for line in lines), lines
EOF
}
# One case of each that runs: that all rows do is what tools/results.py asks of the tests `check cpu` and `check emulator`.
accounted() {
  "$quern" list --json >"$work/list" && python3 - "$work/list" "$quern" <<'EOF'
import json, subprocess, sys
for op in json.load(open(sys.argv[1]))["ops"]:
    for variant in op["variants"]:
        name = f"leg1/{variant['backend']}/{variant['name']}"
        runs = variant["state"] == "runs"
        only = name + "/row0/case0" if runs else name
        command = [sys.argv[2], "check", op["name"], "--quick", "--only", only]
        told = subprocess.run(command, capture_output=True, text=True)
        want = f"ok 1 - {op['name']} {name}" + ("/row0 " if runs else " # SKIP ")
        assert told.returncode == 0 and want in told.stdout, f"{op['name']} {name} is neither run nor skipped: {told}"
EOF
}

check "an unknown op" refuses 'did you mean lion?' lino
check "an unknown leg" refuses "did you mean golden" --leg goldne
check "an unknown backend" refuses 'did you mean "emulator"' --backend emulatr
check "an unknown item" refuses "there is no check called" --only leg1/cpu/nothing
check "a seed that is no number" refuses "--seed is x1" --seed x1
check "jobs beyond reason" refuses "--jobs is 65" -j 65
check "a leg that the backend has not" ends 3 --backend emulator --leg oracle
check "a case that there is not" unknown_case
check "golden vectors pass, as planned" golden
check "one case alone" one_case
check "the same seed gives the same lines, whatever the jobs" same_again
check "a GPU that is asked for and not there" no_gpu
check "a GPU that is not there and not asked for" no_gpu_by_default
check "the mask counts" mask
check "where the option names a tier that is not here, the contract is skipped with the reason" tier_not_here
check "QUERN_DEVICE counts" device
check "JSON, a line an item" json
check "every variant is accounted for" accounted
finish
