# SPDX-License-Identifier: Apache-2.0
"""A call of a kernel whose like was not made before: each argument is looked at, sentences name what is wrong with it,
and a plan is made of it (_kernel_plan.py). The library is called from here too, with arrays of any framework, on the
stream that they are ordered on."""

from __future__ import annotations

import ctypes
import math
import operator
import warnings
from collections import namedtuple
from collections.abc import Sequence
from ctypes import byref, c_void_p

from . import _arrays, _kernel_findings, _streams
from . import _kernel_abi as abi
from . import _kernel_read as reading
from . import _kernel_values as values
from ._kernel_plan import Frame, Launch, Plan, Wanted, pool_for
from ._library import KernelError
from ._threads import Pool
from ._workspace import Workspace

# The arguments of a call, as they were given.
Given = namedtuple(
    "Given",
    "inputs output_shapes output_dtypes grid threadgroup template init_value stream out in_place shared_memory check "
    "ignore seed limit",
    defaults=(None, None, None, None, None, None, None, None, None, None, False, (), 0, None),
)


def _one_each(name: str, what: str, given: object, names: Sequence[str]) -> list:
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise TypeError(f"{name}: {what} is {_arrays._a(given)}, it must be a list")
    made = list(given)  # type: ignore[call-overload]
    if len(made) != len(names):
        raise ValueError(f"{name}: {what} has {len(made)} of {len(names)}: {', '.join(names)}")
    return made


def _warns(name: str, check: object) -> bool:
    """Are findings warnings? check is a bool, or says so."""
    if isinstance(check, str) and check != "warn":
        raise ValueError(f'{name}: check is {check!r}; it may be True, False or "warn"')
    return isinstance(check, str)


class Prepared:
    """A call that is ready to be launched, or asked what it would be. Memory that it was lent goes back at the end of
    the `with` block."""

    def __init__(self, kernel, given: Given) -> None:
        self.kernel, self.name = kernel, kernel.name
        self.order = _streams.Order(given.stream)
        self.pool: Pool | None = None
        self.lent: Workspace | None = None
        inputs = _one_each(self.name, "inputs", given.inputs, kernel.input_names)
        self.stored_in = self._stored_in(given.in_place)
        self.seen = self._look(inputs)
        out = [None] * len(kernel.output_names)
        if given.out is not None:
            out = _one_each(self.name, "out", given.out, kernel.output_names)
        self.to = reading.look_at_all(self.name, kernel.output_names, out, self.order, True)
        everything = [*self.seen, *self.to]
        device = reading.device_of(everything)
        self.warns = _warns(self.name, given.check)
        launch = self._launch(given)
        wanted = self._wanted(given)
        self.plan = Plan(self.name, self.seen, wanted, launch, device, reading.framework_of(everything))
        if given.stream is not None and not self.plan.is_cuda:
            raise ValueError(f"{self.name}: stream is given, and the arrays are not on a GPU")
        self.inputs, self.out = inputs, out
        self.results: list = []
        self.frame = Frame(self.plan)

    def __enter__(self) -> Prepared:
        plan, frame = self.plan, self.frame
        self.results = plan.fill(
            frame,
            [seen.address for seen in self.seen],
            self.inputs,
            [0 if to is None else to.address for to in self.to],
            self.out,
        )
        if plan.is_cuda:
            frame.execution.stream = self.order.stream(plan.device[1])
            self.lent = plan.lend(frame, self.kernel._handle)
        else:
            self.pool = pool_for(plan)
            frame.execution.pool = None if self.pool is None else self.pool.handle
        return self

    def __exit__(self, *_) -> None:
        if self.lent is not None:
            self.lent.close()

    # ---- the library ----
    def run(self, function, *more) -> None:
        """A function of the library that takes kernel, exec and call."""
        try:
            function(self.kernel._handle, self.frame.execution_ref, self.frame.call_ref, *more)
        except KernelError as error:
            error.findings, error.outputs = _kernel_findings.findings(), self.results
            raise

    def launch(self) -> None:
        plan, index = self.plan, self.plan.device[1]
        followed = plan.is_cuda and self.order.wait_for_others(index)
        try:
            self.run(abi.lib.qn_kernel_launch)
        except KernelError as error:
            found = _kernel_findings.warning_of(error) if self.warns else None
            if found is None:
                raise
            warnings.warn(found, stacklevel=3)
        if followed:
            self.order.finish(index)
        if plan.writes_tensors:
            plan.count_writes(self.results)

    def learned(self) -> tuple:
        """What is to be remembered of it, as the fast call of the kernel takes it."""
        plan, frame = self.plan, self.frame
        address = ctypes.addressof(frame.call)
        return frame, address, tuple(plan.makers), plan.stored_in, plan.alone, plan.workspace_bytes or 0

    def text(self) -> str:
        text = c_void_p()
        self.run(abi.lib.qn_kernel_text, byref(text))
        return take_text(text)

    # ---- what was given ----
    def _stored_in(self, in_place: object) -> list[int]:
        kernel, made = self.kernel, [-1] * len(self.kernel.output_names)
        if in_place is None:
            return made
        if not hasattr(in_place, "items"):
            raise TypeError(f"{self.name}: in_place is {in_place!r}, it must be a dict: outputs' names and inputs'")
        for output, source in in_place.items():
            for word, names in ((output, kernel.output_names), (source, kernel.input_names)):
                if word not in names:
                    raise ValueError(f"{self.name}: in_place has {word!r}; there are {', '.join(names)}")
            made[kernel.output_names.index(output)] = kernel.input_names.index(source)
        return made

    def _look(self, inputs: Sequence[object]) -> list[reading.Seen]:
        looked = []
        for k, (word, value) in enumerate(zip(self.kernel._words, inputs)):
            written = k in self.stored_in
            seen = reading.look(word, value, self.order, written)
            if isinstance(seen, reading.Seen) and written and seen.read_only:
                raise ValueError(f"{word} ({type(value).__qualname__}) is read-only, and it would be written")
            looked.append(seen)
        return [  # what is lent later is lent for the stream, which is known when all have been looked at
            reading.settle(reading.Seen(seen.name, value), seen.view(self.order), value)
            if isinstance(seen, _arrays.Later)
            else seen
            for seen, value in zip(looked, inputs)
        ]

    def _launch(self, given: Given) -> Launch:
        name, kernel = self.name, self.kernel
        group = (0, 0, 0) if given.threadgroup is None else values.three(f"{name}: threadgroup", given.threadgroup, 32)
        if given.threadgroup is not None and group == (0, 1, 1):
            group = (0, 0, 0)
        init = given.init_value
        if init is not None:
            if isinstance(init, (list, tuple)):
                init = _one_each(name, "init_value", init, kernel.output_names)
            else:
                init = [init] * len(kernel.output_names)
        limit_ns = 0
        if given.limit is not None:
            if not (isinstance(given.limit, (int, float)) and given.limit > 0 and math.isfinite(given.limit)):
                raise ValueError(f"{name}: limit is {given.limit!r}; it must be a number of seconds above 0")
            limit_ns = min(max(int(given.limit * 1e9), 1), (1 << 63) - 1)
        shared = kernel._shared_memory if given.shared_memory is None else given.shared_memory
        for what, number in (("shared_memory", shared), ("seed", given.seed)):
            try:
                fits = 0 <= operator.index(number) < 1 << 64
            except TypeError:
                raise TypeError(f"{name}: {what} is {number!r}, it must be an int") from None
            if not fits:
                raise ValueError(f"{name}: {what} is {number}, it must be in [0, 2^64)")
        return Launch(
            values.three(f"{name}: grid", given.grid, 64),
            group,
            values.templates_of(name, given.template),
            init,
            operator.index(shared),
            limit_ns,
            bool(given.check),
            operator.index(given.seed),
            _kernel_findings.kinds_of(name, given.ignore),
        )

    def _wanted(self, given: Given) -> list[Wanted]:
        names = self.kernel.output_names
        shapes = dtypes = [None] * len(names)
        if given.output_shapes is not None:
            shapes = _one_each(self.name, "output_shapes", given.output_shapes, names)
        if given.output_dtypes is not None:
            dtypes = _one_each(self.name, "output_dtypes", given.output_dtypes, names)
        return [
            self._one_wanted(f"{self.name}: {name}", shape, dtype, to, stored)
            for name, shape, dtype, to, stored in zip(names, shapes, dtypes, self.to, self.stored_in)
        ]

    def _one_wanted(self, name: str, shape, dtype, to, stored: int) -> Wanted:
        if to is not None and stored >= 0:
            raise ValueError(f"{name} is given in out and is stored in {self.kernel.input_names[stored]}: one of both")
        there = to if to is not None else self.seen[stored] if stored >= 0 else None
        if there is None:
            for what, value in (("output_shapes", shape), ("output_dtypes", dtype)):
                if value is None:
                    raise ValueError(f"{name}: {what} is wanted, since no memory is given for it")
            return Wanted(values.code_of(name, dtype), values.shape_of(f"{name}: its shape", shape))
        if shape is not None and values.shape_of(f"{name}: its shape", shape) != tuple(there.shape):
            raise ValueError(f"{name} has the shape {tuple(there.shape)}, and output_shapes says {tuple(shape)}")
        if dtype is not None and values.code_of(name, dtype) != there.code:
            raise TypeError(f"{name} is {values.name_of(there.code)}, and output_dtypes says {dtype!r}")
        return Wanted(there.code, tuple(there.shape), there.strides, to is not None, stored)


def take_text(text: c_void_p) -> str:
    """A text of the library's, which is released."""
    try:
        return ctypes.string_at(text.value).decode() if text.value else ""
    finally:
        abi.lib.qn_text_release(byref(text))
