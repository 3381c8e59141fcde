#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cli.sh QUERN - the command as its users meet it: help, mistakes, reports, completion. It runs in an empty folder with an
# empty home, and looks afterwards whether a mistake has left anything in them. No GPU is seen, whatever the machine has.
set -u
quern=$(realpath "$1")
. "$(dirname "$(realpath "$0")")/tap.sh"
work=$(mktemp -d)
kernels=$(dirname "$(realpath "$0")")/../kernels
trap 'rm -rf "$work"' EXIT
fresh() { rm -rf "${work:?}/home" "$work/here" && mkdir "$work/home" "$work/here" && cd "$work/here" || exit 1; }
fresh
forget_settings
export HOME="$work/home" QUERN_LIBCUDA=/nowhere/libcuda.so.1
unset NO_COLOR COLUMNS XDG_CACHE_HOME LD_LIBRARY_PATH
out=$work/out err=$work/err
escape=$(printf '\033')

# runs STATUS ARGUMENT...: exits with it; output is kept in $out and $err
runs() {
  want=$1 && shift
  "$quern" "$@" >"$out" 2>"$err"
  got=$?
  [ "$got" = "$want" ] || { echo "exit status $got, not $want"; cat "$out" "$err"; return 1; }
}
# says STATUS WORDS ARGUMENT...: fails so, with one sentence on standard error that has these words, nothing else anywhere
says() {
  status=$1 words=$2 && shift 2
  runs "$status" "$@" || return 1
  grep -qF -- "$words" "$err" || { echo "not said: $words"; cat "$err"; return 1; }
  head -n 1 "$err" | grep -q '^quern.*: ' || { echo "does not begin with the command's name"; cat "$err"; return 1; }
  [ ! -s "$out" ] || { echo "standard output is not empty:"; cat "$out"; return 1; }
  nothing_written
}
nothing_written() {
  left=$(find "$work/home" "$work/here" -mindepth 1)
  [ -z "$left" ] || { echo "left behind: $left"; return 1; }
}
fits() { ! grep -n '.\{80\}' "$out" && ! grep -n "$escape" "$out"; }
helps() { runs 0 "$@" && [ -s "$out" ] && [ ! -s "$err" ] && fits; }

# ---- help and version ----
check "quern --help fits 80 columns" helps --help
check "its exit statuses are told" sh -c "for k in 0 1 2 3; do grep -q \"^  \$k  \" '$out' || exit 1; done"
cp "$out" "$work/help"
check "-h is --help" helps -h
check "quern help is the same" helps help
check "to the letter" cmp "$out" "$work/help"
check "quern --version" sh -c "'$quern' --version | grep -q '^quern [0-9]*\.[0-9]*\.[0-9]*'"
check "it tells the tiers" sh -c "'$quern' --version | grep -q '^tiers: ref'"
check "quern version is the same" sh -c "test \"\$('$quern' version)\" = \"\$('$quern' --version)\""
check "quern alone tells what there is and exits with 2" runs 2
verbs=$(sed -n '/^Verbs:/,/^$/s/^  \([a-z-]*\)  .*/\1/p' "$work/help")
check "the verbs are there" sh -c "for v in check bench roofline compare report doctor list cache completion help version; do \
  echo '$verbs' | grep -qx \$v || { echo \"no \$v\"; exit 1; }; done"
for verb in $verbs; do
  check "quern $verb --help" helps "$verb" --help
  cp "$out" "$work/help"
  check "quern help $verb is the same" sh -c "'$quern' help $verb | cmp - '$work/help'"
  check "quern $verb refuses an unknown option" says 2 "there is no option --no-such-thing" "$verb" --no-such-thing
  check "quern $verb names the nearest option" says 2 "did you mean --help?" "$verb" --hlep
done

# ---- mistakes: a sentence with the nearest name, the right status, nothing written ----
check "an unknown verb" says 2 "there is no verb lsit; did you mean list?" lsit
check "a verb like no other" says 2 "there is no verb zzzzzzzz" zzzzzzzz
check "help for an unknown verb" says 2 "did you mean doctor?" help docter
check "an unknown option before the verb" says 2 "did you mean --version?" --verison
check "an unknown letter" says 2 "there is no option -x" list -x
check "an unknown op" says 2 "lion" list lino
check "an argument that a verb does not take" says 2 'it takes no argument but options, not "lion"' roofline lion
check "nor does version" says 2 'not "x"' version x
check "help of an action" helps help kernel run
check "is the action's own" sh -c "'$quern' kernel run --help | cmp - '$out'"
check "help of two verbs" says 2 "one verb at a time: list or check" help list check
check "a GPU by its common name" says 2 'did you mean "cuda"?' list --backend gpu
check "an unknown leg by number" says 2 "legs: variants, oracle" check --leg 9
check "two ops" says 2 "one at a time: lion or lion" list lion lion
check "an unknown leg" says 2 "did you mean golden?" check --leg goldn
check "quick and full at once" says 2 "--quick or --full" check --quick --full
check "an unknown op to bench" says 2 "lion" bench lino
check "an unknown workload" says 2 "did you mean gpt2-124m? There are 1x67.1M, " bench --workload gpt2-125m
check "one like no other" says 2 "there is no workload gpt3; there are 1x67.1M, " bench --workload gpt3
check "a parameter file that is none" says 2 "/dev/null" bench --params /dev/null
check "results that are not there" says 2 "no.jsonl" compare no.jsonl no.jsonl
check "nor for a report" says 2 "no.jsonl" report no.jsonl
check "results with nowhere to go, before they are made" says 2 "/nowhere/x cannot be written: No such file" bench --json /nowhere/x
check "a trace likewise" says 2 "/nowhere/x cannot be written" bench --trace /nowhere/x
check "a picture likewise" says 2 "$work cannot be written: Is a directory" roofline --svg "$work"
check "a word that doctor does not take" says 2 "by --backend cpu, cuda or emulator" doctor cuda
check "an unknown backend" says 2 "cuda" list --backend cdua
for verb in bench tune search meta-train; do
  check "an unknown device of $verb, beside an argument that is wrong too" says 2 '"cdua" is no device' "$verb" \
    --backend cdua nothing nothing
done
check "an option of another kind of problem: an op's" says 2 "--timer is for ops, not for a kernel's folder" bench \
  "$kernels/exp" --timer event
check "a letter that two options have is the op's" says 2 '"2" sets nothing' emit lion -s 2
check "and a folder's" says 2 "--size is 200, kernel exp has" emit "$kernels/exp" -s 200
check "an option without its value" says 2 "requires an argument" list --backend
check "an ambiguous abbreviation" says 2 "ambiguous" list --ve
check "an abbreviation that is not" runs 0 list --verb
check "an unknown action" says 2 "did you mean verify?" cache verfy
check "an option of another action" says 2 "--invalid belongs to clear" cache list --invalid
check "a shell that has no script" says 2 "bash" completion zsh
check "no shell" says 2 "bash" completion
check "a wrong --require" says 2 "cuda" doctor --require cud
check "--require against --backend" says 2 "--backend cpu leaves out" doctor --backend cpu --require cuda
export QUERN_CPU=avx3
check "a wrong value of a variable" says 2 "QUERN_CPU" list
check "does not stand in the way of --help" helps list --help
check "doctor reports it" sh -c "'$quern' doctor --backend cpu | grep -A1 '^MEND.*avx3' | grep -q 'unset QUERN_CPU'"
fresh
unset QUERN_CPU
# Names that only a call could judge: before any work, in every verb.
for wrong in QUERN_GEMM=blas QUERN_ARCH=../../x QUERN_LAUNCH_SHAPE=tiles-0x0x0; do
  export "$wrong"
  for verb in list check 'bench lion' tune roofline 'emit lion' 'cache list' 'kernel run nothing'; do
    # shellcheck disable=SC2086
    check "$wrong $verb" says 2 "${wrong%%=*}" $verb
  done
  check "$wrong doctor" sh -c "'$quern' doctor --backend cpu >'$out'; test \$? = 2 && grep -q '^MEND  option .*${wrong#*=}' '$out'"
  unset "${wrong%%=*}"
done
export QUERN_DEVCE=cpu
check "a misspelt variable is warned of" sh -c "'$quern' list 2>&1 >/dev/null | grep -q 'QUERN_DEVCE.*did you mean QUERN_DEVICE'"
unset QUERN_DEVCE
check "a full disk behind standard output is no success" sh -c "'$quern' list >/dev/full 2>'$err'; test \$? = 1 && grep -q written '$err'"
check "nor behind an emitted kernel" sh -c "'$quern' emit lion --out /dev/full 2>'$err'; test \$? = 1 && grep -q written '$err'"
check "nor behind --help" sh -c "'$quern' --help >/dev/full 2>'$err'; test \$? = 1 && grep -q written '$err'"

# ---- list ----
python_on() { python3 -c "import json,sys
d=json.load(open('$out'))
$1"; }
check "list" runs 0 list
check "it names lion" grep -q '^lion - ' "$out"
check "list --json" runs 0 list --json
check "is JSON with variants, types and parameters" python_on "
lion=[op for op in d['ops'] if op['name']=='lion'][0]
assert {'ref'} <= {v['name'] for v in lion['variants'] if v['backend']=='cpu'}
for v in lion['variants']: assert v['state'] in ('runs','compiled only','emitted only') and v['why'], v
assert any(t['bytes']==20 for t in lion['types']) and any(p['name']=='lr' for p in lion['params'])"
check "one variant a backend is chosen, at most" python_on "
for op in d['ops']:
  for b in ('cpu','cuda','emulator'): assert sum(v['chosen'] for v in op['variants'] if v['backend']==b) <= 1"
check "no GPU is here, so no variant for one runs" python_on "
assert not any(v['available'] or v['state']=='runs' for op in d['ops'] for v in op['variants'] if v['backend']=='cuda')"
check "QUERN_CPU=ref makes ref the choice" sh -c "QUERN_CPU=ref '$quern' list --json --backend cpu >'$out'"
check "and no other" python_on "
assert all(v['chosen']==(v['name']=='ref') and v['backend']=='cpu' for op in d['ops'] for v in op['variants'])"
check "QUERN_ARCH=sm_100 list swiglu" sh -c "QUERN_ARCH=sm_100 QUERN_TUNE_DIR='$work/none' '$quern' list swiglu --backend emulator >'$out'"
check "tells what the shipped table says of which shapes" grep -qE '^    bf16/bf16/bf16 +dense +tiles-128x8x1 +the shipped table, published: 16x28672 .* 256x14336 ' "$out"
check "and that few elements have the rule's" grep -qE '^    bf16/bf16/bf16 +dense +flat-256x1x1 +the rule: 1x4096 ' "$out"
check "and what can be forced" grep -q '^    QUERN_LAUNCH_SHAPE forces {flat,rows,tiles}-{64,128,' "$out"
check "QUERN_LAUNCH_SHAPE=rows-512x8x1 list swiglu --json" sh -c "QUERN_LAUNCH_SHAPE=rows-512x8x1 '$quern' list swiglu --json --backend emulator >'$out'"
check "has each shape's variant, and that it was forced" python_on "
launch=d['ops'][0]['launch']
assert launch['device']=='emulator' and 8 in launch['forced']['pack'] and {c['layout'] for c in launch['choices']}=={'dense','pitched'}
assert all(c['variant']=='rows-512x8x1' and c['why']=='forced' and c['rows'] and c['cols'] for c in launch['choices'])"
check "the variable's former name, QUERN_GEOMETRY, is read for one more release" sh -c "QUERN_GEOMETRY=rows-512x8x1 '$quern' list swiglu --backend emulator | grep -q 'rows-512x8x1 *forced'"
check "list gemm_norm names its variants" sh -c "'$quern' list gemm_norm | grep -q 'plain  *serves ..*, is given'"
check "and why one cannot run here" sh -c "'$quern' list gemm_norm | grep -q 'cublas  *serves  0, is given  0  it is for NVIDIA GPUs'"
check "without an op's name list is as short as ever" sh -c "! '$quern' list | grep -q 'launched'"
check "list lion --verbose" runs 0 list lion --verbose
check "tells every parameter" grep -q 'weight_decay' "$out"

# ---- doctor ----
check "doctor --json" runs 0 doctor --backend cpu --json
check "is JSON; what is not ok says how to mend it" python_on "
assert d['met'] and d['to_mend']==0
for line in d['lines']: assert line['state']=='ok' or line['mend'], line"
check "doctor --require cpu" runs 0 doctor --require cpu
check "it says that every bit was right" grep -q '^ok.*cpu.*every bit right' "$out"
check "doctor --require emulator" runs 0 doctor --require emulator
check "it compiled device code and ran it" grep -q '^ok.*emulator.*every bit right' "$out"
check "every line is ok, none, MEND, or how to mend it" sh -c "! grep -vE '^(ok  |none|MEND)  [a-z]|^ {16}[^ ]' '$out'"
check "doctor --require cuda without a GPU exits with 3" runs 3 doctor --require cuda
check "and says so" grep -q '^quern doctor: cuda does not work here' "$err"
check "and what to do" sh -c "grep -A1 -E '^(none|MEND)  cuda' '$out' | tail -n 1 | grep -q '^ *[a-z]'"
check "QUERN_CXX that is no compiler is found out" sh -c "QUERN_CXX=/nowhere/c++ '$quern' doctor --backend emulator | grep -qE '^(none|MEND)  emulator.*/nowhere/c'"
check "--require emulator fails with it" sh -c "QUERN_CXX=/nowhere/c++ '$quern' doctor --require emulator >/dev/null 2>&1; test \$? = 3"

# ---- cache: the emulator's kernels are in it by now ----
check "cache path" runs 0 cache path
check "is under the home" grep -qx "$work/home/.cache/quern" "$out"
check "cache list" runs 0 cache
check "has a kernel of lion" grep -q lion "$out"
check "cache list --json" runs 0 cache list --json
check "agrees with itself" python_on "
assert d['n']==len(d['entries'])>0 and d['invalid']==0 and d['bytes']==sum(e['bytes'] for e in d['entries'])"
check "cache verify" runs 0 cache verify
entry=$(find "$work/home/.cache/quern" -type f -size +1k | head -n 1)
printf '\001' | dd of="$entry" bs=1 seek=700 conv=notrunc 2>/dev/null
check "cache verify finds a changed byte" runs 1 cache verify
check "and says how to go on" grep -q 'quern cache clear --invalid' "$out"
check "doctor finds it as well" sh -c "'$quern' doctor --backend cpu | grep -A1 '^MEND  cache' | grep -q 'clear --invalid'"
check "cache clear --invalid" runs 0 cache clear --invalid
check "removes it alone" grep -q '^1 file removed' "$out"
check "then all hold" runs 0 cache verify
check "cache clear" runs 0 cache clear
check "cache stat counts none" sh -c "'$quern' cache stat | grep -q '^0 entries'"
mkdir -m 777 "$work/open" && chmod 777 "$work/open"
check "a directory that others may write to is refused" sh -c "QUERN_CACHE_DIR='$work/open' '$quern' cache >/dev/null 2>'$err'; test \$? -gt 0 && grep -q '$work/open' '$err'"
check "a cache that is off says so" sh -c "QUERN_CACHE=off '$quern' cache >/dev/null 2>'$err'; test \$? = 3 && grep -q off '$err'"

# ---- terminals: the same command behind a pseudo-terminal and in a pipe ----
check "colours on a terminal" sh -c "env TERM=xterm script -qefc '$quern list' /dev/null </dev/null | grep -q '$escape'"
check "none under NO_COLOR" sh -c "! env TERM=xterm NO_COLOR=1 script -qefc '$quern list' /dev/null </dev/null | grep '$escape'"
check "none on a dumb terminal" sh -c "! env TERM=dumb script -qefc '$quern list' /dev/null </dev/null | grep '$escape'"
check "none in a pipe" sh -c "! TERM=xterm '$quern' list | grep '$escape'"

# ---- completion ----
cat >"$work/complete.bash" <<'END'
PATH="$(dirname "$1"):$PATH"
source <("$1" completion bash) || exit 1
complete -p quern >/dev/null || exit 1
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_quern 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
END
# completes WANT WORD...: with the last word being typed, WANT is among what is offered; completes -WANT: it is not
completes() {
  want=$1 && shift
  bash "$work/complete.bash" "$quern" quern "$@" >"$out" || return 1
  case $want in
  !*) ! grep -qxe "${want#!}" "$out" ;;
  *) grep -qxe "$want" "$out" ;;
  esac || { cat "$out"; return 1; }
}
check "completion offers the verbs" completes doctor ""
check "that begin so" completes '!doctor' l
check "options of the verb" completes --require doctor --re
check "not those of another" completes '!--require' list --re
check "ops" completes lion list ""
check "values of an option" completes emulator list --backend ""
check "values behind =" completes cuda list --backend = c
check "the values of --backend, not its ops" completes '!lion' list -b ""
check "actions" completes verify cache v
check "workloads" completes gpt2-124m bench --workload gp
touch "$work/here/a file.jsonl"
check "files where files go" completes "a file.jsonl" bench --json a
check "and as arguments of compare" completes "a file.jsonl" compare a
mkdir "$work/here/folder" && check "folders of kernels" completes folder kernel run f
check "actions of a kernel" completes watch kernel w
touch "$work/here/folder/kernel.json" && check "folders in an op's place" completes folder check f
rm "$work/here/folder/kernel.json"
rmdir "$work/here/folder"
check "verbs behind help" completes bench help b

# wrote WORDS ARGUMENT...: succeeds, and writes a source with these words
wrote() { words=$1 && shift && runs 0 "$@" && grep -qF -- "$words" "$out"; }
check "emit writes an op as CUDA C" wrote "cudaLaunchKernel(" emit lion
check "as HIP C, for a row of types" wrote "const unsigned short *grad, float *momentum" emit lion --form hip --types bf16,bf16,f32
check "as Metal" wrote "#include <metal_stdlib>" emit lion --form=metal --set lr=0.1
check "into a file" runs 0 emit lion -f metal -o lion.metal
check "which is there" grep -q "using namespace metal;" lion.metal
fresh
check "not as MLX's Python" says 3 "no body that MLX could take" emit lion --form mlx
check "not with pointers' flags" says 3 "a phase that counts first" emit lion --set cautious=1
check "nor in a form that is none" says 2 "no form wgsl" emit lion --form wgsl
finish
