# SPDX-License-Identifier: Apache-2.0
"""The matrix product with what follows it, for PyTorch: one op, whole in a compiled graph. It has no gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _fast
from .. import _gemm as plain
from .._ops import op
from ._functions import refuse_tangents
from ._namespace import NAMESPACE

_NAMES = ("x", "weight", "bias", "bias2", "gamma", "beta")
_fast_call = _fast.create(op("gemm_norm"), plain.NAMES, ["y"], only_torch=True)
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_library.define(
    "gemm_norm(Tensor x, Tensor weight, Tensor? bias, Tensor? bias2, Tensor? gamma, Tensor? beta, int groups, "
    "float lo, float hi, float eps, bool clamp, str activation, str norm, str precision) -> Tensor"
)


def _kernel(x, weight, bias, bias2, gamma, beta, groups, lo, hi, eps, clamp, activation, norm, precision) -> Tensor:
    given = {"groups": groups, "lo": lo, "hi": hi, "eps": eps, "clamp": clamp}
    given |= {"activation": activation, "norm": norm, "precision": precision}
    tensors = (None if tensor is None else tensor.detach() for tensor in (x, weight, bias, bias2, gamma, beta))
    return plain.gemm_norm(*tensors, **given)


def _no_gradient(*arguments) -> Tensor:
    for name, tensor in zip(_NAMES, arguments):
        if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"quern.torch.gemm_norm has no gradient, and {name} requires one: call it under torch.no_grad(), or "
                "give .detach()"
            )
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.quern.gemm_norm(*arguments)


for _key in ("CPU", "CUDA"):
    _library.impl("gemm_norm", _kernel, _key)
_library.impl("gemm_norm", _no_gradient, "Autograd")


@torch.library.register_fake(f"{NAMESPACE}::gemm_norm", lib=_library)
def _fake(x, weight, *rest) -> Tensor:
    return x.new_empty(plain.result_shape(x, weight))


def gemm_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    bias2: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    groups: int = 1,
    lo: float = -1.0,
    hi: float = 1.0,
    eps: float = 1e-5,
    clamp: bool = True,
    activation: str = "mish",
    norm: str = "group",
    precision: str = "fp32",
) -> Tensor:
    """As quern.gemm_norm, for tensors of one device: norm(activation(clamp(x @ weight.T + bias + bias2, lo, hi))) *
    gamma + beta. torch.compile sees one op. There is no gradient: a RuntimeError where one would be needed."""
    if not torch.compiler.is_compiling():
        made = _fast_call(
            None, x, weight, bias, bias2, gamma, beta, groups, lo, hi, eps, clamp, activation, norm, precision, None
        )  # fmt: skip
        if made is not NotImplemented:
            return made
    refuse_tangents("quern.torch.gemm_norm", (x, weight, bias, bias2, gamma, beta))
    return torch.ops.quern.gemm_norm(
        x, weight, bias, bias2, gamma, beta, groups, lo, hi, eps, clamp, activation, norm, precision
    )


__all__ = ["gemm_norm"]
