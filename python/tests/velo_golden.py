# SPDX-License-Identifier: Apache-2.0
"""The golden vectors of VeLO for its tests, as arrays of NumPy: weights, parameters and gradients are drawn as
src/op/velo/golden/make_golden.py draws them, and what is wanted is read from the file beside it."""

import functools
import itertools
import math
from dataclasses import dataclass, field

from lopt_golden import ROOT, Stream, floats

RNN = {
    "mix_layer1.weight": ((512, 30), 0.2),
    "mix_layer1.bias": ((512,), 0.3),
    "mix_layer2.weight": ((512, 30), 0.2),
    "mix_layer2.bias": ((512,), 0.3),
    "final_mix_layer.weight": ((512, 30), 0.2),
    "final_mix_layer.bias": ((512,), 0.3),
    "lstm.linear.weight": ((2048, 1024), 0.05),
    "lstm.linear.bias": ((2048,), 0.3),
    "rnn_to_controls.weight": ((256, 512), 0.2),
    "rnn_to_controls.bias": ((256,), 0.3),
    "step_size.weight": ((1, 512), 0.2),
    "step_size.bias": ((1,), 0.3),
    "lstm_init_state.0": ((1, 512), 0.1),
    "lstm_init_state.1": ((1, 512), 0.1),
}
MLP = {
    "input_weights_": ((256, 4, 30), 1.0),
    "input_bias_": ((256, 4), 1.0),
    "hidden_weights_.0": ((256, 4, 4), 1.0),
    "hidden_bias_.0": ((256, 4), 1.0),
    "output_weights_": ((256, 3, 4), 1.0),
    "output_bias_": ((256, 3), 1.0),
}


ROLES = ("m", "v", "row", "column")


@functools.cache
def weights():
    """(mlp, rnn)."""
    rnn, mlp = Stream(31), Stream(32)
    return (
        {name: mlp.array(shape, scale) for name, (shape, scale) in MLP.items()},
        {name: rnn.array(shape, scale) for name, (shape, scale) in RNN.items()},
    )


@dataclass
class Case:
    """One case: by step its loss and what is wanted of each tensor; by role all tensors' states, and the LSTM's."""

    lr: float
    weight_decay: float
    num_steps: int
    compat: bool
    ties: str
    steps: int
    name: str = ""
    shapes: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    wanted: list = field(default_factory=list)
    state: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    given: list = field(default_factory=list)

    def start(self):
        if self.given:
            return [p.copy() for p in self.given]
        stream = Stream(41)
        return [stream.array(shape, 0.5) for shape in self.shapes]

    def grads(self, t):
        stream = Stream(300 + t)
        return [stream.array(shape, 0.02 * (t + 1)) for shape in self.shapes]


def _shape(word):
    return tuple(map(int, word.split("x")))


def _parts(values, sizes):
    """One after another, of these sizes."""
    ends = list(itertools.accumulate(sizes))
    assert len(values) == ends[-1]
    return [values[end - size : end] for size, end in zip(sizes, ends)]


def _case_of(name, settings):
    told = dict(setting.split("=") for setting in settings)
    return Case(
        float(told["lr"]),
        float(told["weight_decay"]),
        int(told["num_steps"]),
        told.get("pylo_cuda_compat", "0") == "1",
        told.get("ties", "pylo"),
        0,
        name,
    )


def _shaped(case, words):
    parts = _parts(floats(words[1:]), list(map(math.prod, case.shapes)))
    return [part.reshape(shape) for part, shape in zip(parts, case.shapes)]


def cases():
    made, name = [], ""
    for line in (ROOT / "src/op/velo/golden/velo.txt").read_text(encoding="utf-8").splitlines():
        word, *rest = line.split() or [""]
        case = made[-1] if made else None
        if word == "case":
            name = " ".join(rest)
        elif word == "set":
            made.append(_case_of(name, rest))
        elif word == "tensor":
            case.shapes += map(_shape, rest)
        elif word == "give" and rest[0] == "param":
            case.given = _shaped(case, rest)
        elif word == "give":
            case.losses.append(float(floats(rest[1:])[0]))
            case.steps += 1
        elif word == "want" and rest[0] == "param":
            case.wanted.append(_shaped(case, rest))
        elif word == "want" and rest[0] in ROLES:
            case.state.append(floats(rest[1:]))
        elif word == "want" and rest[0] in ("hidden", "cell"):
            case.rows.append(floats(rest[1:]).reshape(len(case.shapes), 512))
    return made


def states_of(case, k):
    """Tensor k's four states, then its rows of hidden and cell."""
    sizes = zip(*map(_sizes, case.shapes))
    states = [_parts(all_of, of_role)[k] for all_of, of_role in zip(case.state, sizes)]
    return states, [rows[k] for rows in case.rows]


def _sizes(shape):
    """Of m, v, row and column. The two largest dimensions are factored; which of equal ones is nothing to sizes."""
    n, largest = math.prod(shape), sorted(shape)[-2:]
    return (3 * n, n, 3 * n, 0) if len(shape) < 2 else (3 * n, n, 3 * n // largest[1], 3 * n // largest[0])
