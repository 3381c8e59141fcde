# SPDX-License-Identifier: Apache-2.0
"""The golden vectors of the learned optimizers for their tests, as arrays of NumPy: weights, parameters and gradients
are drawn as src/op/small_fc_lopt/golden/make_golden.py draws them, and what is wanted is read from the files of the two
ops. Of celo2 the weights alone."""

import pathlib
from dataclasses import dataclass, field

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIGHTS = {
    "network.input.weight": (32, 39),
    "network.input.bias": (32,),
    "network.linear_0.weight": (32, 32),
    "network.linear_0.bias": (32,),
    "network.output.weight": (2, 32),
    "network.output.bias": (2,),
}
SHAPES = [(7, 5), (5, 7), (6, 6), (11,), (4, 3, 2), (5, 4, 3, 2), (4, 4, 3, 3), (1, 9), (3, 3, 3, 3), (64, 48)]
SHAPES += [(), (2, 3, 2, 4, 3), (70, 2)]
STEPS = 4


class Stream:
    """splitmix64; arrays of numbers in [-1, 1) of 24 bits, times a scale."""

    def __init__(self, seed):
        self.state = seed

    def array(self, shape, scale):
        n = int(np.prod(shape, dtype=np.int64))
        golden = 0x9E3779B97F4A7C15
        with np.errstate(over="ignore"):
            z = np.uint64(self.state % 2**64) + np.uint64(golden) * np.arange(1, n + 1, dtype=np.uint64)
            z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        self.state = (self.state + n * golden) % 2**64
        drawn = ((z ^ z >> np.uint64(31)) >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0
        return (drawn * scale).astype(np.float32).reshape(shape)


def weights():
    stream = Stream(11)
    return {name: stream.array(shape, 0.3 if name.endswith("weight") else 0.1) for name, shape in WEIGHTS.items()}


CELO2 = {f"w0.{k}": (n, 8) for k, n in enumerate((1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3))}
CELO2 |= {"b0": (8,), "dense_w.0": (8, 8), "dense_b.0": (8,), "dense_w.1": (8, 3), "dense_b.1": (3,)}


def celo2_weights():
    stream = Stream(41)
    return {name: stream.array(shape, 0.5 if len(shape) > 1 else 0.2) for name, shape in CELO2.items()}


@dataclass
class Tensor:
    """One tensor of a case: what it begins with, its gradients, what is wanted after each step, and of its state, by
    role, after the last one."""

    shape: tuple
    start: np.ndarray
    grads: list
    wanted: list = field(default_factory=list)
    state: list = field(default_factory=list)


@dataclass
class Case:
    name: str
    op: str
    lr: float
    weight_decay: float
    compat: bool
    ties: str
    tensors: list


def floats(words):
    return np.array([int(word, 16) for word in words], np.uint32).view(np.float32)


def _case(name, op, words):
    """Of a line "set lr=0.7 weight_decay=0.01 pylo_cuda_compat=0"."""
    given = dict(word.split("=") for word in words)
    compat, ties = given["pylo_cuda_compat"] == "1", given.get("ties", "pylo")
    return Case(name, op, float(given["lr"]), float(given["weight_decay"]), compat, ties, [])


def cases():
    """Every case of the files of both ops, those of one name together."""
    made = {}
    for op in ("small_fc_lopt", "elo"):
        for line in (ROOT / f"src/op/{op}/golden/{op}.txt").read_text(encoding="utf-8").splitlines():
            word, *rest = line.split() or [""]
            if word == "case":
                name = rest[0]
            elif word == "set":
                tensors = made.setdefault(name, _case(name, op, rest)).tensors
            elif word == "tensor":
                tensor = Tensor(tuple(map(int, rest[0].split("x"))) if rest != ["-"] else (), np.empty(0), [])
                tensors.append(tensor)
            elif word == "draw":
                array = Stream(int(rest[1], 16)).array(tensor.shape, float(rest[2]))
                if rest[0] == "param":
                    tensor.start = array
                else:
                    tensor.grads.append(array)
            elif word == "want":
                (tensor.wanted if rest[0] == "param" else tensor.state).append(floats(rest[1:]))
    for case in made.values():
        for tensor in case.tensors:
            tensor.wanted = [values.reshape(tensor.shape) for values in tensor.wanted]
    return list(made.values())


def share_of_tolerance(got, wanted, before):
    """The largest part of 1e-6 max(1, |p|) + 1e-5 |update| that is used; above 1 is wrong. NaN is right where NaN is
    wanted."""
    got, wanted, before = (np.asarray(values, np.float64) for values in (got, wanted, before))
    if not got.size:
        return 0.0
    both = np.isnan(got) & np.isnan(wanted)
    got, wanted, before = (np.where(both, 0, values) for values in (got, wanted, before))
    tolerance = 1e-6 * np.maximum(1, np.abs(wanted)) + 1e-5 * np.abs(wanted - before)
    return float(np.nan_to_num(np.abs(got - wanted) / tolerance, nan=np.inf).max())
