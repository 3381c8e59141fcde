#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# figures.sh ROOT BESIDE_PYTORCH - the figures that docs/numerics.md cites stand in files in results/, and the programs
# that made these files make them again.
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
beside_prints() { "$beside_pytorch" --csv | diff "$root/results/beside-pytorch.csv" -; }
check "results/beside-pytorch.csv is what its program prints" beside_prints
# "| separate | 0.1 | 6 | 18.7 | 2.007 |" against the file's lines.
beside_cited() {
  awk -F' *[|] *' '/^\| (separate|fma) \|/ { print $2, $3, $4, $5, $6 }' "$root/docs/numerics.md" >"$work/page"
  awk -F, '/^(separate|fma),/ { print $1, $2, $4, $6, $7 }' "$root/results/beside-pytorch.csv" >"$work/file"
  [ -s "$work/page" ] && diff "$work/page" "$work/file"
}
check "docs/numerics.md cites them too" beside_cited
finish
