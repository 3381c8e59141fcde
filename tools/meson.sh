#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# meson.sh ARGUMENTS... - meson: the tree's own where tools/setup.sh had to fetch one, else the system's.
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -x "$root/.venv/bin/meson" ]; then exec "$root/.venv/bin/meson" "$@"; fi
exec meson "$@"
