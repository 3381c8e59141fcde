#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Say what a call of quern.lion_ costs beside the arithmetic: python tools/binding_cost.py [N...]

The lists have N arrays of 16 elements, so that almost nothing is computed. Each figure is the least of 200 turns, in
microseconds: NumPy's arrays and, if it is installed, PyTorch's tensors, which are one entry into C; NumPy's by the
longer way, which calls out of the ordinary take; and the library's own call. The package is the one that Python
imports."""

import contextlib
import ctypes
import sys
import time

import numpy as np
import quern
from quern import _abi, _call, _ops, _streams, _threads
from quern._columns import Column, groups_of
from quern._library import lib


def least_us(function, turns=200):
    best = float("inf")
    for _ in range(turns):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best


def library_call(lists):
    """The arguments of qn_op_step for these lists, and what holds their memory."""
    op, order, pool = _ops.op("lion"), _streams.Order(), _threads.pool()
    roles = [role for role in op.roles if not role.optional]
    columns = [Column(op.name, role, arrays, order, True) for role, arrays in zip(roles, lists)]
    (group,) = groups_of([*columns, None])
    execution, params, tensors = _abi.sized(_abi.Exec), op.defaults(), op.roles_array(group.tensors)
    execution.pool = pool.handle if pool else None
    return (op.info, ctypes.byref(execution), ctypes.byref(params), group.n, tensors), (lists, group, pool)


def main(sizes):
    torch = None
    with contextlib.suppress(ImportError):
        import torch
    longer = _call.Call(_ops.op("lion"))
    values = [word.default for word in longer.words]
    print(f"{'n':>5} {'NumPy':>8} {'PyTorch':>8} {'longer':>8} {'library':>8}")
    for n in sizes:
        lists = [[np.ones((4, 4), np.float32) for _ in range(n)] for _ in range(3)]
        tensors = torch and [[torch.ones(4, 4) for _ in range(n)] for _ in range(3)]
        arguments, held = library_call(lists)
        figures = (
            least_us(lambda lists=lists: quern.lion_(*lists)),
            least_us(lambda tensors=tensors: quern.lion_(*tensors)) if torch else float("nan"),
            least_us(lambda lists=lists: longer([*lists, None], values, None)),
            least_us(lambda arguments=arguments: lib.qn_op_step(*arguments)),
        )
        del held
        print(f"{n:5}", *(f"{figure:8.1f}" for figure in figures))


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1, 148, 512])
