# SPDX-License-Identifier: Apache-2.0
"""For a project's own tests: check_kernel() checks a kernel from a body on the CPU. No GPU is required."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence

from ._command import environment, find
from ._folder import FolderKernel, _folder_of
from ._kernel import Kernel
from ._library import KernelError

_FAILED = 1  # exit status of `quern check` where a check failed


def check_kernel(
    kernel: str | os.PathLike | FolderKernel | Kernel,
    *,
    inputs: Sequence[object] | None = None,
    expected: object = None,
    rtol: float | None = None,
    atol: float = 0.0,
    orders: int = 4,
    ignore: str | Sequence[str] = (),
    quick: bool = True,
    **call,
) -> None:
    """Checks a kernel on the CPU. AssertionError has the finding: an access out of bounds, a race, a barrier that some
    threads miss, a read of uninitialised memory, an output that nothing writes, a wrong value.

    kernel    a folder with a kernel.json, the name of a kernel that ships, or a kernel of quern.load_kernel,
              quern.metal_kernel or quern.cuda_kernel
    inputs    as in a call of the kernel; None: the sizes and the reference of the folder, as `quern check`
    expected  the outputs: an array, a list of one per output, or a function that returns them from the inputs
    rtol      largest |difference| / |expected|; None: 4 units in the last place of the output's type
    atol      largest |difference| of what is near 0
    orders    number of orders in which simdgroups run
    ignore    kinds of findings to ignore (docs/kernel-checking.md)
    quick     of a folder without inputs: fewer types and orders
    call      the other arguments of a call: grid, output_shapes, output_dtypes, template ..."""
    __tracebackhide__ = True
    if orders < 1:
        raise ValueError(f"orders is {orders}, it must be at least 1")
    if inputs is None:
        if isinstance(kernel, Kernel):
            raise TypeError(f"{kernel.name}: inputs is missing; only a folder has sizes of its own")
        if expected is not None or call:
            words = ", ".join([*(["expected"] if expected is not None else []), *call])
            raise TypeError(f"{words} requires inputs: without them the folder's own sizes and reference are used")
        _check_folder(kernel.folder if isinstance(kernel, FolderKernel) else _folder_of(kernel), orders, ignore, quick)
        return
    made = kernel if isinstance(kernel, (Kernel, FolderKernel)) else FolderKernel(_folder_of(kernel))
    given = list(inputs)
    wanted = None if expected is None else _listed(expected(*map(_copied, given)) if callable(expected) else expected)
    for seed in range(orders):
        copies = [_copied(value) for value in given]  # outputs may be stored in place
        how: dict = dict(call, check=True, seed=seed, ignore=ignore)
        try:
            outputs = made(inputs=copies, **how) if isinstance(made, Kernel) else made(*copies, **how)
        except KernelError as error:
            raise AssertionError(_sentence(made.name, error)) from None
        if wanted is not None:
            names = made.output_names if isinstance(made, Kernel) else made.returned
            _compare(made.name, names, _listed(outputs), wanted, rtol, atol)


def _sentence(name: str, error: KernelError) -> str:
    texts = [finding.text for finding in error.findings]
    return "\n".join([str(error), *(f"kernel {name}: {text}" for text in texts[1:])])


# ---- a folder ----
def _check_folder(folder: str, orders: int, ignore: str | Sequence[str], quick: bool) -> None:
    __tracebackhide__ = True
    words = ["--backend", "cpu", "--seeds", str(orders), *(["--quick"] if quick else [])]
    kinds = ignore if isinstance(ignore, str) else ",".join(ignore)
    if kinds:
        words += ["--ignore", kinds]
    done = subprocess.run(
        [find(), "check", *words, os.path.abspath(folder)], capture_output=True, text=True, env=environment()
    )
    if not done.returncode:
        return
    if done.returncode != _FAILED:
        raise ValueError(done.stderr.strip() or f"quern check ended with status {done.returncode}")
    failed, keep = [], False
    for line in done.stdout.splitlines():  # TAP: a check that failed, and the comments that follow it
        keep = line.startswith("not ok") or (keep and not line.startswith(("ok", "1..")))
        failed += [line] if keep else []
    raise AssertionError("\n".join([f"{folder}: {done.stdout.splitlines()[-1].lstrip('# ')}", *failed]))


# ---- values ----
def _listed(value: object) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _copied(value):
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    return value.copy() if hasattr(value, "copy") and hasattr(value, "shape") else value


def _numpy(value):
    """(array of float64, integers or booleans; eps of the storage type, 0 for what is exact)."""
    import numpy

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.is_floating_point():
            return value.double().numpy(), torch.finfo(value.dtype).eps
    array = numpy.asarray(value)
    if array.dtype.name == "bfloat16":  # of ml_dtypes
        return array.astype(numpy.float64), 2.0**-7
    if array.dtype.kind == "f":
        return array.astype(numpy.float64), float(numpy.finfo(array.dtype).eps)
    return array, 0.0


def _compare(name: str, outputs: Sequence[str], got: list, wanted: list, rtol: float | None, atol: float) -> None:
    import numpy

    __tracebackhide__ = True
    if len(got) != len(wanted):
        raise AssertionError(f"kernel {name} has {len(got)} outputs, {len(wanted)} are expected")
    for output, one, other in zip(outputs, got, wanted):
        (a, eps), (b, _) = _numpy(one), _numpy(other)
        if a.shape != b.shape:
            raise AssertionError(f"kernel {name}: {output} has the shape {a.shape}, {b.shape} is expected")
        with numpy.errstate(invalid="ignore"):
            allowed = atol + (4 * eps if rtol is None else rtol) * abs(b) if eps or rtol or atol else 0
            right = (a == b) | (abs(a - b) <= allowed) if eps or rtol or atol else a == b
        right |= (a != a) & (b != b)
        if bool(right.all()):
            continue
        place = tuple(int(k) for k in numpy.argwhere(~right)[0])
        say = [f"{x:.9g}" if eps and math.isfinite(x) else str(x) for x in (a[place], b[place])]
        raise AssertionError(
            f"kernel {name}: {output}{list(place)} is {say[0]}, {say[1]} is expected; "
            f"{int((~right).sum())} of {right.size} values are wrong"
        )


__all__ = ["check_kernel"]
