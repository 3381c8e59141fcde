# SPDX-License-Identifier: Apache-2.0
"""Gradients as the judge of KernelBench files compares them."""

import json
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

from judging import ADD_RELU, QUICK, UNMASKED, files  # noqa: E402
from quern.kernelbench import __main__ as command  # noqa: E402

MASKED = "g = g * (ctx.saved_tensors[0] > 0)"
LAST = "; g[-1, -1] += 1"  # of 3200: near in norm


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("mask, right", [("pass", False), (MASKED, True), (MASKED + LAST, False)])
def test_a_wrong_gradient_is_refused_where_gradients_are_asked_for(tmp_path, capsys, gradients, mask, right):
    reference, candidate = files(tmp_path, reference=ADD_RELU, candidate=UNMASKED.replace("MASK", mask))
    words = ["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK]
    status = command.main(words + (["--gradients"] if gradients else []))
    line = json.loads(capsys.readouterr().out)
    assert status == (1 if gradients and not right else 0), line
    assert (line["verdict"] == "wrong values") == (status == 1)


def test_equal_weights_may_change_places(tmp_path, capsys):
    model = """
import torch

class NAME(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.FIRST = torch.nn.Parameter(torch.ones(5))
        self.SECOND = torch.nn.Parameter(torch.ones(5))

    def forward(self, x):
        return x * self.a + torch.sin(x) * self.b * 3

def get_inputs():
    return [torch.randn(20, 5)]
"""
    texts = [model.replace("NAME", name).replace("FIRST", a).replace("SECOND", b)
             for name, a, b in (("Model", "a", "b"), ("ModelNew", "b", "a"))]  # fmt: skip
    reference, candidate = files(tmp_path, reference=texts[0], candidate=texts[1])
    words = ["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", "--gradients", *QUICK]
    assert command.main(words) == 0, capsys.readouterr().out


UNSTEADY = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(1000))

    def forward(self, x):
        near = x[:, :1] * 3 - x[:, :1] - x[:, :1] - x[:, :1]  # zero but for rounding
        return torch.relu(torch.cat([near, x[:, 1:]], 1) + self.bias)

def get_inputs():
    return [torch.randn(64, 1000)]
"""
OTHER = UNSTEADY.replace("Model(", "ModelNew(").replace("x[:, :1] * 3 - x[:, :1] - x[:, :1] - x[:, :1]", "x[:, :1] * 0")


@pytest.mark.parametrize(
    "change, verdict", [(("", ""), "unclear"), (("+ self.bias", "+ 1.2 * self.bias"), "wrong values")]
)
def test_gradients_that_rounding_decides_refuse_nobody(tmp_path, capsys, change, verdict):
    """Whether an argument of ReLU is above zero is a matter of rounding: PyTorch's side is not the right one."""
    reference, candidate = files(tmp_path, reference=UNSTEADY, candidate=OTHER.replace(*change))
    command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", "--gradients", *QUICK])
    line = json.loads(capsys.readouterr().out)
    assert line["verdict"] == verdict, line
    assert verdict != "unclear" or "when inputs move by a rounding" in str(line["notes"])
