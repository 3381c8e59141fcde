# SPDX-License-Identifier: Apache-2.0
"""Make gemm_norm's golden vectors:
python3 src/op/gemm_norm/golden/make_golden.py > src/op/gemm_norm/golden/gemm_norm.txt

From the contract, in 50 decimal digits, with products and sums as exact fractions; nothing of the library is used.
A case is its size as `quern check` reads sizes, the row of the table of types, inputs as the bits of their storage, and
results as the bits of doubles (the nearest ones to 50 digits)."""

import math
import random
import struct
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

getcontext().prec = 50
PI = "3.141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067982148086513"
ROLES = ("x", "w", "bias", "bias2", "gamma", "beta")


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def tf32(value):
    """11 bits, halves away from zero."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x1000) & 0xFFFFE000))[0]


def decimal(fraction):
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def tanh(x):
    if abs(x) > 300:
        return Decimal(1).copy_sign(x)
    power = (2 * x).exp()
    return (power - 1) / (power + 1)


def sigmoid(x):
    if x < -3000:
        return Decimal(0)
    return 1 / (1 + (-x).exp())


def erf(x):
    """Its Taylor series."""
    if abs(x) > 11:
        return Decimal(1).copy_sign(x)
    with localcontext() as context:
        context.prec = 200  # its terms are large where x is
        term, total, k = x, x, 0
        while abs(term) > Decimal(10) ** -150:
            k += 1
            term = -term * x * x / k
            total += term / (2 * k + 1)
        pi = Decimal(PI)
        return 2 / pi.sqrt() * total


# At minus and plus infinity; what is not here stays what it is, and NaN stays NaN.
LIMITS = {"relu": (0, None), "sigmoid": (0, 1), "tanh": (-1, 1)}
LIMITS.update(dict.fromkeys(("gelu", "gelu_tanh", "silu", "mish"), (0, None)))


def activate(name, v):
    if not v.is_finite():
        limit = None if v.is_nan() else LIMITS.get(name, (None, None))[v > 0]
        return v if limit is None else Decimal(limit)
    if name == "relu":
        return max(v, Decimal(0))
    if name == "gelu":
        with localcontext() as context:
            context.prec = 150  # 1 + erf is small
            return v * (1 + erf(v / Decimal(2).sqrt())) / 2
    if name == "gelu_tanh":
        pi = Decimal(PI)
        return v * (1 + tanh((2 / pi).sqrt() * (v + Decimal("0.044715") * v**3))) / 2
    if name == "silu":
        return v * sigmoid(v)
    if name == "mish":
        if v > 300:
            return v
        return v * tanh((1 + v.exp()).ln())
    if name == "sigmoid":
        return sigmoid(v)
    return tanh(v) if name == "tanh" else v


def normed(row, width, centred, eps, gamma, beta):
    out = []
    for first in range(0, len(row), width):
        group = row[first : first + width]
        mean = sum(group) / width if centred else Decimal(0)
        variance = sum((v - mean) ** 2 for v in group) / width
        out += [(v - mean) / (variance + eps).sqrt() for v in group]
    return [v * (Decimal(gamma[j]) if gamma else 1) + (Decimal(beta[j]) if beta else 0) for j, v in enumerate(out)]


def clamped_and_active(size, z):
    if size.get("clamp", 1) and not z.is_nan():
        z = min(max(z, Decimal(size.get("lo", -1))), Decimal(size.get("hi", 1)))
    return activate(size.get("activation", "mish"), z)


def solve(size, given):
    word = {"tf32": tf32, "bf16": bf16}.get(size.get("precision"), float)
    x, w = list(map(word, given["x"])), list(map(word, given["w"]))
    m, n, k = size["m"], size["n"], size["k"]
    rows = []
    for i in range(m):
        row = []
        for j in range(n):
            z = sum((Fraction(x[i * k + t]) * Fraction(w[j * k + t]) for t in range(k)), Fraction(0))
            if "bias" in given and not math.isfinite(given["bias"][j]):
                row.append(clamped_and_active(size, Decimal(given["bias"][j])))
                continue
            z += Fraction(given["bias"][j]) if "bias" in given else 0
            z += Fraction(given["bias2"][j]) if "bias2" in given else 0
            row.append(clamped_and_active(size, decimal(z)))
        norm = size.get("norm", "group")
        if norm != "none":
            width = n // size.get("groups", 1) if norm == "group" else n
            eps = Decimal(f32(size.get("eps", 1e-5)))
            row = normed(row, width, norm != "rms", eps, given.get("gamma"), given.get("beta"))
        rows += row
    return rows


def case(name, size, row=0, absent=(), draw=random, put=None):
    """put: by role, the numbers themselves."""
    short = bf16 if row else f32
    m, n, k = size["m"], size["n"], size["k"]
    counts = {"x": m * k, "w": n * k, "bias": n, "bias2": n, "gamma": n, "beta": n}
    spread = {"x": 1.0, "w": 0.4, "bias": 0.3, "bias2": 0.3, "gamma": 1.0, "beta": 0.5}
    given = {}
    for role in ROLES:
        if role not in absent:
            store = short if role in "xw" else f32
            given[role] = [store(draw.gauss(0, spread[role])) for _ in range(counts[role])]
    given.update(put or {})
    words = [f"{key}={value}" for key, value in size.items()] + [f"-{role}" for role in absent]
    types = "bf16 bf16 bf16 f32 f32 f32 f32" if row else "f32 f32 f32 f32 f32 f32 f32"
    print(f"case {name}\ntypes {types}\nsize {' '.join(words)}")
    for role, values in given.items():
        bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
        short_bits = row and role in "xw"
        print("give", role, *(f"{b >> 16:04x}" if short_bits else f"{b:08x}" for b in bits))
    print("want y", *(f"{struct.unpack('<Q', struct.pack('<d', float(v)))[0]:016x}" for v in solve(size, given)))
    print("end")


source = random.Random(20261122)
print("# Golden vectors of gemm_norm. Made by:")
print("# python3 src/op/gemm_norm/golden/make_golden.py > src/op/gemm_norm/golden/gemm_norm.txt")
case("contract", {"m": 3, "n": 16, "k": 19, "groups": 4}, draw=source)
case("one group", {"m": 2, "n": 20, "k": 33, "groups": 1}, absent=("bias2",), draw=source)
case("without scale", {"m": 2, "n": 8, "k": 5, "groups": 2}, absent=("gamma", "beta"), draw=source)
case("wide clamp", {"m": 2, "n": 12, "k": 40, "groups": 3, "lo": -0.5, "hi": 6}, absent=("bias", "bias2"), draw=source)
for activation in ("relu", "gelu", "gelu_tanh", "silu", "mish", "sigmoid", "tanh"):
    size = {"m": 2, "n": 9, "k": 7, "clamp": 0, "norm": "none", "activation": activation}
    case(f"alone, {activation}", size, absent=("gamma", "beta"), draw=source)
size = {"m": 3, "n": 17, "k": 21, "clamp": 0, "activation": "none", "norm": "none"}
case("product", size, absent=("bias", "bias2", "gamma", "beta"), draw=source)
case("layer", {"m": 2, "n": 18, "k": 6, "norm": "layer", "activation": "gelu", "eps": 0.001}, draw=source)
case("rms", {"m": 2, "n": 18, "k": 6, "norm": "rms", "activation": "none", "clamp": 0}, draw=source)
case("bf16", {"m": 3, "n": 16, "k": 24, "groups": 2, "precision": "bf16"}, row=1, draw=source)
size = {"m": 2, "n": 7, "k": 10, "norm": "none", "precision": "bf16"}
case("bf16 without a norm", size, row=1, absent=("gamma", "beta"), draw=source)

case("gamma alone", {"m": 2, "n": 8, "k": 5, "groups": 2}, absent=("beta",), draw=source)
case("beta alone", {"m": 2, "n": 8, "k": 5, "groups": 2}, absent=("gamma",), draw=source)
# Words of the classes, of numbers that lie in the middle between two of them too.
for precision, half in (("tf32", 2**-11), ("bf16", 2**-8)):
    x = [f32((1 + (2 * i + 1) * half) * (-1) ** i) if i % 3 else f32(source.gauss(0, 1)) for i in range(3 * 8)]
    w = [f32(1 + (2 * i + 1) * half) if i % 4 == 1 else f32(source.gauss(0, 1)) for i in range(4 * 8)]
    size = {"m": 3, "n": 4, "k": 8, "clamp": 0, "activation": "none", "norm": "none", "precision": precision}
    case(f"words of {precision}", size, absent=("bias", "bias2", "gamma", "beta"), draw=source, put={"x": x, "w": w})
# A product of zero, so that biases are what is activated: where formulas turn, and on either side of it.
turns = [float(v) for v in ("nan", "inf", "-inf", "0", "-0", "3e38", "-3e38", "1e-42", "-1e-42", "1e-30", "-1e-30")]
turns += [
    sign * v for v in (1e-4, 0.25, 1, 2, 3, 4, 4.75, 5.0625, 5.25, 6.5, 8, 9.5, 13, 17, 19.5, 20.5) for sign in (1, -1)
]
turns += [-25, -40, -60, -80, -86, -95, -102, -150, -199, -201, 25, 60, 86, 90]
turns = [f32(v) for v in turns] + [0.0] * (-len(turns) % 4)
zeros = {"x": [0.0] * 4, "w": [1.0] * (4 * len(turns)), "bias": turns}
for activation in ("none", "relu", "gelu", "gelu_tanh", "silu", "mish", "sigmoid", "tanh"):
    size = {"m": 1, "n": len(turns), "k": 4, "clamp": 0, "norm": "none", "activation": activation}
    case(f"turns of {activation}", size, absent=("bias2", "gamma", "beta"), draw=source, put=zeros)
size = {"m": 1, "n": len(turns), "k": 4, "lo": -0.25, "hi": 3, "norm": "none", "activation": "none"}
case("turns of the clamp", size, absent=("bias2", "gamma", "beta"), draw=source, put=zeros)
