# SPDX-License-Identifier: Apache-2.0
"""Make the golden vectors of celo2: python3 src/op/celo2/golden/make_golden.py > src/op/celo2/golden/celo2.txt

A plain form of the mathematics of src/op/celo2/README.md in double, by multi-index, that shares nothing with the
library. Accumulators are those of small_fc_lopt's script. Inputs come from splitmix64 and are exact in f32; what is
wanted is written as the nearest f32."""

import importlib.util
import math
import pathlib

path = pathlib.Path(__file__).resolve().parents[2] / "small_fc_lopt/golden/make_golden.py"
spec = importlib.util.spec_from_file_location("small_fc_lopt", path)
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)

SHAPES = [(7, 5), (5, 7), (6, 6), (11,), (4, 3, 2), (5, 4, 3, 2), (4, 4, 3, 3), (1, 9), (3, 3, 3, 3), (33, 32)]
SHAPES += [(), (2, 3, 2, 4, 3), (1, 33, 32), (70, 2)]
STEPS = 3
DECAYS = ([0.9, 0.99, 0.999], 0.95, [0.9, 0.99, 0.999])
WIDTHS = (1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3)
CASES = (
    ("celo2", {"lr": 0.05}),
    ("elo_celo2", {"lr": 0.05, "weight_decay": 0.1, "adam_weight_decay": 0.1, "adam_lr_mult": 20.0}),
    ("base", {"lr": 0.05, "orthogonalize": 0, "exp_mult": 0.3, "rms_mult": 0.2, "weight_decay": 0.1}),
    ("jax", {"lr": 0.05, "ties": "jax"}, plain.EQUAL),
)
WHOLE = ("celo2", "jax")  # with their states
DEFAULTS = {
    "exp_mult": 0.0,
    "rms_mult": 1.0,
    "weight_decay": 0.0,
    "adam_lr_mult": 1.0,
    "adam_weight_decay": 0.0,
    "orthogonalize": 1,
}


def product(x, y):
    turned = list(zip(*y))
    return [[math.fsum(a * b for a, b in zip(row, column)) for column in turned] for row in x]


def orthogonal(x):
    """Five steps of Newton-Schulz of a list of rows."""
    if len(x) > len(x[0]):
        return [list(row) for row in zip(*orthogonal([list(row) for row in zip(*x)]))]
    norm = math.sqrt(math.fsum(value * value for row in x for value in row)) + 1e-8
    x = [[value / norm for value in row] for row in x]
    for _ in range(5):
        a = product(x, list(zip(*x)))
        b = [[-4.7750 * p + 2.0315 * q for p, q in zip(*rows)] for rows in zip(a, product(a, a))]
        x = [[3.4445 * p + q for p, q in zip(*rows)] for rows in zip(x, product(b, x))]
    return x


def draw_weights():
    stream, layers = plain.Stream(41), []
    first = [list(stream.array((8,), 0.5).values()) for width in WIDTHS for _ in range(width)]
    layers.append((first, list(stream.array((8,), 0.2).values())))
    for outputs in (8, 3):
        rows = [list(stream.array((outputs,), 0.5).values()) for _ in range(8)]
        layers.append((rows, list(stream.array((outputs,), 0.2).values())))
    return layers


def network(x, weights):
    for last, (rows, bias) in zip((False, False, True), weights):
        x = [math.fsum(a * row[h] for a, row in zip(x, rows)) + b for h, b in enumerate(bias)]
        x = x if last else [max(y, 0.0) for y in x]
    return x


def inputs(tensor, g, i, means):
    s = plain.inverse_root(tensor.v[i] + 1e-8)
    m = [plane[i] for plane in tensor.m]
    at_row, at_column = plain.without(i, tensor.d0), plain.without(i, tensor.d1)
    row, column = [plane[at_row] for plane in tensor.row], [plane[at_column] for plane in tensor.column]
    factor = [
        plain.inverse_root(row[k] / (means[k][at_row] + 1e-9), 1e-9) * plain.inverse_root(column[k], 1e-9)
        for k in range(3)
    ]
    x = [g[i], min(max(g[i], -0.1), 0.1), tensor.p[i], *m, tensor.v[i], *(y * s for y in m), s]
    x += [*(g[i] * a for a in factor), g[i] * s, *row, *column]
    x += [plain.inverse_root(y + 1e-8) for y in (*row, *column)]
    return x + [y * a for y, a in zip(m, factor)]


def scaled(columns):
    """Of numbers of one kind, over a matrix."""
    return plain.inverse_root(1e-9 + math.fsum(x * x for x in columns) / len(columns))


def step_matrices(tensor, g, weights, said):
    tensor.accumulate(g, DECAYS)
    means = [{at: tensor.row_mean(k, at, False) for at in tensor.row[k]} for k in range(3)]
    rows, columns = tensor.shape[-2:]
    for batch in plain.places(tensor.shape[:-2]):
        places = [(*batch, i, j) for i in range(rows) for j in range(columns)]
        x = {i: inputs(tensor, g, i, means) for i in places}
        scales = [scaled([x[i][k] for i in places]) for k in range(30)]
        out = {i: network([y * s for y, s in zip(x[i], scales)], weights) for i in places}
        u = [out[i][0] * math.exp(said["exp_mult"] * out[i][1]) for i in places]
        if said["orthogonalize"]:
            u = [y for row in orthogonal([u[r * columns : (r + 1) * columns] for r in range(rows)]) for y in row]
        scale = said["rms_mult"] * scaled(u)
        for i, y in zip(places, u):
            tensor.p[i] -= said["lr"] * (scale * y + said["weight_decay"] * tensor.p[i])


def step_vector(tensor, g, count, said):
    lr = said["lr"] * said["adam_lr_mult"]
    for i, x in g.items():
        tensor.m[0][i] = 0.9 * tensor.m[0][i] + (1 - 0.9) * x
        tensor.v[i] = 0.95 * tensor.v[i] + (1 - 0.95) * x * x
        mean, square = tensor.m[0][i] / (1 - 0.9**count), tensor.v[i] / (1 - 0.95**count)
        tensor.p[i] -= lr * (mean / (math.sqrt(square) + 1e-8) + said["adam_weight_decay"] * tensor.p[i])


def case(name, said, shapes=SHAPES):
    weights, start = draw_weights(), plain.Stream(21)
    gradients = [plain.Stream(100 + t) for t in range(STEPS)]
    for shape in shapes:
        states = [start.state, *(stream.state for stream in gradients)]
        tensor = plain.Tensor(shape, start.array(shape, 0.5), said.get("ties", "pylo"))
        drawn = [gradients[t].array(shape, 0.02 * (t + 1)) for t in range(STEPS)]
        if name not in WHOLE and math.prod(shape) > 150:
            continue  # one of each kind is enough
        print("case", name, *shape)
        print("set", " ".join(f"{key}={value}" for key, value in said.items()))
        print("tensor", "x".join(map(str, shape)) or "-")
        print(f"draw param {states[0]:x} 0.5")
        for t, g in enumerate(drawn):
            print(f"draw grad {states[t + 1]:x} {0.02 * (t + 1)!r}\nstep")
            if len(shape) < 2:
                step_vector(tensor, g, t + 1, {**DEFAULTS, **said})
            else:
                step_matrices(tensor, g, weights, {**DEFAULTS, **said})
            plain.line("want param", tensor.p.values())
        if name not in WHOLE:
            print("end")
            continue
        is_vector = len(shape) < 2
        plain.line("want m", (x for plane in tensor.m[: 1 if is_vector else 3] for x in plane.values()))
        plain.line("want v", tensor.v.values())
        for role, planes in () if is_vector else (("row", tensor.row), ("column", tensor.column)):
            plain.line(f"want {role}", (x for plane in planes for x in plane.values()))
        print("end")


if __name__ == "__main__":
    print("# Golden vectors of celo2. Made by: python3 src/op/celo2/golden/make_golden.py")
    for of_case in CASES:
        case(*of_case)
