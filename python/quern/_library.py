# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the one shared library, checks that it is the one this package was made for, and turns its statuses
into Python exceptions. Nothing here knows an op."""

from __future__ import annotations

import ctypes
import os

from . import _abi

if _abi.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = "libquern.so.0"


class LibraryError(ImportError):
    """libquern is missing or belongs to another version. The sentence names every path tried."""


class CompileError(RuntimeError):
    """A kernel's source does not compile; the sentence names the kernel, its file and the line of the body."""


class KernelError(RuntimeError):
    """A kernel failed: a check found a fault, a time limit stopped it, or its health buffer reports an error.
    `findings` lists a check's findings (quern.Finding), the first of which is the sentence; `outputs` holds the
    outputs, if any."""

    findings: tuple = ()
    outputs: list | None = None


def candidates() -> list[str]:
    """Where the library is looked for, in order: QUERN_LIBRARY alone if it is set; beside this package; where the
    system's loader looks."""
    said = os.environ.get("QUERN_LIBRARY")
    if said:
        return [said]
    return [os.path.join(os.path.dirname(os.path.realpath(__file__)), NAME), NAME]


def _open() -> tuple[ctypes.CDLL, str]:
    tried = []
    for path in candidates():
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            tried.append(str(error) if path in str(error) else f"{path}: {error}")
    hint = "" if os.environ.get("QUERN_LIBRARY") else "; QUERN_LIBRARY=/path/to/libquern.so names another"
    raise LibraryError("quern: no libquern could be loaded; tried " + "; ".join(tried) + hint)


def declare(library: ctypes.CDLL, path: str, prototypes: Mapping[str, tuple[object, Sequence[object]]]) -> None:
    """Tells ctypes what the functions take. LibraryError names one that the library has not."""
    for name, (result, arguments) in prototypes.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LibraryError(f"quern: {path} has no {name}; it is not the library of this package") from None
        function.argtypes = arguments
        function.restype = check if result is _abi.STATUS else result


def compare(library: ctypes.CDLL, path: str, structs: dict[str, type[ctypes.Structure]]) -> None:
    """Holds the structs against the library's. LibraryError names one that differs."""
    for name, struct in structs.items():
        theirs, ours = library.qn_struct_bytes(name.encode()), ctypes.sizeof(struct)
        if theirs != ours:
            version = library.qn_version().decode()
            raise LibraryError(
                f"quern: {name} has {theirs} bytes in {path} (version {version}) and {ours} in this package: "
                "the two are of different versions"
            )


# Statuses that are not the caller's mistake become RuntimeError, but for those that Python has a word for.
_EXCEPTIONS = {
    "QN_BAD_ARGUMENT": ValueError,
    "QN_BAD_TYPE": TypeError,
    "QN_BAD_FILE": ValueError,
    "QN_NO_MEMORY": MemoryError,
    "QN_IO_ERROR": OSError,
    "QN_COMPILE_ERROR": CompileError,
    "QN_KERNEL_ERROR": KernelError,
}


def check(status: int) -> int:
    """Every status passes through here: 0 is returned, any other raises with the library's sentence."""
    if status:
        name = lib.qn_status_name(status).decode()
        raise _EXCEPTIONS.get(name, RuntimeError)(lib.qn_last_error().decode())
    return status


lib, path = _open()
pylib = ctypes.PyDLL(path)  # for functions that use the interpreter: its lock is held during a call
declare(lib, path, _abi.PROTOTYPES)
compare(lib, path, _abi.STRUCTS)
version: str = lib.qn_version().decode()


def _names(name_of) -> list[str]:
    """The names of an enum, in order. What is past its end is called as -1 is: "unknown", or as the first value."""
    names = [name_of(0).decode()]
    while (name := name_of(len(names)).decode()) not in (names[0], name_of(-1).decode()):
        names.append(name)
    return names


DTYPES: dict[str, int] = {name: code for code, name in enumerate(_names(lib.qn_dtype_name))}  # "f32": 1 ...
DTYPE_NAMES: list[str] = list(DTYPES)
ITEM_BYTES: list[int] = [lib.qn_dtype_bytes(code) for code in DTYPES.values()]
KINDS: dict[str, int] = {name: code for code, name in enumerate(_names(lib.qn_device_kind_name))}  # "cpu": 0 ...
KIND_NAMES: list[str] = list(KINDS)
