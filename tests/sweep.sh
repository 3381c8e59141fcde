#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sweep.sh QUERN - random problems of every op (`quern bench OP --random`): the same by seed, what their commands
# reproduce, what is refused. Problems are so small that no figure means anything, and all run on the processor.
set -u
quern=$(realpath "$1")
. "$(realpath "$(dirname "$0")")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
forget_settings
export HOME="$work"

draw() { "$quern" bench "$@" --list; }
refused() {
  words=$1 && shift
  "$quern" "$@" >out 2>err
  [ $? = 2 ] && grep -qF -- "$words" err && [ ! -s out ] || { cat out err; return 1; }
}
problems() { python3 -c "import json, sys
problems = [json.loads(line) for line in open('list')]
$1"; }

# A problem's own command leaves the line of JSON that the sweep left, but for times.
reproduces() {
  rm -f sweep.jsonl alone.jsonl commands
  "$quern" bench "$1" --random 4 --seed 5 --most-bytes 60000 --backend cpu --threads 2 --seconds 0.001 --json sweep.jsonl >out 2>err ||
    { cat out err; return 1; }
  grep -q "$1: 4 problems, 0 wrong" out || { cat out; return 1; }
  draw "$1" --random 4 --seed 5 --most-bytes 60000 >list
  problems "print('\n'.join(p['command'] for p in problems))" >commands
  while read -r command; do
    grep -qF -- "$command" out || { echo "not printed: $command"; return 1; }
    eval "\"\$quern\" ${command#quern } --backend cpu --threads 2 --seconds 0.001 --json alone.jsonl" >alone 2>err || { cat alone err; return 1; }
  done <commands
  python3 -c "
import json
same = ('op', 'types', 'params', 'settings', 'workload', 'tensors', 'elements', 'check', 'bytes_besides')
a, b = ([{key: json.loads(line)[key] for key in same} for line in open(name)] for name in ('sweep.jsonl', 'alone.jsonl'))
assert len(a) == 4 and a == b, (a, b)
assert [json.loads(l)['fused']['bytes'] for l in open('sweep.jsonl')] == [json.loads(l)['fused']['bytes'] for l in open('alone.jsonl')]"
}

# What was drawn once is drawn for ever: a change of the domain or of the drawing changes these on purpose.
for op in $("$quern" list --json | python3 -c "import json, sys; print(*(op['name'] for op in json.load(sys.stdin)['ops']))"); do
  draw "$op" --random 60 --seed 3 >list
  check "$op: 60 problems" problems "assert len(problems) == 60 and all(p['op'] == '$op' for p in problems)"
  draw "$op" --random 60 --seed 3 >again
  check "$op: the same again" cmp list again
  draw "$op" --random 20 --seed 3 --first 40 >again
  check "$op: and from any of them on" sh -c 'tail -n 20 list | cmp - again'
  draw "$op" --random 60 --seed 4 >again
  check "$op: others of another seed" sh -c '! cmp -s list again'
  check "$op: sizes, layouts and settings differ" problems "
assert len({p['shape'] for p in problems}) > 40
assert {p['shift'] > 0 for p in problems} == {False, True}
assert len({p['set'] for p in problems}) > 1
assert all(0 < p['bytes'] <= 256 << 20 for p in problems)
assert any(e % 2 for p in problems for s in (p['shapes'] if isinstance(p['shapes'], list) else p['shapes'].values()) for e in s)"
  draw "$op" --random 30 --seed 3 --most-bytes 20000 >list
  check "$op: no more bytes than asked for" problems "assert len(problems) == 30 and max(p['bytes'] for p in problems) <= 20000"
  check "$op: commands reproduce problems" reproduces "$op"
done

check "every row of types, class and norm" sh -c "'$quern' bench gemm_norm --random 300 --list | python3 -c '
import json, sys
p = [json.loads(line) for line in sys.stdin]
assert {(q[\"roles\"][\"x\"], q[\"settings\"].get(\"precision\", \"fp32\")) for q in p} == {(\"f32\", c) for c in \"fp32 tf32 bf16x3 tf32x3 bf16 f16x3\".split()} | {(\"bf16\", \"bf16\")}
assert {q[\"settings\"].get(\"norm\", \"group\") for q in p} == {\"none\", \"group\", \"layer\", \"rms\"}
assert {n for q in p for n in q[\"roles\"]} == {\"y\", \"x\", \"w\", \"bias\", \"bias2\", \"gamma\", \"beta\"}
assert any(\"bias\" not in q[\"roles\"] for q in p)'"
check "shapes by hand" sh -c "'$quern' bench swiglu --shape '5x7 shift=3 apart=2' --backend cpu --seconds 0.001 | grep -qF '1 tensor, 35 elements'"
check "rows apart of dense tensors" refused "must be dense" bench lion --shape "5x7 apart=2" --backend cpu
check "no problems" refused "--random is \"0\"" bench lion --random 0
check "no op" refused "name it" bench --random 3
check "an unknown op" refused 'did you mean lion?' bench lino --random 3
check "nothing so small" refused "most-bytes" bench lion --random 1 --most-bytes 1
check "a seed below 0" refused "--seed is \"-1\"" bench lion --random 1 --seed -1
check "types that are drawn" refused "draws types and settings itself" bench lion --random 1 --types f32
check "a list of nothing drawn" refused "--list prints the problems of --random" bench lion --list
check "shapes that are none" refused "5y7 is no shape" bench lion --shape 5y7
check "no shape at all" refused "has no shape" bench lion --shape shift=1
finish
