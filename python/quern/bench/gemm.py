# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.bench gemm` times a matrix product with clamp, Mish and GroupNorm (KernelBench level 2, problem
94): quern.gemm_norm in its precision classes and PyTorch, eager and compiled, in fp32 and TF32, in turns on the same
tensors. Each line has the greatest error against float64; classes are compared with their like. --variants times each
of quern's kernels instead."""

from __future__ import annotations

import argparse

import torch

from .. import gemm_norm
from . import gemm_variants, measure, record, single, stats
from .table import duration

PROGRAM = "python -m quern.bench gemm"
SHAPES = ((128, 512, 1024, 32), (1024, 8192, 8192, 256), (1, 8192, 8192, 256), (16, 8192, 8192, 256))  # m, k, n, groups
CLASSES = ("fp32", "tf32", "bf16x3", "tf32x3", "f16x3", "bf16")


def eager(x, weight, bias, gamma, beta, groups):
    v = torch.nn.functional.mish(torch.nn.functional.hardtanh(torch.nn.functional.linear(x, weight, bias)))
    return torch.nn.functional.group_norm(v, groups, gamma, beta)


class _Torch:
    """Eager or compiled, with TF32 allowed or not while it runs."""

    def __init__(self, formula, tf32: bool, arguments: tuple) -> None:
        self.formula, self.tf32, self.arguments = formula, tf32, arguments

    def __call__(self):
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        return self.formula(*self.arguments)


Data = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # x, weight, bias, gamma, beta


def _data(m: int, k: int, n: int, device: torch.device) -> Data:
    generator = torch.Generator(device=device).manual_seed(1)

    def draw(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.empty(shape, device=device).normal_(0.0, scale, generator=generator)

    return draw(m, k), draw(n, k, scale=k**-0.5), draw(n), draw(n), draw(n)


def _calls(x, weight, bias, gamma, beta, groups: int, classes: list[str]) -> dict:
    """By name: what runs."""

    def of(precision: str):
        return lambda: gemm_norm(x, weight, bias, None, gamma, beta, groups=groups, precision=precision)

    arguments = (x, weight, bias, gamma, beta, groups)
    made = {f"quern {name}": of(name) for name in classes}
    if x.device.type == "cuda":
        torch._dynamo.reset()
    for tf32 in (False, True) if x.device.type == "cuda" else (False,):
        name = "tf32" if tf32 else "fp32"
        made[f"eager {name}"] = _Torch(eager, tf32, arguments)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        made[f"compile {name}"] = _Torch(torch.compile(eager, dynamic=False), tf32, arguments)
    return made


def _head(schema: str, shape: tuple[int, int, int, int], device: torch.device) -> dict:
    return single.head(schema, device) | {"op": "gemm_norm", **dict(zip(("m", "k", "n", "groups"), shape))}


def measure_one(shape: tuple[int, int, int, int], classes: list[str], device: torch.device, rounds: int, clock) -> dict:
    m, k, n, groups = shape
    data = _data(m, k, n, device)
    x, weight, bias, gamma, beta = (tensor.double() for tensor in data)
    want = eager(x, weight, bias, gamma, beta, groups)
    told, live = [], {}
    for name, call in _calls(*data, groups, classes).items():
        try:
            worst = float((call().double() - want).abs().max())
        except Exception as error:  # whatever another project's code raises is told, and the others go on
            if name.startswith("quern"):
                raise
            told.append(
                {"name": name, "absent": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
            )
            continue
        live[name] = call
        told.append({"name": name, "absent": "", "worst_error": worst})
    samples = measure.in_turns(clock, lambda: None, [(call, False) for call in live.values()], rounds)
    torch.backends.cuda.matmul.allow_tf32 = False
    by_name, flops = {one["name"]: one for one in told}, 2.0 * m * n * k
    for name, taken in zip(live, samples):
        step = record.series(name, 0.0, taken)
        by_name[name] |= {"step": step, "tflops": flops / step["median_ns"] * 1e-3}
    peers = [one for one in told if one["name"].split()[0] in ("eager", "compile") and not one["absent"]]
    for one in told:
        if not one["name"].startswith("quern") or one["absent"]:
            continue
        alike = [p for p in peers if p["name"].endswith("tf32") == one["name"].endswith(" tf32")] or peers
        best = min(alike, key=lambda p: p["step"]["median_ns"], default=None)
        if best:
            ratio = stats.speedup_paired(best["step"]["samples_ns"], one["step"]["samples_ns"])
            one |= {"beside": best["name"], "speedup": record.ratio(ratio), "verdict": ratio.verdict}
    return _head("quern gemm 1", shape, device) | {"rows": told}


def _formula(x, weight, bias, bias2, gamma, beta, groups):
    return eager(x, weight, bias + bias2, gamma, beta, groups)


def variants_of(shape, classes: list[str], names: list[str], device: torch.device, rounds: int, clock) -> list[dict]:
    """A line of each variant that serves."""
    m, k, n, groups = shape
    x, weight, bias, gamma, beta = _data(m, k, n, device)
    rows = gemm_variants.measure_one(
        (x, weight, bias, bias.flip(0), gamma, beta), groups, classes, names, _formula, clock, rounds
    )
    head = _head("quern gemm variants 2", shape, device)
    return [head | row for row in rows]


def variant_text(line: dict) -> str:
    """As people read it."""
    what = f"{line['m']} x {line['k']} -> {line['n']}  {line['dtype']:<5}{line['precision']:<7}{line['variant']:<14}"
    rate = f"{duration(line['step']['median_ns']):>12}{line['tflops']:>9.1f} TFLOP/s"
    return f"{what}{rate}  error {line['worst_error']:.1e}{' <' if line['chosen'] else ''}"


def text(line: dict) -> str:
    """As people read it."""
    out = [f"gemm_norm {line['m']} x {line['k']} -> {line['n']}, {line['groups']} groups, {line['machine']['device']}"]
    for one in line["rows"]:
        if one["absent"]:
            out.append(f"  {one['name']:<14}{'-':>12}  {one['absent']}")
            continue
        beside = ""
        if "beside" in one:
            beside = f"  {one['speedup']['ratio']:.2f}x {one['beside']}, {one['verdict']}"
        time = f"{duration(one['step']['median_ns']):>12}{one['tflops']:>9.1f} TFLOP/s"
        out.append(f"  {one['name']:<14}{time}  error {one['worst_error']:.1e}{beside}")
    return "\n".join(out)


def _shape(words: str) -> tuple[int, int, int, int]:
    numbers = tuple(int(word) for word in words.lower().split("x"))
    if len(numbers) != 4 or min(numbers) < 1 or numbers[2] % numbers[3]:
        raise ValueError(f"{words} is no shape: it is MxKxNxGROUPS, as 128x512x1024x32, and groups divide n")
    return numbers


def _run(arguments: argparse.Namespace) -> int:
    shapes, device = [_shape(words) for words in arguments.shape or ()], measure.device_of(arguments.device)
    clock = measure.clock_of(device)
    if arguments.variants is not None:
        names = [name for name in arguments.variants.split(",") if name]
        for name in names:
            if name not in gemm_variants.VARIANTS:
                raise ValueError(f"there is no variant {name}; there are {', '.join(gemm_variants.VARIANTS)}")
        for shape in shapes or gemm_variants.SHAPES:
            classes = arguments.precision or list(CLASSES)
            for line in variants_of(shape, classes, names, device, arguments.rounds, clock):
                single.tell(line, variant_text, arguments.json)
        return 0
    for shape in shapes or SHAPES:
        line = measure_one(shape, arguments.precision or list(CLASSES[:5]), device, arguments.rounds, clock)
        single.tell(line, text, arguments.json)
    return 0


def main(argv: list[str]) -> int:
    """Exit status as of `python -m quern.bench`."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=" ".join(__doc__.split()))
    add = parser.add_argument
    add("--shape", "-s", action="append", metavar="MxKxNxGROUPS", help="repeatable; those of the problem unless given")
    add("--precision", "-p", action="append", choices=CLASSES, help="repeatable; all unless given")
    add(
        "--variants",
        nargs="?",
        const=",".join(gemm_variants.VARIANTS),
        metavar="NAMES",
        help="each of these kernels by itself, and no PyTorch; with commas, all that serve unless named",
    )
    add("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    add("--rounds", type=int, default=30, metavar="N", help="samples of each; 30 unless given")
    add("--json", "-j", metavar="FILE", help="append each measurement with its raw samples as a line of JSON")
    arguments = single.parsed(parser, argv)
    with torch.no_grad():
        return single.ended(PROGRAM, arguments.json, lambda: _run(arguments))
