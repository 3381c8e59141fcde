# SPDX-License-Identifier: Apache-2.0
"""A node of Inductor's code that calls an op past the dispatcher: the result's memory is Inductor's, and the call is
the op's fast one. Where this PyTorch's Inductor is another than is known here, or writes C++, its own way remains. No
op is known here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor


def writer(fast: Callable, op: Any) -> Callable:
    """What the code calls: writes the op's one result to `out`. `absent`: places of arguments that are None and left
    out. The code finds it as an attribute of the op, in a process that has loaded it from a cache too."""

    def into(*given: Any, out: Tensor, absent: tuple[int, ...] = ()) -> None:
        arguments = list(given)
        for place in absent:
            arguments.insert(place, None)
        if fast(out, *arguments) is NotImplemented:
            out.copy_(op(*arguments))

    return into


def _lowering(op: Any, ir: Any, virtual: Any, usual: Callable) -> Callable:
    def lower(*arguments: Any) -> Any:
        graph = virtual.graph
        given = [one for one in arguments if one is not None]
        n = sum(isinstance(one, ir.IRNode) for one in given)
        result = graph.current_node.meta.get("val")
        are_first = all(isinstance(one, ir.IRNode) for one in given[:n])
        if graph.cpp_wrapper or getattr(graph, "aot_mode", False) or not are_first or not isinstance(result, Tensor):
            return usual(*arguments)
        layout = ir.FixedLayout(
            result.device,
            result.dtype,
            [*ir.convert_shape_to_inductor(result.shape)],
            [*ir.convert_shape_to_inductor(result.stride())],
        )
        node = ir.ExternKernelOut(
            layout,
            [ir.ExternKernel.realize_input(one) for one in given[:n]],
            given[n:],
            {"absent": tuple(k for k, one in enumerate(arguments) if one is None)},
            python_kernel_name=f"torch.ops.{op._namespace}.{op._opname}.{op._overloadname}.quern_into",
            op_overload=op,
        )
        return ir.TensorBox.create(node)

    return lower


def lower(op: Any) -> bool:
    """To be called whenever the op is traced. True: no more, either it is done or it cannot be."""
    lowering = sys.modules.get("torch._inductor.lowering")
    if lowering is None or not hasattr(lowering, "register_lowering"):
        return False  # not loaded, or not wholly
    try:
        from torch._inductor import ir
        from torch._inductor.virtualized import V

        usual = lowering.fallback_handler(op, add_to_fallback_set=False)
        register = lowering.register_lowering(op, broadcast=False, type_promotion_kind=None)
        register(_lowering(op, ir, V, usual))
    except (ImportError, AttributeError, TypeError):
        pass
    return True


__all__ = ["lower", "writer"]
