# SPDX-License-Identifier: Apache-2.0
"""Which optimizer trains a GPT to the lower loss in so many steps? `python -m quern.bench gpt`: AdamW, Lion, Muon (with
AdamW for what is no hidden matrix) and Celo2 with the weights that come with quern, each at six rates, on the same
start and the same batches of bytes. All have warm-up over a twentieth of the steps, half a cosine down to a tenth, a
weight decay of 0.1 (Lion: 1) and gradients bounded to a norm of 1. The figure is the mean training loss of the last
tenth of the steps; no batch is seen twice."""

from __future__ import annotations

import argparse
import math
import pathlib
import sys
import sysconfig
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import torch as qt
from . import measure
from .lopt_models import GPT, TRAINED, fill
from .single import ended, head, tell

SCHEMA = "quern gpt 1"
MODELS = {"gpt-10m": (400, 32), "gpt2-124m": (200, 8)}  # steps, sequences a step
DIVERGED = 1e9  # JSON has no infinity
DECAY, BOUND, MOST_BYTES = 0.1, 1.0, 64 << 20
_RATES = (1e-4, 3e-4, 6e-4, 1e-3, 2e-3, 4e-3)


def corpus(path: str | None) -> bytes:
    """The file, or the sources of Python's standard library, which every machine has in some version."""
    if path:
        return pathlib.Path(path).read_bytes()
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = sorted(file for file in root.rglob("*.py") if "site-packages" not in file.parts)
    return b"".join(file.read_bytes() for file in files)[:MOST_BYTES]


def _parts(model: GPT) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Hidden matrices, embeddings and vectors."""
    embeddings: list[Tensor] = [model.embedding, model.position]
    rest = [p for p in model.parameters() if all(p is not other for other in embeddings)]
    return [p for p in rest if p.dim() == 2], embeddings, [p for p in rest if p.dim() < 2]


def _adamw(params: list[Tensor], lr: float, fused: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=lr, betas=(0.9, 0.95), weight_decay=DECAY, fused=fused)


def _muon(model: GPT, lr: float, on_gpu: bool) -> list[torch.optim.Optimizer]:
    matrices, embeddings, vectors = _parts(model)
    muon: Any = torch.optim.Muon(matrices, lr=lr, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    return [muon, _adamw([*embeddings, *vectors], lr, on_gpu)]


def _celo2(model: GPT, lr: float, on_gpu: bool) -> list[torch.optim.Optimizer]:
    """As ELO-CELO2's authors set it, in Muon's class of products."""
    matrices, embeddings, vectors = _parts(model)
    groups = [{"params": [*matrices, *vectors]}, {"params": embeddings, "is_embedding": True}]
    options = {"weight_decay": DECAY, "adam_weight_decay": DECAY, "adam_lr_mult": 20.0, "width_mult": 1.0}
    return [qt.Celo2(groups, lr=lr, precision="bf16", **options)]


OPTIMIZERS: dict[str, tuple[tuple[float, ...], Callable[[GPT, float, bool], list[torch.optim.Optimizer]]]] = {
    "adamw": (_RATES, lambda model, lr, on_gpu: [_adamw(list(model.parameters()), lr, on_gpu)]),
    "lion": (
        tuple(rate / 10 for rate in _RATES),
        lambda model, lr, on_gpu: [qt.Lion(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=10 * DECAY)],
    ),
    "muon": ((6e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2), _muon),
    "celo2": ((1e-4, 2e-4, 3.16e-4, 6e-4, 1e-3, 2e-3), _celo2),
}


def factor(step: int, steps: int) -> float:
    """Of the rate."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.55 + 0.45 * math.cos(math.pi * (step - warm) / max(1, steps - warm))


def train(name: str, who: str, lr: float, steps: int, batch: int, text: Tensor) -> dict:
    """The mean loss of each twentieth of the steps, and of the last tenth; the seconds of all steps."""
    device = text.device
    torch.manual_seed(1)
    with device:
        model = TRAINED[name].make()
        fill(model)
    assert isinstance(model, GPT)
    on_gpu = device.type == "cuda"
    optimizers = OPTIMIZERS[who][1](model, lr, on_gpu)
    context, generator = len(model.position), torch.Generator().manual_seed(2)
    starts = torch.randperm(len(text) // (context + 1) - 1, generator=generator)[: steps * batch] * (context + 1)
    if len(starts) < steps * batch:
        raise ValueError(f"{steps} steps of {batch} sequences of {context + 1} bytes: the text has {len(text):,}")
    places = starts.view(steps, batch, 1).to(device) + torch.arange(context + 1, device=device)
    losses, began = [], time.perf_counter()
    for step in range(steps):
        tokens = text[places[step]].long()
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = model(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), BOUND)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * factor(step, steps)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    every = torch.stack(losses).double().cpu()
    part, last = max(1, steps // 20), float(every[-max(1, steps // 10) :].mean())
    curve = [float(x) if math.isfinite(x) else DIVERGED for x in (p.mean() for p in every.split(part))]
    return {
        "loss": last if math.isfinite(last) else DIVERGED,
        "curve": curve,
        "seconds": time.perf_counter() - began,
        "elements": sum(p.numel() for p in model.parameters()),
    }


def text_of(line: dict) -> str:
    each = 1e3 * line["seconds"] / line["steps"]
    return f"{line['model']:<10} {line['optimizer']:<6} {line['lr']:<9g} loss {line['loss']:.4f}, {each:.1f} ms a step"


def _run(words: argparse.Namespace, data: Tensor) -> int:
    device = measure.device_of(words.device)
    for name in words.model or MODELS:
        steps, batch = words.steps or MODELS[name][0], words.batch or MODELS[name][1]
        for who in words.optimizer or OPTIMIZERS:
            if who == "muon" and not hasattr(torch.optim, "Muon"):
                print(f"{name:<10} muon   is left out: PyTorch has it from 2.9 on, this is {torch.__version__}")
                continue
            for lr in words.lr or OPTIMIZERS[who][0]:
                made = train(name, who, lr, steps, batch, data.to(device))
                of = {"model": name, "optimizer": who, "lr": lr, "steps": steps, "batch": batch, "bytes": len(data)}
                tell(head(SCHEMA, device) | of | made, text_of, words.json)
    return 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m quern.bench gpt", description=__doc__)
    parser.add_argument("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    parser.add_argument("--model", action="append", choices=MODELS, help="repeatable; all unless given")
    parser.add_argument("--optimizer", action="append", choices=OPTIMIZERS, help="repeatable; all unless given")
    parser.add_argument("--lr", action="append", type=float, help="repeatable; the optimizer's six rates unless given")
    default = ", ".join(f"{name}: {steps} of {batch}" for name, (steps, batch) in MODELS.items())
    parser.add_argument("--steps", type=int, metavar="N", help=f"with --batch, for steps of sequences of {default}")
    parser.add_argument("--batch", type=int, metavar="N", help="sequences a step")
    doc = "bytes to learn from; the sources of Python's standard library unless given"
    parser.add_argument("--text", metavar="FILE", help=doc)
    parser.add_argument("--json", "-j", metavar="FILE", help="append each training as a line of JSON")
    words = parser.parse_args(argv)
    if min(words.steps or 1, words.batch or 1) < 1:
        parser.error("--steps and --batch must be 1 or more")
    try:
        data = torch.frombuffer(bytearray(corpus(words.text)), dtype=torch.uint8)
    except OSError as error:
        parser.error(f"--text: {error}")
    return ended("python -m quern.bench gpt", words.json, lambda: _run(words, data))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
