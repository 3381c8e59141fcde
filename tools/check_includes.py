# SPDX-License-Identifier: Apache-2.0
"""Holds the includes of src/ against the order of its folders, and the places of ops' names; prints TAP:
check_includes.py ROOT

1. A folder includes folders before its own in ORDER only (and of its own, with all beneath it).
2. No folders include each other in a circle; here every folder counts by itself, op/lopt apart from op.
3. An op's name stands in src/, cli/ and workbench/ in the op's own folder, in the list of ops (src/meson.build), and in
   the folders of the ops that BUILD_ON it.

KNOWN are includes that break these today: how many there are at most. They may only become fewer."""

import pathlib
import re
import sys

ORDER = ["base", "core", "cpu", "device", "jit", "op", "kernel", "graph", "python", "xla"]
KNOWN = {
    ("op", "kernel"): 1,  # op/emit.c: Metal's text is made with the tokens of kernels from a body
}
BUILD_ON = {  # ops whose formulas, states or texts are another's with a difference
    "swiglu": ["swiglu_backward", "swiglu_quantize"],
    "small_fc_lopt": ["elo", "velo"],
    "velo": ["celo2"],
    "gemm_norm": ["celo2"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def edges_of(src):
    """(folder, included folder): files and what they include, of files in this tree."""
    edges = {}
    for file in sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h", ".cu", ".in")):
        for name in INCLUDE.findall(file.read_text(encoding="utf-8")):
            target = next((p.resolve() for p in (file.parent / name, src / name) if p.is_file()), None)
            if target and target.parent != file.parent:
                edge = tuple(p.parent.relative_to(src).as_posix() for p in (file, target))
                edges.setdefault(edge, []).append(f"{file.relative_to(src)} includes {name}")
    return edges


def upward(edges):
    def level(folder):
        return ORDER.index(folder.split("/")[0])

    return [line for (a, b), lines in edges.items() if level(b) > level(a) for line in lines]


def circles(edges):
    """Includes in a circle, or between two: folders that include nothing, or that nothing includes, go first."""
    left = set(edges)
    while True:
        including, included = {a for a, _ in left}, {b for _, b in left}
        fewer = {(a, b) for a, b in left if a in included and b in including}
        if fewer == left:
            return [line for edge in sorted(left) for line in edges[edge]]
        left = fewer


def ops_of(root):
    found = re.search(r"^ops = \[(.*?)\]", (root / "src/meson.build").read_text(encoding="utf-8"), re.M)
    return re.findall(r"'(\w+)'", found.group(1))


def named_elsewhere(root):
    """Lines that name an op where none may be named. After a slash it is part of a file's or a repository's name
    elsewhere, unless that is a folder of ours."""
    wrong = []
    files = [p for top in ("src", "cli", "workbench") for p in sorted((root / top).rglob("*"))]
    sources = [p for p in files if p.suffix in (".c", ".h", ".cu", ".in") or p.name == "meson.build"]
    lines = [(p.relative_to(root).as_posix(), n, line) for p in sources
             for n, line in enumerate(p.read_text(encoding="utf-8").split("\n"), 1)]  # fmt: skip
    for op in ops_of(root):
        word = re.compile(rf"(?<![\w/]){op}\b|\bop/{op}\b|\bquern/{op}\b|\b(?:qn_{op}|QN_{op.upper()})(?:_|\b)")
        own = tuple(f"src/op/{folder}/" for folder in (op, *BUILD_ON.get(op, ())))
        wrong += [f"{file}:{n}: {op}" for file, n, line in lines
                  if not file.startswith(own) and not line.startswith("ops = [") and word.search(line)]  # fmt: skip
    return wrong


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    edges = edges_of(root / "src")
    many = [f"{a} includes {b}: {line}" for (a, b), most in KNOWN.items() for line in edges.get((a, b), [])[most:]]
    rest = {edge: lines for edge, lines in edges.items() if edge not in KNOWN}
    gone = [f"{a}, {b}" for a, b in KNOWN if (a, b) not in edges]
    checks = (
        ("every folder has its place in the order", [a for a, _ in edges if a.split("/")[0] not in ORDER]),
        ("folders include those before them", upward(rest)),
        ("no folders include each other in a circle", circles(rest)),
        ("the known exceptions do not grow", many),
        ("the known exceptions are still there", gone),
        ("an op's name stands in its folder and the list alone", named_elsewhere(root)),
    )
    print(f"TAP version 13\n1..{len(checks)}")
    for number, (what, wrong) in enumerate(checks, 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - {what}", *(f"# {line}" for line in wrong), sep="\n")
    return any(wrong for _, wrong in checks)


if __name__ == "__main__":
    sys.exit(main())
