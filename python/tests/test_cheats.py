# SPDX-License-Identifier: Apache-2.0
"""The table of docs/cheats.md names the cases and tests that there are, row by row."""

import collections
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/tests/judge"))

import cases  # noqa: E402

PAGE = (ROOT / "docs/cheats.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| \d.*\|$", PAGE, re.M)]
BODIES = collections.Counter(
    int(path.name[:2])
    for folder in ("cheats", "reads")
    for path in (ROOT / "tests/judge" / folder).glob("[0-9][0-9]_*")
)
MODULES, CUDA = (collections.Counter(case[0] for case in list_) for list_ in (cases.CHEATS, cases.CUDA_CHEATS))


def test_there_are_forty_one_rows():
    assert [int(row[0]) for row in ROWS] == list(range(1, 42)) and all(len(row) == 4 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_counts_its_cases(row):
    number = int(row[0])
    modules = MODULES[number] + cases.LEFT_OUT.count(number)
    for cell, told, cuda in ((row[2], BODIES[number], 0), (row[3], modules, CUDA[number])):
        counted = re.match(r"(\d+)(?:;|$)", cell)
        on_cuda = re.search(r"(\d+) on CUDA", cell)
        assert (int(counted[1]) if counted else 0, int(on_cuda[1]) if on_cuda else 0) == (told, cuda), cell
        assert counted or on_cuda or "`" in cell or cell == "no host code" or cell.startswith("not tested: "), cell


@pytest.mark.parametrize("file, text", sorted(set(re.findall(r"`(\w+\.\w+): (.*?)`", PAGE))))
def test_a_test_that_a_row_names_exists(file, text):
    (path,) = [*(ROOT / "tests").glob(file), *(ROOT / "python/tests").glob(file)]
    assert text in path.read_text(encoding="utf-8")
