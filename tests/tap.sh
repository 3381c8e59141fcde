# SPDX-License-Identifier: Apache-2.0
# tap.sh - TAP for shell tests, to be sourced: `check "what it shows" COMMAND...`, then `finish`.
tests=0 failures=0
check() {
  what=$1 && shift
  tests=$((tests + 1))
  if output=$("$@" 2>&1); then
    echo "ok $tests - $what"
  else
    failures=$((failures + 1))
    echo "not ok $tests - $what"
    printf '# %s\n' "$*"
    printf '%s\n' "$output" | sed 's/^/#   /'
  fi
}
finish() {
  echo "1..$tests"
  exit $((failures > 0))
}
