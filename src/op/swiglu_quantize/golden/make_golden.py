#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden vectors of swiglu_quantize:
python3 src/op/swiglu_quantize/golden/make_golden.py > src/op/swiglu_quantize/golden/swiglu_quantize.txt

From the words of the contract (src/op/swiglu_quantize/README.md): exact fractions, rounded once where it says so; what
comes before the scale is swiglu's script's. A case has its row of types, its size and params, the bits of what is read,
and what must be written as the bits of doubles, all in hexadecimal."""
import importlib.util
import pathlib
import random
import struct
from fractions import Fraction

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("swiglu", HERE.parent.parent / "swiglu" / "golden" / "make_golden.py")
swiglu = importlib.util.module_from_spec(spec)
spec.loader.exec_module(swiglu)
numbers = swiglu.numbers
NAN, INF, MINUS_INF = numbers.NAN, "inf", "-inf"
VALUES = [Fraction(m, 512) for m in range(8)]
VALUES += [Fraction(8 + m) * Fraction(2) ** (e - 10) for e in range(1, 16) for m in range(8)]
VALUES.pop()  # its bits are NaN's
FORMS = ("f32", "bf16", "f16")


def e4m3(x):
    """The nearest of all values, of two the one with an even last bit."""
    if x == NAN:
        return 0x7F
    sign = 0x80 if numbers.is_negative(x) else 0
    if x in (INF, MINUS_INF):
        return sign | 0x7E
    size = abs(numbers.number(x))
    return sign | min(range(len(VALUES)), key=lambda code: (abs(VALUES[code] - size), code % 2))


def value_of(code):
    size = float("nan") if code & 0x7F == 0x7F else float(VALUES[code & 0x7F])
    return -size if code & 0x80 else size


def double(x):
    return f"{struct.unpack('<Q', struct.pack('<d', x))[0]:x}"


def scale_of(row):
    sizes = [abs(numbers.number(x)) for x in row if numbers.is_number(x)]
    most = max(sizes, default=Fraction(0))
    return max(numbers.single(most / 448), Fraction(1, 2**126)) if most else Fraction(1)


def edges(form):
    """Rows of what reglu leaves as it is: zeros; the smallest numbers; those about the least scale; none that is finite
    and some; the largest; ties of f8e4m3 under a scale of 1, and what is beyond it where the scale is given."""
    least = swiglu.decode(form, 1)
    bound = Fraction(448) / 2**126
    ties = [Fraction(k, 1024) for k in range(1, 16)] + [Fraction(448)]
    beyond = [Fraction(x) for x in (448, 456, 463, 464, 465, 472, 479, 480, 512, 17, 19, 21, 23, 1, 2)]
    rows = [[Fraction(0)] * 16, [least * k for k in range(16)], [bound * k / 15 for k in range(16)],
            [bound * k / 14 for k in range(16)], [INF, NAN] * 8, [INF, NAN, Fraction(1), Fraction(3)] * 4,
            [INF, Fraction(1)] * 8,
            [swiglu.decode(form, swiglu.encode(form, INF) - 1 - k) for k in range(16)], ties, beyond + [INF]]
    return [[swiglu.decode(form, swiglu.encode(form, x)) for x in row] for row in rows]


def write_case(name, form, rows, cols, scales, **params):
    p = dict(swiglu.DEFAULTS, **params)
    source = random.Random(f"{name} {form} {scales}")
    a, b = ([[numbers.draw(source, 2, 0.1) for _ in range(cols)] for _ in range(rows)] for _ in range(2))
    a, b = ([[swiglu.decode(form, numbers.bits_of(form, x)) for x in row] for row in half] for half in (a, b))
    a[-1] = [Fraction(0)] * cols
    if name.startswith("edges"):
        a, b = edges(form), [[Fraction(1)] * cols for _ in range(rows)]
    values = [[swiglu.forward(p, form, x, y)[0] for x, y in zip(*pair)] for pair in zip(a, b)]
    if scales:
        by = [numbers.single(Fraction(source.uniform(0.001, 0.1))) for _ in range(scales)] * (rows // scales)
        by = [Fraction(1)] * rows if name.startswith("edges") else by
    else:
        by = [scale_of(row) for row in values]
    inverse = [numbers.divide(Fraction(1), s) for s in by]
    codes = [e4m3(swiglu.multiply(x, i)) for row, i in zip(values, inverse) for x in row]
    settings = "".join(f" {key}={value}" for key, value in params.items())
    how = (" ~scale" if scales == 1 else "") if scales else " computes=1"
    print(f"case {name}, {form}\ntypes f8e4m3 f32 {form} {form}\nsize m={rows} n={cols}{how}{settings}")
    if scales:
        print("give scale", swiglu.bits("f32", by[:scales]))
    print("give a", swiglu.bits(form, sum(a, [])))
    print("give b", swiglu.bits(form, sum(b, [])))
    print("want c", *(double(value_of(code)) for code in codes))
    if not scales:
        print("want scale", *(double(float(x)) for x in by))
    print("end")


print("# Golden vectors of swiglu_quantize. Made by: python3 src/op/swiglu_quantize/golden/make_golden.py")
for form in FORMS:
    write_case("one scale", form, 3, 17, 1)
    write_case("a scale a row", form, 3, 17, 3, gate_multiplier=1.3, down_multiplier=0.7)
    write_case("computed", form, 3, 17, 0)
    write_case("computed, geglu_erf", form, 3, 17, 0, activation="geglu_erf")
    write_case("computed, clamped", form, 3, 17, 0, activation="clamped", limit=0.5)
    write_case("edges, computed", form, 10, 16, 0, activation="reglu")
    write_case("edges, given", form, 10, 16, 1, activation="reglu")
