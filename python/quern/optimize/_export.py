# SPDX-License-Identifier: Apache-2.0
"""Writes a plan into a file that rebuilds it: the problem's own text, the kernels' bodies, and a ModelNew with the
constructor and parameters of Model."""

from __future__ import annotations

import ast
import builtins

import torch

from . import _fold, _graph
from ._graph import Unplannable
from ._program import IMPORTS
from ._report import Report
from ._search import Found
from .runtime import Fast, flat_tuple

MOST_ELEMENTS = 4096  # of a constant that is written as numbers

_KEPT = '''class ModelNew(Model):
    """The model as it was: {why}."""
'''

_CLASS = '''class ModelNew(Model):
    """Model with a plan in the place of its forward. Calls of another kind than those that the plan was made for run
    Model's own forward."""

    def __init__(self, *args, **kwargs):
        fits = not kwargs and repr(args) == {init}
        super().__init__(*args, **kwargs)
        self.quern_fits = fits  # a plan holds the numbers of one constructor call
        self.quern_rebuilt = Rebuilt(
{settings}
        )

    def forward(self, *args, **kwargs):
        if not self.quern_fits:
            return super().forward(*args, **kwargs)
        return self.quern_rebuilt(self, super().forward, args, kwargs)
'''


def module_text(source: str, found: Found | None, report: Report, init: str = "()") -> str:
    """The text of a file. found None: the plan is the model itself."""
    head = source.rstrip() + "\n\n\n# ---- by python -m quern.optimize ----\n"
    head += "".join(f"# {line}\n" for line in _summary(report)) + "\n"
    if found is None:
        why = "; ".join(report.why) or "nothing is gained"
        return head + "\n" + _KEPT.format(why=why.replace("\\", "/").replace('"""', "'''"))
    alternative = found.alternative
    body = "" if alternative.program is None else alternative.program.text.strip("\n")
    imports = IMPORTS.replace("import Memory", "import Memory, Rebuilt")
    _refuse_names(source, body)
    made = _CLASS.format(
        init=repr(init), settings="".join(f"            {k}={v},\n" for k, v in _settings(found).items()).rstrip("\n")
    )
    return "\n".join([head + imports, *([body, "\n"] if body else []), made])


def _summary(report: Report) -> list[str]:
    """Of the report, without the times, which are of one machine."""
    skip = ("floor:", "  ")
    return [line for line in str(report).splitlines() if not line.startswith(skip)]


def _settings(found: Found) -> dict[str, str]:
    fast, captured, alternative = found.fast, found.captured, found.alternative
    main, prepare = alternative.main, alternative.prepare
    slots = {slot.name: slot for slot in captured.slots}
    if captured.in_spec.num_leaves != len(captured.leaves) or not fast.flat:
        raise Unplannable("its arguments are more than tensors and numbers by place")
    constants, attributes = {}, {}
    passed: list[str] = []
    prepared_from: list[str] = []
    users = fast.users
    if main is not None:
        names, _ = _fold.order(main, prepare, slots, captured.users)
        passed = [slots[name].target for name in names]
        prepared_from = [slots[name].target for name in prepare.inputs] if prepare else []
        used = {*passed, *prepared_from}
        constants = {s.target: _number_text(s.tensor, s.target) for s in captured.slots
                     if s.kind == "constant" and s.target in used}  # fmt: skip
        attributes = {s.target: s.tensor for s in captured.slots if s.kind == "attribute" and s.target in used}
    updated = [slots[name].target for name, _ in captured.graph.updates]
    return {
        "plan": "None" if alternative.program is None else "quern_plan",
        "prepare": "None" if alternative.prepare is None else "quern_prepare",
        "passed": repr(passed),
        "prepared_from": repr(prepared_from),
        "updated": repr(updated),
        "constants": "{" + ", ".join(f"{name!r}: {text}" for name, text in constants.items()) + "}",
        "attributes": "{" + ", ".join(f"{name!r}: {_leaf_text(t)}" for name, t in attributes.items()) + "}",
        "users": repr(users),
        "example": "[" + ", ".join(map(_leaf_text, captured.leaves)) + "]",
        "training": repr(_modes(fast)),
        "device": repr(fast.device.type),
        "several": repr(_several(captured.out_spec)),
        "graphed": repr(fast.graphed),
        "states": repr([slot.target for slot in captured.states]),
    }


def _several(spec) -> int:
    if spec.is_leaf():
        return 0
    if spec == flat_tuple(spec.num_leaves):
        return spec.num_leaves
    raise Unplannable("its result is neither a tensor nor a tuple of tensors")


def _modes(fast: Fast) -> list[bool] | bool:
    modes = [module.training for module in fast.model.modules()]
    return modes[0] if len(set(modes)) == 1 else modes


def _leaf_text(leaf) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"({leaf.dtype}, {tuple(leaf.shape)}, {leaf.stride()})"
    if type(leaf) not in (int, float, bool, str, type(None)):
        raise Unplannable(f"an argument is a {type(leaf).__name__}")
    return repr(leaf)


def _number_text(tensor: torch.Tensor, name: str) -> str:
    if tensor.numel() > MOST_ELEMENTS:
        raise Unplannable(f"its constant {name} has {tensor.numel()} elements")
    if tensor.dtype not in _graph.DTYPES or not bool(tensor.isfinite().all()):
        raise Unplannable(f"its constant {name} cannot be written as numbers")
    return f"torch.tensor({tensor.cpu().tolist()}, dtype={tensor.dtype})"


def _refuse_names(source: str, body: str) -> None:
    """A name that the file uses must not be given another meaning."""
    made = {node.name for node in ast.parse(body).body if isinstance(node, ast.FunctionDef)}
    made |= {t.id for node in ast.parse(body).body if isinstance(node, ast.Assign) for t in node.targets
             if isinstance(t, ast.Name)}  # fmt: skip
    made |= {"Memory", "ModelNew", "Rebuilt", "partial", "quern"}
    own = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)} - set(dir(builtins))
    own |= {node.name for node in ast.parse(source).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    both = sorted(made & own)
    if both:
        raise Unplannable(f"it has the names {', '.join(both)} already")
