# SPDX-License-Identifier: Apache-2.0
"""A KernelBench problem: a file that defines Model, get_inputs and get_init_inputs, as a model with its inputs."""

from __future__ import annotations

import random
import sys
import types
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

SEED = 42  # of KernelBench


class Bad(Exception):
    """A sentence for the caller."""


@dataclass
class Problem:
    """init: the text of the constructor's arguments."""

    source: str
    model: torch.nn.Module
    inputs: tuple
    init: str


def open_problem(source: str, path: str, device: torch.device, seed: int = SEED) -> Problem:
    """Makes the model and its inputs on the device, as the judge does. Bad: a sentence that names the path."""
    module = _load(source, path)
    return Problem(source, *_make(module, path, device, seed))


def _load(source: str, path: str) -> types.ModuleType:
    try:
        code = compile(source, path, "exec")
    except SyntaxError as error:
        raise Bad(f"{path}:{error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise Bad(f"{path}: {error}") from None
    module = types.ModuleType("problem")
    module.__file__ = path
    sys.modules[module.__name__] = module  # as dataclasses expect
    try:
        exec(code, module.__dict__)
    except Exception as error:
        raise Bad(f"{path} fails: {type(error).__name__}: {error}") from None
    for name in ("Model", "get_inputs"):
        if not hasattr(module, name):
            raise Bad(f"{path} defines no {name}")
    return module


def _make(module: types.ModuleType, path: str, device: torch.device, seed: int) -> tuple:
    """(the model, its inputs, the text of the constructor's arguments)."""

    def move(value):
        return value.to(device) if isinstance(value, torch.Tensor) else value

    def again() -> None:
        random.seed(seed)
        torch.manual_seed(seed)

    try:
        again()
        inputs = pytree.tree_map(move, tuple(module.get_inputs()))
        init = pytree.tree_map(move, list(getattr(module, "get_init_inputs", list)()))
        again()
        model = module.Model(*init).to(device)
        with torch.no_grad():
            model(*inputs)
        again()
        model = module.Model(*init).to(device)
    except Exception as error:
        raise Bad(f"{path} fails: {type(error).__name__}: {error}") from None
    return model, inputs, repr(tuple(init))
