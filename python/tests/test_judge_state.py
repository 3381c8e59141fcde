# SPDX-License-Identifier: Apache-2.0
"""Models whose plain attributes are a state, as a recurrent net's hidden state: each call begins with that of
construction."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

from judging import OPTIONS, files  # noqa: E402
from quern.kernelbench import _judge  # noqa: E402

NET = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.Linear(24, 16)
        self.hidden = torch.randn(8, 16)

    def forward(self, x):
        BODY
        return self.hidden * 2

def get_inputs():
    return [torch.randn(8, 8)]
"""
RIGHT = "self.hidden = torch.tanh(self.cell(torch.cat((x, self.hidden), 1)))"
CANDIDATES = {
    "the same": (RIGHT, ("faster", "same", "slower", "unclear")),
    "in place": (
        "self.hidden.copy_(torch.tanh(self.cell(torch.cat((x, self.hidden), 1))))",
        ("faster", "same", "slower", "unclear"),
    ),
    "another state": (RIGHT.replace("self.hidden),", "0 * self.hidden),"), ("wrong values",)),
    "two steps": (RIGHT + "; " + RIGHT, ("wrong values",)),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_a_call_begins_with_the_state_of_construction(tmp_path, name):
    body, words = CANDIDATES[name]
    reference, candidate = files(
        tmp_path,
        reference=NET.replace("BODY", RIGHT),
        candidate=NET.replace("BODY", body).replace("class Model(", "class ModelNew("),
    )
    _judge.fresh_seed()
    with _judge.Judge(reference, OPTIONS) as judge:
        line = judge.judge(candidate)
    assert line["verdict"] in words, line["reason"]
    if "wrong values" not in words:
        assert line["precision"]["baseline_error"] < 1e-6  # float64 has found the state of construction too


def test_a_reference_that_counts_its_calls_elsewhere_is_no_problem_to_judge(tmp_path):
    (reference,) = files(tmp_path, reference=NET.replace("BODY", RIGHT + "; self.cell.weight.data.add_(1)"))
    with pytest.raises(_judge.Unjudgeable, match="other outputs for the same inputs"):
        _judge.Judge(reference, OPTIONS).__enter__()
