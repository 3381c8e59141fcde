# SPDX-License-Identifier: Apache-2.0
"""What quern.torch.optimize gains: `python -m quern.bench optimize`. Models beside eager PyTorch, torch.compile and
eager PyTorch in a CUDA graph: host time of a call and its synchronisation, with the cache flushed before each; then
whole training steps by torch.compile(backend="quern"), with the gradients held against eager's."""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .. import optimize
from ..torch import optimize as optimized

FLUSHED = 128 << 20  # bytes


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.aside: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.aside = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.aside(x))


def _resnet18() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for outputs, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(_Residual(width, outputs, stride))
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class _Block(nn.Module):
    """A block of GPT-2 with its attention written out."""

    def __init__(self, width: int = 768, heads: int = 12, length: int = 1024, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).bool())

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.attend(self.norms[0](x)).split(width, 2)
        q, k, v = (part.view(n, length, self.heads, -1).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        scores = functional.softmax(scores.masked_fill(~self.mask[:length, :length], float("-inf")), -1)
        x = x + self.dropout(self.project((self.dropout(scores) @ v).transpose(1, 2).reshape(n, length, width)))
        return x + self.dropout(self.narrow(functional.gelu(self.widen(self.norms[1](x)), approximate="tanh")))


class _Sums(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x / (1 + x.abs()) * torch.sigmoid(x)).sum(1)


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10), nn.Softmax(-1)
    )


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (_mlp, (128, 512)),
    "pointwise and sum": (_Sums, (4096, 8192)),
    "resnet18 train": (lambda: _resnet18().train(), (2, 3, 224, 224)),
    "resnet18 eval": (lambda: _resnet18().eval(), (2, 3, 224, 224)),
    "gpt2 block": (_Block, (1, 1024, 768)),
    "gru": (lambda: nn.GRU(128, 256, 2, batch_first=True), (10, 256, 128)),
}
TRAINED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (_mlp, (256, 512)),
    "gpt2 block": (_Block, (1, 1024, 768)),
    "gpt2 block with dropout": (lambda: _Block(dropout=0.1), (1, 1024, 768)),
}


def _timed(calls: dict[str, Callable[[], object]], device: torch.device, n: int) -> dict[str, float]:
    """The medians in us, of calls in turns."""
    flushed = torch.empty(FLUSHED, dtype=torch.uint8, device=device)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(8):
        for call in calls.values():
            call()
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(n):
        for name, call in calls.items():
            flushed.zero_()
            wait()
            begin = time.perf_counter()
            call()
            wait()
            spent[name].append(time.perf_counter() - begin)
    return {name: 1e6 * statistics.median(each) for name, each in spent.items()}


def _captured(model: nn.Module, x: Tensor) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph, given = torch.cuda.CUDAGraph(), x.clone()
    with torch.cuda.graph(graph):
        made = model(given)

    def run():
        given.copy_(x)
        graph.replay()
        return made

    return run


def _row(name: str, times: dict[str, float], rest: str) -> str:
    return f"== {name}: " + ", ".join(f"{who} {us:.1f} us" for who, us in times.items()) + rest


def forward(name: str, device: torch.device, n: int) -> str:
    make, shape = CASES[name]
    model, x = make().to(device), torch.randn(shape, device=device)
    begin = time.perf_counter()
    fast = optimized(model, x)
    took = time.perf_counter() - begin
    with torch.no_grad():
        compiled = torch.compile(copy.deepcopy(model))
        calls: dict[str, Callable[[], object]] = {"eager": lambda: model(x), "compile": lambda: compiled(x)}
        calls["optimize"] = lambda: fast(x)
        if device.type == "cuda":
            calls["eager graph"] = _captured(copy.deepcopy(model), x)
        times = _timed(calls, device, n)
    return _row(name, times, f"; optimised in {took:.1f} s") + f"\n{fast.report}"


def training(name: str, device: torch.device, n: int) -> str:
    make, shape = TRAINED[name]
    model, x = make().to(device), torch.randn(shape, device=device)
    runs = {
        "eager": copy.deepcopy(model),
        "compile": torch.compile(copy.deepcopy(model)),
        "quern": torch.compile(copy.deepcopy(model), backend="quern"),
    }

    def step(of: nn.Module) -> list[Tensor]:
        torch.manual_seed(0)  # for dropout
        of.zero_grad(set_to_none=True)
        of(x).square().mean().backward()
        return [param.grad for param in of.parameters() if param.grad is not None]

    times = _timed({who: functools.partial(step, of) for who, of in runs.items()}, device, n)
    pairs = zip(step(runs["eager"]), step(runs["quern"]))
    worst = max(float((a - b).abs().max() / a.abs().max().clamp(min=1e-9)) for a, b in pairs)
    return _row(f"{name}, a training step", times, f"; gradients differ by {worst:.2g} of the largest")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m quern.bench optimize", description=__doc__)
    parser.add_argument("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    parser.add_argument("--only", metavar="NAME", help="of one model; all unless given")
    parser.add_argument("--calls", type=int, default=50, metavar="N", help="timed calls of each; 50 unless given")
    words = parser.parse_args(argv)
    names = [*dict.fromkeys([*CASES, *TRAINED])]
    if words.only not in (None, *names):
        parser.error(f"there is no model {words.only!r}; there are {', '.join(names)}")
    if words.calls < 1:
        parser.error("--calls must be 1 or more")
    device = torch.device(words.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.manual_seed(0)
    optimize.register()
    for name in CASES:
        if words.only in (None, name):
            print(forward(name, device, words.calls), flush=True)
    for name in TRAINED:
        if words.only in (None, name):
            print(training(name, device, words.calls), flush=True)
    return 0
