# SPDX-License-Identifier: Apache-2.0
"""Asks the library for the plan of a graph (quern/graph.h) and looks at the answer."""

from __future__ import annotations

import ctypes
import functools
import json

from .. import _library
from .._abi import STATUS, sized
from . import _recurrent
from ._graph import Graph, Unplannable


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("fuse", ctypes.c_int)]


@functools.cache
def _lib() -> ctypes.CDLL:
    prototypes: dict[str, tuple[object, list[object]]] = {
        "qn_graph_plan_create": (
            STATUS,
            [ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_Options)],
        ),
        "qn_graph_plan_text": (ctypes.c_char_p, [ctypes.c_void_p]),
        "qn_graph_plan_destroy": (None, [ctypes.POINTER(ctypes.c_void_p)]),
    }
    _library.declare(_library.lib, _library.path, prototypes)
    return _library.lib


def plan(graph: Graph, fuse: bool = True) -> dict:
    """The steps in order. Unplannable: the library refuses the graph."""
    lib, made, text = _lib(), ctypes.c_void_p(), graph.text().encode()
    options = sized(_Options)
    options.fuse = fuse
    try:
        lib.qn_graph_plan_create(ctypes.byref(made), text, len(text), ctypes.byref(options))
    except (ValueError, TypeError, RuntimeError) as error:
        raise Unplannable(f"the planner refuses it: {error}") from error
    try:
        found = json.loads(lib.qn_graph_plan_text(made).decode())
    finally:
        lib.qn_graph_plan_destroy(ctypes.byref(made))
    _rename(found, graph)
    _check(found, graph)
    return found


def _check(found: dict, graph: Graph) -> None:
    """Unplannable: an op that plans alone have, without a kernel."""
    ops, why = {node.name: node.op for node in graph.nodes}, {note["node"]: note["why"] for note in found["notes"]}
    for step in found["steps"]:
        if step["kind"] == "extern" and ops[step["node"]] == _recurrent.OP:
            raise Unplannable(f"{step['node']}: {why.get(step['node'], 'PyTorch is faster')}")


def _rename(found: dict, graph: Graph) -> None:
    """Kernels and values share one name space in a program."""
    taken = {*graph.inputs, *(node.name for node in graph.nodes)}
    for step in found["steps"]:
        if step["kind"] == "kernel" and step["name"] in taken:
            step["name"] = f"{step['name']}_kernel"
