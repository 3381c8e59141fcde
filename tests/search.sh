#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# search.sh QUERN PYTHON SANITIZER - `quern search` from end to end over a small kernel on the CPU: with a judge that is played
# (tests/search/judge.py), so that verdicts do not depend on the machine, and once with the real one; generators that are
# good, and bad in every way that the protocol allows.
set -u
quern=$(realpath "$1") python=$2 sanitizer=$3
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset QUERN_DEVICE
export HEARD="$work/heard" JUDGED="$work/judged" XDG_STATE_HOME="$work/state"
cd "$work" || exit 1
cp -r "$here/../kernels/exp" exp
"$python" - <<'END'
import json
kernel = json.load(open("exp/kernel.json"))
kernel["sizes"] = [{"n": 1}, {"n": 257}, {"n": 4099}]
kernel["workloads"] = {"small": {"n": 65536}}
json.dump(kernel, open("exp/kernel.json", "w"))
END
printf '#!/bin/sh\nexec "%s" "%s/search/judge.py" "$@"\n' "$python" "$here" >judge
chmod +x judge
made() { echo "$python $here/search/generator.py $1"; }
search() { : >heard; : >judged; "$quern" search exp --backend cpu --judge "$work/judge" "$@" >out 2>err; }
says() { grep -q -- "$1" out || { cat out err; return 1; }; }
complains() { grep -q -- "$1" err || { cat out err; return 1; }; }
lines() { cat "$1"/*/candidates.jsonl; }
not() { ! "$@"; }

# ---- mutate ----
check "it searches" search --generator mutate --store a --seed 3
check "the best at first sight is judged again, is not faster then, and the next is" sh -c "test \$(grep -c full judged) = 2"
check "so that one is kept, with its change" says 'best: 1.400x .* from mutate: threadgroup 128,1,1'
check "candidates are counted by fate" says '^ *[1-9][0-9]*  slower$'
check "the best over time is shown" says '1.600x  mutate'
check "and the command that judges the best again" says "^again: quern judge $work/exp .* --level full"
check "each candidate has a line" sh -c "test \$(cat a/*/candidates.jsonl | grep -c '\"event\":\"candidate\"') = 7"
search --generator mutate --store b --seed 3
order() { lines "$1" | sed -n 's/.*"id":"\([^"]*\)".*"note":"\([^"]*\)".*/\1 \2/p'; }
order a >order.a
order b >order.b
check "the same seed gives the same candidates in the same order" cmp order.a order.b
search --generator mutate --store c --seed 4
order c >order.c
check "another seed another order" not cmp -s order.a order.c

# ---- going on ----
: >judged
search --generator mutate --store a --seed 3
check "the same command judges nothing twice" sh -c "! grep -q quick judged"
check "and says what was known" says '^0 judged, [1-9][0-9]* known before'
check "--most ends it" sh -c "'$quern' search exp --backend cpu --judge '$work/judge' --generator mutate --store d --most 2 | grep -q '^2 judged.*as many as --most'"
search --generator mutate --store d --most 100
check "what was stopped goes on" says '^4 judged, [2-9] known before'
printf '{"schema": "quern search 1", "event": "candid' >>"$(ls d/*/candidates.jsonl)"
search --generator mutate --store d --most 100
check "half a line at the end is passed by" complains 'has 1 lines that are none'
search --generator mutate --store d --most 100
check "and does not damage what follows it" sh -c "tail -n 1 d/*/candidates.jsonl | '$python' -m json.tool"
search --generator mutate --store d --fresh --most 1
check "--fresh takes nothing up" says '^1 judged, 0 known before'
check "without --store the state folder is taken" sh -c "'$quern' search exp --backend cpu --judge '$work/judge' --generator mutate --most 1 && test -e state/quern/search/exp-*/candidates.jsonl"

# ---- what is kept ----
best() { "$quern" search exp --backend cpu --best --store "$1" >out 2>err; }
best a
check "--best prints it" says '^best: 1.400x'
check "--out writes it" sh -c "'$quern' search exp --backend cpu --best --store a --out won && grep -q 128 won/kernel.json"
kept=$(ls a/*/kept.json)
cp "$kept" kept
stale() { sed "$1" kept >"$kept"; best a; says "^the baseline stays: .*$2"; }
check "of another driver it does not count" stale 's/"driver": [0-9]*/"driver": 99/' 'another driver: 99'
check "nor of another device" stale 's/"device": "[^"]*"/"device": "XYZ"/' 'another device'
check "nor of another problem" stale 's/"problem_hash": "./"problem_hash": "x/' 'another problem'
check "nor damaged" stale '3,$d' 'damaged'
check "nor of another format" stale 's/kept 1/kept 2/' 'another version'
check "nor out of the store" stale 's|"source": "|"source": "../|' 'damaged'
cp kept "$kept"
source=$(ls -d a/*/sources/"$(sed -n 's/.*"hash": "\([0-9a-f]*\)".*/\1/p' kept)")
echo " " >>"$source/exp.metal"
best a
check "nor with a source that was changed" says 'baseline stays: .*not what it was when it was judged'
check "then --out writes the baseline" sh -c "'$quern' search exp --backend cpu --best --store a --out base.metal && cmp base.metal exp/exp.metal"

# ---- a program ----
search --generator "$(made good)" --store e
check "a program is a generator" says 'best: 1.900x .* from .*good: good'
check "what it offers twice is judged once" sh -c "test \$(grep -c quick judged) = 4"
check "it is told the problem first" sh -c "head -n 1 heard | grep -q '\"type\":\"problem\"'"
check "with source, workloads, tolerance, device, floor and bound" sh -c "head -n 1 heard | grep '\"source\":' | grep '\"workloads\":' | grep '\"tolerance\":' | grep '\"device\":' | grep '\"floor_ns\":' | grep -q '\"bound\":'"
check "then why one was wrong, with the line" sh -c "grep '\"id\":\"bad\"' heard | grep '\"verdict\":\"wrong values\"' | grep -q '\"line\":7'"
check "the time, bound and headroom of a right one" sh -c "grep '\"id\":\"fast\"' heard | grep '\"time_ns\":' | grep '\"headroom\":' | grep -q '\"speedup\":1.2'"
check "that the other was known" sh -c "grep '\"id\":\"twice\"' heard | grep -q '\"duplicate\":true'"
check "and the best so far, with its source" sh -c "grep '\"type\":\"ask\"' heard | grep -q '\"source\":\"// SPEED=1.2\"'"
check "its word for people is shown" complains 'good): that is all'
search --generator "$(made steady)" --generator "$(made good)" --generator mutate --store f --most 18
check "several share one search" sh -c "test \$(cut -d' ' -f1 heard | sort -u | wc -l) = 2 && lines() { cat f/*/candidates.jsonl; } && lines | grep -q '\"by\":\"mutate\"' && lines | grep -q 'py steady\"'"
check "each hears of the others' best" sh -c "grep '^steady.*\"type\":\"ask\"' heard | grep -q 'SPEED=1.9'"

# ---- bad ones: a sentence, and the search goes on with the other one ----
beside() {
  bad=$1 words=$2 && shift 2
  search --generator "$(made "$bad")" --generator "$(made good)" --store "bad-$bad" "$@"
  complains "$words" && says 'best: 1.900x'
}
check "one that ends at once" beside dies 'generator 1 .*dies) ended with status 7'
check "one that crashes" beside crashes 'crashes) ended with status 137'
check "one that stalls" beside stalls 'stalls) is dropped: no candidate came within 6 s' --patience 6s
check "one that floods with candidates" beside floods 'floods) is dropped: 256 candidates in a row were known'
check "one that floods with words" beside chatters 'chatters) is dropped: it wrote 10000 lines without a candidate'
check "one that sends a gigabyte" beside gigabyte 'gigabyte) is dropped: lines of more than 4 MiB came from it'
check "a line that is too long is passed by, the next counts" beside long 'long), line 1: it is longer than 4 MiB'
check "with the candidates behind it" sh -c "grep -q 'l3' heard"
check "lines that are no messages" beside malformed 'malformed) is dropped: 16 lines were wrong'
check "each with its reason" sh -c "grep -q 'line 1: it is no JSON object' err && grep -q 'line 2: it is no JSON object: another value' err && grep -q 'its type is \"nothing\"' err && grep -q 'kind \"variant\" is not what' err && grep -q 'has no id' err && grep -q '\"../../escape\" is no plain name' err"
check "told to it, too" sh -c "grep '^malformed' heard | grep -q '\"verdict\":\"malformed\"'"
check "and nothing was written elsewhere" sh -c "test -z \"\$(find . -name 'escape*')\""
check "one that does not listen" beside deaf 'deaf) is dropped: no candidate came within 6 s' --patience 6s
check "a candidate over which the judge crashes" beside CRASH ''
check "has no verdict, with the reason" sh -c "lines() { cat bad-CRASH/*/candidates.jsonl; }; lines | grep -q 'no verdict\",\"reason\":\"the judge gave no verdict, signal 11 .*: the judge met a crash'"
check "one over which it hangs is stopped" beside HANG '' --time-limit 2s
check "after the limit" sh -c "cat bad-HANG/*/candidates.jsonl | grep -q 'the judge was stopped after 2 s'"
check "nothing of theirs runs on" sh -c "! pgrep -f '$here/search/[g]enerator.py' && ! pgrep -f 'search/[j]udge.py $work/exp'"
check "one that cannot be run is refused" sh -c "! '$quern' search exp --backend cpu --judge '$work/judge' --generator ./nothing --store g 2>err && grep -q './nothing cannot be run' err"
check "so is a word that is no generator" sh -c "! '$quern' search exp --backend cpu --judge '$work/judge' --generator muttate --store g 2>err && grep -q 'muttate cannot be run: it is neither space, mutate nor graph' err"
check "a file of this folder is named as one" sh -c "touch mine; ! '$quern' search exp --backend cpu --judge '$work/judge' --generator mine --store g 2>err && grep -q 'on the PATH; the file here is ./mine' err"

# ---- a problem that is none, and words that are wrong ----
cp -r exp unfit
echo '// UNFIT' >>unfit/exp.metal
refused() { "$quern" search "$@" >out 2>err && return 1; complains "$words"; }
words='the problem is no problem to search: .*the reference is constant'
check "a problem that cannot be judged is refused" refused unfit --backend cpu --judge "$work/judge" --generator mutate --store u
check "and leaves no folder in the store" sh -c '! ls -d u/exp-*'
words='no such file\|No such file' && check "so is one that is not there" refused nowhere --generator mutate
words='which generator' && check "so is a search without a generator" refused exp
words='there is nothing to search' && check "an op on the CPU has no variants" refused lion --backend cpu --generator space --store g
words='whose candidates are its variants' && check "nor a source" refused lion --backend emulator --generator mutate --store g
words='20m and 2h' && check "a time without a unit that is known" refused exp --generator mutate --budget 20x
words='--types and --shapes are for ops' && check "an op's option" refused exp --generator space --types bf16
echo 'class Model: pass' >model.py
words='has no tuning space' && check "a PyTorch file has no tuning space" refused model.py --backend cpu --generator space --store g
mkdir -p busy
: >heard
"$quern" search exp --backend cpu --judge "$work/judge" --generator "$(made steady)" --store busy --budget 20s >other 2>&1 &
other=$!
for k in 1 2 3 4 5 6 7 8 9; do
  sleep 1
  ! grep -q ask heard || break
done
words='another search of this problem is at work' && check "two do not share a store" refused exp --backend cpu --generator mutate --store busy
kill -INT $other
wait $other
check "Ctrl-C ends it with its result" test $? = 0
check "which says so" grep -q 'stopped' other

# ---- with the real judge ----
if [ "$sanitizer" = none ]; then # whose memory is more than a candidate is allowed
  real() { : >heard; "$quern" search exp --backend cpu "$@" >out 2>err; }
  check "the real judge gives a line for each" real --generator mutate --store j --most 2
  check "of a verdict" says '^ *[12]  \(faster\|same\|slower\|unclear\)$'
  check "with time, floor and bound in it" sh -c "cat j/*/candidates.jsonl | grep '\"id\":\"mutate-1\"' | grep '\"median_ns\":' | grep '\"floor_ns\":' | grep -q '\"bound\":'"
  check "a generator is told of wrong values" sh -c "'$quern' search exp --backend cpu --generator '$(made good)' --store k >out 2>err; grep 'type\":\"tell' heard | grep '\"verdict\":\"wrong values\"'"
  check "and the baseline stays" says '^the baseline stays: nothing is kept'
fi

# ---- space ----
export QUERN_TUNE_DIR="$work/tables"
op() { "$quern" search swiglu --backend emulator --generator space --store h --types bf16 --shapes 4x3000 --look 0.01 --prove 0.02 "$@" >out 2>err; }
check "space over an op is the tuner" op --variants flat-64x8x1,flat-128x8x1
check "which looks" says 'space: 2 variants timed, 0 not possible, 0 wrong, in 1 places'
check "its winner is proved by another process, and kept in the tune table alone, if it is faster there" sh -c "grep -q 'kept in the tune table: 1 of 1' out && grep -q 'choice=flat' tables/swiglu.tune || grep -q 'kept in the tune table: 0 of 1' out"
check "looks are lines" sh -c "test \$(cat h/*/candidates.jsonl | grep -c '\"event\":\"look\"') -ge 2"
QUERN_TUNE_DIR="$work/empty" && op --variants flat-64x8x1,flat-128x8x1
check "and are not taken twice" says 'space: 0 variants timed'
check "space over a kernel's folder, beside another" search --generator space --generator mutate --store i --look 0.02
check "has its values" says 'space: 3 variants timed'
finish
