# SPDX-License-Identifier: Apache-2.0
"""The polynomials of src/base/maths.h: fit_maths.py prints each one's f32 coefficients, lowest power first, and error.

Each is the weighted minimax fit (Remez' exchange on a grid) to a function known to 70 digits. Coefficients are
rounded to f32 one after the other, lowest power first, and what is left is fitted again after each, so that later
ones make up for the rounding of earlier ones. Errors are those of the rounded polynomial in exact arithmetic, as a
power of two: what evaluation in f32 adds is measured by tests/maths_all.c. It knows no library; it also prints the
split constants."""

import math
import struct
from decimal import Decimal as D
from decimal import getcontext

getcontext().prec = 70
PI = D("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421")
LN2, GRID = D(2).ln(), 600


def f32(x):
    """x to nearest f32; through double, of which 29 more digits are enough for a coefficient."""
    return D(struct.unpack("f", struct.pack("f", float(x)))[0])


def series(first, ratio):
    """first + first * ratio(1) + ... until nothing is added."""
    total, term, k = D(0), first, 0
    while abs(term) > D(10) ** -68 * max(abs(total), D(10) ** -30):
        total, k = total + term, k + 1
        term *= ratio(k)
    return total


def sin(x):
    return series(x, lambda k: -x * x / (2 * k * (2 * k + 1)))


def cos(x):
    return series(D(1), lambda k: -x * x / (2 * k * (2 * k - 1)))


def erf(x):
    return 2 / PI.sqrt() * series(x, lambda k: -x * x * (2 * k - 1) / (k * (2 * k + 1)))


def mills(t):
    """Phi(-t) e^(t^2/2) by a sum of which some 48 digits cancel at 14.6, of 70."""
    return ((t * t / 2).exp() - 2 * series(t, lambda k: t * t / (2 * k + 1)) / (2 * PI).sqrt()) / 2


def tail(slope, shift, scale, u):
    """scale Phi(-t) e^(t^2/2) / v with v = u + shift = 1 / (1 + slope t)."""
    return scale * mills((1 / (u + shift) - 1) / slope) / (u + shift)


def solve(rows):
    """Gaussian elimination; each row ends with its right side."""
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            by = rows[r][i] / rows[i][i]
            rows[r] = [a - by * b for a, b in zip(rows[r], rows[i])]
    x = [D(0)] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][j] * x[j] for j in range(i + 1, n))) / rows[i][i]
    return x


def remez(points, powers, wanted, weight):
    """Coefficients of these powers for which the largest |weight (polynomial - wanted)| over the points is about the
    least, and that largest error. Powers without the zeroth may not alternate at all; then the best set seen is it."""
    n, last = len(powers) + 1, len(points) - 1
    chosen = sorted({round(last * (1 - math.cos(math.pi * (k + 0.1) / (n - 0.7))) / 2) for k in range(n)})
    best = None
    for _ in range(30):
        rows = [[points[i] ** p for p in powers] + [(-1) ** k / weight[i], wanted[i]] for k, i in enumerate(chosen)]
        *coefficients, _ = solve(rows)
        error = [
            weight[i] * (sum(c * x**p for c, p in zip(coefficients, powers)) - wanted[i]) for i, x in enumerate(points)
        ]
        worst = max(map(abs, error))
        if not best or worst < best[1]:
            best = coefficients, worst
        peaks = []  # the largest of each run of one sign
        for i, e in enumerate(error):
            if peaks and (error[peaks[-1]] > 0) == (e > 0):
                peaks[-1] = max(peaks[-1], i, key=lambda j: abs(error[j]))
            else:
                peaks.append(i)
        while len(peaks) > n:  # a run too many is dropped at the end where it is lower
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        if peaks == chosen or len(peaks) < n:
            break
        chosen = peaks
    return best


def fit(name, low, high, degree, f, weight):
    """f by a polynomial of this degree over [low, high]; prints it."""
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * D(math.cos(math.pi * (k + 0.5) / GRID)) for k in range(GRID)]
    wanted, weights, fixed = [f(x) for x in points], [weight(x) for x in points], []
    rest, least = remez(points, range(degree + 1), wanted, weights)
    for k in range(degree + 1):
        left = [w - sum(c * x**p for p, c in enumerate(fixed)) for x, w in zip(points, wanted)]
        again, worst = remez(points, range(k, degree + 1), left, weights)
        rest = again if worst < least * 2 else rest[1:]
        fixed.append(f32(rest[0]))
    worst = max(abs(w * (sum(c * x**p for p, c in enumerate(fixed)) - y)) for x, y, w in zip(points, wanted, weights))
    print(f"{name}: error 2^{math.log2(worst):.1f}, 2^{math.log2(least):.1f} before rounding")
    print("  " + " ".join(text(c) for c in fixed))


def text(x):
    """A float as C writes it: 0x1.62e43p-1f."""
    digits, exponent = float(x).hex().split("p")
    return digits.rstrip("0").rstrip(".") + "p" + exponent.lstrip("+") + "f"


def split(name, x, words):
    """x as a sum of f32s, each the rest's nearest."""
    parts = []
    for _ in range(words):
        parts.append(f32(x - sum(parts)))
    print(f"{name}:\n  " + " ".join(map(text, parts)))


def main():
    margin = D("1.0001")
    split("log2(e)", 1 / LN2, 2)
    split("ln(2)", LN2, 2)
    split("2/pi", 2 / PI, 1)
    split("pi/2", PI / 2, 3)
    bits = int(2 / PI * 2**192)
    print(
        "2/pi, 32 binary digits each:\n  " + " ".join(f"0x{bits >> (160 - 32 * k) & 0xFFFFFFFF:08x}u" for k in range(6))
    )
    end = LN2 / 2 * margin
    fit("e^r = 1 + r + r^2 q(r)", -end, end, 4, lambda r: (r.exp() - 1 - r) / (r * r), lambda r: r * r / r.exp())
    fit("e^r - 1 = r + r^2 q(r)", -end, end, 5, lambda r: (r.exp() - 1 - r) / (r * r), lambda r: abs(r))
    fit("e^r = 1 + r q(r), short", -end, end, 4, lambda r: (r.exp() - 1) / r, lambda r: abs(r / r.exp()))
    end = margin / 2
    fit("2^r = 1 + r q(r)", -end, end, 5, lambda r: ((r * LN2).exp() - 1) / r, lambda r: abs(r) / (r * LN2).exp())
    low, high = D(2).sqrt() / 2 - 1, D(2).sqrt() - 1
    fit(
        "ln(1 + f) = f + f^2 q(f)",
        low,
        high,
        8,
        lambda f: ((1 + f).ln() - f) / (f * f),
        lambda f: abs(f * f / (1 + f).ln()),
    )
    end = (PI / 4 * D("1.004")) ** 2
    tiny = D(10) ** -6
    fit("sin(r) = r + r^3 q(r^2)", tiny, end, 2, lambda s: (sin(s.sqrt()) / s.sqrt() - 1) / s, lambda s: s)
    fit(
        "cos(r) = 1 - r^2/2 + r^4 q(r^2)",
        tiny,
        end,
        2,
        lambda s: (cos(s.sqrt()) - 1 + s / 2) / (s * s),
        lambda s: s * s,
    )
    fit("erf(x) = x + x q(x^2)", tiny, D(1), 6, lambda s: erf(s.sqrt()) / s.sqrt() - 1, lambda s: D(1))
    fit("erf(x) = 1 - e^(x q(x))", D(1), D(4), 5, lambda x: (1 - erf(x)).ln() / x, lambda x: x * (1 - erf(x)))
    fit("2^r = 1 + r q(r), short", -margin / 2, margin / 2, 4, lambda r: ((r * LN2).exp() - 1) / r, lambda r: abs(r))
    split("1/sqrt(2 pi)", 1 / (2 * PI).sqrt(), 1)
    tails = ((9, D("0.25"), D("0.59375"), 0), (6, D("0.375"), D(0), 64))  # the short one comes 2^-64 times
    for degree, slope, shift, down in tails:
        scale = D(2) ** -down
        fit(
            f"2^-{down} Phi(-t) = e^(-t^2/2) v q(v - {shift}), v = 1 / (1 + {slope} t)",
            1 / (1 + slope * D("14.625")) - shift,
            1 - shift,
            degree,
            lambda u, of=(slope, shift, scale): tail(*of, u),
            lambda u, of=(slope, shift, scale): 1 / tail(*of, u),
        )


if __name__ == "__main__":
    main()
