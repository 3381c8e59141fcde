# SPDX-License-Identifier: Apache-2.0
"""The generator "graph" of `quern search`: a candidate for each alternative of a plan, whatever the problem prints; a
sentence for a problem without one; and a whole search by the name alone. That the judge accepts such files,
test_torch_optimize_export.py shows."""

import io
import json
import os
import pathlib
import runpy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern._command import environment, find  # noqa: E402
from quern.generators import graph  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAST = "fused, channels_last"
NAMES = ["PyTorch's ops", "fused", "PyTorch's ops, channels_last", LAST, f"{LAST}, filters laid once"]
MODEL = """
import torch
import torch.nn as nn

print("a word on standard output")

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.first = nn.Conv2d(3, n, 3, bias=False)
        self.norm = nn.BatchNorm2d(n)
        self.eval()

    def forward(self, x):
        return torch.relu(self.norm(self.first(x)) + 1).mean((2, 3))

def get_inputs():
    return [torch.randn(2, 3, 9, 9)]

def get_init_inputs():
    return [6]
"""


def talk(source, *asks, **changes):
    """The lines of the generator."""
    problem = {"type": "problem", "kind": "model", "name": "p", "source": source, "device": {"backend": "cpu"}}
    lines = [{**problem, **changes}, *({"type": "ask", "n": n} for n in asks), {"type": "end"}]
    out = io.StringIO()
    graph.Graph(out).listen(map(json.dumps, lines))
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_each_alternative_is_a_candidate(tmp_path, capsys):
    *said, last = talk(MODEL, 3, 3, 3)
    assert {line["type"] for line in said} == {"candidate"} and last["type"] == "done"
    assert [line["id"] for line in said] == NAMES
    assert all(line["kind"] == "model" and f"# runs: {line['id']}" in line["source"] for line in said)
    assert len({line["source"] for line in said}) == len(NAMES)
    assert "metal_kernel" not in said[0]["source"] and "metal_kernel" in said[1]["source"]
    assert "a word" not in capsys.readouterr().out
    file = tmp_path / "new.py"
    for line in said:
        file.write_text(line["source"])
        names = runpy.run_path(str(file))
        (x,) = names["get_inputs"]()
        torch.manual_seed(0)
        made = names["ModelNew"](6)
        torch.manual_seed(0)
        with torch.no_grad():
            torch.testing.assert_close(made(x), names["Model"](6)(x), rtol=1e-4, atol=1e-5)
            assert made.quern_rebuilt.fast.results((x,), {}) is not None


@pytest.mark.parametrize(
    ("source", "changes", "why"),
    [
        (MODEL.replace("relu(", "nothing("), {}, "p.py fails: AttributeError"),
        (MODEL.replace("def forward(", "def forward)"), {}, "p.py:14: "),
        (MODEL.replace("return torch.relu", "print(x.sum())\n        return torch.relu"), {}, "p.py: it prints"),
        (MODEL.replace("import torch\n", "import torch\nquern = 3\nq = quern\n"), {}, "has the names quern already"),
        ("", {"kind": "kernel", "name": "exp"}, "exp is no PyTorch file"),
    ],
    ids=["fails", "syntax", "no graph", "no file", "folder"],
)  # fmt: skip
def test_a_problem_without_candidates_has_a_sentence(source, changes, why):
    said = talk(source, 8, **changes)
    assert {line["type"] for line in said[:-1]} == {"log"} and said[-1] == {"type": "done"}
    assert why in said[0]["text"]


def search(tmp_path, problem, *words):
    """A search whose judge is played."""
    judge = tmp_path / "judge"
    judge.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/search/judge.py" "$@"\n')
    judge.chmod(0o755)
    env = {**environment(), "QUERN_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "python"),
           "QUERN_LIBRARY": os.environ["QUERN_LIBRARY"], "JUDGED": str(tmp_path / "judged")}  # fmt: skip
    words = [find(), "search", str(problem), "--generator", "graph", "--store", str(tmp_path / "store"),
             "--judge", str(judge), *words]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, env=env, timeout=400)


def test_a_whole_search(tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text(MODEL)
    done = search(tmp_path, problem, "--backend", "cpu")
    assert done.returncode == 0, done.stderr
    assert "means nothing here" not in done.stderr and "no generator has more" in done.stdout
    (store,) = (tmp_path / "store").glob("*/candidates.jsonl")
    lines = [json.loads(line) for line in store.read_text().splitlines()]
    found = [line for line in lines if line["event"] == "candidate" and line["generator"]]
    assert [line["id"] for line in found] == NAMES and {line["by"] for line in found} == {"graph"}
    texts = [(store.parent / line["source"]).read_text() for line in found]
    assert all("class ModelNew(Model)" in text and "def quern_plan(" in text for text in texts)


@pytest.mark.parametrize(("problem", "why"), [("kernels/exp", "graph compiles PyTorch files"), ("lion", "is an op")])
def test_other_problems_are_refused(tmp_path, problem, why):
    done = search(tmp_path, ROOT / problem if "/" in problem else problem, "--backend", "emulator")
    assert done.returncode == 2 and why in done.stderr and not (tmp_path / "store").exists()
