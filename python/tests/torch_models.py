# SPDX-License-Identifier: Apache-2.0
"""Parameters and gradients for the tests of quern.torch, the same in every process."""

import torch

SHAPES = [(7, 5), (64,), (), (1,), (3, 4, 5), (0, 3), (33, 31), (1000,)]


def parameters(shapes=SHAPES, dtype=torch.float32, seed=0, scale=0.02, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    values = [(torch.randn(shape, generator=generator) * scale).to(dtype) for shape in shapes]
    return [torch.nn.Parameter(value.to(device)) for value in values]


def give_grads(params, seed, dtype=None):
    generator = torch.Generator().manual_seed(1000 + seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(dtype or p.dtype).to(p.device)


def same(one, other):
    return all(torch.equal(p, q) for p, q in zip(one, other))


def clones(params):
    return [torch.nn.Parameter(p.detach().clone()) for p in params]


def bits(tensors):
    return [t.detach().clone() for t in tensors]
