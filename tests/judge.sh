#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# judge.sh QUERN SOURCE PYTHON - `quern judge` on the processor: every candidate of tests/judge/cheats and broken gets the
# verdict that its first line names, honest ones are never refused, nothing is left behind, and mistakes of the caller
# are sentences.
set -u
quern=$(realpath "$1") source=$(realpath "$2") python=$3
. "$(dirname "$(realpath "$0")")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
forget_settings
export HOME="$work/home" TMPDIR="$work/tmp" QUERN_LIBCUDA=/nowhere/libcuda.so.1
unset XDG_CACHE_HOME
mkdir "$work/home" "$work/tmp" && cd "$work" || exit 1
cases=$source/tests/judge
out=$work/out err=$work/err

# judges STATUS ARGUMENT...: exits with it
judges() {
  want=$1 && shift
  timeout 500 "$quern" judge --backend cpu "$@" >"$out" 2>"$err"
  got=$?
  [ "$got" = "$want" ] || { echo "exit status $got, not $want"; tail -n 20 "$out" "$err"; return 1; }
}
says() { grep -qF -- "$1" "$out" "$err" || { echo "not said: $1"; tail -n 5 "$out" "$err"; return 1; }; }
# verdicts FILE: a line of TAP for each line of verdicts, by the first line of each candidate ("// WORDS: REASON")
verdicts() {
  "$python" - "$1" <<'PYTHON'
import json, os, re, sys
for line in open(sys.argv[1]):
    is_ = json.loads(line)
    path = is_["candidate"]
    head = open(path + "/sum.metal" if os.path.isdir(path) else path).readline().strip("/ \n")
    words, reason = head.split(":", 1)
    right = re.fullmatch(words, is_["verdict"]) and re.search(reason.strip(), is_["reason"])
    print("yes" if right else "no", os.path.basename(path), is_["verdict"] + ":", is_["reason"].split("\n")[0])
PYTHON
}
tell() {
  while read -r right name text; do
    check "$name: $text" [ "$right" = yes ]
  done <"$1"
}

# ---- cheats ----
set -- "$cases"/cheats/*
if [ "$(uname -m)" != x86_64 ]; then # some have instructions of that processor
  set -- $(grep -rLE 'syscall|ldmxcsr' "$cases"/cheats/*.metal)
fi
check "cheats are judged" judges 1 "$cases/sum" "$@" --threads 2 --json cheats.jsonl # one works in a second thread
check "each gets a verdict" [ "$(wc -l <cheats.jsonl)" = $# ]
verdicts cheats.jsonl >list
tell list
check "no cheat wrote its file" [ ! -e /var/tmp/quern-judge-memo ]

# ---- broken ones ----
set -- "$cases"/broken/*
check "broken candidates are judged" judges 1 "$cases/sum" "$@" --time-limit 10 --memory 1 --json broken.jsonl
check "each gets a verdict" [ "$(wc -l <broken.jsonl)" = $# ]
verdicts broken.jsonl >list
tell list
head -c 5000000 /dev/zero | tr '\0' ' ' >large.metal
check "a body of 5 MB" judges 1 "$cases/sum" large.metal
check "is told so" says "a body has at most 4 MiB"

# ---- honest ones ----
set -- "$cases"/honest/* "$cases/sum"
check "honest candidates are correct" judges 0 "$cases/sum" "$@" --json honest.jsonl
check "as many as there are" [ "$(wc -l <honest.jsonl)" = $# ]
check "slow first calls take no samples away" "$python" -c "
import json
for line in open('honest.jsonl'):
    assert all(len(m['samples_ns']) >= 5 for t in json.loads(line)['timers'].values() for m in t.values())
    assert len(json.loads(line)['timers']['simple']['candidate']['samples_ns']) >= 11"
for kernel in softmax qr_small; do
  check "$kernel beside itself" judges 0 "$source/kernels/$kernel" "$source/kernels/$kernel"
  check "is correct" says "correct, "
done
for width in 32 64 512; do
  cp -r "$source/kernels/exp" "exp$width" && sed -i "s/\"threadgroup\": \[256/\"threadgroup\": [$width/" "exp$width/kernel.json"
done
check "other launch shapes" judges 0 "$source/kernels/exp" exp32 exp64 exp512 "$source/kernels/exp_vector"

# Terms that cancel: of these two seeds' data the baseline's own bits are past the tolerance.
cp -r "$cases/sum" cancels
sed -i 's/"scaled": 64/"scaled": 1/; s/"sizes": .*/"sizes": [{"rows": 1, "n": 1}, {"rows": 64, "n": 1}],/; s/"n": \[1, 600\]/"n": [1, 1]/' \
  cancels/kernel.json
for seed in 9 10; do
  check "data on which the baseline is wrong, seed $seed" judges 0 --seed $seed cancels cancels
done

# Checking mode takes longer than half of the limit: that may be the machine's fault.
sed 's/^float sum = 0;/float sum = 0;\nif (n == 31 \&\& first == 0) for (int k = 0; k < 200000000; k++) sum += 0 * x[first + k % 31];/' \
  "$cases/sum/sum.metal" >slow_check.metal
check "one that checking mode cannot finish" judges 0 "$cases/sum" slow_check.metal --time-limit 10
check "is unclear" says "correct, unclear"
check "with the reason" says "checking mode was stopped after 5 s"

# ---- a time that is too short ----
check "a candidate that leaves out what is to be read" judges 1 --workload large "$cases/reads" "$cases/reads/30_reads_too_little.metal"
check "is too fast" says "refused: impossible"
cp -r "$cases/reads" few && cp "$cases/reads/30_reads_too_little.metal" few/own.metal
sed -i 's/^  "sizes"/  "source": "own.metal",\n  "sizes"/' few/kernel.json
check "where the problem's own body leaves it out too" judges 0 --workload large few few
check "the floor is in doubt" says "does a launch move all that kernel.json counts?"

# ---- a speed-up that is suspicious ----
cp -r "$cases/sum" slow
sed -i 's/^float sum = 0;/float sum = 0;\nfor (volatile int k = 0; k < 400000;) k = k + 1;/' slow/sum.metal
check "a hundred times faster" judges 0 slow "$cases/sum"
check "is verified in a second process" says "is suspicious; a second process"

# ---- problems that cannot judge ----
body() { cp -r "$cases/sum" "$1" && sed -i 's/^  out\[first + k\] = .*/  out[first + k] = '"$2"';/' "$1/reference.metal" "$1/sum.metal"; }
body constant "x[first] - x[first] + 1"
check "a constant reference" judges 2 constant "$cases/sum"
check "is told so" says "cannot be judged: the reference gives the same outputs"
cp -r "$cases/sum" loose && sed -i 's/"scaled": 64/"scaled": 1e9/' loose/kernel.json
check "a tolerance that lets anything pass" judges 2 loose "$cases/sum"
check "is told with what passes" says "passes for the reference's: zeros, a constant"
cp -r "$cases/sum" bare && sed -i '/"reference"/d' bare/kernel.json
check "no reference" judges 2 bare "$cases/sum"
check "is told so" says "has no reference"
cp -r "$cases/sum" bad && sed -i 's/sum + /2 * sum + /' bad/sum.metal
check "a problem whose own body is wrong" judges 2 bad "$cases/sum"
check "is told so" says "the problem's own body is wrong"
cp -r "$cases/sum" odd && sed -i 's/"n": \[1, 600\]/"n": [600, 1]/' odd/kernel.json
check "a domain that is none" judges 2 odd "$cases/sum"
check "is told with its member" says "domain: n must be a list like [1, 4096]"

# ---- mistakes ----
check "no problem" judges 2
check "is told" says "which problem?"
check "no candidate" judges 2 "$cases/sum"
check "is told" says "which candidate?"
check "a candidate that is not there" judges 2 "$cases/sum" nowhere.metal
check "is told" says "there is no such candidate"
check "a problem that is not there" judges 2 nowhere "$cases/sum"
check "an op" judges 2 lion "$cases/sum"
check "is told what judges it" says "quern check lion"
check "a level that is none" judges 2 --level quik "$cases/sum" "$cases/sum"
check "is told with the nearest" says "did you mean quick?"
check "a workload that is none" judges 2 --workload large "$source/kernels/exp" "$source/kernels/exp"
check "is told" says "has no workload large"

# ---- lines, and what is left ----
check "a line alone" judges 0 --json - "$cases/sum" "$cases/sum"
check "is one" [ "$(wc -l <"$out")" = 1 ]
check "no folder is left" [ -z "$(ls "$work/tmp")" ]
ended() { # SIGNAL: by which it ends, with a folder in use
  "$quern" judge --backend cpu "$cases/sum" "$cases/sum" >"$out" 2>"$err" &
  judge=$! turn=0
  while [ -z "$(ls "$work/tmp")" ]; do
    turn=$((turn + 1))
    [ $turn -lt 200 ] || { echo "it makes no folder"; return 1; }
    sleep 0.05
  done
  kill -s "$1" $judge
  wait $judge
  for turn in 1 2 3 4 5 6 7 8 9 10; do [ -n "$(ls "$work/tmp")" ] && sleep 0.5; done
  [ -z "$(ls "$work/tmp")" ] || { ls -l "$work/tmp"; return 1; }
}
check "no folder is left where it is terminated" ended TERM
check "no folder is left where it is killed" ended KILL
left() { ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -qF "$work/tmp"; }
for turn in 1 2 3 4 5; do left && sleep 1; done
check "no process is left" sh -c "! ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -F '$work/tmp'"
finish
