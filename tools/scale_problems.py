#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scales a copy of KernelBench to a processor: scale_problems.py FOLDER OUT [--levels 1,2] [--operations N] [--bytes N]

A problem of more operations (PyTorch's counter) or bytes (inputs, parameters and results) than given has the whole
numbers at the top of its file halved: the batch's first, then the largest one, as long as the model runs. What cannot
be made small enough is left out and named."""

import argparse
import pathlib
import re
import sys

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

NUMBER = re.compile(r"^(\w+) *= *(\d+)\b", re.M)
LEAST = 4  # a number is halved down to this
BATCH = re.compile(r"batch", re.I)


def cost(text: str) -> tuple[float, float]:
    """(operations, bytes) of a call of the problem, which is not computed."""
    scope: dict = {"__name__": "problem"}
    exec(compile(text, "problem", "exec"), scope)
    with torch.device("meta"), torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model, inputs = scope["Model"](*scope["get_init_inputs"]()), scope["get_inputs"]()
        result = model(*inputs)
    tensors = [t for t in pytree.tree_leaves((inputs, result)) if isinstance(t, torch.Tensor)]
    return counter.get_total_flops(), sum(t.numel() * t.element_size() for t in [*tensors, *model.parameters()])


def scaled(text: str, operations: float, size: float) -> str | None:
    """None: no numbers make it small enough."""
    at, fixed = cost(text), set()
    while at[0] > operations or at[1] > size:
        numbers = {name: int(value) for name, value in NUMBER.findall(text) if name not in fixed}
        able = [n for n, value in numbers.items() if value // 2 >= (1 if BATCH.search(n) else LEAST)]
        if not able:
            return None
        name = max(able, key=lambda n: (bool(BATCH.search(n)), numbers[n]))
        new = re.sub(rf"^({name} *= *)\d+\b", rf"\g<1>{numbers[name] // 2}", text, count=1, flags=re.M)
        try:
            at, text = cost(new), new
        except Exception:
            fixed.add(name)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--levels", default="1,2")
    parser.add_argument("--operations", type=float, default=2e9)
    parser.add_argument("--bytes", type=float, default=64e6)
    ask = parser.parse_args()
    for level in ask.levels.split(","):
        for path in sorted((ask.folder / f"level{level}").glob("*.py"), key=lambda p: int(p.name.split("_")[0])):
            try:
                text = scaled(path.read_text(), ask.operations, ask.bytes)
            except Exception as error:
                text = None
                print(f"{path}: {error}", file=sys.stderr)
            if text is None:
                print(f"{path}: left out", file=sys.stderr, flush=True)
                continue
            to = ask.out / f"level{level}" / path.name
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
