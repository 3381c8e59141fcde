#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# golden.sh ROOT OP... - the golden vectors in the tree are what the script beside them makes: nobody edited them by hand,
# and the script still runs.
set -u
root=$1 && shift
. "$(dirname "$(realpath "$0")")/tap.sh"
again() {
  folder=$root/src/op/$1/golden
  [ -f "$folder/make_golden.py" ] || { echo "$folder/make_golden.py is missing"; return 1; }
  python3 "$folder/make_golden.py" | cmp - "$folder/$1.txt"
}
for op; do check "$op's golden vectors are made by its script" again "$op"; done
finish
