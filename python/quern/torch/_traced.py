# SPDX-License-Identifier: Apache-2.0
"""An optimizer's step as one torch op, so that torch.compile has it in its graph without looking into it. Learning
rate, counter and state are not the graph's: the op finds the optimizer when it runs and does what the step does
without a compiler. So nothing that changes from step to step is compiled in, and nothing is compiled anew."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._namespace import NAMESPACE

# Before, torch.compile could not trace an op that writes to a list; the step is left out of the graph then.
TRACES_LISTS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)

_numbers = itertools.count()
_optimizers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def enlist(optimizer: Any) -> int:
    """A number by which the op finds the optimizer in this process, as long as it lives."""
    number = next(_numbers)
    _optimizers[number] = optimizer
    return number


def _step(params: Sequence[Tensor], grads: Sequence[Tensor], places: Sequence[int], optimizer: int) -> None:
    """The kernel. What the graph hands over is what is to be stepped: usually the parameters' own memory, but where the
    compiler did not see that it may write there, copies of theirs, which it copies back later."""
    made = _optimizers.get(optimizer)
    if made is None:
        raise RuntimeError("quern: a compiled step of an optimizer that is no more")
    real = [made.all_params[place] for place in places]
    before = [(param, param.grad, param.data) for param in real]
    try:
        for param, value, grad in zip(real, params, grads):
            if param.data_ptr() != value.data_ptr():
                param.data = value
            param.grad = grad
        made.step_now()
    finally:
        for param, grad, value in before:
            param.grad = grad
            if param.data_ptr() != value.data_ptr():
                param.data = value


_NAME = "optimizer_step_"
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_library.define(f"{_NAME}(Tensor(a!)[] params, Tensor[] grads, int[] places, int optimizer) -> ()")
for _key in ("CPU", "CUDA"):
    _library.impl(_NAME, _step, _key)
torch.library.register_fake(f"{NAMESPACE}::{_NAME}", lambda params, grads, places, optimizer: None, lib=_library)
_op = getattr(getattr(torch.ops, NAMESPACE), _NAME).default


def step(params: Sequence[Tensor], number: int) -> None:
    """What torch.compile traces of a step: the parameters that have a gradient are read and written."""
    places = [place for place, param in enumerate(params) if param.grad is not None]
    if places:
        with torch.no_grad():
            _op([params[place] for place in places], [params[place].grad for place in places], places, number)
