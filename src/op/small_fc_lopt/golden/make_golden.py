# SPDX-License-Identifier: Apache-2.0
"""Make the golden vectors of small_fc_lopt:
python3 src/op/small_fc_lopt/golden/make_golden.py > src/op/small_fc_lopt/golden/small_fc_lopt.txt
Those of elo are made by the script of its own folder, from what stands here.

A plain form of the mathematics of src/op/small_fc_lopt/README.md in double, by multi-index, that shares nothing with
the library. Inputs come from splitmix64 and are exact in f32; so that the file stays short it has not them but the
state from which they are drawn, and what reads it draws them too. What is wanted is written as the nearest f32, in
hexadecimal: its rounding is a tenth of the tolerance. workbench/golden.h says what the lines are; behind
the last step the states follow, those of three decays first by decay."""

import itertools
import math
import operator
import struct

SHAPES = [(7, 5), (5, 7), (6, 6), (11,), (4, 3, 2), (5, 4, 3, 2), (4, 4, 3, 3), (1, 9), (3, 3, 3, 3), (64, 48)]
SHAPES += [(), (2, 3, 2, 4, 3), (70, 2)]  # no dimension, five, runs shorter than a block
# Of equal dimensions: matrices, kernels of one, two and three dimensions.
EQUAL = [(6, 6), (3, 5, 3), (4, 4, 3), (4, 4, 3, 3), (3, 2, 3, 3), (5, 7, 5, 5), (3, 3, 2, 3, 1)]
TIMES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000)
STEPS = 4


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Stream:
    """splitmix64; numbers in [-1, 1) of 24 bits."""

    def __init__(self, seed):
        self.state = seed

    def number(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return ((z ^ z >> 31) >> 40) / 2.0**23 - 1.0

    def array(self, shape, scale):
        return {i: f32(self.number() * scale) for i in places(shape)}


def places(shape):
    return itertools.product(*(range(n) for n in shape))


def inverse_root(x, least=0.0):
    return 1 / math.sqrt(max(x, least))


def learned(initial, offset):
    return 1 - (1 - initial) * math.exp(10 * offset)


MULO = (
    [learned(0.9, 0.15216392), learned(0.99, 0.14245212), learned(0.999, 0.06812963)],
    learned(0.999, 0.01079706),
    [learned(0.9, 0.18621896), learned(0.99, -0.10864615), learned(0.999, -0.06185547)],
)
PLAIN = ([0.9, 0.99, 0.999], 0.999, [0.9, 0.99, 0.999])


def without(index, d):
    return index[:d] + index[d + 1 :]


def factored(shape, ties):
    """d1, d0. "jax": of the tensor as JAX's layers have it, whose axes are torch's behind the second, the second, the
    first: the last two of a stable sort by size, as numpy.argsort sorts so few."""
    if len(shape) < 2:
        return None, None
    axes = [*range(2, len(shape)), 1, 0] if ties == "jax" else list(range(len(shape)))
    theirs = [shape[d] for d in axes]
    d1, d0 = sorted(range(len(theirs)), key=theirs.__getitem__)[-2:]
    return axes[d1], axes[d0]


class Tensor:
    def __init__(self, shape, p, ties="pylo"):
        self.shape, self.p, self.t = shape, dict(p), 0
        self.m = [dict.fromkeys(p, 0.0) for _ in range(3)]
        self.v = dict.fromkeys(p, 0.0)
        self.d1, self.d0 = factored(shape, ties)
        if self.d0 is None:
            self.row, self.column = [dict.fromkeys(p, 0.0) for _ in range(3)], []
        else:
            self.row = [{without(i, self.d0): 0.0 for i in p} for _ in range(3)]
            self.column = [{without(i, self.d1): 0.0 for i in p} for _ in range(3)]

    def accumulate(self, g, decays):
        of_m, of_v, of_f = decays
        square = {i: x * x + 1e-30 for i, x in g.items()}
        for i, x in g.items():
            for k in range(3):
                self.m[k][i] = of_m[k] * self.m[k][i] + (1 - of_m[k]) * x
            self.v[i] = of_v * self.v[i] + (1 - of_v) * x * x
        for states, d in ((self.row, self.d0), (self.column, self.d1)):
            for k, state in enumerate(states):
                mean = square if d is None else dict.fromkeys(state, 0.0)
                for i, x in square.items():
                    if d is not None:
                        mean[without(i, d)] += x / self.shape[d]
                for i in state:
                    state[i] = of_f[k] * state[i] + (1 - of_f[k]) * mean[i]

    def row_mean(self, k, at, compat):
        """Of the row's states of decay k, at one place: over the other factored dimension."""
        if compat:
            return sum(state[at] for state in self.row) / 3
        values, d = [], self.d1 - (self.d0 < self.d1)  # its place once d0 is gone
        for other in range(self.shape[self.d1]):
            values.append(self.row[k][(*at[:d], other, *at[d + 1 :])])
        return math.fsum(values) / len(values)

    def inputs(self, g, i, compat, means):
        s = inverse_root(self.v[i] + 1e-6)
        m = [self.m[k][i] for k in range(3)]
        if self.d0 is None:
            row = column = [self.row[k][i] for k in range(3)]
            a = [inverse_root(x + 1e-9, 1e-9) for x in row]
            b = a if compat else [inverse_root(x + 1e-6) for x in row]
        else:
            row = [state[without(i, self.d0)] for state in self.row]
            column = [state[without(i, self.d1)] for state in self.column]
            a = b = [
                inverse_root(row[k] / (means[k][without(i, self.d0)] + 1e-9), 1e-9) * inverse_root(column[k], 1e-9)
                for k in range(3)
            ]
        inverse_rows = [inverse_root(x + 1e-8) for x in row]
        inverse_columns = [inverse_root(x + 1e-8) for x in column]
        x = [g[i], self.p[i], *m, self.v[i], *(y * s for y in m), s, *(g[i] * y for y in a)]
        return x + row + column + inverse_rows + inverse_columns + [y * z for y, z in zip(m, b)]

    def step(self, g, weights, op, lr, weight_decay, compat):
        self.accumulate(g, PLAIN if op == "elo" else MULO)
        means = self.d0 is not None and [{at: self.row_mean(k, at, compat) for at in self.row[k]} for k in range(3)]
        inputs = {i: self.inputs(g, i, compat, means) for i in self.p}
        scales = [inverse_root(1e-5 + math.fsum(x[k] ** 2 for x in inputs.values()) / len(g)) for k in range(28)]
        time = [math.tanh(self.t / period - 1) for period in TIMES]
        self.t += 1
        for i, p in self.p.items():
            direction, magnitude = network([x * s for x, s in zip(inputs[i], scales)] + time, weights)
            moved = direction * math.exp(0.001 * magnitude)
            if op == "elo":
                self.p[i] = p - lr * (moved + weight_decay * p)
            else:
                p -= lr * moved * 0.01
                self.p[i] = p - weight_decay * lr * p


def network(x, weights):
    for last, (rows, bias) in zip((False, False, True), weights):
        x = [sum(map(operator.mul, row, x)) + b for row, b in zip(rows, bias)]
        x = x if last else [max(y, 0.0) for y in x]
    return x


def draw_weights():
    stream, layers = Stream(11), []
    for outputs, inputs in ((32, 39), (32, 32), (2, 32)):
        rows = [list(stream.array((inputs,), 0.3).values()) for _ in range(outputs)]
        layers.append((rows, list(stream.array((outputs,), 0.1).values())))
    return layers


def line(word, values):
    print(word, *(struct.pack(">f", x).hex() for x in values))


def case(name, op, lr, weight_decay, compat=False, shapes=SHAPES, ties="pylo"):
    weights, start = draw_weights(), Stream(21)
    gradients = [Stream(100 + t) for t in range(STEPS)]
    for shape in shapes:
        states = [start.state, *(stream.state for stream in gradients)]
        tensor = Tensor(shape, start.array(shape, 0.5), ties)
        drawn = [gradients[t].array(shape, 0.02 * (t + 1)) for t in range(STEPS)]
        if (compat and len(shape) > 2) or (name != "reference" and shape == (64, 48)):
            continue  # what PyLO's code does there is undefined; and one large one is enough
        print("case", name, *shape)
        said = "" if ties == "pylo" else f" ties={ties}"
        print(f"set lr={lr!r} weight_decay={weight_decay!r} pylo_cuda_compat={int(compat)}{said}")
        print("tensor", "x".join(map(str, shape)) or "-")
        print(f"draw param {states[0]:x} 0.5")
        for t, g in enumerate(drawn):
            print(f"draw grad {states[t + 1]:x} {0.02 * (t + 1)!r}\nstep")
            tensor.step(g, weights, op, lr, weight_decay, compat)
            line("want param", tensor.p.values())
        for role, planes in (("m", tensor.m), ("v", [tensor.v]), ("row", tensor.row), ("column", tensor.column)):
            line(f"want {role}", (x for plane in planes for x in plane.values()))
        print("end")


def main():
    print("# Golden vectors of small_fc_lopt. Made by: python3 src/op/small_fc_lopt/golden/make_golden.py")
    case("reference", "small_fc_lopt", 0.7, 0.01)
    case("compat", "small_fc_lopt", 0.7, 0.01, compat=True)
    case("jax", "small_fc_lopt", 0.7, 0.01, shapes=EQUAL, ties="jax")


if __name__ == "__main__":
    main()
