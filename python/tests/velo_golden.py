# SPDX-License-Identifier: Apache-2.0
"""The golden vectors of VeLO for its tests, as arrays of NumPy: weights, parameters and gradients are drawn as
src/op/velo/golden/make_golden.py draws them, and what is wanted is read from the file beside it."""

import functools
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
    """One case: by step its loss and what is wanted of each tensor; by tensor its state and the LSTM's first eight."""

    lr: float
    weight_decay: float
    num_steps: int
    compat: bool
    steps: int
    name: str = ""
    shapes: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    wanted: list = field(default_factory=list)
    state: list = field(default_factory=list)
    rows: list = field(default_factory=list)

    def start(self):
        stream = Stream(41)
        return [stream.array(shape, 0.5) for shape in self.shapes]

    def grads(self, t):
        stream = Stream(300 + t)
        return [stream.array(shape, 0.02 * (t + 1)) for shape in self.shapes]


def cases():
    made = []
    for line in (ROOT / "src/op/velo/golden/velo.txt").read_text(encoding="utf-8").splitlines():
        word, *rest = line.split() or [""]
        case = made[-1] if made else None
        if word == "case":
            lr, decay, num_steps, compat, steps = rest[1:]
            made.append(Case(float(lr), float(decay), int(num_steps), compat == "1", int(steps), rest[0]))
        elif word == "tensor":
            case.shapes.append(tuple(map(int, rest)))
        elif word == "loss":
            case.losses.append(float(floats(rest)[0]))
            case.wanted.append([])
        elif word == "want":
            case.wanted[-1].append(floats(rest).reshape(case.shapes[len(case.wanted[-1])]))
        elif word == "state":
            case.state.append(floats(rest))
        elif word in ("hidden", "cell"):
            case.rows.append(floats(rest))
    return made


def states_of(case, k):
    """Tensor k's four states, then the first eight numbers of its rows of hidden and cell."""
    return case.state[4 * k : 4 * k + 4], case.rows[2 * k : 2 * k + 2]
