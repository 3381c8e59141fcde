# SPDX-License-Identifier: Apache-2.0
"""The text that the example learns: a miller's ledger, made here, the same bytes everywhere and for ever.

Every entry is drawn from lists of equally likely words and numbers, so its entropy is known, and with it the loss below
which no model can go. The total of an entry follows from its numbers: it costs nothing to one who adds. This file knows
nothing of models."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean

DAYS, SACKS = range(1, 29), range(2, 50)
MONTHS = ["January", "February", "March", "April", "May", "June",
          "July", "August", "September", "October", "November", "December"]  # fmt: skip
NAMES = ["Ada", "Bertil", "Cecily", "Dunstan", "Edda", "Fergus", "Greta", "Hakon",
         "Isolde", "Jory", "Kester", "Lowri", "Marit", "Nessa", "Osric", "Petra"]  # fmt: skip
GRAINS = ["barley", "buckwheat", "maize", "millet", "oats", "rye", "spelt", "wheat"]
DRAWN = (DAYS, MONTHS, NAMES, SACKS, GRAINS, SACKS, GRAINS)  # one entry's draws, in order


def entry(day, month, name, first, grain, second, other, total) -> str:
    return f"{day} {month}: {name} brought {first} sacks of {grain} and {second} of {other}, {total} in all.\n"


def draw(pick: Callable[[Sequence], object]) -> str:
    """One entry; pick chooses from a list."""
    drawn = [pick(choices) for choices in DRAWN]
    return entry(*drawn, drawn[3] + drawn[5])


def ledger(n_bytes: int, seed: int) -> bytes:
    """Whole entries, n_bytes or a few more. Of Python's generator only random() is used, whose sequence it promises."""
    generator = random.Random(seed)
    entries, length = [], 0
    while length < n_bytes:
        entries.append(draw(lambda choices: choices[int(generator.random() * len(choices))]))
        length += len(entries[-1])
    return "".join(entries).encode("ascii")


def entropy() -> float:
    """Nats a byte: what an entry's choices weigh, over its mean length."""
    nats = sum(math.log(len(choices)) for choices in DRAWN)
    drawn = sum(fmean(len(str(choice)) for choice in choices) for choices in DRAWN)
    totals = fmean(len(str(first + second)) for first in SACKS for second in SACKS)
    return nats / (len(entry(*[""] * 8)) + drawn + totals)
