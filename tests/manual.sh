#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# manual.sh FOLDER QUERN - the man pages that the build made in FOLDER: one for the command and one for each verb, named
# and summed up as --help does, with every option that it has.
set -u
folder=$1 quern=$2
. "$(dirname "$(realpath "$0")")/tap.sh"
help=$("$quern" --help)
verbs=$(echo "$help" | sed -n '/^Verbs:/,/^$/s/^  \([a-z-]*\)  .*/\1/p')
# page VERB: its page is there, its NAME is the brief of --help, and it names every long option of the verb's own --help
page() {
  page=$folder/quern-$1.1
  [ -s "$page" ] || { echo "there is no $page"; return 1; }
  brief=$(echo "$help" | sed -n "s/^  $1  *//p" | cut -c1-20)
  grep -q "^quern-$1 .*$brief" "$page" || { sed -n '/^.SH NAME/,/^.SH SYN/p' "$page"; return 1; }
  for option in $("$quern" "$1" --help | sed -n 's/^ .*--\([a-z-]*\)[= ].*/\1/p' | sort -u); do
    sed 's/\\-/-/g' "$page" | grep -q -- "--$option" || { echo "--$option is not in it"; return 1; }
  done
}
check "quern(1) names every verb's page" sh -c "for v in $(echo "$verbs" | tr '\n' ' '); do grep -q \"^.BR quern-\$v (1)\" '$folder/quern.1' || exit 1; done"
check "and tells the exit statuses" grep -q '^.SS "Exit status:"' "$folder/quern.1"
for verb in $verbs; do check "quern-$verb(1)" page "$verb"; done
check "there is no page besides" test "$(find "$folder" -name 'quern*.1' | wc -l)" = "$(($(echo "$verbs" | wc -l) + 1))"
finish
