#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kernel_cli.sh QUERN - kernels from a body as their users meet them, in `quern kernel` and in the verbs of ops: a new folder through every action, and every mistake that a
# newcomer makes, each a sentence. On the processor, in an empty folder with an empty home.
set -u
quern=$(realpath "$1")
. "$(dirname "$(realpath "$0")")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
forget_settings
export HOME="$work/home" QUERN_LIBCUDA=/nowhere/libcuda.so.1
unset NO_COLOR COLUMNS
mkdir "$work/home" "$work/here" && cd "$work/here" || exit 1
out=$work/out err=$work/err

# runs STATUS ARGUMENT...: exits with it; output is kept in $out and $err
runs() {
  want=$1 && shift
  case ${1-} in check | bench | tune | emit | list) ;; *) set -- kernel "$@" ;; esac
  timeout 300 "$quern" "$@" >"$out" 2>"$err"
  got=$?
  [ "$got" = "$want" ] || { echo "exit status $got, not $want"; tail -n 20 "$out" "$err"; return 1; }
}
# says STATUS WORDS ARGUMENT...: fails so, and standard error begins with the command's name and has these words
says() {
  status=$1 words=$2 && shift 2
  runs "$status" "$@" || return 1
  grep -qF -- "$words" "$err" || { echo "not said: $words"; cat "$err"; return 1; }
  head -n 1 "$err" | grep -q "^quern \(kernel\|${1:-kernel}\)" || { echo "does not begin with the command's name"; cat "$err"; return 1; }
}
has() { grep -qF -- "$1" "$out" || { echo "not there: $1"; tail -n 20 "$out" "$err"; return 1; }; }
python_on() { python3 -c "import json,sys
d=json.load(open('$out'))
$1"; }
# body TEXT: the new kernel's
body() { printf '%s\n' "$1" >"$work/here/mine/mine.metal"; }

# ---- help ----
for action in new run sanitize replay watch check bench tune emit list; do
  check "quern $action --help" runs 0 "$action" --help
  check "fits 80 columns" sh -c "! grep -n '.\{80\}' '$out'"
  check "quern $action refuses an unknown option" says 2 "there is no option --no-such-thing" "$action" --no-such-thing
done
check "the overview names every action" sh -c "'$quern' kernel --help >'$out'; for a in new run sanitize replay watch; do grep -q \"^  \$a \" '$out' || exit 1; done"
check "and no option, since these are of actions" sh -c "! grep -qE '^ +(-[a-z], )?--(out|json|form|seeds)' '$out'"
check "no action is told" says 2 "which action?"
check "an unknown one with the nearest" says 2 "did you mean watch?" wtach
check "an option before the action" says 2 "the action comes first" --threads 2 run x
check "an option of another action" says 2 "there is no option --form" run --form cuda
for verb in check bench tune emit; do check "quern $verb --help has the options of folders" sh -c "'$quern' $verb --help | grep -q -- --untuned"; done

# ---- new ----
check "a new kernel" runs 0 new mine
check "is a folder with its body" test -f mine/mine.metal
check "again is refused" says 2 "File exists" new mine
check "so is a name that is none" says 2 "is no kernel's name" new 3x
check "and an unknown one to copy" says 2 "no kernel sofmax that ships; did you mean softmax?" new other --from sofmax
check "which leaves nothing behind" test ! -e other
check "a shipped one is copied" runs 0 new soft --from softmax
check "under its new name" grep -q '"name": "soft"' soft/kernel.json
check "and runs" runs 0 run soft
check "a folder is copied too" runs 0 new twin --from mine
check "and runs as well" runs 0 run twin
check "one in CUDA C" runs 0 new cu --dialect cuda
check "proves itself" runs 0 check cu --quick
check "and ends with a count" sh -c "tail -n 1 '$out' | grep -qE '^# [0-9]+ passed, 0 failed, 0 skipped$'"
cp -r cu bare && sed -i 's/"name": "cu"/"name": "bare"/;/"reference"/d' bare/kernel.json
check "without a reference there is less to prove" runs 0 check bare --quick
check "which is skipped, not proved" sh -c "grep -q '^ok .*processor # SKIP no reference' '$out' && ! grep -q '^ok .*processor: ' '$out' && tail -n 1 '$out' | grep -qE ' 0 failed, [1-9][0-9]* skipped$'"
check "says what it is" grep -q '"dialect": "cuda"' cu/kernel.json
check "an unknown dialect" says 2 "there is no dialect hip" new x --dialect hip
check "list names what ships" sh -c "'$quern' list | grep -q '^  softmax '"
check "list --json too" sh -c "'$quern' list --json | python3 -c 'import json,sys; assert \"softmax\" in [k[\"name\"] for k in json.load(sys.stdin)[\"kernels\"]]'"
check "list of a folder is its contract" runs 0 list mine
check "with its types" grep -q '^    x  *f32|f16|bf16 \[n\]' "$out"
check "list of a folder --json" sh -c "'$quern' list mine --json | python3 -c 'import json,sys; assert json.load(sys.stdin)[\"kernels\"][0][\"workloads\"]'"

# ---- an op or a folder ----
check "the former words still work" sh -c "'$quern' kernel check mine --quick >'$out' 2>'$err' && tail -n 1 '$out' | grep -q ' 0 failed'"
check "with a note" grep -q '"quern kernel check" is now "quern check"' "$err"
check "from inside the folder" sh -c "cd mine && '$quern' list . | grep -q '^mine - '"
check "by its kernel.json" runs 0 list mine/kernel.json
mkdir lion && cp mine/kernel.json mine/*.metal lion
check "an op's name is the op" sh -c "'$quern' list lion | grep -q '^lion - the Lion'"
check "a path is the folder" sh -c "'$quern' list ./lion | grep -q '^mine - '"
check "an option of ops over a folder" says 2 "--leg is for ops, not for a kernel's folder" check mine --leg 2
check "an option of folders over an op" says 2 "--seeds is for a kernel's folder" check lion --seeds 3
check "an op and a folder" says 2 "one at a time" check lion mine
for verb in check bench tune emit list; do
  check "$verb of a kernel that ships" says 2 "quern kernel new softmax --from softmax" $verb softmax
  check "$verb of a misspelt one" says 2 "did you mean softmax?" $verb sofmax
  check "$verb of a path that is not there" says 2 "./nowhere: No such file" $verb ./nowhere
  check "$verb of a folder without kernel.json" says 2 "has no file kernel.json" $verb "$work/home"
done
check "a folder is no action" says 2 "quern check mine" mine
check "an op is none either" says 2 "swiglu is an op: quern check swiglu" swiglu
check "nor a kernel that ships" says 2 "quern kernel new qr --from qr" qr
check "a workload like no other is told with those there are" says 2 "has no workload x; there are 2^20, 2^24" run mine --workload x

check "a disk that is full gives its reason and leaves no half of a folder" sh -c "(trap '' XFSZ; ulimit -f 0; '$quern' kernel new full 2>&1; echo \$?) | tr '\n' ' ' | grep -q 'File too large 1 ' && test ! -e full"

# ---- run ----
check "run" runs 0 run mine --set n=3
check "prints inputs and outputs" sh -c "grep -q '^  x  *f32 \[3\]' '$out' && grep -q '^  y  *f32 \[3\]' '$out'"
check "run --json" runs 0 run mine --size 2 --dtype x=bf16 --json
check "agrees with itself" python_on "assert d['inputs']['x']['dtype']=='bf16' and d['outputs']['y']['shape']==[255]"
check "run --out" runs 0 run mine --set n=4 --out y.safetensors
check "and back in as an input" runs 0 run mine --input x=y.safetensors
check "of a .npy file" sh -c "python3 -c \"
h=b'{\\\"descr\\\": \\\"<f4\\\", \\\"fortran_order\\\": False, \\\"shape\\\": (2,), }'.replace(b'\\\"', b'\\x27').ljust(117) + b'\\n'
open('v.npy','wb').write(b'\\x93NUMPY\\x01\\x00' + len(h).to_bytes(2,'little') + h + b'\\x00\\x00\\x80\\x3f\\x00\\x00\\x00\\x40')\""
check "whose extent binds n" runs 0 run mine --input x=v.npy
check "and whose numbers are used" has "x          f32 [2]   1 2"
check "--verbose prints the source" sh -c "'$quern' kernel run mine -v | grep -q '#line 1 \"mine.metal\"'"
check "no folder" says 2 "quern kernel new DIR" run
check "a folder that is not there" says 2 "quern kernel new" run nowhere
check "a folder without kernel.json" says 2 "has a file kernel.json" run "$work/home"
check "a file in the place of a folder" says 2 "it is no kernel's folder and no kernel.json" run mine/mine.metal
check "two folders" says 2 "one at a time: mine or twin" run mine twin
check "an unknown extent" says 2 "has no extent and no template m" run mine --set m=3
for verb in check "check --selftest" bench tune emit; do check "of quern $verb too, which is a wrong call and no wrong kernel" says 2 "has no extent and no template m" $verb mine --backend cpu --set m=3; done
check "a negative extent likewise" says 2 "the extent n is -3, it must not be negative" check mine --backend cpu --set n=-3
check "an extent of 0" says 2 "must be above 0" run mine --set n=0
check "a value that is no number" says 2 "is no whole number" run mine --set n=many
check "a size that there is not" says 2 "kernel mine has 4" run mine --size 9
check "an unknown workload" says 2 "did you mean 2^20?" run mine --workload 2^2
check "a type that the contract has not" says 2 "its contract wants f32|f16|bf16" run mine --dtype x=f64
check "an unknown type" says 2 "there is no storage type f31; did you mean f32?" run mine --dtype x=f31
check "an input that is none" says 2 "has no input z" run mine --input z=y.safetensors
check "a file that is none" says 2 "v2.npy" run mine --input x=v2.npy
check "a threadgroup past the limit" says 2 "numbers from 1 to 1024" run mine --threadgroup 4096
check "a device that is not here" says 3 "cuda" run mine --backend cuda

# ---- bodies that are wrong ----
body 'uint i = thread_position_in_grid.x;
y[i] = T(metal::expp(float(x[i])));'
check "a body that does not compile" says 1 "mine.metal:2:" run mine
check "shows its line" grep -qF '2 | y[i] = T(metal::expp(float(x[i])));' "$err"
check "and a caret under the word" grep -q '^      |                 ^' "$err"
body 'y[thread_position_in_grid.x] = T(x[thread_position_in_grid.x + 1]);'
check "one that reads past the end fails its check" runs 1 check mine --quick
check "which says where" has "mine.metal, line 1"
check "sanitize finds it too" runs 1 sanitize mine
check "with its line" has "1 | y[thread_position_in_grid.x]"
check "sanitize --json is a line a finding" sh -c "'$quern' kernel sanitize mine --json | head -n 1 | python3 -c 'import json,sys; assert json.loads(sys.stdin.readline())[\"kind\"]==\"out of bounds\"'"
body 'if (thread_position_in_grid.x) y[thread_position_in_grid.x] = x[thread_position_in_grid.x];'
check "one that leaves an element unwritten" runs 1 check mine --quick
body 'volatile int *p = (volatile int *)16; y[0] = T(*p);'
# Under ASan, which would end the process in its own way, the crash is left to the system.
crashes() { (ASAN_OPTIONS="${ASAN_OPTIONS:-}:handle_segv=0" && export ASAN_OPTIONS && says 1 "it crashed: signal" run mine --isolated); }
check "one that crashes, in a process of its own" crashes
body 'for (volatile int k = 0;; k = 1) y[0] = T(k);'
check "one that never ends, within its limit" says 1 "mine" run mine --time-limit 1
# A lock that a thread holds while another forks is never released in the child. The check works in a process below the
# command's, and the one that forks there has a child.
forks_alone() {
  "$quern" check mine --quick --selftest --threads 3 >/dev/null 2>&1 &
  command=$!
  forks='' below=''
  for k in $(seq 300); do
    forks=$(cat "/proc/$command/task/$command/children" 2>/dev/null | tr -d ' ')
    below=$(cat "/proc/$forks/task/$forks/children" 2>/dev/null)
    [ -n "$below" ] && break
    sleep 0.1
  done
  threads=$(ls "/proc/$forks/task" | wc -l)
  kill -KILL $below $forks $command
  wait $command 2>/dev/null
  [ -n "$below" ] && [ "$threads" = 1 ] || { echo "processes $forks, $below: $threads threads"; return 1; }
}
check "what plants bugs has no thread while it forks" forks_alone
body 'uint i = thread_position_in_grid.x;
float v = float(x[i]);
y[i] = T(v / (1.0f + metal::exp(-v)) * 1.001f);'
check "one that is a little off" runs 1 check mine --quick
check "how far is told" has "ulp away"
check "bench gives it no time" runs 1 bench mine --workload 2^20
check "and says why" has "so it gets no time"
body 'uint i = thread_position_in_grid.x;
float v = float(x[i]);
y[i] = T(v / (1.0f + metal::exp(-v)));'

# ---- check, bench, tune, emit ----
check "the right one passes" runs 0 check mine --quick
check "in TAP" sh -c "head -n 1 '$out' | grep -q '^TAP' && tail -n 2 '$out' | grep -q '^1\.\.'"
check "check --json is a line a check" sh -c "'$quern' check mine --quick --json | python3 -c 'import json,sys; assert all(json.loads(l)[\"ok\"] for l in sys.stdin)'"
check "planted bugs are caught" runs 0 check mine --quick --selftest
check "each with its line" has "mine.metal:3:"
body 'uint i = thread_position_in_grid.x, unseen = 3 + i;
float v = float(x[i]);
y[i] = T(v / (1.0f + metal::exp(-v)));'
check "a change that cannot be seen is told" runs 1 check mine --quick --selftest
check "with its line" has "mine.metal:1: minus for plus is not caught"
check "and the next bugs are tried all the same" has "mine.metal:2: an index one too high is caught: n=1"
check "each for a reason" sh -c "! grep 'is caught: *$' '$out'"
body 'uint i = thread_position_in_grid.x, unseen = 3 + i; // quern: equivalent
float v = float(x[i]);
y[i] = T(v / (1.0f + metal::exp(-v)));'
check "unless its line says so" runs 0 check mine --quick --selftest
check "bench" runs 0 bench mine --workload 2^20 --seconds 0.2 --against twin --json lines.jsonl --trace trace.json
check "its trace has the launch" python3 -c "
import json
spans = [s for s in json.load(open('trace.json'))['traceEvents'] if s['ph'] == 'X']
assert {s['tid'] for s in spans if s['name'] == 'mine'} == {0, 1} and [s for s in spans if s['tid'] == 2], spans"
check "prints time, ceilings and the other" sh -c "grep -q '^  kernel ' '$out' && grep -q '^  ceilings .* copy, ' '$out' && grep -q 'over twin' '$out' && grep -q '^  first use ' '$out'"
check "its line is one of quern report" sh -c "'$quern' report lines.jsonl | grep -q '^| mine | 2^20 '"
check "tune --dry-run" runs 0 tune mine --workload 2^20 --dry-run
check "names the variant in force and every other" sh -c "grep -q '2^20: 256x1x1 in force, 3 others' '$out' && grep -c '^    [0-9]*x1x1$' '$out' | grep -qx 3"
check "and writes nothing" test ! -e mine/mine.tune
check "tune of a name that is no variant" says 2 'has no variant "64x1x1+NONE=2"' tune mine --variants 64x1x1+NONE=2
check "a kernel with planted variants" runs 0 new planted --from mine
cat >planted/mine.metal <<'END'
uint i = thread_position_in_grid.x;
float v = float(x[i]), w = v;
for (int k = 0; k < WORK; k++) w = metal::tanh(w);
y[i] = T(v / (1.0f + metal::exp(-v)) + w * 0.0f + (WORK == 3 ? 1.0f : 0.0f));
END
python3 -c 'import json
d = json.load(open("planted/kernel.json"))
d["templates"]["WORK"] = 100
d["tune"] = {"WORK": [1, 3, 200, 100]}
d["workloads"] = {"small": {"n": 4096}}
json.dump(d, open("planted/kernel.json", "w"))'
check "a wrong one makes tuning fail" runs 1 tune planted --backend emulator --seconds 0.1 --json t4.json
check "which says so" grep -q 'small: WORK=3 is wrong: ' "$out"
check "the fastest right one is kept" grep -q '^arch=emulator types=\* rows=1- cols=1- layout=\* choice=WORK=1 over=WORK=100 ratio=' planted/planted.tune
check "results have each" sh -c "grep -c '\"variant\": \"WORK=' t4.json | grep -qx 3 && grep -q '\"invalidity\": \"correctness\"' t4.json"
check "a run takes it" sh -c "'$quern' kernel run planted --backend emulator | grep -q 'tuned: WORK=1'"
check "but where it is left aside" sh -c "! '$quern' kernel run planted --backend emulator --untuned | grep -q 'tuned:'"
check "a slower one is not kept" sh -c "'$quern' tune planted --backend emulator --variants WORK=200 --seconds 0.1 >'$out' && grep -q 'the values in force stay' '$out' && grep -q 'choice=WORK=1 ' planted/planted.tune"
check "a copy has no table" sh -c "'$quern' kernel new copied --from planted && test ! -e copied/planted.tune && test ! -e copied/copied.tune"
name=$(python3 -c 'import json; print(json.load(open("t4.json"))["metadata"]["hardware"]["device"])')
echo "{\"schema\": \"quern tuned 1\", \"devices\": {\"$name\": {\"templates\": {\"WORK\": 200}}}}" >copied/tuned.json
check "a former table, tuned.json, is read for one more release" sh -c "'$quern' kernel run copied --backend emulator | grep -q 'tuned: WORK=200'"
echo 'quern tune 9 mine' >mine/mine.tune
check "a table of another version" says 2 "no tune table of version 1" run mine
check "can be left aside as well" runs 0 run mine --untuned
rm mine/mine.tune
echo '{"schema": "quern tuned 2", "devices": {}}' >mine/tuned.json
check "a tuned.json of another make" says 2 "quern tune" run mine
check "can be left aside" runs 0 run mine --untuned
rm mine/tuned.json
for form in cuda hip metal; do check "emit --form $form" sh -c "'$quern' emit mine --form $form | grep -q mine"; done
check "emit --form mlx serves all sizes" sh -c "'$quern' emit mine --form mlx >'$out' && grep -q 'n = x_.shape\[0\]' '$out' && grep -q 'output_shapes=\[(n,)\]' '$out'"
check "a body that names the shape of an output" runs 0 new shaped --from mine
echo 'if (thread_position_in_grid.x < uint(y_shape[0])) y[thread_position_in_grid.x] = x[thread_position_in_grid.x];' >shaped/mine.metal
check "is emitted for one size" says 2 "for one size: --size 1 to 4, --workload 2^20, --workload 2^24, or --set n=N" emit shaped --form mlx
check "and has its numbers" sh -c "'$quern' emit shaped --form mlx --set n=5000 >'$out' && grep -q 'output_shapes=\[(5000,)\]' '$out' && grep -q 'y_shape\[\] = {5000}' '$out'"
check "a full disk is told" sh -c "'$quern' emit mine >/dev/full 2>'$err'; test \$? = 1 && grep -q 'could not be written' '$err' && ! '$quern' emit mine --out /dev/full 2>'$err'"
check "emit --out" runs 0 emit mine --out mine.txt
check "has written it" test -s mine.txt
check "an unknown form" says 2 "did you mean metal?" emit mine --form mtal
check "replay of what was not captured" says 2 "is no captured launch" replay mine

# A captured launch: its inputs in a file, backwards in memory; outputs beside them, right ones and then wrong ones.
check "a captured folder" runs 0 new captured --from mine
cat >"$work/capture.py" <<'END'
import json, struct
d = json.load(open("captured/kernel.json"))
for m in ("sizes", "workloads", "reference", "fill", "tune", "bytes"): d.pop(m)
d.update(inputs={"x": "f32 [3]"}, grid=[3, 1, 1], strides={"x": [-2]}, inputs_file="in.safetensors")
json.dump(d, open("captured/kernel.json", "w"))
h = json.dumps({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}).encode()
open("captured/in.safetensors", "wb").write(struct.pack("<Q", len(h)) + h + struct.pack("<3f", 0, 1, -100))
END
sed -i 's/\[n\]/[3]/' captured/kernel.json
check "is made" python3 "$work/capture.py"
check "and replayed" runs 0 replay captured --out captured/out.safetensors
check "on its own inputs" has "x          f32 [3]   0 1 -100"
sed 's/"inputs_file"/"init": {"y": "-inf"}, "inputs_file"/' captured/kernel.json >"$work/first.json" && mkdir -p first && cp captured/* first && cp "$work/first.json" first/kernel.json
check "a first value that is no finite number" runs 0 replay first
sed -i 's/"inputs_file"/"outputs_file": "out.safetensors", "inputs_file"/' captured/kernel.json
check "its kept outputs are compared" runs 0 replay captured
check "and the same" has "y: the kept bits"
printf '\001' | dd of=captured/out.safetensors bs=1 seek=$(($(stat -c %s captured/out.safetensors) - 8)) conv=notrunc 2>/dev/null
check "a bit that differs fails" runs 1 replay captured
check "with its place" has "y[1] is"

# ---- watch ----
"$quern" kernel watch mine --passes 3 >"$work/watched" 2>&1 &
watcher=$!
passes() { for _ in $(seq 600); do [ "$(grep -c '^[0-9][0-9]:[0-9][0-9]:[0-9][0-9] [ow]' "$work/watched")" -ge "$1" ] && return 0; sleep 0.1; done; cat "$work/watched"; return 1; }
check "watch makes a first pass" passes 1
body 'y[0] = nothing;'
check "another when the body is saved" passes 2
body 'y[thread_position_in_grid.x] = T(float(x[thread_position_in_grid.x]) / (1.0f + metal::exp(-float(x[thread_position_in_grid.x]))));'
check "and when it is mended" passes 3
wait $watcher
check "it ends with the last one's result" test $? = 0
check "the error was shown at its line" grep -q '1 | y\[0\] = nothing;' "$work/watched"
: >"$work/watched" # not the passes of the one before
"$quern" kernel watch mine >"$work/watched" 2>&1 &
watcher=$!
passes 1
kill -TERM $watcher
wait $watcher
check "a signal ends it in good order" test $? = 0
check "watch of nothing" says 2 "quern kernel new" watch nowhere
finish
