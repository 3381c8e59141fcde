#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh QUERN - bench, roofline, compare and report as their users meet them, on sizes so small that no figure means
# anything: what is printed and kept, what is refused and how. No GPU is seen, whatever the machine has.
set -u
quern=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
. "$root/tests/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/home" "$work/tmp" && cd "$work" || exit 1
forget_settings
export HOME="$work/home" TMPDIR="$work/tmp" QUERN_LIBCUDA=/nowhere/libcuda.so.1
unset LD_LIBRARY_PATH NO_COLOR
escape=$(printf '\033')

# bench STATUS ARGUMENT...: exits with it; output is kept in out and err
bench() {
  want=$1 && shift
  "$quern" "$@" >out 2>err
  got=$?
  [ "$got" = "$want" ] || { echo "exit status $got, not $want"; cat out err; return 1; }
}
# refused STATUS WORDS ARGUMENT...: so, with one sentence that has these words and no output
refused() {
  status=$1 words=$2 && shift 2
  bench "$status" "$@" && grep -qF -- "$words" err && [ ! -s out ] || { cat out err; return 1; }
}
has() { grep -qF -- "$1" out || { echo "not printed: $1"; cat out; return 1; }; }
python() { python3 -c "import json, sys
lines = [json.loads(line) for line in open('a.jsonl')]
$1" || return 1; }

check "a bench ends well" bench 0 bench lion --workload 5x1003 --backend cpu --seconds 0.05 --json a.jsonl --trace t.json
check "it says what ran" has "lion over 5x1003: 5 tensors, 5,015 elements of 20 bytes, types f32 f32 f32"
check "the check's result" has "10,030 written elements equal the reference bit for bit"
check "the share of a ceiling" has "of ceiling"
check "the speed-up" has "over the unfused form"
check "and what a step allocates" has "0 bytes allocated"
check "nothing on standard error in a pipe" test ! -s err
check "and no escapes" sh -c "! grep -q '$escape' out"
check "its line of JSON is whole" python "
a = lines[0]
assert len(lines) == 1 and a['op'] == 'lion' and a['check']['right'] is True and a['workload'] == '5x1003', a
assert len(a['fused']['samples_ns']) == len(a['unfused']['samples_ns']) >= 6
assert a['bytes_per_element'] == 20 and a['set_bytes_per_element'] == 12 and a['allocated_bytes'] == 0
assert a['machine']['processor'] and a['build']['compiler'] and a['date'].endswith('Z')"
check "the trace is one that browsers read" python3 -c "
import json
spans = [s for s in json.load(open('t.json'))['traceEvents'] if s['ph'] == 'X']
assert {s['tid'] for s in spans} == {0, 1} and all(s['dur'] > 0 for s in spans)
assert any(s['name'] == 'lion' and s['args']['launches'] == 0 for s in spans if 'args' in s)"
check "a step of several kernels" bench 0 bench elo -w 2x700 -b emulator --seconds 0.01 --trace k.json
check "has each of them in the trace, by name and in order" python3 -c "
import json
spans = [s for s in json.load(open('k.json'))['traceEvents'] if s['ph'] == 'X']
kernels, step = [s for s in spans if s['tid'] == 2], [s for s in spans if s['name'] == 'elo' and 'args' in s][-1]
assert len(kernels) == step['args']['launches'] > 1 and len({s['name'] for s in kernels}) > 1, (kernels, step)
assert all(s['dur'] > 0 for s in kernels) and [s['ts'] for s in kernels] == sorted(s['ts'] for s in kernels), kernels"
check "device sources on the host, with all timers" bench 0 bench lion -w 2x999 -b emulator -t all --seconds 0.02 --json a.jsonl
check "a step is one launch" has "1 launch, 0 bytes allocated"
check "each timer has its line" python "assert [l['timer'] for l in lines[1:]] == ['event', 'simple', 'do_bench'] and all(l['launches'] == 1 for l in lines[1:])"
check "other types and parameters" bench 0 bench lion -w 1x777 -b cpu --types bf16,bf16,f32,f32 --set rounding=stochastic --set lr=3e-4 \
  --seconds 0.02 --json a.jsonl
check "are kept with the line" python "assert lines[4]['params']['lr'] == 3e-4 and lines[4]['params']['rounding'] == 1 and lines[4]['types'] == 'bf16 bf16 f32 f32' and lines[4]['settings'] == 'lr=0.0003 rounding=stochastic'"
check "an op whose states have shapes of their own" bench 0 bench elo -w 2x700 -b cpu --seconds 0.01 --json b.jsonl
check "says what a step is lent beside the state" has "of state, and a workspace of"
check "and keeps it" python3 -c "import json; l = json.loads(open('b.jsonl').readline()); assert l['workspace_bytes'] > 0 and l['bytes_per_element'] == 44 and l['check']['right'], l"
check "an op with tensors for the whole list" bench 0 bench velo -w 2x700 -b cpu --seconds 0.01 --set num_steps=50 --json v.jsonl
check "counts these and its weights" python3 -c "import json; l = json.loads(open('v.jsonl').readline()); \
  assert 9e6 < l['bytes_besides'] < 1e7 and l['fused']['bytes'] == 1400 * 44 + l['bytes_besides'] and l['params']['num_steps'] == 50, l"
check "but has no unfused form to break even with" refused 3 "lists of tensors alike" bench elo -b cpu --break-even
check "a product over extents" bench 0 bench gemm_norm -w "m=5 n=64 k=32 groups=2" -b cpu --seconds 0.01 --json g.jsonl
check "is held to the reference in double" has "320 written elements are as near to the reference in double as they must be"
check "says what it computes" has "TFLOP/s"
check "and keeps what a call moves and computes" python3 -c "import json; l = json.loads(open('g.jsonl').readline()); \
  assert l['fused']['bytes'] == 4 * (5 * 64 + 5 * 32 + 64 * 32 + 4 * 64) and l['operations_per_element'] == 2 * 32, l; \
  assert l['check']['right'] and l['params']['groups'] == 2 and l['elements'] == 320 and 'unfused' not in l, l"
check "of bf16 on the host, all timers" bench 0 bench gemm_norm -w "m=3 n=8 k=16 groups=2" -b emulator --types bf16 --set precision=bf16 \
  -t all --seconds 0.01 --json g.jsonl
check "by a variant" has "launched as plain"
check "a setting takes the place of the workload's" bench 0 bench gemm_norm -w "m=3 n=8 k=16 groups=2" -b cpu --set groups=4 \
  --seconds 0.01 --json g.jsonl
check "in the line too" python3 -c "import json; l = json.loads(open('g.jsonl').readlines()[-1]); assert l['params']['groups'] == 4, l"
check "its own first workload unless one is named" bench 0 bench gemm_norm -b cpu --seconds 0.01
check "is KernelBench's" has "gemm_norm over kernelbench: m=128 n=1024 k=512 groups=32, types f32"
check "a list is none of a product's workloads" refused 2 "gemm_norm has no workload gpt2-124m; there are kernelbench, " bench gemm_norm -b cpu -w gpt2-124m
check "a misspelt one is told with the nearest" refused 2 "did you mean decode?" bench gemm_norm -b cpu -w decod
check "nor is a file" refused 3 "lists of tensors alike" bench gemm_norm -b cpu -p x.safetensors
check "and it has no break-even" refused 3 "lists of tensors alike" bench gemm_norm -b cpu --break-even
check "first use in processes of their own" bench 0 bench lion -w 1x64 -b emulator --seconds 0.01 --first-use
check "cold and from disk" has "where the kernel is on disk"
check "which leave nothing behind" sh -c "test -z \"\$(ls '$work/tmp')\""
check "the number of a problem without problems is refused" refused 2 "--first is for the problems of --random" bench lion -b cpu --first 3
check "so is their size" refused 2 "--most-bytes is for the problems of --random" bench lion -b cpu --most-bytes 4096
check "a list has no measurements to keep" refused 2 "--list times nothing" bench lion --random 2 --list --json l.jsonl
check "random problems go by one timer" refused 2 "--random goes by one timer" bench lion -b cpu --random 2 --timer all
check "so do sizes" refused 2 "--break-even goes by one timer" bench lion -b cpu --break-even --timer all
check "which are no workload's" refused 2 "sizes of its own" bench lion -b cpu --break-even --first-use
mkdir -p folder && echo '{' >folder/kernel.json
check "nor does it decide what the verb does" refused 2 "there is no workload folder" bench lion -b cpu -w folder
check "break-even" bench 0 bench lion -b cpu --break-even --json a.jsonl
check "says a size or that there is none" has "break-even: "

check "compare with itself" bench 0 compare a.jsonl a.jsonl
check "one run each allows no word" sh -c "grep -qF ' 1.000x   unclear ' out && ! grep -qE ' (faster|slower|same) ' out"
check "and says so" has "1 and 1 runs, a word needs 7 of each, taken in turns"
small="'$quern' bench lion -w 1x500 -b cpu --no-unfused --seconds 0.002 --threads 1"
check "two commands, run in turns" bench 0 compare --before "$small" --after "$small" --runs 7 "old file.jsonl" new.jsonl
check "are two files of as many runs" sh -c "test \$(wc -l <'old file.jsonl') = 7 && test \$(wc -l <new.jsonl) = 7"
check "compared" has "7 and 7 runs"
# A word may be "same" or none: the samples' scatter decides, which is what else the machine does.
check "with an interval and neither faster nor slower" sh -c "grep -qE '[0-9]x \[[0-9.]+, [0-9.]+\]   (unclear|same) ' out"
check "a command that fails ends it" refused 1 "no-such-op: ended with status" compare --before "exit 3; no-such-op" --after "$small" x.jsonl y.jsonl
check "one command alone is none" refused 2 "given together" compare --before "$small" x.jsonl y.jsonl
check "nor are two with one file" refused 2 "a file of its own" compare --before "$small" --after "$small" x.jsonl x.jsonl
check "nor no runs" refused 2 '--runs is "0"' compare --before "$small" --after "$small" --runs 0 x.jsonl y.jsonl
check "a garbled file is refused with its line" sh -c "head -c 500 a.jsonl >cut.jsonl; ! '$quern' compare a.jsonl cut.jsonl 2>err && grep -q 'cut.jsonl:1: ' err"
check "a missing one too" refused 2 "none.jsonl" compare a.jsonl none.jsonl
check "one file alone" refused 2 "two files" compare a.jsonl

check "a roofline, drawn with the kernels" bench 0 roofline -b cpu --largest 1 --svg r.svg --results a.jsonl --json a.jsonl
check "is an SVG" sh -c "head -c 5 r.svg | grep -q '<svg ' && tail -n 1 r.svg | grep -q '</svg>'"
check "with a point for the kernel" grep -q "lion 5x1003" r.svg
check "and its whole name, however long" grep -qE 'lion 1x777 bf16 bf16 f32 f32, lr=0.0003 rounding=stochastic, [0-9]+ GB/s<' r.svg
printf 'top\n<!-- quern report: begin -->\n<!-- quern report: end -->\nend\n' >doc.md
check "one line alone" bench 0 bench lion -w 2x99 -b cpu --no-unfused --seconds 0.002 --json one.jsonl
check "makes a table without a summary that would be empty" sh -c "'$quern' report one.jsonl | grep -q '^| lion ' && ! '$quern' report one.jsonl | grep -q 'geometric'"
check "tables from all of it" bench 0 report a.jsonl --into doc.md --svg again.svg
check "stand between the marks" sh -c "grep -q '^| lion | 5x1003 | f32 f32 f32 | ' doc.md && head -n 1 doc.md | grep -q top && tail -n 1 doc.md | grep -q end"
check "and the picture is drawn from the file alone" grep -q "lion 5x1003" again.svg

# What python -m quern.bench asks for, and what it writes: here a line of the command, made into one with peers.
check "ceilings for another program, round for round" sh -c "printf '\n\n\n' | '$quern' bench lion -w 3x1000 -b cpu --threads 1 --set lr=2e-4 --ceilings-here >out"
check "the list, what a line says of it, then times" python3 -c "
import json
head, *done, last = [json.loads(line) for line in open('out')]
assert head['shapes'] == [[1000]] * 3 and head['machine']['threads'] == 1 and head['settings'] == 'lr=0.0002', head
assert head['schema'] == 'quern bench 1' and head['cache'] and head['flush_bytes'] == 0 and 'fused' not in head
assert done == [{}] * 3 and {len(c['samples_ns']) for c in last['ceilings']} == {3}
best, copy = last['ceilings'][last['ceiling']], last['ceilings'][last['copy']]
own = [c['gbps'] for c in last['ceilings'] if c['name'] == best['name']]
assert best['name'] == '3-read-2-write in place' and best['gbps'] == max(own) and copy['name'] == 'copy' and last['floor_ns'] > 0"
check "without a round there are none" sh -c "'$quern' bench lion -w 3x1000 -b cpu --ceilings-here </dev/null | tail -n 1 | grep -qF '\"ceilings\":[],'"
python "
import copy
a = lines[0]
a['by'] = 'quern.torch.Lion'
def peer(name, factor, wrong='', **more):
    step = copy.deepcopy(a['fused'])
    step['samples_ns'] = [factor * ns for ns in step['samples_ns']]
    return {'name': name, 'version': 'x 1', 'absent': '', 'check': {'right': not wrong, 'wrong': wrong}, 'step': step,
            'other_op': False, 'share': a['share'], 'speedup': {'ratio': factor, 'interval': [factor, factor]}, 'verdict': 'faster'} | more
a['wall'] = a['host'] = dict(a['fused'], name='wall', samples_ns=[7e6] * 6)
a['peers'] = [peer('one', 3), peer('two', 2, 'sign(0) is | 1'), {'name': 'three', 'version': '', 'absent': 'not installed'}, peer('adamw', 4, other_op=True)]
open('p.jsonl', 'w').write(json.dumps(a) + chr(10))
open('both.jsonl', 'w').write(open('a.jsonl').readline() + json.dumps(a) + chr(10))
for name, change in {'samples': {'step': dict(a['peers'][0]['step'], samples_ns=[0])}, 'verdict': {'verdict': 3}, 'wrong': {'check': {}}}.items():
    open('bad-' + name + '.jsonl', 'w').write(json.dumps(dict(a, peers=[a['peers'][1], dict(a['peers'][0], **change)])) + chr(10))"
: >empty.jsonl
check "a report of nothing" refused 2 "no measurement in empty.jsonl" report empty.jsonl
check "a table of peers" bench 0 report p.jsonl --peers
check "begins with the op as it was called" has "2 threads | quern.torch.Lion | "
check "with the times of many steps and of the host" has "% | 7.000 ms | 7.000 ms |  | 2"
check "a peer and what may be said" has "| | | | one (x 1) | "
check "in a word" has "| 3.00x [3.00, 3.00], faster | |"
check "the time of a wrong one in brackets" grep -q '^| | | | two (x 1) | ([0-9.]* [a-z]*) | - | - | - | - | wrong: sign(0) is \\| 1 | |$' out
check "one that is not there" has "| | | | three | - | - | - | - | - | not installed | |"
check "another op" has "| 4.00x [4.00, 4.00], another op | |"
check "no other table has it" bench 0 report both.jsonl
check "but the command's own" test "$(grep -c '^| lion | 5x1003' out)" = 1
check "compare does not take one for the other" bench 0 compare both.jsonl p.jsonl
check "and names the caller" has "event, through quern.torch.Lion"
check "and says what is only in one" has "1 only before"
check "a picture has it not" sh -c "'$quern' roofline -b cpu --largest 1 --svg p.svg --results p.jsonl >/dev/null && ! grep -q 'lion 5x1003' p.svg"
check "a peer whose samples lie" refused 2 "one: sample 0 is no time above 0" report bad-samples.jsonl --peers
check "or whose verdict is none" refused 2 "verdict is no text" report bad-verdict.jsonl --peers
check "or whose check is missing" refused 2 "wrong is no text" report bad-wrong.jsonl --peers

# docs/benchmarking.md has the table of what is kept of such measurements, and none where none is kept.
peers_are_shown() {
  set -- "$root"/results/peers-*.jsonl
  if [ -e "$1" ]; then "$quern" report "$@" --peers >want || return 1; else : >want; fi
  sed -n '/<!-- quern report: begin -->/,/<!-- quern report: end -->/p' "$root/docs/benchmarking.md" | sed '1d;$d' >have
  diff want have
}
check "docs/benchmarking.md shows the measurements that are kept" peers_are_shown

# Under a table its ratios are summed up: recomputed here from the rows' two digits.
summed_up() {
  "$quern" report "$root"/results/peers-*.jsonl --peers >out && python3 -c "
import math, re
on, ratios = '', []
for line in open('out'):
  cells = [cell.strip() for cell in line.split('|')]
  if len(cells) < 12: continue
  on = cells[3] or on
  if cells[4].startswith('eager') and on == 'NVIDIA H200': ratios.append(float(cells[10].split('x')[0]))
row = re.search(r'^\| quern.torch.Lion \| NVIDIA H200 \| against eager \| (\d+) \| ([0-9.]+)x \| ([0-9.]+)x \| ([0-9.]+)x \|$', open('out').read(), re.M)
n, mean, worst, best = (float(x) for x in row.groups())
assert n == len(ratios) > 2 and worst == min(ratios) and best == max(ratios) > 2 * mean, (row, ratios)
assert abs(mean - math.prod(ratios) ** (1 / n)) < 0.02, (mean, ratios)"
}
check "a table ends with geometric mean, worst and best" summed_up
check "so does the command's own" sh -c "'$quern' report '$root/results/h200.jsonl' | grep -qE '^\| lion \| NVIDIA H200 \| of the ceiling \| [0-9]+ \| [0-9.]+ % \|'"

check "an unknown op" refused 2 'did you mean lion?' bench lino
check "an unknown workload" refused 2 "did you mean gpt2-124m?" bench lion -w gpt2-124
check "an unknown timer" refused 2 "event" bench lion -t evnt
check "an unknown backend" refused 2 'did you mean "cuda"' bench lion -b cude
check "no GPU where one is asked for" refused 3 "/nowhere/libcuda.so.1" bench lion -b cuda
check "types that there are not" refused 2 "f16 f16 f32 f32" bench lion --types f64
check "a parameter out of range" refused 2 "lr is -1" bench lion -w 1x64 -b cpu --set lr=-1
check "an unknown parameter" refused 2 "did you mean" bench lion -w 1x64 -b cpu --set lrr=1
check "more memory than there is" refused 1 "GB are free" bench lion -w 4x100G -b cpu
check "both a workload and a file" refused 2 "not both" bench lion -w 1x64 -p x.safetensors
check "a file that is not one" sh -c "echo nonsense >x.safetensors; ! '$quern' bench lion -b cpu -p x.safetensors 2>err && grep -q x.safetensors err"
python3 -c "
import json, struct
head = json.dumps({'a.w': {'dtype': 'F32', 'shape': [31, 7], 'data_offsets': [0, 868]}, 'a.b': {'dtype': 'BF16', 'shape': [7], 'data_offsets': [868, 882]}}).encode()
open('two.safetensors', 'wb').write(struct.pack('<Q', len(head)) + head + bytes(882))"
check "a model's own shapes" bench 0 bench lion -b cpu -p two.safetensors --seconds 0.01
check "are what runs" has "lion over two.safetensors: 2 tensors, 224 elements"
check "no time" refused 2 "seconds" bench lion --seconds 0
check "a file that cannot be written" sh -c "! '$quern' bench lion -w 1x64 -b cpu --seconds 0.01 --json /nowhere/x.jsonl >out 2>err && grep -q /nowhere/x.jsonl err"
check "nothing is left in the user's home but the cache" sh -c "test \"\$(ls -A home)\" = '' || test \"\$(ls -A home)\" = .cache"
finish
