# SPDX-License-Identifier: Apache-2.0
"""What the library says of itself: ops, devices, options. Everything is asked of the library when it is asked here."""

from __future__ import annotations

import ctypes
from collections import namedtuple

from . import _abi
from ._library import KINDS, lib

Device = namedtuple("Device", "name model memory_bytes free_bytes arch")
Device.__doc__ = """A device: its name ("cuda:0") and model, its memory and what of it is free, in bytes, and its
architecture (90 for sm_90; 0 on a CPU)."""


def _names(of_lists_only: bool) -> tuple[str, ...]:
    made = (lib.qn_op_at(k).contents for k in range(lib.qn_op_count()))
    return tuple(info.name.decode() for info in made if not of_lists_only or _is_alike(info))


def _is_alike(info) -> bool:
    return all(info.tensors[role].shape is None for role in range(info.n_tensors))


def ops() -> tuple[str, ...]:
    """The names of the ops of this library. An op of lists of tensors is a function of this package that works in
    place: "lion" is quern.lion_; of those whose tensors have shapes of their own, one is quern.gemm_norm, and one is
    quern.swiglu with an out_dtype; those whose states' shapes follow from the parameters' are classes,
    quern.SmallFCLopt and quern.ELO."""
    return _names(False)


def list_ops() -> tuple[str, ...]:
    """The first kind alone."""
    return _names(True)


def describe(op: str) -> dict:
    """What the library says of an op: brief and doc; its roles of tensors; the rows of storage types that it takes, by
    role; its parameters with type, default, range and doc; its variants on each backend, with the reason whether they
    would run here. All of it can be written as JSON. ValueError for an unknown name, which suggests the nearest."""
    from . import _ops

    made = _ops.op(op)
    return {
        "name": made.name,
        "brief": made.brief,
        "doc": made.doc,
        "tensors": [
            {
                "name": role.name,
                "keyword": role.plural,
                "doc": role.doc,
                "optional": role.optional,
                "written": role.written,
            }
            for role in made.roles
        ],
        "types": [list(row) for row in made.types],
        "params": [
            {
                "name": param.name,
                "type": param.type_name,
                "default": param.default,
                "range": param.range,
                "values": list(param.values),
                "doc": param.doc,
            }
            for param in made.params.values()
        ],
        "variants": [
            {
                "backend": variant.backend.decode(),
                "name": variant.name.decode(),
                "state": variant.state.decode(),
                "available": bool(variant.available),
                "chosen": bool(variant.chosen),
                "why": variant.why.decode(),
            }
            for variant in made.variants()
        ],
    }


def devices() -> tuple[Device, ...]:
    """The CPU, then every NVIDIA GPU that can be used. RuntimeError where there is a driver that cannot be used."""
    found = []
    for kind in ("cpu", "cuda"):
        count = ctypes.c_int()
        lib.qn_device_count(KINDS[kind], ctypes.byref(count))
        for index in range(count.value):
            info = _abi.sized(_abi.DeviceInfo)
            lib.qn_device_query(_abi.Device(KINDS[kind], index), ctypes.byref(info))
            name = "cpu" if kind == "cpu" else f"{kind}:{index}"
            found.append(Device(name, info.name.decode(), info.memory_bytes, info.free_bytes, info.arch))
    return tuple(found)


def options() -> dict[str, str]:
    """The library's options with their present values; "" is none. `quern --help` describes them."""
    return {name: get_option(name) for name in _option_names()}


def _option_names() -> list[str]:
    return [lib.qn_option_at(k).contents.name.decode() for k in range(lib.qn_option_count())]


def get_option(name: str) -> str:
    """An option's value in force: what set_option said, else its environment variable, else the default. ValueError for
    an unknown name, which suggests the nearest, and for a variable that says what the option does not take."""
    value = ctypes.c_char_p()
    lib.qn_option_get(name.encode(), ctypes.byref(value))
    return (value.value or b"").decode()


def set_option(name: str, value: str | None) -> None:
    """Sets an option of the library, for the whole process; None: back to its variable or default. Do so before calls
    that depend on it. ValueError for an unknown name or value, with those that there are."""
    lib.qn_option_set(name.encode(), None if value is None else str(value).encode())
