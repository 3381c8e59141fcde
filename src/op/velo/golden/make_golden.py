# SPDX-License-Identifier: Apache-2.0
"""Make the golden vectors of VeLO:
python3 src/op/velo/golden/make_golden.py > src/op/velo/golden/velo.txt

A plain form of the mathematics of src/op/velo/README.md in double, tensors by multi-index, that shares nothing with the
library. Inputs and weights come from splitmix64 and are exact in f32; so that the file stays short they are not in it,
and the test draws them too. What is wanted is written as the nearest f32, in hexadecimal: its rounding is a tenth of
the tolerance; the loss's buffer as f64. workbench/golden.h says what the lines are; behind the last step
they have all that is kept, states of three decays first by decay."""

import itertools
import math
import operator
import struct

CASES = {
    "reference": [(5, 7), (6, 6), (11,), (3, 5, 5), (2, 1, 3, 2, 4)],
    "compat": [(7, 5), (11,)],
    "jax": [(6, 6), (3, 5, 3), (4, 4, 3, 3), (2, 1, 3, 2, 3)],
}
LOSSES = [2.5, 2.25, 9.0, 1.75]
STEPS = {"reference": 4, "compat": 2, "jax": 3}
NUM_STEPS, LR, WEIGHT_DECAY = 200, 0.8, 0.01
DECAYS = (0.9, 0.99, 0.999)
UNITS, BANKS = 512, 256
TIMES = (0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1)


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Stream:
    """splitmix64; numbers in [-1, 1) of 24 bits."""

    def __init__(self, seed):
        self.state = seed

    def numbers(self, n, scale):
        state, mask, made = self.state, 2**64 - 1, []
        for _ in range(n):
            state = state + 0x9E3779B97F4A7C15 & mask
            z = state
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
            made.append((((z ^ z >> 31) >> 40) / 8388608.0 - 1.0) * scale)
        self.state = state
        return list(struct.unpack(f"<{n}f", struct.pack(f"<{n}f", *made)))

    def array(self, shape, scale):
        return dict(zip(places(shape), self.numbers(math.prod(shape), scale)))

    def layer(self, outputs, inputs, of_weight, of_bias):
        """Rows, each with its bias."""
        flat = self.numbers(outputs * inputs, of_weight)
        return [flat[k : k + inputs] for k in range(0, len(flat), inputs)], self.numbers(outputs, of_bias)


def places(shape):
    return list(itertools.product(*(range(n) for n in shape)))


def dense(x, layer):
    return [sum(map(operator.mul, row, x)) + b for row, b in zip(*layer)]


def relu(x):
    return [max(y, 0.0) for y in x]


def within(x, low, high):
    return max(low, min(high, x))


def inverse_root(x, least=0.0):
    return 1 / math.sqrt(max(x, least))


def mean(x):
    return math.fsum(x) / len(x)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


class Weights:
    def __init__(self):
        s = Stream(31)
        s.layer(UNITS, 30, 0.2, 0.3)  # mix_layer1, which nothing uses
        self.mix = s.layer(UNITS, 30, 0.2, 0.3)
        self.final = s.layer(UNITS, 30, 0.2, 0.3)
        self.lstm = s.layer(4 * UNITS, 2 * UNITS, 0.05, 0.3)
        self.control = s.layer(BANKS, UNITS, 0.2, 0.3)
        self.step_size = s.layer(1, UNITS, 0.2, 0.3)
        self.h, self.c = s.numbers(UNITS, 0.1), s.numbers(UNITS, 0.1)
        s = Stream(32)
        self.banks = []  # weights and biases of three layers, each a list by bank
        for outputs, inputs in ((4, 30), (4, 4), (3, 4)):
            for n in (outputs * inputs, outputs):
                flat = s.numbers(BANKS * n, 1.0)
                self.banks.append([flat[k : k + n] for k in range(0, len(flat), n)])

    def network(self, control):
        """A tensor's layers, of its controls."""
        parts = []
        for bank in self.banks:
            columns = zip(*bank)
            parts.append([100 / BANKS * math.fsum(map(operator.mul, control, column)) for column in columns])
        layers = []
        for w, b in zip(parts[::2], parts[1::2]):
            inputs = len(w) // len(b)
            layers.append(([w[k : k + inputs] for k in range(0, len(w), inputs)], b))
        return layers


class Loss:
    def __init__(self):
        exponents = (1 + (math.log10(NUM_STEPS) - 1) * k / 9 for k in range(10))
        self.decays = [math.exp(-1 / 10**e) for e in exponents]
        self.means, self.least, self.count = [0.0] * 10, [999999999999.0] * 10, 0

    def take(self, loss):
        after = self.count + 1
        if self.count:
            loss = min(loss, 2 * abs(max(m / (1 - d**after) for m, d in zip(self.means, self.decays))))
        else:
            loss = min(loss, 2 * abs(loss))
        self.means = [d * m + (1 - d) * loss for m, d in zip(self.means, self.decays)]
        self.count = after
        now = [m / (1 - d**after) for m, d in zip(self.means, self.decays)]
        self.least = list(map(min, self.least, now))
        if after <= 2:
            return [0.0] * 9
        return [
            within((now[k] - self.least[k]) / max(1e-8, now[k + 1] - self.least[k]) - 1, -1.0, 1.0) for k in range(9)
        ]


def shown(x):
    return 0.5 * within(math.log(1e-8 + abs(10 * x)), -5, 5)


def without(index, d):
    return index[:d] + index[d + 1 :]


def factored(shape, ties):
    """d1, d0. "jax": of the tensor as JAX's layers have it, whose axes are torch's behind the second, the second, the
    first: the last two of a stable sort by size, as numpy.argsort sorts so few."""
    if len(shape) < 2:
        return None, None
    if ties == "jax":
        axes = [*range(2, len(shape)), 1, 0]
        theirs = [shape[d] for d in axes]
        d1, d0 = sorted(range(len(theirs)), key=theirs.__getitem__)[-2:]
        return axes[d1], axes[d0]
    d1, d0 = sorted(range(len(shape)), key=lambda d: (shape[d], d))[-2:]
    if shape[d1] == shape[d0] and not (len(shape) == 4 and (d1, d0) == (0, 1)):
        d1, d0 = d0, d1
    return d1, d0


class Tensor:
    def __init__(self, shape, p, weights, ties):
        self.shape, self.p = shape, dict(p)
        self.m = [dict.fromkeys(p, 0.0) for _ in range(3)]
        self.v = dict.fromkeys(p, 0.0)
        self.h, self.c = list(weights.h), list(weights.c)
        self.d1, self.d0 = factored(shape, ties)
        if self.d0 is None:
            self.row, self.column = [dict.fromkeys(p, 0.0) for _ in range(3)], []
        else:
            self.row = [{without(i, self.d0): 0.0 for i in p} for _ in range(3)]
            self.column = [{without(i, self.d1): 0.0 for i in p} for _ in range(3)]

    def summary(self, t, losses):
        scale = inverse_root(mean([x * x for x in self.p.values()]), 1e-9)
        m = [[scale * x for x in state.values()] for state in self.m]
        v = [scale * x for x in self.v.values()]
        centres = [mean(x) for x in m]
        rank = sum(n > 1 for n in self.shape)
        x = [math.tanh(10 * (t / NUM_STEPS - time)) for time in TIMES] + losses + [shown(mean(v))]
        x += [float(k == rank) for k in range(5)]
        x += [shown(mean([(y - centre) ** 2 for y in state])) for state, centre in zip(m, centres)]
        return x + [shown(mean([(y - centre) ** 2 for y in v])) for centre in centres]

    def accumulate(self, g):
        square = {i: x * x + 1e-30 for i, x in g.items()}
        for i, x in g.items():
            for k, decay in enumerate(DECAYS):
                self.m[k][i] = decay * self.m[k][i] + (1 - decay) * x
            self.v[i] = 0.999 * self.v[i] + (1 - 0.999) * x * x
        for states, d in ((self.row, self.d0), (self.column, self.d1)):
            for k, state in enumerate(states):
                means = square if d is None else dict.fromkeys(state, 0.0)
                for i, x in square.items():
                    if d is not None:
                        means[without(i, d)] += x / self.shape[d]
                for i in state:
                    state[i] = DECAYS[k] * state[i] + (1 - DECAYS[k]) * means[i]

    def row_mean(self, k, at):
        """Of the row's states of decay k, at one place: over the other factored dimension."""
        d = self.d1 - (self.d0 < self.d1)  # its place once d0 is gone
        return mean([self.row[k][(*at[:d], other, *at[d + 1 :])] for other in range(self.shape[self.d1])])

    def inputs(self, g, i, compat):
        s = inverse_root(self.v[i] + 1e-6)
        m = [self.m[k][i] for k in range(3)]
        if self.d0 is None:
            row = column = [self.row[k][i] for k in range(3)]
            a = [inverse_root(x + 1e-9, 1e-9) for x in row]
            b = a if compat else [inverse_root(x) for x in row]
        else:
            of_row, of_column = without(i, self.d0), without(i, self.d1)
            row = [state[of_row] for state in self.row]
            column = [state[of_column] for state in self.column]
            a = b = [
                inverse_root(row[k] / (self.row_mean(k, of_row) + 1e-9), 1e-9) * inverse_root(column[k], 1e-9)
                for k in range(3)
            ]
        x = [g[i], within(g[i], -0.1, 0.1), self.p[i], *m, self.v[i], *(y * s for y in m), s, *(g[i] * y for y in a)]
        x += [g[i] * s, *row, *column, *(inverse_root(y + 1e-8) for y in row)]
        return x + [inverse_root(y + 1e-8) for y in column] + [y * z for y, z in zip(m, b)]

    def move(self, g, layers, lr_mult, compat):
        g = {i: within(x, -1000.0, 1000.0) for i, x in g.items()}
        self.accumulate(g)
        inputs = {i: self.inputs(g, i, compat) for i in self.p}
        scales = [inverse_root(1e-5 + mean([x[k] ** 2 for x in inputs.values()])) for k in range(30)]
        size = math.sqrt(mean([x * x for x in self.p.values()]) + 1e-9)
        for i, p in self.p.items():
            x = [x * s for x, s in zip(inputs[i], scales)]
            direction, magnitude, _ = dense(relu(dense(relu(dense(x, layers[0])), layers[1])), layers[2])
            p -= LR * lr_mult * size * direction * math.exp(0.001 * magnitude) * 0.001
            self.p[i] = p - WEIGHT_DECAY * LR * (lr_mult if compat else 1) * p


def step(tensors, gradients, weights, losses, t, compat):
    x = [tensor.summary(t, losses) for tensor in tensors]
    most = [max(column) for column in zip(*(relu(dense(row, weights.mix)) for row in x))]
    for tensor, row, g in zip(tensors, x, gradients):
        z = list(map(operator.add, dense(row, weights.final), most))
        gates = dense(z + tensor.h, weights.lstm)
        i, value, f, o = (gates[k : k + UNITS] for k in range(0, 4 * UNITS, UNITS))
        for k in range(UNITS):
            tensor.c[k] = sigmoid(f[k] + 1) * tensor.c[k] + sigmoid(i[k]) * math.tanh(value[k])
            tensor.h[k] = sigmoid(o[k]) * math.tanh(tensor.c[k])
        (lr_mult,) = dense(tensor.h, weights.step_size)
        tensor.move(g, weights.network(dense(tensor.h, weights.control)), lr_mult, compat)


def line(word, role, values, form=">f"):
    print(word, role, *(struct.pack(form, x).hex() for x in values))


def case(name, weights):
    compat, start, loss = name == "compat", Stream(41), Loss()
    ties = "jax" if name == "jax" else "pylo"
    tensors = [Tensor(shape, start.array(shape, 0.5), weights, ties) for shape in CASES[name]]
    print("case", name)
    said = "" if ties == "pylo" else f" ties={ties}"
    print(f"set lr={LR} weight_decay={WEIGHT_DECAY} num_steps={NUM_STEPS} pylo_cuda_compat={int(compat)}{said}")
    print("tensor", *("x".join(map(str, shape)) for shape in CASES[name]))
    print("draw param", f"{41:x}", 0.5)
    for t in range(STEPS[name]):
        stream, scale = Stream(300 + t), 0.02 * (t + 1)
        gradients = [stream.array(shape, scale) for shape in CASES[name]]
        print("draw grad", f"{300 + t:x}", scale)
        line("give", "loss", [LOSSES[t]])
        step(tensors, gradients, weights, loss.take(LOSSES[t]), t, compat)
        print("step")
        line("want", "param", (p for tensor in tensors for p in tensor.p.values()))
    for role in ("m", "v", "row", "column"):
        states = ([tensor.v] if role == "v" else getattr(tensor, role) for tensor in tensors)
        line("want", role, (x for of_tensor in states for state in of_tensor for x in state.values()))
    line("want", "hidden", (x for tensor in tensors for x in tensor.h))
    line("want", "cell", (x for tensor in tensors for x in tensor.c))
    line("want", "loss_buffer", [*loss.means, *loss.least, float(loss.count), 0.0], ">d")
    print("end")


def nan_case(at):
    """A NaN in one tensor's parameters is one in the maximum over all tensors, and so in all that is moved."""
    sizes, nan = (2, 3, 2), float("nan")
    given = [[0.25, -0.5, 0.75][:n] for n in sizes]
    given[at][1] = nan
    print(f"case NaN in tensor {at} of 3")
    print(f"set lr={LR} weight_decay={WEIGHT_DECAY} num_steps={NUM_STEPS}")
    print("tensor", *sizes)
    line("give", "param", (x for of_tensor in given for x in of_tensor))
    print("draw grad", f"{300:x}", 0.02)
    line("give", "loss", [LOSSES[0]])
    print("step")
    line("want", "param", [nan] * sum(sizes))
    print("end")


def main():
    print("# Golden vectors of VeLO. Made by: python3 src/op/velo/golden/make_golden.py")
    weights = Weights()
    for name in CASES:
        case(name, weights)
    for at in range(3):
        nan_case(at)


if __name__ == "__main__":
    main()
