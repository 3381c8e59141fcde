#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# figures.sh ROOT BESIDE_PYTORCH - the figures that docs/numerics.md cites stand in files in results/, and the programs
# that made these files make them again (what takes longer than a test may is held by a test of its own).
# The tables of the example that trains and of README are those of the files in results/.
set -u
root=$1 beside_pytorch=$2
. "$root/tests/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check "the script runs" sh -c "python3 '$root/tools/frozen_weights.py' >'$work/now.csv'"
check "results/frozen-weights.csv is what it prints" diff "$root/results/frozen-weights.csv" "$work/now.csv"
# A row of the page's table, "| 1e-4 | 0.117 | 0.000 |", against the file's shares to three digits.
cited() {
  awk -F'|' '/^\| [136]e-[0-9] \|/ { printf "%g %.3f %.3f\n", $2, $3, $4 }' "$root/docs/numerics.md" >"$work/page"
  awk -F, 'NR > 1 { share[$1, $3 + 0] = $4; lr[$3 + 0] }
    END { for (r in lr) printf "%g %.3f %.3f\n", r, share["bf16", r], share["f16", r] }' "$work/now.csv" >"$work/file"
  [ -s "$work/page" ] && ! grep -vxFf "$work/file" "$work/page"
}
check "docs/numerics.md cites them" cited
# "of bfloat16 weights ..., 12 % never move at a learning rate of 1e-4, 69 % at 3e-5 and 84 % at 1e-5"
shares_cited() {
  for lr in 1e-4 3e-5 1e-5; do
    share=$(awk -F, -v lr=$lr '$1 == "bf16" && $3 + 0 == lr + 0 { printf "%.0f %% [a-z ]*at", 100 * $4 }' "$work/now.csv")
    tr '\n' ' ' <"$root/docs/pytorch.md" | grep -q "$share [a-z ]*$lr" || { echo "# $share $lr" && return 1; }
  done
}
check "docs/pytorch.md cites them" shares_cited
beside_prints() { "$beside_pytorch" --csv | diff "$root/results/beside-pytorch.csv" -; }
check "results/beside-pytorch.csv is what its program prints" beside_prints
# "| separate | 0.1 | 6 | 18.7 | 2.007 |" against the file's lines.
beside_cited() {
  awk -F' *[|] *' '/^\| (separate|fma) \|/ { print $2, $3, $4, $5, $6 }' "$root/docs/numerics.md" >"$work/page"
  awk -F, '/^(separate|fma),/ { print $1, $2, $4, $6, $7 }' "$root/results/beside-pytorch.csv" >"$work/file"
  [ -s "$work/page" ] && diff "$work/page" "$work/file"
}
check "docs/numerics.md cites them too" beside_cited

# The functions of src/base/maths.h: "| `exp` | 0.8763 | -27.3443165 | 0.995815 |" and "Worst error 0.8763" above qn_exp
# against the lines of what build/tests/maths_all measured (tests/maths.c holds that file against the functions), and
# the header's coefficients against the script that fits them.
maths_cited() {
  awk -F' *[|] *' '/^\| `[a-z0-9]+` \| [0-9.]+ \|/ { gsub("`", ""); print $2, $3, $4, $5 }' "$root/docs/numerics.md" >"$work/page"
  awk -F, 'NR > 1 { print $1, $3, $5, $7 }' "$root/results/maths.csv" >"$work/file"
  [ -s "$work/page" ] && diff "$work/page" "$work/file"
}
check "docs/numerics.md cites results/maths.csv" maths_cited
maths_beside() {
  awk 'match($0, /Worst error [0-9.]*[0-9]/) { worst = substr($0, RSTART + 12, RLENGTH - 12) }
    match($0, /^QN_FN qn_f32 qn_[a-z0-9]+\(/) && worst { print substr($0, 17, RLENGTH - 17), worst; worst = "" }
    ' "$root/src/base/maths.h" | sort >"$work/header"
  awk -F, 'NR > 1 { print $1, $3 }' "$root/results/maths.csv" | sort >"$work/file"
  diff "$work/header" "$work/file"
}
check "src/base/maths.h says the same beside each function" maths_beside
maths_fitted() {
  python3 "$root/tools/fit_maths.py" >"$work/fit" && [ "$(grep -c '^  ' "$work/fit")" -ge 13 ] || return 1
  for number in $(sed -n 's/^  //p' "$work/fit"); do
    grep -qF -- "${number#-}" "$root/src/base/maths.h" || { echo "# $number is not there" && return 1; }
  done
}
check "tools/fit_maths.py makes the coefficients of src/base/maths.h" maths_fitted
# What takes training to make again is not made again here; python/tests/test_example_train.py holds it against the example.
example=$root/examples/train_gpt
trained_cited() {
  sed '/^| /d' "$example/README.md" >"$work/trained.md" # none of the tables, so that each must be written anew
  PYTHONDONTWRITEBYTECODE=1 python3 "$example/report.py" "$root/results/train-gpt.jsonl" \
    --control "$root/results/train-gpt-control.csv" --into "$work/trained.md" || return 1
  sed -n '/train_gpt.*begin/,/train_gpt.*end/p' "$work/trained.md" >"$work/new"
  sed -n '/train_gpt.*begin/,/train_gpt.*end/p' "$example/README.md" | diff - "$work/new"
}
check "examples/train_gpt/README.md has the tables of its results" trained_cited
# Tables made from results/.
table_cited() {
  python3 "$root/tools/tables.py" "$1" >"$work/table"
  sed -n "/tables.py $1: begin/,/tables.py $1: end/p" "$root/$2" | sed '1d;$d' | diff - "$work/table"
}
check "README.md has the table of ops that tools/tables.py makes" table_cited ops README.md
check "docs/pytorch.md has the table of calls that tools/tables.py makes" table_cited doors docs/pytorch.md
check "docs/measured.md has the table of random problems that tools/tables.py makes" table_cited sweep docs/measured.md
check "docs/optimizing.md has the table of KernelBench's levels that tools/tables.py makes" table_cited optimize docs/optimizing.md
check "docs/optimizing.md has the table of networks that tools/tables.py makes" table_cited networks docs/optimizing.md
means_cited() {
  all=$(python3 "$root/tools/tables.py" optimize | sed -n 's/^| NVIDIA H200 | all |.*| \([0-9.]*\) of \([0-9]*\) |.* of .*/\1 times as fast for \2 problems/p')
  nine=$(python3 "$root/tools/tables.py" networks | sed -n 's/.*\*\*\(.*\)\*\*.*/and \1 times for networks/p')
  [ -n "$all" ] && [ -n "$nine" ] && grep -q "$all" "$root/README.md" && grep -q "$nine" "$root/README.md"
}
check "README.md has the geometric means of optimize that tools/tables.py makes" means_cited
check "docs/meta-training.md has the table of held-out tasks that tools/tables.py makes" table_cited heldout docs/meta-training.md
check "docs/meta-training.md has the table of GPTs that tools/tables.py makes" table_cited gpt docs/meta-training.md
finish
