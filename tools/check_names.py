# SPDX-License-Identifier: Apache-2.0
"""Holds the words of the tree against the tree; prints TAP: check_names.py ROOT [BUILD]

1. Every file or folder of this project that a document or a comment names is there. A name is looked for where a
   reader would: from the root, from src/ and include/, beside the file that names it, and, if it has no slash,
   anywhere. <name> and * stand for anything and must match something. Not held against the tree: what the build makes
   (GENERATED, each with its maker), what other projects own (FOREIGN), a user's own files (A.jsonl, FILE.md, *.jsonl),
   files that a page itself shows in full after `<!-- file: PATH -->`.
2. Every source begins with its SPDX line, behind a #! line at most.
3. No file holds a path of a home directory, or of this source or build directory.
4. docs/generated.md lists every product that a meson.build names as an output, and every file in git that a machine
   made (MADE), by its name or by a pattern.
5. No qn_ type and no QN_ enumerator is defined in two files of src/, workbench/ and cli/ (but OPAQUE ones)."""

import fnmatch
import pathlib
import posixpath
import re
import subprocess
import sys

GENERATED = {  # name: the file that makes it
    "all_ops.h": "src/meson.build",
    "ops.h": "src/meson.build",
    "build.toml": "tools/hf_kernel.py",
    "embedded.c": "tools/embed.py",
    "embedded_ceilings.c": "tools/embed.py",
    "embedded_golden.c": "tools/embed.py",
    "embedded_page.c": "tools/embed.py",
    "qn_new_sources.c": "tools/embed.py",
    "qn_shipped_kernels.c": "tools/embed.py",
    "metadata.json": "tools/hf_kernel.py",
    "op_checks.h": "workbench/meson.build",
    "verbs.h": "cli/meson.build",
    "valgrind_here.h": "src/meson.build",
    "commit.h": "workbench/meson.build",
    "description_headers.h": "tests/description.py",
    "quern.bash": "cli/meson.build",
    "quern.pc": "src/meson.build",
    "candidates.jsonl": "workbench/search_store.c",
    "kept.json": "workbench/search_keep.c",
    "tuned.json": "workbench/kernel_tuned.c",
    "meson-info/intro-tests.json": "tests/meson.build",
}
FOREIGN = {"cuda_fp16.h", "xxhash.h", "math.h", "stdint.h", "stdio.h", "immintrin.h", "arm_neon.h", "fenv.h"}
USER_FILE = re.compile(r"(FILE|A|B|BEFORE|AFTER|\*)\.(jsonl?|svg|csv|md|c|py)")
ENDINGS = r"(?:math\.h|cpu\.c|h\.in|[ch]|cu|cpp|py|sh|md|json|jsonl|csv|svg|tune|toml|supp|build|in)"
PART = r"(?:[\w.*-]|<[\w-]+>)"
BEFORE = r"(?<![\w/.<>*~$}-])"
FILE = re.compile(BEFORE + "((?:" + PART + r"+/)*" + PART + r"+\." + ENDINGS + r")(?![\w/*<]|\.\w)")
SHOWN = re.compile(r"<!-- file: (\S+) -->")
C_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(/\*.*?\*/|//[^\n]*)', re.S)
HASH_COMMENT = re.compile(r'"""(.*?)"""|(?:^|\s)#(?!!)([^\n]*)', re.S)
BEGINNINGS = "workbench/new/"  # the user's own templates
MADE = re.compile(r"results/.*|.*\.tune|.*/golden/.*\.txt|.*\.svg")
OUTPUT = re.compile(r"output: '([\w.-]+)'")
TYPE = re.compile(
    r"(?:struct|union|enum)\s+(qn_\w+)\s*\{|\}\s*(qn_\w+)\s*;"
    r"|^typedef\s(?!(?:struct|union|enum)\s+\w+\s+\w+;)[^;{}]*?\b(qn_\w+)(?:\([^;{}]*\))?;",
    re.M,
)
ENUM = re.compile(r"\benum\b[^;{}]*\{([^}]*)\}")
OPAQUE = {"qn_device_function", "qn_module"}  # declared in src/device/backend.h; each backend has its own
HOME = re.compile(r"(?<![\w.])/(?:home|Users)/\w+|(?<![\w.])/root\b")


def tracked(root):
    """Files of the checkout, new ones included; without git (a tarball) all but hidden and build folders."""
    try:
        command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
        return sorted({n for n in names if n and (root / n).is_file()})
    except (OSError, subprocess.CalledProcessError):
        paths = (p.relative_to(root) for p in root.rglob("*") if p.is_file())
        names = (str(p) for p in paths if "__pycache__" not in p.parts)
        return sorted(n for n in names if not re.match(r"\.git/|\.venv|build|dist/", n))


def kind(name):
    base = name.rsplit("/", 1)[-1]
    if base.endswith((".c", ".h", ".cu", ".cpp", ".h.in")):
        return "c"
    if (
        base.endswith((".py", ".sh", ".supp", ".toml", ".wrap"))
        or base in ("meson.build", "Makefile", "setup")
        or name == ".ci/run"
    ):
        return "hash"
    return "page" if base.endswith(".md") else None


def pieces(name, text):
    """(line number, text) of what is meant for a reader."""
    if kind(name) == "page":
        yield 1, text
        return
    for match in (C_COMMENT if kind(name) == "c" else HASH_COMMENT).finditer(text):
        for group in match.groups():
            if group:
                yield text.count("\n", 0, match.start()) + 1, group


class Tree:
    def __init__(self, files):
        self.files = files
        self.all = set(files)
        self.folders = {"/".join(f.split("/")[:k]) for f in files for k in range(1, f.count("/") + 1)}
        self.bases = {f.rsplit("/", 1)[-1] for f in files}
        top = "|".join(sorted(re.escape(f) for f in self.folders if "/" not in f))
        last = r"(?:[\w*-]|<[\w-]+>)*)(?![\w/*.<-])"
        self.folder_name = re.compile(BEFORE + "((?:" + top + ")/(?:" + PART + "+/)*" + last)

    def has(self, word, near):
        word = word.rstrip("/")
        if re.search(r"[<*]", word):
            return self.has_pattern(re.sub(r"<[^<>]*>", "*", word), near)
        if "/" not in word:
            return word in self.bases or word in self.folders
        places = (word, "src/" + word, "include/" + word, posixpath.normpath(near + "/" + word))
        return any(p in self.all or p in self.folders for p in places)

    def has_pattern(self, pattern, near):
        if "/" not in pattern:
            return any(fnmatch.fnmatchcase(b, pattern) for b in self.bases)
        names = self.all | self.folders
        places = (pattern, "src/" + pattern, "include/" + pattern, near + "/" + pattern)
        return any(fnmatch.fnmatchcase(n, p) for p in places for n in names)


def excused(word, shown):
    base = word.rsplit("/", 1)[-1]
    return (
        word in GENERATED
        or base in FOREIGN
        or USER_FILE.fullmatch(base)
        or any(s == word or s.startswith(word.rstrip("/") + "/") or s.endswith("/" + word) for s in shown)
    )


def named(root, tree):
    wrong = [f"{g}: its maker {maker} is not there" for g, maker in GENERATED.items() if maker not in tree.all]
    for name in tree.files:
        if not kind(name):
            continue
        text = (root / name).read_text(encoding="utf-8")
        shown = SHOWN.findall(text) if kind(name) == "page" else []
        near = name.rsplit("/", 1)[0] if "/" in name else "."
        for line, piece in pieces(name, text):
            for match in [*FILE.finditer(piece), *tree.folder_name.finditer(piece)]:
                word = match.group(1)
                if not excused(word, shown) and not tree.has(word, near):
                    wrong.append(f"{name}:{line + piece.count(chr(10), 0, match.start())}: {word}")
    return wrong


def unlicensed(root, tree):
    wrong = []
    for name in tree.files:
        if kind(name) in ("c", "hash") and not name.startswith(BEGINNINGS):
            lines = (root / name).read_text(encoding="utf-8").split("\n", 2)
            first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
            if "SPDX-License-Identifier: Apache-2.0" not in first:
                wrong.append(f'{name}: its first line is "{first[:60]}"')
    return wrong


def local_paths(root, build, tree):
    own = [str(p) for p in (root, build) if p and len(p.parts) > 2]
    wrong = []
    for name in tree.files:
        data = (root / name).read_bytes()
        text = data.decode("utf-8", "replace")
        if name == "tools/check_names.py" or b"\0" in data[:4096]:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            found = HOME.search(line)
            word = found.group(0) if found else next((o for o in own if o in line), None)
            if word:
                wrong.append(f"{name}:{number}: {word}")
    return wrong


def unlisted(root, tree):
    words = re.findall(r"`([^`\s]+)`", (root / "docs/generated.md").read_text(encoding="utf-8"))
    listed = [re.sub(r"<[^<>]*>", "*", word) for word in words]
    products = [(name, name) for name in tree.files if MADE.fullmatch(name)]
    for name in tree.files:
        if name.endswith("meson.build"):
            products += [(name, output) for output in OUTPUT.findall((root / name).read_text(encoding="utf-8"))]
    return [
        f"{name}: {product}"
        for name, product in products
        if not any(fnmatch.fnmatchcase(product, pattern) for pattern in listed)
    ]


def defined_twice(root, tree):
    homes = {}
    for name in tree.files:
        if name.startswith(("src/", "workbench/", "cli/")) and name.endswith((".c", ".h", ".cu")):
            text = (root / name).read_text(encoding="utf-8")
            text = C_COMMENT.sub(lambda m: " " if m.group(1) else m.group(0), text)
            defined = {n for m in TYPE.finditer(text) for n in m.groups() if n}
            defined |= {e for m in ENUM.finditer(text) for e in re.findall(r"(?:^|,)\s*(QN_\w+)", m.group(1))}
            for one in defined - OPAQUE:
                homes.setdefault(one, []).append(name)
    return [f"{one}: {', '.join(files)}" for one, files in sorted(homes.items()) if len(files) > 1]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    build = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    tree = Tree(tracked(root))
    checks = (
        (f"every file that {len(tree.files)} files name is there", named(root, tree)),
        ("every source begins with its SPDX line", unlicensed(root, tree)),
        ("no file holds a path of this machine", local_paths(root, build, tree)),
        ("docs/generated.md lists all that is generated", unlisted(root, tree)),
        ("no qn_ type or enumerator is defined twice", defined_twice(root, tree)),
    )
    print(f"TAP version 13\n1..{len(checks)}")
    for number, (what, wrong) in enumerate(checks, 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - {what}")
        for line in wrong:
            print(f"# {line}")
    return any(wrong for _, wrong in checks)


if __name__ == "__main__":
    sys.exit(main())
