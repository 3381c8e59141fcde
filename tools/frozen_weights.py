# SPDX-License-Identifier: Apache-2.0
"""Which share of 16-bit weights a Lion step cannot move when its result is rounded to nearest: frozen_weights.py > CSV.

Lion moves every weight by lr, up or down. A stored weight is frozen at that lr if both results round back to it.
Weights are N(0, 0.02) rounded to storage; the share is exact, a sum over all storage values of the normal
distribution's mass that rounds to each, so nothing is drawn. Weight decay is 0. With decay a weight may move where it
would not without, by decay alone. It knows no library: f32 arithmetic and both roundings are spelled out here."""

import math
import struct

SIGMA = 0.02
RATES = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)
# name, exponent of the smallest step (subnormals), bits of the significand with the leading one, summed up to here
STORAGE = (("bf16", -133, 8, 1.0), ("f16", -24, 11, 1.0))


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def spacing(x, least, digits):
    """The distance from x >= 0 to the next storage value above."""
    exponent = math.frexp(x)[1] - digits if x else least
    return math.ldexp(1.0, max(exponent, least))


def nearest(x, least, digits):
    """x rounded to storage, to nearest even; exact in double, as |x| < 2 has few enough digits."""
    step = spacing(abs(x), least, digits)
    return math.copysign(round(abs(x) / step) * step, x)


def below(x):
    """The probability of a weight's magnitude below x."""
    return math.erf(x / SIGMA / math.sqrt(2))


def frozen_share(lr, least, digits, most):
    lr, share, x, edge = f32(lr), 0.0, 0.0, 0.0
    while x < most:
        step = spacing(x, least, digits)
        up = min(x + step / 2, most)  # all values between edge and up round to x
        if all(nearest(f32(x + move), least, digits) == x for move in (lr, -lr)):
            share += below(up) - below(edge)
        x, edge = x + step, up
        if x < lr / 4:  # far below lr everything moves: begin where it can stop
            start = math.ldexp(1.0, math.frexp(lr / 4)[1] - 1)
            if start > x:
                x, edge = start, start
    return share


print("storage,sigma,lr,share that never moves")
for name, least, digits, most in STORAGE:
    for lr in RATES:
        print(f"{name},{SIGMA},{lr:g},{frozen_share(lr, least, digits, most):.4f}")
