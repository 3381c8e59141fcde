# SPDX-License-Identifier: Apache-2.0
"""Models whose training an optimizer's step is a part of: GPT-2 and ViT in plain PyTorch, with exactly the parameters
of the command's workloads of these names, in that order, and random data. They are for times alone: there is no
dropout, and nothing is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

HEAD = 64  # channels of a head of attention


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width)


class _Linear(nn.Module):
    """A layer of this many inputs and outputs; `inputs_first`: its weight lies as GPT-2's do, (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int, inputs_first: bool) -> None:
        super().__init__()
        self.inputs_first = inputs_first
        self.weight = nn.Parameter(torch.empty((inputs, outputs) if inputs_first else (outputs, inputs)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        if not self.inputs_first:
            return functional.linear(x, self.weight, self.bias)
        made = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return made.view(*x.shape[:-1], made.shape[-1])


class _Block(nn.Module):
    """Attention and two layers, each on what is normalised before it."""

    def __init__(self, width: int, gpt: bool) -> None:
        super().__init__()
        self.gpt = gpt
        self.norm1 = _norm(width)
        self.qkv, self.out = _Linear(width, 3 * width, gpt), _Linear(width, width, gpt)
        self.norm2 = _norm(width)
        self.up, self.down = _Linear(width, 4 * width, gpt), _Linear(4 * width, width, gpt)

    def _attention(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, width // HEAD, HEAD).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.gpt)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(self.norm1(x))
        made = functional.gelu(self.up(self.norm2(x)), approximate="tanh" if self.gpt else "none")
        return x + self.down(made)


class GPT(nn.Module):
    """GPT-2, its head tied to the embedding. Called with tokens, of which each is told from those before it."""

    def __init__(self, width: int, layers: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocabulary, width))
        self.position = nn.Parameter(torch.empty(context, width))
        self.blocks = nn.ModuleList(_Block(width, gpt=True) for _ in range(layers))
        self.norm = _norm(width)

    def data(self, batch: int) -> tuple[Tensor, Tensor]:
        tokens = torch.randint(len(self.embedding), (batch, len(self.position) + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        x = functional.embedding(tokens, self.embedding) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        told = functional.linear(self.norm(x), self.embedding)
        return functional.cross_entropy(told.view(-1, told.shape[-1]), wanted.view(-1))


class ViT(nn.Module):
    """ViT with a class token. Called with images and their classes."""

    def __init__(self, width: int, layers: int, patch: int, size: int, classes: int) -> None:
        super().__init__()
        self.patch, self.size, self.classes = patch, size, classes
        self.first = nn.Parameter(torch.empty(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, 1 + (size // patch) ** 2, width))
        self.embedding = nn.Parameter(torch.empty(width, 3, patch, patch))
        self.bias = nn.Parameter(torch.zeros(width))
        self.blocks = nn.ModuleList(_Block(width, gpt=False) for _ in range(layers))
        self.norm = _norm(width)
        self.head = _Linear(width, classes, inputs_first=False)

    def data(self, batch: int) -> tuple[Tensor, Tensor]:
        return torch.randn(batch, 3, self.size, self.size), torch.randint(self.classes, (batch,))

    def forward(self, images: Tensor, wanted: Tensor) -> Tensor:
        patches = functional.conv2d(images, self.embedding, self.bias, stride=self.patch).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(images), -1, -1), patches], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)[:, 0]), wanted)


@torch.no_grad()
def fill(model: nn.Module) -> None:
    """Random values; norms and biases are as they were made."""
    for param in model.parameters():
        if param.dim() > 1:
            param.normal_(0, 0.02)


@dataclass(frozen=True)
class Trained:
    """A model under the name that its list of tensors has. `batch`: how many sequences or images a step sees."""

    make: Callable[[], GPT | ViT]
    batch: int
    of: str  # what a batch is made of


TRAINED = {
    "vit-b16": Trained(lambda: ViT(768, 12, 16, 224, 1000), 32, "images of 224 x 224"),
    "gpt2-124m": Trained(lambda: GPT(768, 12, 50257, 1024), 4, "sequences of 1024"),
    "gpt2-355m": Trained(lambda: GPT(1024, 24, 50257, 1024), 4, "sequences of 1024"),
    "gpt-10m": Trained(lambda: GPT(384, 4, 8192, 256), 4, "sequences of 256"),
}


def shapes_of(name: str) -> list[tuple[int, ...]]:
    """Of the model's parameters."""
    with torch.device("meta"):
        return [tuple(param.shape) for param in TRAINED[name].make().parameters()]
