# SPDX-License-Identifier: Apache-2.0
"""The type stub of the package, made from the library's descriptions: `python -m quern._stubs FILE` writes it, without
FILE it is printed. Functions of ops and constructors of learned optimizers are spelled out; what is written in Python
is taken from where it is written."""

from __future__ import annotations

import inspect
import os
import pkgutil
import sys
import textwrap

import quern

from . import _abi, _ops, _signature

_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Made by `python -m quern._stubs` from the ops' descriptions; version {version}.
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal, Protocol, SupportsFloat, SupportsIndex

from typing_extensions import TypeAlias

{imports}

__version__: str

class _HasDataPtr(Protocol):
    def data_ptr(self) -> int: ...

class _HasArrayInterface(Protocol):
    @property
    def __array_interface__(self) -> Mapping[str, Any]: ...

class _HasCudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...

class _HasDLPack(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

_Array: TypeAlias = _HasDataPtr | _HasArrayInterface | _HasCudaArrayInterface | _HasDLPack
_Arrays: TypeAlias = _Array | Iterable[_Array]
_Weights: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes] | Mapping[str, _Array]
"""
_OPTIMIZERS = ("Celo2", "ELO", "SmallFCLopt", "VeLO")


def _imports(made: set[str]) -> str:
    """What is written in Python: the public names from their modules, and the public modules."""
    modules = [module.name for module in pkgutil.iter_modules(quern.__path__) if not module.name.startswith("_")]
    sources: dict[str, list[str]] = {}
    for name in vars(quern)["__all__"]:  # which the stub, where there is one, does not have
        if name not in made and not name.startswith("__"):
            said = f"{name} as _{name}" if name in _OPTIMIZERS else f"{name} as {name}"
            sources.setdefault(getattr(quern, name).__module__.partition(".")[2], []).append(said)
    sources[""] = [f"{module} as {module}" for module in modules]
    return "\n".join(f"from .{source} import " + ", ".join(sorted(said)) for source, said in sorted(sources.items()))


def _parameter(keyword: _signature.Keyword) -> str:
    text = f"{keyword.name}: {keyword.annotation}"
    return text if keyword.required else f"{text} = {keyword.default!r}"


def _function(op: _ops.Op) -> str:
    words = _signature.keywords(op)
    document = textwrap.indent(_signature.document(op), "    ", lambda line: bool(line.strip())).lstrip()
    head = ",\n    ".join(_signature.parameters(words, _parameter))
    return f'\ndef {op.name}_(\n    {head},\n) -> None:\n    r"""{document}    """\n'


_TYPES = {_abi.PARAM_DOUBLE: "SupportsFloat", _abi.PARAM_U64: "SupportsIndex", _abi.PARAM_BOOL: "bool"}
_OTHER_TYPES = {
    "lr_scale": "Iterable[SupportsFloat]",
    "clip_grad": "SupportsFloat",
    "is_embedding": "list[bool] | tuple[bool, ...]",
}


def _annotation(family, name: str) -> str:
    """Of a learned optimizer's keyword; None is beside it where that is the default."""
    if name in family.weights:
        return "_Weights"
    params = family.options.get(name, ())
    if len(params) > 1:
        return f"tuple[{', '.join(['SupportsFloat'] * len(params))}]"
    if params and params[0].type == _abi.PARAM_ENUM:
        return f"Literal[{', '.join(map(repr, params[0].values))}]"
    return _TYPES[params[0].type] if params else _OTHER_TYPES[name]


def _optimizer(name: str) -> str:
    kind, made = getattr(quern, name), ["self", "shapes: Iterable[Iterable[SupportsIndex]]"]
    by_name = False
    for word in list(inspect.signature(kind).parameters.values())[1:]:
        if word.kind == word.KEYWORD_ONLY and not by_name:
            made, by_name = [*made, "*"], True
        annotation = _annotation(kind._family, word.name) + (" | None" if word.default is None else "")
        made.append(f"{word.name}: {annotation}" + ("" if word.default is word.empty else f" = {word.default!r}"))
    head = ",\n        ".join(made)
    return f"\nclass {name}(_{name}):\n    def __init__(\n        {head},\n    ) -> None: ...\n"


def text() -> str:
    """The whole stub."""
    ops = _ops.ops()
    head = _HEAD.format(version=quern.__version__, imports=_imports({f"{op.name}_" for op in ops}))
    return head + "".join(map(_function, ops)) + "".join(map(_optimizer, _OPTIMIZERS))


def main(arguments: list[str]) -> None:
    if not arguments:
        sys.stdout.write(text())
        return
    (path,) = arguments
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text())
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    main(sys.argv[1:])
