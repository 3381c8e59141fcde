#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh [PYTEST_ARGUMENTS...] - makes dist/: the source archive of the last commit, and from it the wheel, tagged as
# auditwheel finds. Then tests/wheel installs both elsewhere and uses them.
set -eu
cd "$(dirname "$0")/.."
python=$(tools/venv.sh wheel)
[ -z "$(git status --porcelain)" ] || echo "wheel: there are changes that are not committed; dist/ is without them" >&2
rm -rf dist
PATH="${python%/*}:$PATH"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$python" -m build --outdir "$made" . >"$made/log" 2>&1 || { cat "$made/log" >&2 && exit 1; }
"$python" -m auditwheel repair --wheel-dir dist "$made"/*.whl >"$made/log" 2>&1 || { cat "$made/log" >&2 && exit 1; }
cp "$made"/*.tar.gz dist
ls -l dist
"$python" -m pytest tests/wheel "$@"
