# SPDX-License-Identifier: Apache-2.0
"""A verdict of the judge of KernelBench files again and again, while two other programs compute: the word is the same
each time, or unclear, and what is wrong is said so each time. 3 times, or as often as $VERDICTS says; then what is
many times faster or slower must be said so most of the time, which a machine with much else to do may not allow."""

import collections
import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

from judging import OPTIONS, files  # noqa: E402
from quern.kernelbench import _judge  # noqa: E402

TIMES = int(os.environ.get("VERDICTS", "3"))
QUICK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.tanh(x + y).sum(1)

def get_inputs():
    return [torch.randn(256, 1000), torch.randn(256, 1000)]
"""
SLOW = QUICK.replace("sum(1)", "sum(1) + 0 * torch.linalg.svdvals(x[:, :256]).amin()")  # which no compiler leaves out
WRONG = QUICK.replace("x + y", "x - y")
MOST = TIMES // 2 + 1 if "VERDICTS" in os.environ else 0


@pytest.fixture
def busy():
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.parametrize(
    "word, least, reference, candidate",
    [
        ("faster", MOST, SLOW, QUICK),
        ("same", 0, QUICK, QUICK),
        ("slower", MOST, QUICK, SLOW),
        ("wrong values", TIMES, QUICK, WRONG),
    ],
)
def test_the_word_is_the_same_or_unclear(tmp_path, busy, word, least, reference, candidate):
    problem, new = files(tmp_path, reference=reference, candidate=candidate.replace("Model(", "ModelNew("))
    _judge.fresh_seed()
    with _judge.Judge(problem, dataclasses.replace(OPTIONS, trials=30)) as judge:
        said = collections.Counter(judge.judge(new)["verdict"] for _ in range(TIMES))
    assert not set(said) - {word, "unclear"} and said[word] >= least, said
