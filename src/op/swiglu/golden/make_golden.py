#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden vectors of swiglu: python3 src/op/swiglu/golden/make_golden.py > src/op/swiglu/golden/swiglu.txt
(swiglu_backward's script, in its own folder, is this one with another word).

From the words of the contract (src/op/swiglu/README.md), not from the C: numbers are exact fractions, rounded once
where the contract says so; the sigmoid is the contract's chain of steps, and is held against the true one before a line
is written. What f64 holds is the formula's true value, rounded once. The arithmetic of fractions is Lion's script's; so
is the format of the file.
"""

import decimal
import functools
import importlib.util
import math
import pathlib
import random
import struct
import sys
from fractions import Fraction

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("numbers", HERE.parent.parent / "lion" / "golden" / "make_golden.py")
numbers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(numbers)
NAN, INF, MINUS_ZERO = numbers.NAN, numbers.INF, numbers.MINUS_ZERO
decode, encode, fma, multiply = numbers.decode, numbers.encode, numbers.fma, numbers.multiply
negate, number, is_negative = numbers.negate, numbers.number, numbers.is_negative


def constant(hexadecimal):
    return Fraction(float.fromhex(hexadecimal))


def add(a, b):
    return numbers.single(numbers.total(a, b))


def below(a, b):
    """a < b; false for NaN."""
    if NAN in (a, b):
        return False
    place = {"-inf": (-1, 0), "inf": (1, 0)}
    return place.get(a, (0, number(a) if a not in place else 0)) < place.get(b, (0, number(b) if b not in place else 0))


def size(a):
    return negate(a) if is_negative(a) else a


# ---- the sigmoid, step by step ----
WHOLE = constant("0x1.8p23") + 191
LOG2_E, LN_2, LN_2_REST = constant("0x1.715476p0"), constant("0x1.62e43p-1"), constant("-0x1.05c61p-29")
ONE = Fraction(1)
LONG = [constant(c) for c in ("0x1.6ac75p-10", "0x1.123dep-7", "0x1.555858p-5", "0x1.55548cp-3", "0x1.fffffcp-2")]
SHORT = [
    constant(c) for c in ("0x1.0f9932p-7", "0x1.573accp-5", "0x1.555a8ap-3", "0x1.fffdc4p-2", "0x1.fffff6p-1", "0x1p0")
]


def chain(coefficients, r):
    q = coefficients[0]
    for c in coefficients[1:]:
        q = fma(q, r, c)
    return q


def sigmoid(x, short):
    if x == NAN:
        return NAN
    y = negate(size(x))
    y = Fraction(-104) if below(y, Fraction(-104)) else y
    t = fma(y, LOG2_E, WHOLE)
    n = number(add(t, -WHOLE))
    near = fma(n, -LN_2, y)
    if short:
        p = chain(SHORT, near)
    else:
        low = multiply(n, -LN_2_REST)
        r = add(near, low)
        p = add(ONE, add(near, fma(multiply(r, r), chain(LONG, r), low)))
    e = multiply(multiply(p, Fraction(2) ** int(n + 64)), Fraction(1, 2**64))
    top = e if below(x, Fraction(0)) else ONE
    if short:
        return multiply(top, numbers.divide(ONE, add(ONE, e)))
    d = add(e, ONE)
    rest, inverse = add(e, negate(add(d, -ONE))), numbers.divide(ONE, d)
    quotient = multiply(top, inverse)
    left = fma(negate(quotient), rest, fma(negate(quotient), d, top))
    return fma(left, inverse, quotient)


# ---- x Phi(x) and its slope, step by step ----
MILLS = {
    "long": (
        "0.25",
        (
            "0x1.17f54ap-6",
            "0x1.aa7a02p-6",
            "-0x1.29b804p-5",
            "-0x1.5d4824p-4",
            "0x1.47eb54p-6",
            "0x1.0b5494p-2",
            "0x1.df1deep-2",
            "0x1.02ac52p-1",
            "0x1.8c7b6cp-2",
            "0x1.c4b37ap-3",
        ),
    ),
    "short": (
        "0.375",
        (
            "0x1.8c22aep-5",
            "-0x1.50367p-3",
            "0x1.071aep-3",
            "0x1.be4448p-5",
            "0x1.129adp-3",
            "0x1.317edcp-3",
            "0x1.3268ap-3",
        ),
    ),
}
POWER_OF_2 = [
    constant(c) for c in ("0x1.6036a2p-10", "0x1.3cf2dcp-7", "0x1.c6acf8p-5", "0x1.ebf9a4p-3", "0x1.62e432p-1", "0x1p0")
]
DENSITY, FAR, BIG = constant("0x1.988454p-2"), Fraction("14.625"), Fraction(2) ** 64


def gelu(x, short):
    """The tail t Phi(-t) and what belongs to the slope come 2^64 times as large, or of Mills' ratio 2^-64 times."""
    if x == NAN:
        return NAN, NAN
    t = FAR if below(FAR, size(x)) else size(x)
    square, (c, coefficients) = multiply(t, t), MILLS["short" if short else "long"]
    coefficients = [constant(c) / (BIG if short else 1) for c in coefficients]
    d = fma(t, Fraction(c), ONE)
    v, half = numbers.divide(ONE, d), Fraction(1, 2)
    scale = LOG2_E * -half if short else LOG2_E
    y = square if short else multiply(square, -half)
    n = number(add(fma(y, scale, WHOLE), -WHOLE))
    power = Fraction(2) ** int(n + 64)
    if short:
        e = multiply(chain(POWER_OF_2, fma(square, scale, -n)), power)
        tail = multiply(multiply(v, chain(coefficients, v)), e)
        inner = fma(negate(t), multiply(e, DENSITY / BIG), tail)
        value = fma(negate(t), tail, MINUS_ZERO if below(x, Fraction(0)) else x)
        return value, inner if below(x, Fraction(0)) else add(ONE, negate(inner))
    low = fma(fma(t, t, negate(square)), -half, multiply(n, -LN_2_REST))
    near = fma(n, -LN_2, y)
    r = add(near, low)
    less = add(near, fma(multiply(r, r), chain(LONG, r), low))
    rest = fma(t, Fraction(c), add(ONE, negate(d)))
    left = fma(negate(v), rest, fma(negate(v), d, ONE))
    q = chain(coefficients, add(v, Fraction("-0.59375")))
    h = fma(v, q, multiply(multiply(v, q), multiply(left, fma(v, Fraction(2), ONE))))
    tail = multiply(fma(h, less, h), power)
    inner = fma(negate(t), multiply(multiply(add(ONE, less), power), DENSITY), tail)
    value = fma(multiply(t, tail), -1 / BIG, MINUS_ZERO if below(x, Fraction(0)) else x)
    return value, multiply(inner, 1 / BIG) if below(x, Fraction(0)) else fma(inner, -1 / BIG, ONE)


# ---- the activations: value and slope ----
DEFAULTS = {"gate_multiplier": 1.0, "down_multiplier": 1.0, "alpha": 1.702, "limit": 7.0, "activation": "swiglu"}


def rounded(x):
    return numbers.single(Fraction(x))


def product(x, y, y_slope, short):
    sig = sigmoid(y, short)
    s = multiply(x, sig)
    return s, fma(multiply(s, y_slope), add(ONE, negate(sig)), sig)


def activate(p, a, short):
    x, zero = multiply(a, rounded(p["gate_multiplier"])), Fraction(0)
    gate, limit = p["activation"], rounded(p["limit"])
    if gate == "clamped":
        held, alpha = limit if below(limit, x) else x, rounded(p["alpha"])
        s, slope = product(held, multiply(alpha, held), alpha, short)
        return s, zero if below(limit, x) else slope
    if gate == "geglu":
        x2, k = multiply(x, x), rounded(2 * math.sqrt(2 / math.pi))
        if below(Fraction(2**20), x2):
            step = zero if below(x, zero) else ONE
            return multiply(x, step), step
        y = multiply(multiply(x, k), fma(x2, rounded(0.044715), ONE))
        return product(x, y, fma(x2, rounded(2 * math.sqrt(2 / math.pi) * 3 * 0.044715), k), short)
    if gate == "reglu":
        if x == NAN:
            return NAN, NAN
        return (x, ONE) if below(zero, x) else (zero, zero)
    if gate == "geglu_erf":
        return gelu(x, short)
    sig = sigmoid(x, short)
    if gate == "glu":
        return sig, multiply(sig, add(ONE, negate(sig)))
    s = multiply(x, sig)
    return s, fma(s, add(ONE, negate(sig)), sig)


def upper(p, b):
    if p["activation"] != "clamped":
        return b
    limit = rounded(p["limit"])
    b = limit if below(limit, b) else -limit if below(b, -limit) else b
    return add(b, ONE)


def forward(p, form, a, b):
    def stored(x):
        return decode(form, encode(form, x))

    s, _ = activate(p, a, form != "f32")
    c = stored(multiply(stored(s), upper(p, b)))
    return [c if p["down_multiplier"] == 1 else stored(multiply(c, rounded(p["down_multiplier"])))]


def backward(p, form, dc, a, b):
    s, slope = activate(p, a, form != "f32")
    d = multiply(dc, rounded(p["down_multiplier"]))
    db = multiply(d, s)
    if p["activation"] == "clamped" and below(rounded(p["limit"]), size(b)):
        db = Fraction(0)
    da = multiply(multiply(multiply(d, slope), upper(p, b)), rounded(p["gate_multiplier"]))
    return [da, db]


# ---- f64: the formula itself, in decimals of 60 digits, rounded once ----
decimal.getcontext().prec = 60
decimal.getcontext().Emax, decimal.getcontext().Emin = 10**6, -(10**6)
D = decimal.Decimal


def exact_phi(x):
    """The normal distribution's, by Taylor's series of erf, with as many digits as cancel and those that are wanted."""
    y = x / D(2).sqrt()
    with decimal.localcontext() as context:
        context.prec = 120 + int(y * y)
        y = x / D(2).sqrt()
        term, total, n = y, y, 0
        while abs(term) > D(10) ** (-80 - int(y * y / 2)):
            n += 1
            term = term * -y * y / n
            total += term / (2 * n + 1)
        return (1 + 2 / pi_of(context.prec).sqrt() * total) / 2


@functools.cache
def pi_of(digits):
    """Machin's formula."""
    with decimal.localcontext() as context:
        context.prec = digits + 10

        def arctangent(k):
            power, total, n = D(1) / k, D(1) / k, 1
            while power > D(10) ** (-digits - 5):
                power, n = power / (k * k), n + 2
                total += power / n * (-1) ** (n // 2)
            return total

        return 4 * (4 * arctangent(5) - arctangent(239))


def exact_product(x, y, y_slope):
    sig = 1 / (1 + (-y).exp())
    return x * sig, sig + x * sig * (1 - sig) * y_slope


def exact_activation(p, x):
    """Value and slope by x."""
    gate, one, limit = p["activation"], D(1), D(p["limit"])
    if gate == "clamped":
        held, alpha = min(x, limit), D(p["alpha"])
        s, slope = exact_product(held, alpha * held, alpha)
        return s, D(0) if x > limit else slope
    if gate == "geglu":
        k, c = 2 * (2 / pi_of(60)).sqrt(), D("0.044715")
        return exact_product(x, k * (x + c * x**3), k * (1 + 3 * c * x * x))
    if gate == "reglu":
        return max(x, D(0)), one if x > 0 else D(0)
    if gate == "geglu_erf":
        phi = exact_phi(x)
        return x * phi, phi + x * (-x * x / 2).exp() / (2 * pi_of(60)).sqrt()
    s, slope = exact_product(x if gate == "swiglu" else one, x, one)
    return s, slope if gate == "swiglu" else s * (1 - s)


def exactly(p, numbers_of_place):
    """[c] of (a, b), [da, db] of (dc, a, b)."""
    held = p["activation"] == "clamped" and abs(numbers_of_place[-1]) > p["limit"]  # then b has no gradient
    if any(math.isnan(x) for x in numbers_of_place[:-1]):
        return [math.nan, 0.0 if held else math.nan][: len(numbers_of_place) - 1]
    if math.isnan(numbers_of_place[-1]):  # the gradient of b does not depend on it
        return [math.nan, *exactly(p, (*numbers_of_place[:-1], 0.0))[1:]]
    *dc, a, b = map(D, numbers_of_place)
    s, slope = exact_activation(p, a * D(p["gate_multiplier"]))
    limit, down = D(p["limit"]), D(p["down_multiplier"])
    up = max(min(b, limit), -limit) + 1 if p["activation"] == "clamped" else b
    if not dc:
        return [float(s * up * down)]
    db = D(0) if held else dc[0] * down * s
    return [float(dc[0] * down * slope * up * D(p["gate_multiplier"])), float(db)]


def write_exact_case(out, name, row, roles, given, written, n=24, **params):
    types, p = dict(zip(roles, row.split())), dict(DEFAULTS, **params)
    source = random.Random(f"{name} {row}")
    out += [f"case {name}", f"types {row}"]
    numbers.write_params(out, p, DEFAULTS)
    out.append(f"tensor {n}")
    held = {role: [source.uniform(-5, 5) for _ in range(n)] for role in given}
    edge = p["limit"] if p["activation"] == "clamped" else 1.5  # far out glu's slope has fewer digits
    for k, value in enumerate((edge, -edge, 2 * edge + 0.5, 0.0, -0.0, 5e-324, -1e-310, math.nan)):
        held["a"][k], held["b"][(k + 9) % n] = value, value
    text = {role: " ".join(struct.pack(">d", x).hex() for x in values) for role, values in held.items()}
    for role in roles:
        if types[role] != "-" and (role in written or role not in given):
            out.append(f"give {role} " + text.get(role, " ".join(["7ff8000000000000"] * n)))
    out += [f"give {role} {text[role]}" for role in given if role not in written]
    out.append("step")
    results = [exactly(p, place) for place in zip(*(held[role] for role in given))]
    for k, role in enumerate(written):
        out.append(f"want {role} " + " ".join(struct.pack(">d", r[k]).hex() for r in results))
    out.append("end")


# ---- where a gate's formula changes, and the numbers beside: as bits of the storage, so that neighbours are ----
ENDS = {
    "swiglu": (88, 104),
    "clamped": (7,),
    "geglu": (6, 1024),
    "reglu": (1,),
    "glu": (17, 88, 104),
    "geglu_erf": (5.5, 14.625),
}
MORE = {"swiglu": (-20,), "geglu": (-5, -7, -7.5, -9, -12), "geglu_erf": (-5, -7, -9, -12)}


def both(values):
    return [y for x in values for y in (x, negate(x))]


def edges(p, form):
    """a: both ends of what the gate tells apart and their neighbours, zeros, the smallest, the largest, what is none;
    b: the same of what is told apart there; each with ordinary numbers and some with each other."""
    end = [encode(form, Fraction(x)) + k for x in ENDS[p["activation"]] for k in (-1, 0, 1)]
    far = [encode(form, Fraction(x)) for x in (1, Fraction(1, 2**140), Fraction(2) ** 15, Fraction(2) ** 127)]
    odd = [decode(form, bits) for bits in end + [1] + far] + [Fraction(0), INF]
    odd = both(odd) + [NAN]
    odd += [decode(form, encode(form, Fraction(x))) for x in MORE.get(p["activation"], ())]
    plain = [decode(form, encode(form, Fraction(x))) for x in (1, Fraction(-3, 4), 3)]
    limits = [decode(form, encode(form, rounded(7)) + k) for k in (-1, 0, 1)]
    other = both([Fraction(1), INF, decode(form, 1)] + limits)
    a = odd + [plain[k % 3] for k in range(len(other) + 1)] + odd[: len(other)]
    b = [plain[k % 3] for k in range(len(odd))] + other + [NAN] + other
    dc = [decode(form, encode(form, Fraction(x))) for x in (1, Fraction(-5, 2), Fraction(1, 3))]
    return {"a": a, "b": b, "dc": [dc[k % 3] for k in range(len(a))]}


# ---- writing ----
def bits(form, values):
    return " ".join(f"{encode(form, v):0{8 if form == 'f32' else 4}x}" for v in values)


def write_case(out, name, row, roles, given, written, compute, n=24, **params):
    types, p = dict(zip(roles, row.split())), dict(DEFAULTS, **params)
    source, form = random.Random(f"{name} {row}"), types["a"]
    held = edges(p, form) if name.startswith("edges") else None
    n = len(held["a"]) if held else n
    out += [f"case {name}", f"types {row}"]
    numbers.write_params(out, p, DEFAULTS)
    out.append(f"tensor {n}")
    given_roles = [role for role in roles if types[role] != "-"]
    if not held:
        held = {role: [numbers.draw(source, 2, 0.2) for _ in range(n)] for role in given_roles}
        held = {role: [decode(form, numbers.bits_of(form, x)) for x in values] for role, values in held.items()}
    held = {role: held.get(role, [NAN] * n) for role in given_roles}
    for role, values in held.items():
        if role not in given or role in written:
            out.append(f"give {role} " + bits(form, values if role in given else [NAN] * n))
    for role in given:
        if role not in written:
            out.append(f"give {role} " + bits(form, held[role]))
    out.append("step")
    results = [compute(p, form, *element) for element in zip(*(held[role] for role in given))]
    for k, role in enumerate(written):
        out.append(f"want {role} " + bits(form, [r[k] for r in results]))
    out.append("end")


CASES = [
    ("swiglu", {}),
    ("multipliers", {"gate_multiplier": 1.3, "down_multiplier": 0.7}),
    ("clamped", {"activation": "clamped"}),
    ("clamped near", {"activation": "clamped", "limit": 0.5, "alpha": 1.25, "down_multiplier": 0.6}),
    ("geglu", {"activation": "geglu", "gate_multiplier": 0.5, "down_multiplier": 1.25}),
    ("reglu", {"activation": "reglu", "down_multiplier": 2.5}),
    ("glu", {"activation": "glu", "gate_multiplier": 1.5, "down_multiplier": 0.9}),
    ("geglu_erf", {"activation": "geglu_erf"}),
    ("geglu_erf far", {"activation": "geglu_erf", "gate_multiplier": 5.0, "down_multiplier": 0.75}),
]
CASES += [(f"edges, {gate}", {"activation": gate}) for gate in ENDS]
REFUSED = [
    "gate_multiplier=nan : gate_multiplier nan",
    "down_multiplier=inf : down_multiplier inf",
    "alpha=nan : alpha nan",
    "limit=-1 : limit -1",
    "activation=clamped limit=0 : limit 0",
    "activation=6 : activation 6",
]


def check_myself():
    assert float(pi_of(60)) == math.pi and all(
        abs(float(exact_phi(D(x))) / (math.erfc(-x / math.sqrt(2)) / 2) - 1) < 2e-13 for x in (-30, -2.5, 0, 1, 30)
    )
    source = random.Random(4)
    for _ in range(400):
        x = numbers.single(Fraction(source.uniform(-30, 30)))
        true = 1 / (1 + math.exp(-float(x)))
        assert abs(float(number(sigmoid(x, False))) / true - 1) < 1.6 * 2**-23
        assert abs(float(number(sigmoid(x, True))) / true - 1) < 5 * 2**-23
    for _ in range(400):
        x = numbers.single(Fraction(source.uniform(-12.5, 6)))
        phi = math.erfc(float(x) / -math.sqrt(2)) / 2
        slope = phi + float(x) * math.exp(-(float(x) ** 2) / 2) / math.sqrt(2 * math.pi)
        for short, units in ((False, 4), (True, 110)):
            value, by_x = gelu(x, short)
            assert abs(float(number(value)) / (float(x) * phi) - 1) < units * 2**-23
            assert abs(float(number(by_x)) - slope) < units * 2**-23 * max(abs(slope), phi)


def main(op):
    check_myself()
    script, file = f"src/op/{op}/golden/make_golden.py", f"src/op/{op}/golden/{op}.txt"
    out = [f"# Golden vectors of {op}. Made by: python3 {script} > {file}"]
    for form in ("f32", "bf16", "f16"):
        for name, params in CASES:
            if op == "swiglu":
                write_case(out, name, f"{form} {form} {form}", ("c", "a", "b"), ("a", "b"), ("c",), forward, **params)
                continue
            roles, given = ("dc", "a", "b", "da", "db"), ("dc", "a", "b")
            write_case(out, name, " ".join([form] * 5), roles, given, ("da", "db"), backward, **params)
            write_case(
                out, name + ", over a and b", f"{form} {form} {form} - -", roles, given, ("a", "b"), backward, **params
            )
    near_one = {"gate_multiplier": 1 + 1e-10, "down_multiplier": 1 - 1e-10}  # which f32 rounds to 1
    for name, params in [*CASES, ("multipliers near 1", near_one)]:
        if op == "swiglu":
            write_exact_case(out, name, "f64 f64 f64", ("c", "a", "b"), ("a", "b"), ("c",), **params)
            continue
        roles, given = ("dc", "a", "b", "da", "db"), ("dc", "a", "b")
        write_exact_case(out, name, "f64 f64 f64 f64 f64", roles, given, ("da", "db"), **params)
        write_exact_case(out, name + ", over a and b", "f64 f64 f64 - -", roles, given, ("a", "b"), **params)
    out += [f"refuse {line}" for line in REFUSED]
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main("swiglu")
