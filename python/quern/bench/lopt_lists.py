# SPDX-License-Identifier: Apache-2.0
"""The lists of tensors over which learned optimizers are timed: what models hold, by name, as shapes. The command's
workloads (`quern bench`) are of one dimension, and what is factored depends on all of them."""

from __future__ import annotations

import math

Shapes = list[tuple[int, ...]]


def _gpt(width: int, layers: int, vocabulary: int, context: int) -> Shapes:
    """GPT-2's parameters as Hugging Face has them, the head tied to the embedding."""
    norm: Shapes = [(width,), (width,)]
    layer = [
        *norm,
        *[(width, 3 * width), (3 * width,), (width, width), (width,)],
        *norm,
        *[(width, 4 * width), (4 * width,), (4 * width, width), (width,)],
    ]
    return [(vocabulary, width), (context, width), *layer * layers, *norm]


def _vit(width: int, layers: int, patch: int, tokens: int, classes: int) -> Shapes:
    """ViT's as timm has them."""
    norm: Shapes = [(width,), (width,)]
    layer = [
        *norm,
        *[(3 * width, width), (3 * width,), (width, width), (width,)],
        *norm,
        *[(4 * width, width), (4 * width,), (width, 4 * width), (width,)],
    ]
    begin: Shapes = [(1, 1, width), (1, tokens, width), (width, 3, patch, patch), (width,)]
    return [*begin, *layer * layers, *norm, (classes, width), (classes,)]


LISTS: dict[str, tuple[str, Shapes]] = {
    "gpt2-124m": ("GPT-2 small", _gpt(768, 12, 50257, 1024)),
    "gpt2-355m": ("GPT-2 medium", _gpt(1024, 24, 50257, 1024)),
    "vit-b16": ("ViT-B/16", _vit(768, 12, 16, 197, 1000)),
    "1x16384^2": ("one square matrix", [(16384, 16384)]),
    "gpt-10m": ("a GPT of four layers of 384, for processors", _gpt(384, 4, 8192, 256)),
}


def elements(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes)
