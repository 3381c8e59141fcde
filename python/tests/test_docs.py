# SPDX-License-Identifier: Apache-2.0
"""Runs the Python examples of the documents, and holds what they print against what they say. A block that is fenced
as `python` and begins with >>> is run; one fenced as `python torch` needs PyTorch."""

import doctest
import pathlib
import re

import pytest

pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```python(?: (\w+))?\n(>>> .*?)^```$", re.M | re.S)
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if FENCE.search(path.read_text(encoding="utf-8")))
RUNS = [  # a page's plain blocks, and all of its blocks where some need PyTorch
    pytest.param(path, needs, id=f"{path.stem}-{needs or 'plain'}")
    for path in PAGES
    for needs in sorted({found[1] for found in FENCE.finditer(path.read_text(encoding="utf-8"))}, key=str)
]


def test_no_block_is_left_out():
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    assert len(FENCE.findall(text)) == text.count("```python") > 3


@pytest.mark.parametrize(("path", "needs"), RUNS)
def test_examples(path, needs):
    if needs:
        pytest.importorskip(needs)
    text = path.read_text(encoding="utf-8")
    names, ran = {}, 0
    for found in FENCE.finditer(text):
        if found[1] not in (None, needs):
            continue
        line = text.count("\n", 0, found.start()) + 1
        test = doctest.DocTestParser().get_doctest(found[2], names, path.name, str(path), line)
        failures = []
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=failures.append, clear_globs=False)
        assert not failures, "".join(failures)
        ran += len(test.examples)
        names = test.globs
    assert ran
