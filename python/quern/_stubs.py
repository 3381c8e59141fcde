# SPDX-License-Identifier: Apache-2.0
"""The type stub of the package, made from the library's descriptions: `python -m quern._stubs FILE` writes it, without
FILE it is printed. Functions of ops are spelled out; what is written in Python is taken from where it is written."""

from __future__ import annotations

import os
import pkgutil
import sys
import textwrap

import quern

from . import _ops, _signature

_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Made by `python -m quern._stubs` from the ops' descriptions; version {version}.
from collections.abc import Iterable, Mapping
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
"""


def _imports(functions: set[str]) -> str:
    """What is written in Python: the public names from their modules, and the public modules."""
    modules = [module.name for module in pkgutil.iter_modules(quern.__path__) if not module.name.startswith("_")]
    sources: dict[str, list[str]] = {"": modules} if modules else {}
    for name in vars(quern)["__all__"]:  # which the stub, where there is one, does not have
        if name not in functions and not name.startswith("__"):
            sources.setdefault(getattr(quern, name).__module__.partition(".")[2], []).append(name)
    return "\n".join(
        f"from .{source} import " + ", ".join(f"{name} as {name}" for name in sorted(names))
        for source, names in sorted(sources.items())
    )


def _parameter(keyword: _signature.Keyword) -> str:
    text = f"{keyword.name}: {keyword.annotation}"
    return text if keyword.required else f"{text} = {keyword.default!r}"


def _function(op: _ops.Op) -> str:
    words = _signature.keywords(op)
    document = textwrap.indent(_signature.document(op), "    ", lambda line: bool(line.strip())).lstrip()
    head = ",\n    ".join(_signature.parameters(words, _parameter))
    return f'\ndef {op.name}_(\n    {head},\n) -> None:\n    r"""{document}    """\n'


def text() -> str:
    """The whole stub."""
    ops = _ops.ops()
    head = _HEAD.format(version=quern.__version__, imports=_imports({f"{op.name}_" for op in ops}))
    return head + "".join(_function(op) for op in ops)


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
