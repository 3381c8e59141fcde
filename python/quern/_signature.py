# SPDX-License-Identifier: Apache-2.0
"""An op's Python signature and document, made from its description: which keywords there are, what they default to and
what is said about them. The function itself, the type stub and the tests are made from the same list. It converts no
values and calls nothing."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable

from . import _abi
from ._arrays import LONG_NAMES
from ._library import DTYPES
from ._ops import Op, Param, Role

_NUMBERED = re.compile(r"(\D+)([1-9])")
_WIDTH = 88  # of documents


class Keyword:
    """A keyword of the op's function. `role` is set for lists of tensors; `params` are the members of the params struct
    that it fills, several for numbered ones (beta1, beta2: betas). Positional ones may also be given by place."""

    __slots__ = ("annotation", "default", "doc", "name", "params", "positional", "required", "role")

    def __init__(self, name, default, positional, annotation, doc, role=None, params=(), required=False) -> None:
        self.name: str = name
        self.default = default
        self.positional: bool = positional
        self.annotation: str = annotation  # in the words of the stub's own names
        self.doc: str = doc
        self.role: Role | None = role
        self.params: tuple[Param, ...] = params
        self.required: bool = required


# What a pointer of the params takes.
_POINTERS = {
    _abi.PARAM_DEVICE_F32: ("_Array | None", "a float32 array of one element on the arrays' device"),
    _abi.PARAM_DEVICE_I64: ("_Array | None", "an int64 array of two numbers an array, on the arrays' device"),
    _abi.PARAM_DEVICE_HYPER: ("_Array | None", "an array of {hyper_bytes} bytes on the arrays' device: {hyper}"),
    _abi.PARAM_HOST_U64: ("Iterable[SupportsIndex] | None", "one integer an array"),
}


_STREAM = (
    "where work on a GPU goes: an int or a framework's stream object, which the caller has ordered behind whatever the "
    "arrays wait for; None is the current stream of the arrays' framework"
)


def _of_role(role: Role) -> Keyword:
    doc = role.doc + ("; written" if role.written else "; read")
    if role.optional:
        return Keyword(role.plural, None, False, "_Arrays | Iterable[_Array | None] | None", doc, role)
    return Keyword(role.plural, None, True, "_Arrays", doc, role, required=True)


def _of_pointer(op: Op, param: Param) -> Keyword:
    annotation, what = _POINTERS[param.type]
    if param.type == _abi.PARAM_DEVICE_HYPER and op.Hyper is not None:
        doubles = {name for name, param in op.params.items() if param.type == _abi.PARAM_DOUBLE}
        members = ", ".join(f"{name} {'float64' if name in doubles else 'uint64'}" for name in op.hyper)
        what = what.format(hyper_bytes=op.hyper_bytes, hyper=members)
    return Keyword(param.name, None, False, annotation, f"{param.doc}; {what}", params=(param,))


def _of_param(op: Op, param: Param) -> Keyword:
    if param.is_pointer:
        return _of_pointer(op, param)
    doc = f"{param.doc}; {param.range}" if param.range else param.doc
    if param.type == _abi.PARAM_ENUM:
        return Keyword(
            param.name, param.default, False, f"Literal[{', '.join(map(repr, param.values))}]", doc, params=(param,)
        )
    if param.type == _abi.PARAM_BOOL:
        return Keyword(param.name, param.default, False, "bool", doc, params=(param,))
    if param.type == _abi.PARAM_U64:
        return Keyword(param.name, param.default, False, "SupportsIndex", doc, params=(param,))
    if param.is_unlimited:  # any number is right, so none is needed
        return Keyword(
            param.name, None, True, "SupportsFloat | None", f"{doc}; None is {param.default:g}", params=(param,)
        )
    return Keyword(param.name, param.default, True, "SupportsFloat", doc, params=(param,))


def _of_numbered(stem: str, params: tuple[Param, ...]) -> Keyword:
    doc = "; ".join(f"{param.doc}{', ' + param.range if param.range else ''}" for param in params)
    default = tuple(param.default for param in params)
    annotation = f"tuple[{', '.join(['SupportsFloat'] * len(params))}]"
    return Keyword(stem + "s", default, True, annotation, doc, params=params)


def _numbered(params: list[Param], at: int) -> tuple[str, tuple[Param, ...]] | None:
    """beta1, beta2 at that place: ("beta", both). Doubles only, numbered from 1, at least two."""
    found: list[Param] = []
    stem = None
    for param in params[at:]:
        match = _NUMBERED.fullmatch(param.name)
        if param.type != _abi.PARAM_DOUBLE or not match or int(match[2]) != len(found) + 1:
            break
        if stem not in (None, match[1]):
            break
        stem = match[1]
        found.append(param)
    return (stem, tuple(found)) if stem and len(found) > 1 else None


def keywords(op: Op) -> tuple[Keyword, ...]:
    """In the order of the signature: required roles, numbers by place or by name, then what goes by name only."""
    params, made, at = list(op.params.values()), [_of_role(role) for role in op.roles], 0
    while at < len(params):
        group = _numbered(params, at)
        made.append(_of_numbered(*group) if group else _of_param(op, params[at]))
        at += len(group[1]) if group else 1
    stream = Keyword("stream", None, False, "object", _STREAM)
    return tuple(sorted([*made, stream], key=lambda keyword: not keyword.positional))  # sorted() keeps the order within


def parameters(words: Iterable[Keyword], text_of: Callable[[Keyword], str]) -> list[str]:
    """What stands between a signature's brackets, comma after comma; text_of says one parameter."""
    words = tuple(words)
    positional = [text_of(keyword) for keyword in words if keyword.positional]
    named = [text_of(keyword) for keyword in words if not keyword.positional]
    return positional + (["*", *named] if named else [])


# ---- the document ----
def _fill(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _entry(keyword: Keyword) -> str:
    if keyword.role is not None:
        head = "array or sequence of arrays" + ("" if keyword.required else ", default None")
    elif keyword.annotation.startswith("Literal"):
        head = "{" + keyword.annotation[8:-1] + "}" + f", default {keyword.default!r}"
    else:
        kind = {"SupportsFloat": "float", "SupportsIndex": "int", "bool": "bool"}.get(keyword.annotation)
        if keyword.annotation.startswith("tuple"):
            kind = f"{len(keyword.params)} floats"
        head = f"{kind}, default {keyword.default!r}" if kind else "optional"
    return f"{keyword.name} : {head}\n{_fill(keyword.doc, '    ')}"


def _rows(op: Op) -> str:
    long = {**LONG_NAMES, DTYPES["none"]: "-"}
    table = [[role.plural for role in op.roles]] + [[long[dtype] for dtype, _ in row] for row in op.rows]
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in table)


_GENERAL = """\
Arrays are those of NumPy, CuPy, PyTorch and of any library with data_ptr(), __array_interface__,
__cuda_array_interface__ or __dlpack__. Pass one array per role, or a sequence per role, all of one length. Arrays at
one index must have the same shape, the same dense layout (channels_last too) and one device. Written arrays must be
writable and share no memory with another array of the call. A call on CPU arrays is done when it returns; on a GPU it
queues the work on the stream and does not wait."""

_MIXED = """\
A list may mix rows of the table and devices. All of it is checked first; then each kind is one call of the library."""

_RAISES = (
    (
        "ValueError",
        "a number is out of its range; shapes, layouts, lengths or devices differ; arrays are read-only or overlap",
    ),
    ("TypeError", "a storage type is not in the table, or an argument is no array"),
    ("RuntimeError", "the device or its driver is missing or fails"),
    ("MemoryError, OSError", "the system reports it"),
)


def document(op: Op) -> str:
    """The function's docstring."""
    words = keywords(op)
    brief = op.brief[0].upper() + op.brief[1:]
    parts = [
        f"{brief}, in place.",
        _fill(op.doc),
        _fill(" ".join(_GENERAL.split())),
        "Parameters\n----------\n" + "\n".join(_entry(keyword) for keyword in words),
        "Storage types\n-------------\n" + _rows(op) + "\n\n" + _fill(" ".join(_MIXED.split())),
        "Raises\n------\n" + "\n".join(f"{name}\n{_fill(why, '    ')}" for name, why in _RAISES)
        + "\n" + _fill("Nothing was written, except where a device failed."),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"
