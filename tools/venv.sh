#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# venv.sh NAME - makes sure that .venv-NAME holds what python/tests/requirements/<name>.txt pins, and prints its Python.
# venv.sh --pin - pins the newest versions that each <name>.in beside them allows.
# The first line of <name>.in says which Pythons will do; uv, kept in .venv, looks for one and fetches the packages.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
requirements=$root/python/tests/requirements
uv=$root/.venv/bin/uv
pythons() { sed -n '1s/^# python: //p' "$requirements/$1.in"; }

if [ ! -x "$uv" ]; then
  [ -x "$root/.venv/bin/pip" ] || python3 -m venv "$root/.venv"
  "$root/.venv/bin/pip" install -q --disable-pip-version-check 'uv==0.13.8' >&2
fi

if [ "$1" = --pin ]; then
  for file in "$requirements"/*.in; do
    name=$(basename "$file" .in)
    "$uv" pip compile -q --universal --no-annotate --custom-compile-command 'tools/venv.sh --pin' \
      --python-version "$(pythons "$name" | sed 's/[>=]*\([0-9.]*\).*/\1/')" "$file" -o "$requirements/$name.txt"
  done
  exit
fi

pins=$requirements/$1.txt at=$root/.venv-$1
if ! cmp -s "$pins" "$at/pins.txt"; then
  echo "venv: $pins goes into $at" >&2
  rm -rf "$at"
  "$uv" venv -q --no-project --python "$(pythons "$1")" "$at" >&2
  "$uv" pip install -q --python "$at/bin/python" -r "$pins" >&2
  cp "$pins" "$at/pins.txt"
fi
echo "$at/bin/python"
