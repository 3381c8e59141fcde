# SPDX-License-Identifier: Apache-2.0
"""Of `python -m quern.bench gemm --variants`: each kernel that can serve a product, forced by the option "gemm" and
timed in turns with the others of all classes on the same tensors, with its greatest error against float64. Which one a
call would take by itself is told too."""

from __future__ import annotations

import torch

from .. import _library, gemm_norm, set_option
from . import measure, record

# As `quern list gemm_norm` has them; python/tests/test_bench_gemm.py holds these against the library's.
VARIANTS = (
    "wgmma-256x128",
    "wgmma-128x128",
    "wgmma-64x128",
    "mma-128x128",
    "sliced-32x32",
    "sliced-16x32",
    "sliced-16x64",
    "sliced-16x128",
    "cores-128x128",
    "cores-16x64",
    "rows-8",
    "whole-8",
    "plain",
    "cublas",
)
SHAPES = (
    (128, 512, 1024, 32),
    (512, 2048, 4096, 128),
    (1024, 8192, 8192, 256),
    (16, 8192, 8192, 256),
    (1, 8192, 8192, 256),
)


def _last() -> str:
    return _library.lib.qn_op_last_variant().decode()


class _Call:
    """One variant of one class over tensors of one type."""

    def __init__(self, arguments: tuple, groups: int, precision: str, variant: str) -> None:
        x, weight = arguments[:2]
        self.arguments, self.words = arguments, {"groups": groups, "precision": precision}
        self.variant = variant
        self.y = torch.full((x.shape[0], weight.shape[0]), float("nan"), device=x.device, dtype=x.dtype)

    def __call__(self) -> None:
        set_option("gemm", self.variant)
        gemm_norm(*self.arguments, **self.words, out=self.y)

    def own_choice(self) -> str:
        set_option("gemm", "")
        gemm_norm(*self.arguments, **self.words, out=self.y)
        return _last()


def _told(call: _Call, want: torch.Tensor) -> dict:
    """Why it is absent, or its error and whether two calls give the same bits."""
    try:
        call()
    except Exception as error:  # what a variant cannot do is told, and the others go on
        return {"absent": str(error)}
    if not _last().startswith(call.variant):
        return {"absent": f"{_last()} ran"}
    first = call.y.clone()
    call()
    worst = float((first.double() - want).abs().max())
    same = bool((call.y.view(torch.int16) == first.view(torch.int16)).all())
    return {"absent": "", "worst_error": worst, "same_bits": same}


def measure_one(
    data: tuple, groups: int, classes: list[str], names: list[str], formula, clock, rounds: int
) -> list[dict]:
    """A row of each variant that serves, by type and class. data: x, weight, biases, gamma, beta in f32."""
    rows, live = [], []
    for dtype, arguments in (("f32", data), ("bf16", (*(t.bfloat16() for t in data[:2]), *data[2:]))):
        want = formula(*(t.double() for t in arguments), groups)
        for precision in classes:
            if dtype == "bf16" and precision != "bf16":
                continue
            chosen = _Call(arguments, groups, precision, "").own_choice()
            for name in names:
                call = _Call(arguments, groups, precision, name)
                row = {"dtype": dtype, "precision": precision, "variant": name} | _told(call, want)
                if row["absent"]:
                    continue
                rows.append(row | {"chosen": chosen.split(" ")[0] == name, "why": chosen})
                live.append(call)
    try:
        samples = measure.in_turns(clock, lambda: None, [(call, False) for call in live], rounds)
    finally:
        set_option("gemm", "")
    x, weight = data[:2]
    flops = 2.0 * x.shape[0] * weight.shape[0] * x.shape[1]
    for row, taken in zip(rows, samples):
        row["step"] = record.series(row["variant"], 0.0, taken)
        row["tflops"] = flops / row["step"]["median_ns"] * 1e-3
    return rows
