# SPDX-License-Identifier: Apache-2.0
"""A quern.function for PyTorch's autograd, and as an op of torch.library that torch.compile has in its graph without
looking into it. The derivatives are the function's own; a second one is refused, since a kernel has none."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from ctypes import byref, c_void_p
from typing import Any

import torch
from torch import Tensor

from .. import _kernel_abi as abi
from .. import _kernel_values as values
from .._folder import FolderKernel, describe
from .._function import function as Function
from .._function import listed
from .._kernel_given import take_text
from . import _dispatch
from ._namespace import NAMESPACE


def no_second(name: str) -> RuntimeError:
    return RuntimeError(
        f"quern: {name} has no second derivative: its vjp is a kernel that has none of its own. Differentiate it once, "
        "without create_graph, or give the vjp as torch ops"
    )


def _of(f: Any) -> Function:
    if isinstance(f, Function):
        return f
    if callable(f):
        return Function(f)
    raise TypeError(f"{f!r} is no quern.function and no callable")


def _floats(values: Sequence) -> list[bool]:
    return [isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()) for value in values]


def _gradients(f: Function, inputs: Sequence, cotangents: Sequence, outputs: Sequence) -> list[Tensor | None]:
    """One an input; None for those that have none."""
    made = f.gradient([_plain(one) for one in inputs], [_plain(one) for one in cotangents], [*map(_plain, outputs)])
    return [one if is_float else None for one, is_float in zip(made, _floats(inputs))]


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


# ---- autograd ----
class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: Function, *inputs: Any) -> Any:
        outputs = f(*map(_plain, inputs))
        made = listed(outputs)
        if any(one is other for one in made for other in inputs):
            raise ValueError(f"quern: {f.name} returns an input of its own, which autograd cannot follow")
        ctx.f, ctx.places = f, [k for k, one in enumerate(inputs) if isinstance(one, Tensor)]
        ctx.others = [None if isinstance(one, Tensor) else one for one in inputs]
        tensors = [inputs[k] for k in ctx.places]
        ctx.save_for_backward(*tensors, *made)
        ctx.save_for_forward(*tensors, *made)
        ctx.mark_non_differentiable(*(one for one, is_float in zip(made, _floats(made)) if not is_float))
        return outputs if isinstance(outputs, Tensor) else tuple(made)

    @staticmethod
    def _saved(ctx: Any) -> tuple[list, list]:
        """(inputs, outputs)."""
        inputs, saved = list(ctx.others), ctx.saved_tensors
        for place, tensor in zip(ctx.places, saved):
            inputs[place] = tensor
        return inputs, list(saved[len(ctx.places) :])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        inputs, outputs = _Apply._saved(ctx)
        return (None, *_Vjp.apply(ctx.f, len(inputs), len(outputs), *inputs, *cotangents, *outputs))

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        f = ctx.f
        if not f.has_jvp:
            raise RuntimeError(f"quern: {f.name} has no jvp, which forward-mode differentiation wants")
        inputs, outputs = _Apply._saved(ctx)
        given = [
            torch.zeros_like(one) if tangent is None and isinstance(one, Tensor) else tangent
            for one, tangent in zip(inputs, tangents)
        ]
        made = listed(f.tangents([*map(_plain, inputs)], [*map(_plain, given)]))
        return made[0] if len(outputs) == 1 else tuple(made)


class _Vjp(torch.autograd.Function):
    """The vjp as a step of its own, so that whoever differentiates it again is told."""

    @staticmethod
    def forward(ctx: Any, f: Function, n_inputs: int, n_outputs: int, *values: Any) -> Any:
        ctx.f = f
        inputs, rest = values[:n_inputs], values[n_inputs:]
        return tuple(_gradients(f, inputs, rest[:n_outputs], rest[n_outputs:]))

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise no_second(ctx.f.name)


class Recorded(torch.autograd.Function):
    """apply(f, rest, *tensors): an op of the library's, whose vjp reads no outputs. The tensors are saved, and that is
    all; `rest` is what follows them."""

    @staticmethod
    def forward(ctx: Any, f: Function, rest: tuple, *tensors: Tensor) -> Any:
        ctx.f, ctx.rest = f, rest
        ctx.save_for_backward(*tensors)
        return f.forward(*tensors, *rest)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        f, given = ctx.f, (*ctx.saved_tensors, *ctx.rest)
        made = f.rule(given, cotangent.contiguous(), None) if not torch.is_grad_enabled() else None
        if made is None:  # create_graph=True
            made = _Vjp.apply(f, len(given), 1, *given, cotangent, None)
        return (None, None, *made[: len(given) - len(ctx.rest)])


def function(f: Any) -> Callable:
    """Returns f, a quern.function or a callable, as a function of tensors that autograd differentiates by f's vjp (and
    jvp, in forward mode). A second derivative is refused."""
    made = _of(f)

    def call(*inputs: Any) -> Any:
        return _Apply.apply(made, *inputs)

    call.__name__ = call.__qualname__ = made.name
    call.__doc__ = made.__doc__
    call.function = made  # type: ignore[attr-defined]
    return call


# ---- torch.library ----
_KINDS: dict[object, str] = {float: "float", int: "SymInt", bool: "bool", str: "str"}
for _kind in (float, int, bool, str):
    _KINDS[_kind.__name__] = _KINDS[_kind]  # annotations may be text


def _arguments(f: Function) -> list[tuple[str, str]]:
    """(name, kind in a schema) of each argument: of a kernel's folder its inputs, of a Python function its parameters,
    which are tensors but for those that are annotated as numbers."""
    if isinstance(f.forward, FolderKernel):
        return [(name, "Tensor") for name in f.forward.arguments]
    made = []
    for parameter in inspect.signature(f.forward).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise TypeError(f"{f.name}: its argument {parameter} is not a positional one, as an op's must be")
        made.append((parameter.name, _KINDS.get(parameter.annotation, "Tensor")))
    return made


def _quotient(a: Any, b: Any) -> Any:
    return -(-a // b) if a < 0 else a // b  # as C rounds; b is above 0


def _ceildiv(a: Any, b: Any) -> Any:
    return (a + b - 1) // b


_WORDS: dict[str, Callable] = {  # of the library's text of a shape
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient,
    "%": lambda a, b: a - _quotient(a, b) * b, "min(": torch.sym_min, "max(": torch.sym_max, "ceildiv(": _ceildiv,
    "align(": lambda a, b: _ceildiv(a, b) * b,
}  # fmt: skip


def _extent(text: str, shapes: Sequence[Sequence]) -> Any:
    stack: list = []
    for word in text.split():
        k, colon, d = word.partition(":")
        if word in _WORDS:
            b, a = stack.pop(), stack.pop()
            stack.append(_WORDS[word](a, b))
        else:
            stack.append(shapes[int(k)][int(d)] if colon else int(word))
    return stack.pop()


def _folder_shapes(kernel: FolderKernel) -> Callable:
    """The library makes the call of sizes that the symbols had, and says how its outputs' shapes follow from them."""

    def shapes(*inputs: Tensor) -> list:
        by_name = dict(zip(kernel.arguments, inputs))
        described = [describe(name, by_name.get(name)) for name in kernel.inputs]
        symbols = [shape for shape, _ in described]
        made = []
        with kernel.call_of([([*map(_size, shape)], code) for shape, code in described], {}) as call:
            for k in range(len(kernel.outputs)):
                text = c_void_p()
                abi.lib.qn_kernel_folder_shape(call, k, byref(text))
                shape = [_extent(extent, symbols) for extent in take_text(text).split(",")[:-1]]
                made.append((shape, getattr(torch, values.name_of(call.outputs[k].dtype))))
        return [one for name, one in zip(kernel.outputs, made) if name in kernel.returned]

    return shapes


def _size(extent: Any) -> int:
    """Of a symbol the size that it had when it was made, to which it is not bound by being asked here."""
    return extent.node.hint if isinstance(extent, torch.SymInt) and extent.node.has_hint() else int(extent)


def _fake_of(f: Function, output_shapes: Callable | None, output_dtypes: Any) -> Callable[..., list]:
    """What says of fake inputs which (shape, type) each output has."""
    if output_shapes is None:
        if not isinstance(f.forward, FolderKernel):
            raise TypeError(
                f"{f.name}: output_shapes is wanted, a callable that takes the inputs and gives a list of shapes"
            )
        return _folder_shapes(f.forward)

    def shapes(*inputs: Any) -> list:
        made = list(output_shapes(*inputs))
        first = next(one for one in inputs if isinstance(one, Tensor))
        dtypes = output_dtypes(*inputs) if callable(output_dtypes) else output_dtypes
        return list(zip(made, [first.dtype] * len(made) if dtypes is None else dtypes))

    return shapes


def register(
    name: str,
    f: Any,
    *,
    output_shapes: Callable | None = None,
    output_dtypes: Any = None,
    n_outputs: int | None = None,
) -> Callable:
    """Registers f as the op torch.ops.NAMESPACE.NAME and returns it; torch.compile calls it whole, without a break in
    its graph. Where f has a vjp, autograd goes by it, through a second op NAME_vjp.

    name           "mine::myexp", or "myexp" for torch.ops.quern.myexp
    f              a quern.function, a kernel of quern.load_kernel, or a callable of tensors (and of numbers that are
                   annotated as float, int or bool)
    output_shapes  a callable: the inputs, which may be without contents, in; a list of shapes out. A kernel's folder
                   says it itself
    output_dtypes  a list of torch types, or a callable as output_shapes is; None: each the first tensor's
    n_outputs      number of outputs; None: that of a kernel's folder, else one"""
    return registered(name, f, output_shapes, output_dtypes, n_outputs)


def registered(
    name: str,
    f: Any,
    output_shapes: Callable | None = None,
    output_dtypes: Any = None,
    n_outputs: int | None = None,
    *,
    fast: Callable | None = None,
    fast_recorded: Callable | None = None,
    vjp_fast: Callable | None = None,
) -> Callable:
    """As register; of the library's own ops, with what _dispatch.define tries first, for the op and for its vjp."""
    made = _of(f)
    space, _, short = name.rpartition("::")
    full = f"{space or NAMESPACE}::{short}"
    arguments, shapes = _arguments(made), _fake_of(made, output_shapes, output_dtypes)
    if n_outputs is None:
        n_outputs = len(made.forward.returned) if isinstance(made.forward, FolderKernel) else 1
    words = ", ".join(f"{kind} {word}" for word, kind in arguments)
    result = "Tensor" if n_outputs == 1 else f"({', '.join(['Tensor'] * n_outputs)})"

    def call(*inputs: Any) -> Any:
        outputs = listed(made(*map(_plain, inputs)))
        if len(outputs) != n_outputs:
            raise ValueError(f"quern: {full} gives {len(outputs)} outputs, it was registered with {n_outputs}")
        outputs = [_fresh(one, inputs) for one in outputs]
        return outputs[0] if n_outputs == 1 else tuple(outputs)

    def fake(*inputs: Any) -> Any:
        first = next(one for one in inputs if isinstance(one, Tensor))
        outputs = [first.new_empty(shape, dtype=dtype) for shape, dtype in shapes(*inputs)]
        return outputs[0] if n_outputs == 1 else tuple(outputs)

    if made.has_vjp:
        backward, keep = _define_vjp(full, made, words, len(arguments), vjp_fast)
    else:
        backward, keep = _no_gradient(made.name), None
    return _dispatch.define(
        full, f"({words}) -> {result}", call, fake, backward, keep, fast=fast, fast_recorded=fast_recorded
    )


def _fresh(one: Tensor, inputs: Sequence) -> Tensor:
    """What an op gives, row-major, in memory that no input has."""
    memory = one.untyped_storage().data_ptr()
    if any(isinstance(other, Tensor) and other.untyped_storage().data_ptr() == memory for other in inputs):
        return one.clone(memory_format=torch.contiguous_format)
    return one.contiguous()


def _no_gradient(name: str) -> Callable:
    def refuse(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(f"quern: {name} has no vjp, which reverse-mode differentiation wants")

    return refuse


def _define_vjp(full: str, f: Function, words: str, n: int, fast: Callable | None) -> tuple[Callable, Callable]:
    """The vjp as an op too: autograd's part of a compiled graph is traced, and must not be looked into either. Returns
    what register_autograd takes for the op itself."""

    def call(*values: Any) -> list[Tensor]:
        inputs, cotangents, outputs = values[:n], values[n], values[n + 1]
        made = _gradients(f, inputs, cotangents, outputs)
        taken = [one for one, is_float in zip(inputs, _floats(inputs)) if is_float]
        given = [one for one, is_float in zip(made, _floats(inputs)) if is_float]
        own = (*inputs, *cotangents, *outputs)
        return [torch.zeros_like(like) if one is None else _fresh(one, own) for one, like in zip(given, taken)]

    def fake(*values: Any) -> list[Tensor]:
        return [one.new_empty(one.shape) for one, is_float in zip(values[:n], _floats(values[:n])) if is_float]

    def refuse(ctx: Any, *_: Any) -> Any:
        raise no_second(f.name)

    separator = ", " if words else ""
    schema = f"({words}{separator}Tensor[] cotangents, Tensor[] outputs) -> Tensor[]"
    vjp = _dispatch.define(f"{full}_vjp", schema, call, fake, refuse, fast=fast)

    def keep(ctx: Any, inputs: tuple, output: Any) -> None:
        outputs = [output] if isinstance(output, Tensor) else list(output)
        ctx.places = [k for k, one in enumerate(inputs) if isinstance(one, Tensor)]
        ctx.others = [None if isinstance(one, Tensor) else one for one in inputs]
        ctx.save_for_backward(*(inputs[k] for k in ctx.places), *outputs)

    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        inputs, outputs = _Apply._saved(ctx)
        given = iter(vjp(*inputs, [one.contiguous() for one in cotangents], outputs))
        made = [next(given) if is_float else None for is_float in _floats(inputs)]
        return made[0] if n == 1 else tuple(made)

    return backward, keep
