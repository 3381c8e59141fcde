#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tune.sh QUERN - `quern tune` from end to end on the emulator, over two small shapes and few variants: what it
# writes, what it takes up again, what it lists. Whether a figure is good is for a GPU to say.
set -u
quern=$1
. "$(dirname "$0")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset QUERN_ARCH QUERN_LAUNCH_SHAPE QUERN_GEOMETRY
export QUERN_TUNE_DIR="$work/tables"
table="$work/tables/swiglu.tune" state="$work/tables/swiglu.state"
small() { "$quern" tune swiglu --backend emulator --types bf16 --shapes 4x3000,16x900 --look 0.01 --prove 0.02 "$@"; }

check "types that are a row's own are not those of another that begins so" sh -c "'$quern' tune swiglu_backward --backend emulator --dry-run --types 'bf16 bf16 bf16' --shapes 4x300 | grep -q '^  bf16/bf16/bf16/-/- 4x300'"
product='m=16 n=64 k=32 groups=2 precision=bf16x3'
check "of a product variants are tuned" sh -c "'$quern' tune gemm_norm --backend emulator --types f32 --shapes '$product' --variants plain,sliced-32x32,cublas --look 0.01 --prove 0.02 --json '$work/t4.json' >'$work/out'"
check "each proved, timed, or told to be impossible" grep -q '1 shapes: .* 0 left out, 0 not begun; 1 variants timed, 1 not possible, 0 wrong' "$work/out"
check "the entry has the class and the ranges" grep -q 'arch=emulator types=f32/f32/f32 rows=2-16 cols=1-512 layout=dense precision=bf16x3 depth=1-512 width=17-32 choice=plain' "$work/tables/gemm_norm.tune"
check "and the results their variant" grep -q '"variant": "sliced-32x32"' "$work/t4.json"
check "one that is too large for the reference is proved over some of its rows" sh -c "'$quern' tune gemm_norm --backend emulator --types f32 --shapes 'm=60 n=1024 k=900 groups=32 precision=fp32' --variants cublas | grep -q '0 left out, 0 not begun'"
sed -i 's/choice=plain/choice=sliced-32x32/' "$work/tables/gemm_norm.tune"
takes() { "$quern" tune gemm_norm --backend emulator --list --types f32 --shapes "$1" | grep -q "$1 *$2\$"; }
check "a call takes what the entry says" takes "$product" 'sliced-32x32 *your tune table'
check "not in another class" takes 'm=16 n=64 k=32 groups=2 precision=tf32x3' 'plain *the rule'
check "nor of another depth" takes 'm=16 n=64 k=1024 groups=2 precision=bf16x3' 'plain *the rule'
check "nor with wider groups" takes 'm=16 n=64 k=32 groups=1 precision=bf16x3' 'plain *the rule'
sed -i 's/choice=sliced-32x32/choice=sliced-16x32/' "$work/tables/gemm_norm.tune"
check "and the rule's where that cannot, with the reason" takes "$product" 'plain *the rule; sliced-16x32, of your tune table, cannot: on the host the tile of 32 by 32 .*'
sed -i 's/choice=sliced-16x32/choice=sliced-32x33/' "$work/tables/gemm_norm.tune"
check "an entry of no variant is as if it were not there" takes "$product" 'plain *the rule'
echo 'quern tune 1 swiglu' >"$work/tables/gemm_norm.tune"
check "nor is a table of another op" takes "$product" 'plain *the rule'
refused() { "$quern" tune gemm_norm --backend emulator "$@" >"$work/out" 2>&1 && return 1; grep -q "$words" "$work/out"; }
words='no variant "cublass": .*did you mean cublas' && check "a variant's name that is none is refused, with the nearest" refused --variants plain,cublass
words='the text says no n' && check "so is a text without an extent" refused --shapes 'm=16,n=64 k=32'
words='none of its tensors has such an extent' && check "and one of no tensor" refused --shapes 'm=16 n=64 k=32 z=3'
check "no workload's name is refused" sh -c "'$quern' tune gemm_norm --backend emulator --shapes kernelbanch 2>&1 | grep -q 'has no workload kernelbanch; did you mean kernelbench'"
rm -rf "$work/tables"
check "--dry-run names what would be tried" sh -c "'$quern' tune swiglu --backend emulator --types bf16 --shapes 4x3000 --dry-run | grep -q 'flat-512x8x1'"
check "and writes nothing" test ! -e "$work/tables"
echo earlier >"$work/kept.json"
check "results are not replaced by none" sh -c "'$quern' tune swiglu --backend emulator --types bf16 --shapes 4x3000 --dry-run --json '$work/kept.json' 2>&1 | grep -q 'nothing was timed' && grep -q earlier '$work/kept.json'"
words='no variant "flat-63": .*`quern list swiglu` has the names' && check "a launch shape that is none is told as a variant" sh -c "! '$quern' tune swiglu --backend emulator --dry-run --variants flat-63 >'$work/out' 2>&1 && grep -q '$words' '$work/out' && ! grep -q QUERN_LAUNCH_SHAPE '$work/out'"
check "it tunes" sh -c "'$quern' tune swiglu --backend emulator --types bf16 --shapes 4x3000,16x900 --variants flat-64x8x1 --look 0.01 --prove 0.02 --json '$work/t4.json' >'$work/out'"
check "and says what came of it" grep -q '2 shapes: .* 0 left out, 0 not begun; 2 variants timed, .* 0 wrong' "$work/out"
check "the table has both classes" sh -c "grep -q 'arch=emulator types=bf16/bf16/bf16 rows=2-16 cols=1025-4096 layout=dense' '$table' && grep -q 'cols=1-1024 ' '$table'"
check "what only a GPU tells of its kernels is left out" sh -c "! grep -qE 'registers|shared|blocks=' '$table' '$work/t4.json'"
check "the entries are read back" sh -c "'$quern' tune swiglu --backend emulator --list | grep -q 'yours *arch=emulator'"
check "and chosen by" sh -c "'$quern' tune swiglu --backend emulator --list --types bf16 --shapes 4x3000 | grep -q '4x3000.*your tune table'"
check "--fresh asks no table" sh -c "'$quern' tune swiglu --backend emulator --fresh --list --types bf16 --shapes 4x3000 | grep -q '4x3000.*the rule'"
check "only that shape's class" sh -c "'$quern' tune swiglu --backend emulator --list --types bf16 --shapes 400x3000 | grep -q '400x3000.*the rule'"
check "T4 results have what the format asks for" sh -c "test \$(grep -cE '\"(configuration|times|invalidity|correctness)\":' '$work/t4.json') = 8 && grep -q '\"schema_version\": \"1.0.0\"' '$work/t4.json'"
small --variants flat-64x8x1 --resume >"$work/again"
check "--resume does nothing twice" grep -q '; 0 variants timed' "$work/again"
sed -i '/done .*16x900/d' "$state"
small --variants flat-64x8x1,flat-128x8x1 --resume >"$work/again"
check "and times only what was not seen" grep -q '; 1 variants timed' "$work/again"
sed -i '1s/.*/quern tune state 1 swiglu, another machine/' "$state"
small --variants flat-64x8x1 --resume --budget 1e-3 >"$work/again"
check "another machine's state is not taken up; a spent budget begins nothing more" grep -qE '[12] not begun' "$work/again"
echo 'quern tune 9 swiglu' >"$table"
check "a table of another version is as if it were not there" sh -c "'$quern' tune swiglu --backend emulator --list --types bf16 --shapes 4x3000 | grep -q '4x3000.*the rule'"
small --variants flat-64x8x1 >/dev/null
check "and is put aside before a new one is written" grep -q 'tune 9' "$table.old"
"$quern" tune swiglu_backward swiglu --backend emulator --shapes 4x3000 --budget 1e-3 --record "$work/record" >"$work/all"
check "of two ops each has its part of the budget, and both a sum" sh -c "grep -q '^swiglu_backward' '$work/all' && grep -q '^swiglu\$' '$work/all' && grep -q '^all 2 ops' '$work/all' && grep -qE '[1-9] not begun; .* s\$' '$work/all'"
check "and lines of JSON" sh -c "test \$(grep -c '\"schema\":\"quern tune 1\"' '$work/record') = 3 && tail -n 1 '$work/record' | grep -q '\"op\":\"all\".*\"seconds\":[0-9.]*,\"shapes\":'"
check "one of them unknown, none is tuned" sh -c "! '$quern' tune swiglu nothing --backend emulator >'$work/out' 2>&1 && ! grep -q '^swiglu\$' '$work/out'"
tables="$(dirname "$0")/../src/op"
check "no shipped entry names a commit of a changed tree" sh -c "ls '$tables'/*/*.tune >/dev/null && ! grep -l -- -dirty '$tables'/*/*.tune"
check "on the processor there is nothing to tune" sh -c "'$quern' tune --backend cpu | grep -q 'nothing to tune'"
check "an unknown strategy is told with the nearest" sh -c "'$quern' tune --strategy random2 2>&1 | grep -q 'did you mean random'"
check "no launch shape's name is refused" sh -c "'$quern' tune swiglu --backend emulator --variants flat-3x8x1 --shapes 4x300 --types bf16 2>&1 | grep -q '3 threads'"
check "the former name of --variants is accepted, with a note" sh -c "'$quern' tune swiglu --backend emulator --geometries flat-512x8x1 --shapes 4x300 --types bf16 --dry-run 2>&1 | tr '\n' ' ' | grep -q 'geometries is now --variants.*1 others.*flat-512x8x1'"
check "no shape is refused" sh -c "'$quern' tune swiglu --backend emulator --shapes 4x 2>&1 | grep -q 'are no shapes'"
check "imitated, the shipped table shows" sh -c "QUERN_ARCH=sm_100 QUERN_TUNE_DIR='$work/none' '$quern' tune swiglu --backend emulator --list --types bf16 --shapes 64x14336 | grep -q 'tiles-128x8x1 *the shipped table, published'"
finish
