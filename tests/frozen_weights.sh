#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# frozen_weights.sh ROOT - the figures that docs/numerics.md cites are those that their script gives.
set -u
root=$1
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
finish
