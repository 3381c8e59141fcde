# SPDX-License-Identifier: Apache-2.0
"""Finds problems and candidates among files, and reads level and number from their paths."""

from __future__ import annotations

import pathlib
import re

_PLACE = re.compile(r"level[_-]?(\d+)[/_-](?:problem[_-]?)?(\d+)(?=[/_.-])")
_OWN = ("load_inline", "cpp_extension", "triton.jit", "quern", "ctypes", "cupy", "numba", "RawModule")
MOST_BYTES = 16 << 20


def readable(path: str) -> str:
    """The absolute path. ValueError: a sentence, where the file cannot be a problem or a candidate."""
    file = pathlib.Path(path)
    if file.is_dir():
        raise ValueError(f"{path}: it is a folder, and a Python file is wanted")
    if not file.is_file():
        raise ValueError(f"{path}: there is no such file")
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path}: {file.stat().st_size >> 20} MiB are more than the {MOST_BYTES >> 20} of a source")
    return str(file.resolve())


def candidates(files: list[str], folder: str | None) -> list[str]:
    found = list(files)
    if folder:
        if not pathlib.Path(folder).is_dir():
            raise ValueError(f"{folder}: there is no such folder")
        found += sorted(map(str, pathlib.Path(folder).glob("**/*kernel.py")))
        if not found:
            raise ValueError(f"{folder}: no file in it matches **/*kernel.py")
    if not found:
        raise ValueError("no candidate; --tgt-problem FILE or --tgt-dir DIR names one")
    return [readable(path) for path in found]


def place(path: str) -> tuple[int, int] | None:
    """Level and number of a path such as level1/23_Softmax or level_1/problem_23/kernel; None: the path has none."""
    found = [*_PLACE.finditer(str(path))]  # the last: a folder above may be called level1 too
    return (int(found[-1][1]), int(found[-1][2])) if found else None


def hybrid(path: str) -> bool:
    """Whether a candidate uses torch.compile besides kernels of its own."""
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    return "torch.compile" in text and any(word in text for word in _OWN)


def numbers(text: str, option: str) -> list[int]:
    """Of an option's value, numbers with commas between. ValueError: a sentence."""
    try:
        return [int(word) for word in text.split(",") if word]
    except ValueError:
        raise ValueError(f"{option} is {text}, it must be numbers with commas between") from None


def problems(folder: str, levels: list[int]) -> dict[tuple[int, int], str]:
    """The problems of a copy of KernelBench, by level and number. ValueError: a sentence."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("**/level*/*.py")):
        at = place(str(path.resolve()))
        if at and (not levels or at[0] in levels):
            found[at] = str(path.resolve())
    if not found:
        raise ValueError(f"{folder}: no problem levelN/M_name.py in it" + (f" of levels {levels}" if levels else ""))
    return dict(sorted(found.items()))


def by_problem(folder: str) -> dict[tuple[int, int], str]:
    """Candidates by level and number; the last by name where a problem has several. ValueError: a sentence."""
    if not pathlib.Path(folder).is_dir():
        raise ValueError(f"{folder}: there is no such folder")
    found = {}
    for path in sorted(map(str, pathlib.Path(folder).resolve().glob("**/*.py"))):
        at = place(path)
        if at:
            readable(path)
            found[at] = path
    if not found:
        raise ValueError(f"{folder}: no file in it names a level and a number, as level1/23_x.py does")
    return found
