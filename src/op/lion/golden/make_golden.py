#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make Lion's golden vectors: python3 src/op/lion/golden/make_golden.py > src/op/lion/golden/lion.txt

An implementation of its own, from the paper's formula and the words of the contract (src/op/lion/README.md), not from
the C: numbers are exact fractions, rounded once where the contract says so. It needs Python 3.8 and nothing else, and
checks its roundings and its Philox against known answers before it writes a line.

workbench/golden.h has the lines of the file.
"""
import math
import random
import struct
import sys
from fractions import Fraction

# ---- numbers: a stored number is its bits; a value is a Fraction, or one of these ----
NAN, INF, MINUS_INF, MINUS_ZERO = "nan", "inf", "-inf", "-0"
FORMATS = {"f32": (8, 23), "bf16": (8, 7), "f16": (5, 10)}


def decode(form, bits):
    exponent_bits, fraction_bits = FORMATS[form]
    bias = (1 << (exponent_bits - 1)) - 1
    negative = bits >> (exponent_bits + fraction_bits)
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return NAN if fraction else MINUS_INF if negative else INF
    if exponent:
        fraction, exponent = fraction + (1 << fraction_bits), exponent - 1
    value = Fraction(fraction) * Fraction(2) ** (exponent + 1 - bias - fraction_bits)
    return MINUS_ZERO if negative and value == 0 else -value if negative else value


def encode(form, value):
    """To nearest, ties to even."""
    exponent_bits, fraction_bits = FORMATS[form]
    sign_at, bias = exponent_bits + fraction_bits, (1 << (exponent_bits - 1)) - 1
    infinite = ((1 << exponent_bits) - 1) << fraction_bits
    if value == NAN:
        return infinite | 1 << (fraction_bits - 1)
    if value in (INF, MINUS_INF):
        return infinite | (value == MINUS_INF) << sign_at
    if value == MINUS_ZERO:
        return 1 << sign_at
    sign, size = (value < 0) << sign_at, abs(value)
    if size == 0:
        return 0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    units = size / Fraction(2) ** (exponent - fraction_bits)  # one unit is one step
    whole, rest = divmod(units, 1)
    whole = int(whole)
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    bits = whole + ((exponent + bias - 1) << fraction_bits)  # a carry runs into the exponent
    return sign | min(bits, infinite)


def single(value):
    """Rounded to f32, as a value."""
    return decode("f32", encode("f32", value))


def is_number(x):
    return isinstance(x, Fraction) or x == MINUS_ZERO


def number(x):
    return Fraction(0) if x == MINUS_ZERO else x


def is_negative(x):
    return x in (MINUS_INF, MINUS_ZERO) or (isinstance(x, Fraction) and x < 0)


def negate(x):
    return {NAN: NAN, INF: MINUS_INF, MINUS_INF: INF, MINUS_ZERO: Fraction(0)}.get(x) if isinstance(x, str) else \
        MINUS_ZERO if x == 0 else -x


def product(a, b):
    """Exact."""
    if NAN in (a, b):
        return NAN
    negative = is_negative(a) != is_negative(b)
    if not (is_number(a) and is_number(b)):
        if (is_number(a) and number(a) == 0) or (is_number(b) and number(b) == 0):
            return NAN
        return MINUS_INF if negative else INF
    exact = number(a) * number(b)
    return MINUS_ZERO if exact == 0 and negative else exact


def total(a, b):
    """Exact."""
    if NAN in (a, b) or {a, b} == {INF, MINUS_INF}:
        return NAN
    for x in (a, b):
        if x in (INF, MINUS_INF):
            return x
    if a == MINUS_ZERO and b == MINUS_ZERO:
        return MINUS_ZERO
    return number(a) + number(b)


def multiply(a, b):
    return single(product(a, b))


def fma(a, b, c):
    return single(total(product(a, b), c))


def divide(a, b):
    if NAN in (a, b):
        return NAN
    negative = is_negative(a) != is_negative(b)
    if not is_number(a):
        return NAN if not is_number(b) else MINUS_INF if negative else INF
    if not is_number(b):
        return MINUS_ZERO if negative else Fraction(0)
    if number(b) == 0:
        return NAN if number(a) == 0 else MINUS_INF if negative else INF
    quotient = number(a) / number(b)
    if quotient == 0:
        return MINUS_ZERO if negative else quotient
    rounded = single(quotient)
    return MINUS_ZERO if rounded == 0 and negative else rounded


def sign(x):
    if x == NAN:
        return NAN
    if is_number(x) and number(x) == 0:
        return Fraction(0)
    return Fraction(-1) if is_negative(x) else Fraction(1)


# ---- random words and rounding by chance ----
def philox(counter, key):
    """Philox4x32-10 (Salmon et al., 2011)."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


PARAM_STREAM, MOMENTUM_STREAM = 0, 1


def word_of(seed, step, tensor_id, stream, element):
    block = element // 4
    counter = (block & 0xFFFFFFFF, block >> 32 & 0x3FFFFFF | stream << 28, tensor_id & 0xFFFFFFFF, step & 0xFFFFFFFF)
    return philox(counter, (seed & 0xFFFFFFFF, seed >> 32))[element % 4]


def encode_by_chance(form, value, word):
    """`value` is of f32. The dropped bits plus as many random ones carry into what is kept, or do not."""
    if value in (NAN, INF, MINUS_INF):
        return encode(form, value)
    bits = encode("f32", value)
    negative, size = bits >> 31, bits & 0x7FFFFFFF
    if form == "bf16":
        return negative << 15 | (size + (word & 0xFFFF)) >> 16
    exponent = size >> 23
    if exponent >= 143:  # 65536 and more
        return negative << 15 | 0x7C00
    if exponent >= 113:  # normal in f16: 13 bits are dropped
        return negative << 15 | (size - (112 << 23) + (word & 0x1FFF)) >> 13
    significand = (size & 0x7FFFFF) + (0x800000 if exponent else 0)
    dropped = 126 - max(exponent, 1)
    if dropped > 32:
        significand, dropped = significand >> (dropped - 32), 32
    return negative << 15 | (significand + word % (1 << dropped)) >> dropped


def store(form, value, word=None):
    return encode(form, value) if form == "f32" or word is None else encode_by_chance(form, value, word)


# ---- Lion ----
DEFAULTS = dict(lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0, reference_lr=1.0, decay="lr", maximize=0, cautious=0,
                rounding="nearest", momentum_rounding="nearest", seed=0, step=0)


def rounded(x):
    """A double, rounded to f32."""
    return single(Fraction(x))


def keep_of(p):
    lr, wd, reference = p["lr"], p["weight_decay"], p["reference_lr"]
    lost = {"lr": lr * wd, "relative": wd * lr / reference, "squared": wd * lr * lr / reference}[p["decay"]]
    return rounded(1.0 - lost)


def direction_of(p, gradient, momentum):
    c = fma(rounded(p["beta1"]), momentum, multiply(rounded(1.0 - p["beta1"]), gradient))
    return sign(c)


def scaled_gradient(p, types, bits):
    g = decode(types["grad"], bits)
    if "grad_scale" in p:
        g = divide(g, rounded(p["grad_scale"]))
    return negate(g) if p["maximize"] else g


def agrees(s, g):
    at = product(s, g)
    return at != NAN and not is_negative(at) and at != 0


def step_tensor(p, types, place, state, grad):
    """One tensor, one step; `state` maps role to a list of bits and is changed."""
    if p.get("found_inf"):
        return
    n = len(grad)
    main = "master" if types["master"] != "-" else "param"
    gradients = [scaled_gradient(p, types, g) for g in grad]
    momenta = [decode(types["momentum"], m) for m in state["momentum"]]
    signs = [direction_of(p, g, m) for g, m in zip(gradients, momenta)]
    factor = Fraction(1)
    if p["cautious"]:
        count, whole = sum(agrees(s, g) for s, g in zip(signs, gradients)), n
        if "agreement" in p:
            count, whole = p["agreement"][2 * place], p["agreement"][2 * place + 1]
        factor = rounded(float(whole) / max(float(count), 0.001 * float(whole)))
    first = p.get("first_element", {place: 0})[place]
    tensor_id = p.get("tensor_id", {place: place})[place]
    for i in range(n):
        g, m, s = gradients[i], momenta[i], signs[i]
        move = multiply(rounded(p["lr"]), s)
        if p["cautious"]:
            if s != NAN and g != NAN and not agrees(s, g):
                move = multiply(rounded(p["lr"]), Fraction(0))
            move = multiply(factor, move)
        value = fma(decode(types[main], state[main][i]), keep_of(p), negate(move))
        m = fma(rounded(p["beta2"]), m, multiply(rounded(1.0 - p["beta2"]), g))
        words = [word_of(p["seed"], p["step"], tensor_id, stream, first + i)
                 for stream in (PARAM_STREAM, MOMENTUM_STREAM)]
        if main == "master":
            state["master"][i] = encode("f32", value)
        state["param"][i] = store(types["param"], value, words[0] if p["rounding"] == "stochastic" else None)
        state["momentum"][i] = store(types["momentum"], m, words[1] if p["momentum_rounding"] == "stochastic" else None)


# ---- the numbers that cases begin with ----
ODD = [0.0, -0.0, 1e-30, -1e-42, 1e-45, 3e15, -2e15, math.inf, -math.inf, math.nan, 65519.0,
       1.17549435e-38, 6e-8, 2.0e-7]


def draw(source, scale, odd):
    x = source.gauss(0, scale)
    return source.choice(ODD) if source.random() < odd else x


def bits_of(form, x):
    if math.isnan(x):
        return encode(form, NAN)
    if math.isinf(x):
        return encode(form, INF if x > 0 else MINUS_INF)
    return encode(form, MINUS_ZERO if x == 0 and math.copysign(1, x) < 0 else Fraction(x))


def tensors(source, form, elements, scale, odd):
    return [[bits_of(form, draw(source, scale, odd)) for _ in range(n)] for n in elements]


# ---- writing ----
ROLES = ("param", "grad", "momentum", "master")


def hexadecimal(form, lists):
    width = 8 if form == "f32" else 4
    return " ".join(f"{bits:0{width}x}" for one in lists for bits in one)


def write_params(out, p, was):
    words = []
    for name, value in p.items():
        if was.get(name) == value:
            continue
        if isinstance(value, dict):
            words.append(f"{name}=" + ",".join(str(value[k]) for k in sorted(value)))
        elif isinstance(value, list):
            words.append(f"{name}=" + ",".join(map(str, value)))
        elif name == "hyper":
            words.append("hyper")
        else:
            words.append(f"{name}={value!r}".replace("'", ""))
    if words:
        out.append("set " + " ".join(words))


def write_case(out, name, row, elements=(21, 6), steps=4, odd=0.25, each_step=None, exactly=None, **params):
    """`exactly`: bits by role, of one tensor and of one step, in place of numbers drawn."""
    types = dict(zip(ROLES, row.split()))
    exactly = {role: [bits] for role, bits in (exactly or {}).items()}
    if exactly:
        elements, steps = [len(bits) for bits in next(iter(exactly.values()))], 1
    p = dict(DEFAULTS, **params)
    source = random.Random(f"{name} {row} 1")
    state = [{} for _ in elements]
    out += [f"case {name}", f"types {row}"]
    write_params(out, p, DEFAULTS)
    out.append("tensor " + " ".join(map(str, elements)))
    for role, scale in (("param", 0.02), ("momentum", 0.1), ("master", 0.02)):
        if types[role] == "-":
            continue
        start = tensors(source, types[role], elements, scale, odd)
        if role == "param" and types["master"] != "-":
            start = [[encode(types["param"], NAN)] * n for n in elements]  # only written
        if role == "momentum":
            for one in start:  # with a gradient of zero there (below): the direction is exactly zero
                one[-1] = encode(types[role], Fraction(0))
        start = exactly.get(role, start)
        for s, one in zip(state, start):
            s[role] = list(one)
        out.append(f"give {role} " + hexadecimal(types[role], start))
    for k in range(steps):
        before, p = p, dict(p, step=p["step"] + (k > 0), **(each_step(k) if each_step else {}))
        write_params(out, dict(p, step=before["step"]), before)  # it counts up by itself
        grads = tensors(source, types["grad"], elements, 0.3, odd / 3)
        for one in grads:
            one[-1] = encode(types["grad"], Fraction(0))
        grads = exactly.get("grad", grads)
        out += ["give grad " + hexadecimal(types["grad"], grads), "step"]
        for place, (s, grad) in enumerate(zip(state, grads)):
            step_tensor(p, types, place, s, grad)
        for role in ("param", "momentum", "master"):
            if types[role] != "-":
                out.append(f"want {role} " + hexadecimal(types[role], [s[role] for s in state]))
    out.append("end")


ROWS = ["f32 f32 f32 -", "f32 bf16 f32 -", "f32 f16 f32 -",
        "bf16 bf16 f32 -", "bf16 bf16 bf16 -", "bf16 f32 f32 -", "bf16 f32 bf16 -",
        "f16 f16 f32 -", "f16 f16 bf16 -", "f16 f32 f32 -", "f16 f32 bf16 -",
        "bf16 bf16 bf16 f32", "bf16 bf16 f32 f32", "f16 f16 f16 f32", "f16 f16 f32 f32"]

REFUSED = ["lr=-0.5 : lr -0.5", "lr=nan : lr nan", "lr=inf : lr inf", "beta1=1 : beta1 1", "beta1=-0.1 : beta1 -0.1",
           "beta1=nan : beta1 nan", "beta2=1 : beta2 1", "beta2=1.5 : beta2 1.5", "beta2=-1 : beta2 -1",
           "weight_decay=-0.25 : weight_decay -0.25",
           "weight_decay=nan : weight_decay nan", "decay=3 : decay 3", "decay=-1 : decay -1", "maximize=2 : maximize 2",
           "cautious=-1 : cautious -1", "rounding=2 : rounding 2", "momentum_rounding=9 : momentum_rounding 9",
           "decay=1 reference_lr=0 : reference_lr 0", "decay=2 reference_lr=-1 : reference_lr -1",
           "decay=1 reference_lr=nan : reference_lr nan"]


# ---- the edges of the formula: exactly these numbers ----
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0**-149, -(2.0**-149), 5 * 2.0**-149, 6 * 2.0**-149]


def pairs(row):
    """Every edge as gradient with every edge as momentum."""
    types = dict(zip(ROLES, row.split()))
    return {"grad": [bits_of(types["grad"], g) for g in EDGES for _ in EDGES],
            "momentum": [bits_of(types["momentum"], m) for _ in EDGES for m in EDGES]}


def balance(beta1):
    """beta1 m and (1 - beta1) g cancel, but for their roundings; and m's neighbours."""
    source, grads, momenta = random.Random("balance"), [], []
    for _ in range(16):
        g = rounded(source.uniform(-1, 1))
        m = encode("f32", -rounded(1.0 - beta1) * g / rounded(beta1))
        grads += [encode("f32", g)] * 7
        momenta += [m + k for k in range(-3, 4)]
    return {"grad": grads, "momentum": momenta}


def ladder(form):
    """Masters of every magnitude that rounding meets, ties and ends of ranges among them; NaN with every payload."""
    source, least = random.Random("ladder"), -14 if form == "f16" else -126
    values = [Fraction(source.uniform(1, 2)) * Fraction(2) ** e for e in range(max(least - 44, -149), least + 4)]
    values += [Fraction(k, 4) * Fraction(2) ** (least - FORMATS[form][1]) for k in range(1, 15)]  # ties of small steps
    most = {"f16": 16, "bf16": 128}[form]
    values += [Fraction(2) ** most * (1 - Fraction(k, 1 << 14)) for k in range(1, 10)]
    values += [1 + Fraction(k, 4 << FORMATS[form][1]) for k in range(1, 9)]
    bits = [encode("f32", v) for v in values] + [encode("f32", -v) for v in values]
    return {"master": bits + [0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00001, 0x7F800000, 0x7F7FFFFF]}


def far_factors():
    """{count, n} beyond 2^24, whose quotient in f32 alone would be another."""
    n, count = (1 << 26) + 3, (1 << 25) + 5
    while numbers_in_f32(n, count) == rounded(n / count):
        count += 2
    return [count, n, 3, (1 << 40) + 1]


def numbers_in_f32(n, count):
    return single(single(Fraction(n)) / single(Fraction(count)))


def write_edges(out):
    for row in ("f32 f32 f32 -", "bf16 f32 bf16 -"):
        write_case(out, "edges", row, exactly=pairs(row), lr=3e-4)
        write_case(out, "edges, cautious", row, exactly=pairs(row), lr=3e-4, cautious=1)
        write_case(out, "edges, cautious, maximize", row, exactly=pairs(row), lr=3e-4, cautious=1, maximize=1)
        write_case(out, "agreement beyond 2^24", row, cautious=1, agreement=far_factors(), steps=1, lr=3e-4)
        values = [math.nan, -1.0, -0.0, 1e-45, math.inf]
        write_case(out, "found inf is anything", row, elements=(5,), steps=5, found_inf=0.0,
                   each_step=lambda k, of=values: {"found_inf": of[k]}, lr=3e-4)
    write_case(out, "cautious, a step near the largest", "f32 f32 f32 -", cautious=1, agreement=[0, 21, 0, 6], steps=1,
               lr=1e38, odd=0.0)
    for maximize in (0, 1):
        write_case(out, "balance", "f32 f32 f32 -", exactly=balance(0.9), beta1=0.9, lr=3e-4, maximize=maximize)
    write_case(out, "a decay of half a step", "f32 f32 f32 -", lr=2.0**-25 * (1 + 2.0**-26), weight_decay=1.0, steps=1)
    for form in ("bf16", "f16"):
        for rounding in ("nearest", "stochastic"):
            write_case(out, f"ladder, {rounding}", f"{form} {form} f32 f32", exactly=ladder(form), lr=0.0,
                       rounding=rounding, seed=0x123456789ABCDEF)
    # A word that carries out of 32 bits.
    high = next(k for k in range(1 << 16) if word_of(6, 0, 0, PARAM_STREAM, k) > 0xFF000000)
    write_case(out, "far below the least f16", "f16 f16 f32 f32", exactly={"master": [0x2F7FFFFF]}, odd=0.0, lr=0.0,
               rounding="stochastic", seed=6, first_element={0: high})
    write_case(out, "a shard across 2^34", "bf16 bf16 bf16 -", rounding="stochastic", momentum_rounding="stochastic",
               seed=6, first_element={0: (1 << 34) - 39, 1: (1 << 34) - 2}, elements=(75, 9), steps=1, lr=3e-4)


def write_all(out):
    rates = dict(lr=3e-4, weight_decay=0.1)
    for row in ROWS:
        write_case(out, "nearest", row, **rates)
        short = {"rounding": "stochastic"} if row.split()[0] != "f32" else {}
        if row.split()[2] != "f32":
            short["momentum_rounding"] = "stochastic"
        if short:
            write_case(out, "stochastic", row, seed=0x9E3779B97F4A7C15, step=0xFFFFFFFE, **short, **rates)
        for one in short if len(short) == 2 else ():
            write_case(out, f"{one} alone by chance", row, steps=2, seed=1 << 32, **{one: "stochastic"}, **rates)
    for row in ("f32 f32 f32 -", "bf16 f32 bf16 -"):
        write_case(out, "decay relative", row, decay="relative", reference_lr=0.003, **rates)
        write_case(out, "decay squared", row, decay="squared", reference_lr=0.003, **rates)
        write_case(out, "maximize", row, maximize=1, **rates)
        write_case(out, "cautious", row, cautious=1, **rates)
        write_case(out, "agreement given", row, cautious=1, agreement=[3, 40, 0, 12], **rates)
        write_case(out, "gradient scale", row, grad_scale=1024.0, **rates)
        write_case(out, "gradient scale no power of two", row, grad_scale=3.0, **rates)
        write_case(out, "found inf at step 1", row, found_inf=0.0,
                   each_step=lambda k: {"found_inf": float(k == 1)}, **rates)
        write_case(out, "rates from device memory", row, hyper=1, each_step=lambda k: {"lr": 1e-3 / (k + 1)},
                   weight_decay=0.1)
    write_case(out, "all at once", "bf16 bf16 bf16 f32", maximize=1, cautious=1, grad_scale=65536.0, hyper=1,
               decay="relative", reference_lr=0.002, rounding="stochastic", momentum_rounding="stochastic",
               seed=77, step=41, **rates)
    write_case(out, "shards and numbers", "bf16 bf16 bf16 -", rounding="stochastic", momentum_rounding="stochastic",
               seed=5, first_element={0: 3, 1: (1 << 36) + 2}, tensor_id={0: 9, 1: (7 << 32) + 1},
               elements=(13, 14), **rates)
    write_case(out, "defaults", "f32 f32 f32 -", elements=(40,))
    write_case(out, "no momentum", "f32 f32 f32 -", beta1=0.0, beta2=0.0, lr=0.5, weight_decay=1.5)
    write_edges(out)
    out += [f"refuse {line}" for line in REFUSED]


def check_myself():
    known = {(0, 0, 0, 0): ((0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
             (0xFFFFFFFF,) * 4: ((0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
             (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344): ((0xA4093822, 0x299F31D0),
                                                              "d16cfe09 94fdcceb 5001e420 24126ea1")}
    for counter, (key, answer) in known.items():
        assert " ".join(f"{w:08x}" for w in philox(counter, key)) == answer
    source = random.Random(3)
    for _ in range(20000):
        x = source.uniform(-2, 2) * 2.0 ** source.randint(-152, 127)
        assert encode("f32", Fraction(x)) == struct.unpack("<I", struct.pack("<f", x))[0]
        y = source.uniform(-2, 2) * 2.0 ** source.randint(-27, 14)
        assert encode("f16", Fraction(y)) == struct.unpack("<H", struct.pack("<e", y))[0]
        for form in FORMATS:  # by chance: a neighbour of the value, and the value itself where it can be stored
            bits = encode(form, Fraction(y))
            assert form == "f32" or encode_by_chance(form, decode(form, bits), source.getrandbits(32)) in (bits, 0x8000)


def main():
    check_myself()
    out = ["# Golden vectors of lion. Made by: python3 src/op/lion/golden/make_golden.py > src/op/lion/golden/lion.txt"]
    write_all(out)
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
