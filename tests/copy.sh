# SPDX-License-Identifier: Apache-2.0
# copy.sh - to be sourced: `copy_tree ROOT TO` copies the tree to an empty folder, new files included, and lets what is
# compiled there in TO/build share objects with the tree's own build by ccache, where that is installed.
copy_tree() {
  if git -C "$1" rev-parse --git-dir >/dev/null 2>&1; then # what git knows and what is new; else all but what was built
    git -C "$1" ls-files -z --cached --others --exclude-standard
  else
    (cd "$1" && find . '(' -path './build*' -o -path ./.git -o -path './.venv*' -o -name __pycache__ ')' -prune -o -type f -print0)
  fi | (cd "$1" && xargs -0 ls -d 2>/dev/null | tar -cf - -T -) | tar -xf - -C "$2"
  export CCACHE_BASEDIR="$2" CCACHE_NOHASHDIR=1
  for links in /usr/lib/ccache /usr/lib64/ccache; do
    if [ -d "$links" ]; then export PATH="$links:$PATH"; fi
  done
}
