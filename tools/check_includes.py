# SPDX-License-Identifier: Apache-2.0
"""Holds the includes of src/ against the order of its folders; prints TAP: check_includes.py ROOT

1. A folder includes folders before its own in ORDER only (and of its own, with all beneath it).
2. No folders include each other in a circle; here every folder counts by itself, op/lopt apart from op.

KNOWN are includes that break these today: how many there are at most. They may only become fewer."""

import pathlib
import re
import sys

ORDER = ["base", "core", "cpu", "device", "jit", "op", "kernel", "python", "xla"]
KNOWN = {
    ("op", "kernel"): 1,  # op/emit.c: Metal's text is made with the tokens of kernels from a body
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


def main():
    edges = edges_of(pathlib.Path(sys.argv[1]).resolve() / "src")
    many = [f"{a} includes {b}: {line}" for (a, b), most in KNOWN.items() for line in edges.get((a, b), [])[most:]]
    rest = {edge: lines for edge, lines in edges.items() if edge not in KNOWN}
    gone = [f"{a}, {b}" for a, b in KNOWN if (a, b) not in edges]
    checks = (
        ("every folder has its place in the order", [a for a, _ in edges if a.split("/")[0] not in ORDER]),
        ("folders include those before them", upward(rest)),
        ("no folders include each other in a circle", circles(rest)),
        ("the known exceptions do not grow", many),
        ("the known exceptions are still there", gone),
    )
    print(f"TAP version 13\n1..{len(checks)}")
    for number, (what, wrong) in enumerate(checks, 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - {what}", *(f"# {line}" for line in wrong), sep="\n")
    return any(wrong for _, wrong in checks)


if __name__ == "__main__":
    sys.exit(main())
