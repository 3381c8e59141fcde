# SPDX-License-Identifier: Apache-2.0
"""What a warm call costs the host, through every door of the package: `python -m quern.bench doors`. Arrays are small,
so that almost nothing is computed; each sample is the mean of a burst of calls, and the bursts of a door and of what
its user would call instead take turns. It says nothing of a kernel's own speed."""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import quern

from .stats import head, summarize

BODY = "uint i = thread_position_in_grid.x; out[i] = metal::exp(inp[i]);"
BURST_ON_CPU, BURST_ON_GPU = 100, 8  # a GPU's queue takes so many without waiting
WARM = 20


def _nothing() -> None:
    pass


@dataclass
class Door:
    """A call of ours, and one of another's for the same result. Of `before`, what each call needs first, no time is
    taken. `most_us` is of the call, or where the other is a part of it (`adds`) of what is beyond the other."""

    name: str
    call: Callable[[], object]
    other: Callable[[], object] | None = None
    other_name: str = ""
    most_us: float | None = None
    before: Callable[[], object] = _nothing
    other_before: Callable[[], object] = _nothing
    adds: bool = False

    def is_late(self, line: dict) -> bool:
        """Of what was measured: does a call take longer than it may?"""
        spent = line["median_ns"] - (line["other"]["median_ns"] if self.adds else 0)
        return self.most_us is not None and spent > 1e3 * self.most_us


def _body(kernel, array, shape, dtype) -> Callable[[], object]:
    def call():
        return kernel(
            inputs=[array], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[shape], output_dtypes=[dtype]
        )

    return call


def _of_numpy() -> Iterator[Door]:
    import numpy

    a, b, c = (numpy.linspace(-2, 2, 64, dtype=numpy.float32) for _ in range(3))
    kernel = quern.metal_kernel("myexp", ["inp"], ["out"], BODY)
    one: numpy.ndarray = numpy.ones(1, numpy.float32)
    yield Door("quern.swiglu(out=)", lambda: quern.swiglu(a, b, out=c), lambda: a / (1 + numpy.exp(-a)) * b, "numpy", 4)
    yield Door("quern.swiglu", lambda: quern.swiglu(a, b), lambda: a / (1 + numpy.exp(-a)) * b, "numpy")
    yield Door("quern.swiglu_", lambda: quern.swiglu_(c, a, b))
    yield Door("metal_kernel", _body(kernel, one, (1,), numpy.float32), lambda: numpy.exp(one), "numpy.exp", 8)


def _ops_of_torch(torch, device: str) -> Iterator[Door]:
    import quern.torch as qt

    silu, linear, on_gpu = torch.nn.functional.silu, torch.nn.functional.linear, device != "cpu"
    a, b, c = (torch.linspace(-2, 2, 64, device=device).reshape(4, 16) for _ in range(3))
    x = torch.randn(16, 512, device=device) if on_gpu else torch.randn(2, 16, device=device)
    w = torch.randn(4 if not on_gpu else 512, x.shape[1], device=device)
    plain = {"norm": "none", "activation": "none", "clamp": False}
    one = torch.ones(1, device=device)
    metal = quern.metal_kernel("myexp", ["inp"], ["out"], BODY)
    cuda = quern.cuda_kernel("myexp", ["inp"], ["out"], "out[threadIdx.x] = expf(inp[threadIdx.x]);")
    eager = (lambda: silu(a) * b, "silu(a) * b")
    yield Door("quern.torch.swiglu", lambda: qt.swiglu(a, b), *eager, 10)
    yield Door("quern.swiglu", lambda: quern.swiglu(a, b), *eager, 10)
    yield Door("quern.swiglu(out=)", lambda: quern.swiglu(a, b, out=c), *eager, 10)
    yield Door("quern.torch.gemm_norm", lambda: qt.gemm_norm(x, w, **plain), lambda: linear(x, w), "linear", 10)
    yield Door("quern.gemm_norm", lambda: quern.gemm_norm(x, w, **plain), lambda: linear(x, w), "linear", 10)
    exp = (lambda: torch.exp(one), "torch.exp")
    yield Door("metal_kernel", _body(metal, one, (1,), torch.float32), *exp, 8)
    yield Door("cuda_kernel", _body(cuda, one, (1,), torch.float32), *exp, 8)
    with_op = _compiled(torch, lambda a, b: qt.swiglu((a + 1) * b, b))
    without = _compiled(torch, lambda a, b: (a + 1) * b)
    yield Door(
        "swiglu in a compiled graph",
        lambda: with_op(a, b),
        lambda: without(a, b),
        "the graph without it",
        10,
        adds=True,
    )


def _optimized(torch, device: str) -> Door:
    """A module of several ops, of which a plan is one kernel or graph."""
    import quern.torch as qt

    class Sums(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(16)

        def forward(self, x):
            y = self.norm(x)
            return (y / (1 + y.abs()) * torch.sigmoid(y) + y.tanh()).sum(1)

    x, model = torch.randn(32, 16, device=device), Sums().to(device).eval().requires_grad_(False)
    fast = functools.cache(lambda: qt.optimize(model, x, seconds=0.2))  # it takes seconds: not where it is left out
    return Door("quern.torch.optimize, a call", lambda: fast()(x), lambda: model(x), "the module")


def _compiled(torch, function: Callable) -> Callable:
    return torch.no_grad()(torch.compile(function, fullgraph=True))


def _gradients_of_torch(torch, device: str) -> Iterator[Door]:
    import quern.torch as qt

    silu = torch.nn.functional.silu
    a, b = (torch.linspace(-2, 2, 64, device=device).reshape(4, 16).requires_grad_() for _ in range(2))
    dc, made = torch.ones(4, 16, device=device), {}

    def forward(name: str, call: Callable) -> Callable[[], None]:
        def run() -> None:
            made[name] = call(a, b)

        return run

    def backward(name: str) -> Callable[[], object]:
        return lambda: torch.autograd.grad(made[name], (a, b), dc)

    ours, others = forward("ours", qt.swiglu), forward("other", lambda a, b: silu(a) * b)
    yield Door("swiglu with gradient, forward", ours, others, "silu(a) * b", 20)
    yield Door(
        "swiglu with gradient, backward", backward("ours"), backward("other"), "silu(a) * b", 30, ours, others
    )  # fmt: skip
    yield _mlp(torch, device)
    yield _lion(torch, device)
    yield _optimized(torch, device)


def _mlp(torch, device: str) -> Door:
    import quern.torch as qt

    width = (256, 512) if device != "cpu" else (8, 16)
    module, like = (qt.SwiGLUMLP(*width, device=device) for _ in range(2))
    x = torch.randn(4, width[0], device=device)

    def eager() -> None:
        made = torch.nn.functional.silu(like.gate_proj(x)) * like.up_proj(x)
        like.down_proj(made).sum().backward()

    return Door(f"SwiGLUMLP{width}, both ways", lambda: module(x).sum().backward(), eager, "eager")


def _lion(torch, device: str) -> Door:
    import quern.torch as qt

    params = [torch.zeros(64, device=device, requires_grad=True) for _ in range(148)]
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer = qt.Lion(params, lr=1e-4)
    adam = torch.optim.AdamW([param.detach().clone() for param in params], lr=1e-4, foreach=True)
    for param in adam.param_groups[0]["params"]:
        param.grad = torch.ones_like(param)
    return Door("Lion.step(), 148 tensors", optimizer.step, adam.step, "AdamW(foreach)", 60)


def doors() -> Iterator[tuple[str, str, Callable[[], None], int, Iterator[Door]]]:
    """(framework, its version, what waits for the device, calls in a burst, doors) of what is installed."""
    try:
        import numpy

        yield "numpy", numpy.__version__, _nothing, BURST_ON_CPU, _of_numpy()
    except ImportError:
        pass
    try:
        import torch
    except ImportError:
        return
    for device in ("cpu", *(("cuda",) if torch.cuda.is_available() else ())):
        wait = torch.cuda.synchronize if device == "cuda" else _nothing
        burst = BURST_ON_GPU if device == "cuda" else BURST_ON_CPU
        for group in (_ops_of_torch, _gradients_of_torch):
            yield f"torch {device}", torch.__version__, wait, burst, group(torch, device)


def _sample(call: Callable[[], object], before: Callable[[], object], wait: Callable[[], None], burst: int) -> float:
    """Nanoseconds a call. With something before it, each call is timed alone."""
    wait()
    clock = time.perf_counter_ns
    if before is _nothing:
        start = clock()
        for _ in range(burst):
            call()
        return (clock() - start) / burst
    spent = 0
    for _ in range(burst):
        before()
        start = clock()
        call()
        spent += clock() - start
    return spent / burst


def _series(samples: list[float]) -> dict:
    s = summarize(samples)
    return {
        "median_ns": s.median,
        "interval_ns": [s.low, s.high],
        "min_ns": s.min,
        "max_ns": s.max,
        "samples_ns": samples,
    }


def measure(door: Door, wait: Callable[[], None], burst: int, samples: int) -> dict:
    """The members of a line that are measured: of ours, and of the other's as `other`."""
    pairs = [(door.call, door.before)]
    if door.other is not None:
        pairs.append((door.other, door.other_before))
    for call, before in pairs:
        for _ in range(WARM):
            before()
            call()
    taken: list[list[float]] = [[] for _ in pairs]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(samples):
            for of_one, (call, before) in zip(taken, pairs):
                of_one.append(_sample(call, before, wait, burst))
    finally:
        wait()
        if was_enabled:
            gc.enable()
    line = _series(taken[0])
    if door.other is not None:
        line["other"] = {"name": door.other_name, **_series(taken[1])}
    return line


def _head() -> dict:
    has_gpu = any(device.name != "cpu" for device in quern.devices())
    versions = {"python": platform.python_version(), "cpus": len(os.sched_getaffinity(0))}
    line = head("quern doors 1", "cuda" if has_gpu else "cpu", 0, **versions)
    return {**line, "by": "quern.bench doors", "measures": "host time of a warm call"}


def _say(case: str, line: dict, most_us: float | None) -> None:
    other = line.get("other")
    beside = f"   {other['name']} {other['median_ns'] * 1e-3:.2f}" if other else ""
    wanted = f", at most {most_us:g}" if most_us else ""
    least = f"(least {line['min_ns'] * 1e-3:.2f}{wanted})"
    print(f"{case:44} {line['median_ns'] * 1e-3:8.2f} us a call {least}{beside}", flush=True)


def main(argv: list[str]) -> int:
    """The command; 0, or 1 where a call takes longer than it may on a GPU or with NumPy's arrays."""
    parser = argparse.ArgumentParser(prog="python -m quern.bench doors", description=" ".join(__doc__.split()))
    parser.add_argument("--json", "-j", metavar="FILE", help="append each measurement as a line of JSON")
    parser.add_argument("--samples", type=int, default=200, metavar="N", help="bursts a door; 200 unless given")
    parser.add_argument("--only", metavar="TEXT", default="", help="doors with this in their names")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.samples <= 100000:
        parser.error(f"--samples is {arguments.samples}, it must be from 1 to 100000")
    status, begin, measured = 0, _head(), 0
    for framework, version, wait, burst, group in doors():
        for door in group:
            case = f"{framework}: {door.name}"
            if arguments.only not in case:
                continue
            measured += 1
            line = {**begin, "case": case, "framework": version, "burst": burst, "most_us": door.most_us}
            line |= measure(door, wait, burst, arguments.samples)
            _say(case, line, door.most_us)
            if framework != "torch cpu":
                status |= door.is_late(line)
            if arguments.json:
                with open(arguments.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")
    if not measured:
        parser.error(f"--only is {arguments.only!r}, no door's name has this in it")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
