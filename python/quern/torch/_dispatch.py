# SPDX-License-Identifier: Apache-2.0
"""An op of torch.library with one Python entry a call: where it has a fast call (_fast.py), that is tried at the first
key of the dispatcher that sees the tensors, and answers for all keys below. Only what it leaves alone, such as fake
tensors and transforms, goes the dispatcher's whole way. No op is known here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _inductor


def refuse_tangents(name: str, values: Sequence) -> None:
    """Forward mode passes over ops of torch.library without a word: their tangents would come out as zeros."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return
    if any(isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None for value in values):
        raise RuntimeError(f"quern: {name} has no jvp, which forward-mode differentiation wants: use reverse mode")


def _first(fast: Callable | None, kernel: Callable) -> Callable:
    if fast is None:
        return kernel

    def run(*arguments: Any) -> Any:
        made = fast(None, *arguments)
        return kernel(*arguments) if made is NotImplemented else made

    return run


class _Library(torch.library.Library):
    """Of one op. PyTorch's own kernel for autograd is the second that its key has."""

    def __init__(self, full: str, fast: Callable | None) -> None:
        super().__init__(full.partition("::")[0], "FRAGMENT")
        self._full, self._fast = full, fast

    def impl(self, op_name: Any, fn: Callable, dispatch_key: str = "", **how: Any) -> None:
        if dispatch_key != "Autograd":
            return super().impl(op_name, fn, dispatch_key, **how)
        fast, full = self._fast, self._full

        def run(keys: Any, *arguments: Any) -> Any:
            made = NotImplemented if fast is None else fast(None, *arguments)
            if made is not NotImplemented:
                return made
            refuse_tangents(full, arguments)
            return fn(keys, *arguments)

        return super().impl(op_name, run, dispatch_key, **how)


def define(
    full: str,
    schema: str,
    kernel: Callable,
    fake: Callable,
    backward: Callable,
    keep: Callable | None = None,
    *,
    fast: Callable | None = None,
    fast_recorded: Callable | None = None,
) -> Any:
    """Defines "space::name" and returns it.

    kernel, fake    what it computes, and what it says of fake tensors
    backward, keep  as torch.library.register_autograd takes them
    fast            tried first, as fast(None, *arguments), or with the memory of a single result in the place of None:
                    NotImplemented is for "not here". It leaves alone what autograd is to record
    fast_recorded   in its place before autograd's kernel: it records where a gradient is wanted"""
    if full in _libraries:  # defined again, as in a notebook
        _libraries.pop(full)._destroy()
    library = _Library(full, fast_recorded or fast)
    space, _, name = full.partition("::")
    library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA", "CompositeExplicitAutograd"):
        library.impl(name, _first(fast, kernel), key)
    op = None
    is_lowered = fast is None or not schema.endswith("-> Tensor")

    def fake_once_more(*arguments: Any) -> Any:
        nonlocal is_lowered
        is_lowered = is_lowered or _inductor.lower(op)
        return fake(*arguments)

    torch.library.register_fake(full, fake_once_more, lib=library)
    torch.library.register_autograd(full, backward, setup_context=keep, lib=library)
    _libraries[full] = library
    op = getattr(getattr(torch.ops, space), name).default
    op.quern_into = None if fast is None else _inductor.writer(fast, op)
    return op


_libraries: dict[str, _Library] = {}  # an op lives as long as its library
