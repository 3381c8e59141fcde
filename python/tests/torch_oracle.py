# SPDX-License-Identifier: Apache-2.0
"""Lion's bits by PyTorch's float64, for the tests of quern.torch: every line is computed in double and rounded to
f32 once, as the contract's fma has it (a second rounding could differ once in 2^29 elements, and the data are
fixed). It shares no code with the library."""

import torch


def f32(x):
    return torch.as_tensor(x, dtype=torch.float64).to(torch.float32).to(torch.float64)


def lion(param, grad, momentum, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, keep=None, maximize=False, scale=1.0):
    """One step in f32: the new (param, momentum), whatever the storage of the arguments. `scale` multiplies the
    step."""
    p, m = (x.detach().to(torch.float32).to(torch.float64) for x in (param, momentum))
    g = grad.detach().to(torch.float32).to(torch.float64) * (-1 if maximize else 1)
    b1, b2 = betas
    c = f32(f32(b1) * m + f32(f32(1 - b1) * g))
    step = f32(f32(lr) * f32(scale))
    keep = f32(1 - lr * weight_decay if keep is None else keep)
    new = f32(p * keep - step * torch.sign(c))
    return new.to(torch.float32), f32(f32(b2) * m + f32(f32(1 - b2) * g)).to(torch.float32)


def bits(tensor):
    """Compares bits, so that zeros of both signs differ."""
    return tensor.detach().cpu().contiguous().view({4: torch.int32, 2: torch.int16}[tensor.element_size()])


def same_bits(one, other):
    return one.dtype == other.dtype and torch.equal(bits(one), bits(other))
