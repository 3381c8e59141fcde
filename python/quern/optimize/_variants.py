# SPDX-License-Identifier: Apache-2.0
"""Graphs that compute what a graph does in other ways: in another layout, with products in another class, with other
calls for convolutions and recurrent nets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from . import _convolutions, _fold, _products, _recurrent
from ._graph import Graph, Unplannable

LAST = ", channels_last"


@dataclass
class Variant:
    """layout: the words for it, else "". products: their class, else "". way: how convolutions and recurrent nets run
    otherwise than in `base`, of which it was made, else ""."""

    graph: Graph
    base: Graph
    layout: str = ""
    products: str = ""
    way: str = ""

    @property
    def suffix(self) -> str:
        """Behind the name of a plan of it."""
        return self.layout + (f", products in {self.products}" if self.products else "") + self.way


def variants(graph: Graph, constants: list[str]) -> Iterator[Variant]:
    """The graph itself is the first. constants: the inputs that are the same in most calls."""
    bases = [Variant(graph, graph)]
    with contextlib.suppress(Unplannable):
        last = _fold.channels_last(graph, constants)
        bases.append(Variant(last, last, layout=LAST))
    bases += [Variant(made, made, products=word) for word, made in _products.variants(graph).items()]
    for one in bases:
        yield one
        for way, made in [*_convolutions.variants(one.base, constants), *_recurrent.variants(one.base)]:
            yield Variant(made, one.base, one.layout, one.products, way)
