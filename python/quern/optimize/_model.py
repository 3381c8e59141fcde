# SPDX-License-Identifier: Apache-2.0
"""quern.torch.optimize."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from . import _search, _timing
from ._report import Report
from .runtime import Fast, plain, state

SHAPES = 8  # kinds of calls that get a plan of their own


class Optimized(torch.nn.Module):
    """A module that answers as `original` does. report: of the example's kind of call; reports: of every kind."""

    def __init__(self, model: torch.nn.Module, seconds: float, shapes: int, verify: bool, compare: bool) -> None:
        super().__init__()
        self.original = model
        self.training = model.training
        self.report = Report()
        self.reports: list[Report] = []
        self._plans: list[Fast] = []
        self._found: list[_search.Found] = []
        self._seen: dict = {}
        self._settings = seconds, verify, compare
        self._most = shapes
        self._register_load_state_dict_pre_hook(self._prefixed)

    @staticmethod
    def _prefixed(state_dict: dict, prefix: str, *_) -> None:
        """state_dict leaves "original." out of the names; a parent's load_state_dict looks for it."""
        for key in [key for key in state_dict if key.startswith(prefix)]:
            state_dict[f"{prefix}original.{key[len(prefix) :]}"] = state_dict.pop(key)

    def forward(self, *args, **kwargs):
        for plan in self._plans:
            made = plan.results(args, kwargs)
            if made is not None:
                return made[0]
        if len(self._seen) < self._most and self._plans and not self._known(args, kwargs):
            self._learn(args, kwargs)
            return self.forward(*args, **kwargs)
        return self.original(*args, **kwargs)

    def train(self, mode: bool = True):
        self.original.train(mode)
        self.training = mode
        return self

    def state_dict(self, *args, **kwargs):
        return self.original.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        return self.original.load_state_dict(*args, **kwargs)

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("original"), name)

    # ---- kinds of calls ----
    def _kind(self, args: tuple, kwargs: dict):
        leaves, spec = pytree.tree_flatten((args, kwargs))
        device = next((x.device.type for x in leaves if isinstance(x, torch.Tensor)), "cpu")
        kinds = tuple((x.dtype, x.shape, x.stride(), x.device) if isinstance(x, torch.Tensor) else x for x in leaves)
        modes = tuple(module.training for module in self.original.modules())
        return kinds, str(spec), modes, state(device == "cuda")

    def _known(self, args: tuple, kwargs: dict) -> bool:
        """Whether this kind was looked at already, or needs what no plan gives."""
        if torch.is_grad_enabled() and any(
            t.requires_grad
            for t in [*self.original.parameters(), *pytree.tree_leaves((args, kwargs))]
            if isinstance(t, torch.Tensor)
        ):
            return True
        try:
            kind = self._kind(args, kwargs)
            return kind in self._seen or not plain()
        except TypeError:  # a value that cannot be a key
            return True

    def _learn(self, args: tuple, kwargs: dict) -> Report:
        report = Report()
        try:
            self._seen[self._kind(args, kwargs)] = report
        except TypeError:
            report.why.append("it runs as it was: an argument cannot be compared")
            self.reports.append(report)
            return report
        self.reports.append(report)
        try:
            found = _search.search(self.original, self.original, args, kwargs, report, *self._settings)
        except Exception as error:  # whatever it is, the module ran before
            text = str(error).splitlines()[0] if str(error) else ""
            report.why.append(f"it runs as it was: {type(error).__name__}: {text}")
            return report
        if found is not None:
            self._plans.insert(0, found.fast)
            self._found.insert(0, found)
        return report


def optimize(
    model: torch.nn.Module,
    example_inputs: object,
    example_kwargs: dict | None = None,
    *,
    seconds: float = 1.0,
    shapes: int = SHAPES,
    verify: bool = True,
    compare: bool = False,
) -> Optimized:
    """A module that answers as `model` does, and faster where that is possible: `model` as one plan of fused kernels
    and PyTorch's own ops, in a CUDA graph on a GPU. Alternatives are timed and the fastest is held against the model on
    several kinds of data; `model` itself runs where nothing is gained, in training, and for calls of another kind.

    example_inputs  the arguments of a typical call: a tensor or a tuple
    example_kwargs  its keywords
    seconds         time for the timing of the alternatives of one kind of call
    shapes          most kinds of calls (shapes, types, modes) that get a plan; others run as before
    verify          False skips the comparison on data other than the example
    compare         time torch.compile's default mode beside the alternatives; the report says by how much it is beaten

    `.report` says what was done; `.original` is the model, whose parameters are used at each call."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, it must be a torch.nn.Module")
    if isinstance(example_inputs, torch.Tensor):
        args: tuple = (example_inputs,)
    elif isinstance(example_inputs, (tuple, list)):
        args = tuple(example_inputs)
    else:
        kind = type(example_inputs).__name__
        raise TypeError(
            f"example_inputs is a {kind}, it must be a tensor or a tuple; keywords go as (model, (), {{...}})"
        )
    if example_kwargs is not None and not isinstance(example_kwargs, dict):
        kind = type(example_kwargs).__name__
        raise TypeError(f"example_kwargs is a {kind}, it must be a dict; several inputs are one tuple: (model, (x, y))")
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds}, it must be above 0")
    made = Optimized(model, seconds, shapes, verify, compare)
    made.report = made._learn(args, dict(example_kwargs or {}))
    if made._plans:
        made.report.bandwidth = _timing.bandwidth(made._plans[0].device)
    return made
