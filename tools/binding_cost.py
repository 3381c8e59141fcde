#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Say what a call of quern.lion_ on NumPy arrays costs beside the arithmetic: python tools/binding_cost.py [N...]

The arrays have 16 elements, so that almost nothing is computed. Each figure is the least of 200 turns, in microseconds;
the parts are timed alone, so they do not add up to the whole. The package is the one that Python imports."""

import ctypes
import sys
import time

import numpy as np
import quern
from quern import _abi, _columns, _ops, _streams, _threads
from quern._library import lib


def least_us(function, turns=200):
    best = float("inf")
    for _ in range(turns):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best


def main(sizes):
    op = _ops.op("lion")
    order, pool = _streams.Order(), _threads.pool()
    print(f"{'n':>5} {'whole':>8} {'read':>8} {'pack':>8} {'library':>8}")
    for n in sizes:
        lists = [[np.ones((4, 4), np.float32) for _ in range(n)] for _ in range(3)]
        roles = [role for role in op.roles if not role.optional]

        def read(lists=lists, roles=roles):
            return [_columns.Column(op.name, role, arrays, order) for role, arrays in zip(roles, lists)]

        columns = [*read(), None]
        (group,) = _columns.groups_of(columns)
        execution, params, tensors = _abi.sized(_abi.Exec), op.defaults(), op.roles_array(group.tensors)
        execution.pool = pool.handle if pool else None
        arguments = (op.info, ctypes.byref(execution), ctypes.byref(params), n, tensors)
        figures = (
            least_us(lambda lists=lists: quern.lion_(*lists)),
            least_us(read),
            least_us(lambda columns=columns: _columns.groups_of(columns)),
            least_us(lambda arguments=arguments: lib.qn_op_step(*arguments)),
        )
        print(f"{n:5}", *(f"{figure:8.1f}" for figure in figures))


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1, 148, 512])
