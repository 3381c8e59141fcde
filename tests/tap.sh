# SPDX-License-Identifier: Apache-2.0
# tap.sh - TAP for shell tests, to be sourced: `check "what it shows" COMMAND...`, then `finish`. `forget_settings` unsets
# the caller's settings of the library, but not the room of the cache that the tests share (tools/test.py).
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
forget_settings() {
  for variable in $(env | sed -n 's/^\(QUERN_[A-Za-z_]*\)=.*/\1/p'); do
    [ "$variable" = QUERN_CACHE_BYTES ] || unset "$variable"
  done
}
finish() {
  echo "1..$tests"
  exit $((failures > 0))
}
