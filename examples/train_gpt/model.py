# SPDX-License-Identifier: Apache-2.0
"""A small GPT over bytes: embeddings, blocks of attention and a perceptron, a head. It knows nothing of optimizers.

Shapes in comments: B sequences of T bytes, width W, H heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

BYTES = 256


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.gather = nn.Linear(width, width, bias=False)
        self.before_perceptron = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)

    def attend(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        split = self.query_key_value(x).view(b, t, 3, self.heads, w // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each B H T W/H
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.gather(seen.transpose(1, 2).reshape(b, t, w))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.before_attention(x))
        return x + self.narrow(functional.gelu(self.widen(self.before_perceptron(x)), approximate="tanh"))


class GPT(nn.Module):
    """Embedding and head are two matrices, so the embeddings of bytes that a text has not get no gradient."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.byte = nn.Embedding(BYTES, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.after = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def groups(self) -> list[dict]:
        """Parameter groups: embeddings and head, whose rows are bytes and places, and all else."""
        tables = [self.byte.weight, self.place.weight, self.head.weight]
        others = [one for one in self.parameters() if not any(one is table for table in tables)]
        return [{"params": others}, {"params": tables, "is_embedding": True}]

    def forward(self, x: Tensor, following: Tensor) -> Tensor:
        """The mean loss, in nats a byte and in f32, of following (B T) after x (B T)."""
        hidden = self.byte(x) + self.place(torch.arange(x.shape[1]))  # B T W
        for block in self.blocks:
            hidden = block(hidden)
        guesses = self.head(self.after(hidden)).float()  # B T 256
        return functional.cross_entropy(guesses.flatten(0, 1), following.flatten())
