# SPDX-License-Identifier: Apache-2.0
"""Does a learned optimizer train networks that it has never seen? `python -m quern.bench heldout`: small networks on
random tasks, each trained by learned optimizers with nothing set, by Adam and by Lion, on the same start and the same
batches. The figure is the mean training loss over the last tenth of the steps. Adam stands for two: at 1e-3, which
needs no tuning, and the best of six rates, which a user would have to search for each task."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .. import torch as qt
from .measure import device_of
from .single import ended, head, tell

SCHEMA = "quern heldout 1"
LEARNED = {"small_fc_lopt": qt.SmallFCLopt, "elo": qt.ELO, "celo2": qt.Celo2}
ADAM = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
LION = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
DEFAULT = 1e-3
DIVERGED = 1e9  # JSON has no infinity
SYMBOLS, LENGTH = 64, 32  # of the transformers


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.attend(self.before(x)).view(n, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.between(x))))


class _Transformer(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(SYMBOLS, width), nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*(_Block(width) for _ in range(depth)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.last(self.blocks(self.embed(x) + self.place))).flatten(0, 1)


def _mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def _labelled(teacher: nn.Module, draw: Callable[[torch.Generator], Tensor]):
    """Batches whose labels are drawn from what a random network makes of them."""

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = draw(generator)
        with torch.no_grad():
            y = 20 * teacher(x)
        return x, (y + torch.randn(y.shape, device=y.device, generator=generator)).argmax(1)

    return batch


def _vectors(n: int, inputs: int, hidden: int, device):
    return _labelled(
        nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10)).to(device),
        lambda g: torch.randn(n, inputs, device=device, generator=g),
    )


def _images(device):
    def draw(g: torch.Generator) -> Tensor:
        coarse = torch.randn(64, 3, 4, 4, device=device, generator=g)
        return functional.interpolate(coarse, size=(16, 16), mode="bilinear") + 0.2 * torch.randn(
            64, 3, 16, 16, device=device, generator=g
        )

    teacher = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.Tanh(), nn.Flatten(), nn.Linear(72, 10))
    return _labelled(teacher.to(device), draw)


def _sequences(device):
    """Of a random Markov chain; what follows each symbol."""
    chain = torch.softmax(2 * torch.randn(SYMBOLS, SYMBOLS, device=device), 1)

    def batch(g: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.empty(32, LENGTH + 1, dtype=torch.long, device=device)
        x[:, 0] = torch.randint(SYMBOLS, (32,), device=device, generator=g)
        for k in range(LENGTH):
            x[:, k + 1] = torch.multinomial(chain[x[:, k]], 1, generator=g)[:, 0]
        return x[:, :-1], x[:, 1:].flatten()

    return batch


@dataclass
class Task:
    """A network that meta-training never trains, and its data."""

    doc: str
    model: Callable[[], nn.Module]
    data: Callable[[Any], Callable[[torch.Generator], tuple[Tensor, Tensor]]]


TASKS = {
    "mlp": Task("64-128-128-10, SiLU", lambda: _mlp(64, 128, 128, 10), lambda d: _vectors(64, 64, 64, d)),
    "mlp-wide": Task(
        "128-512-512-512-10, SiLU", lambda: _mlp(128, 512, 512, 512, 10), lambda d: _vectors(128, 128, 64, d)
    ),
    "mlp-deep": Task(
        "48-64-64-64-64-64-10, SiLU", lambda: _mlp(48, 64, 64, 64, 64, 64, 10), lambda d: _vectors(32, 48, 64, d)
    ),
    "convolutions": Task("two layers over 16 x 16 images", _convolutions, _images),
    "transformer": Task("two blocks of width 64", lambda: _Transformer(64, 2), _sequences),
    "transformer-wide": Task("four blocks of width 128", lambda: _Transformer(128, 4), _sequences),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[tuple[Tensor, Tensor]]) -> float:
    """The mean loss over the last tenth; DIVERGED where it is no number."""
    losses = []
    for k, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if k >= len(batches) - max(1, len(batches) // 10):
            losses.append(loss.detach())
    made = torch.stack(losses).mean().item()
    return made if math.isfinite(made) else DIVERGED


def learned(op: str, model: nn.Module, weights: str | None) -> torch.optim.Optimizer:
    """With nothing set but which parameters are embeddings, where that matters."""
    if op != "celo2":
        return LEARNED[op](model.parameters(), weights)
    embeddings = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    rest = [p for p in model.parameters() if all(p is not other for other in embeddings)]
    groups = [{"params": rest}, *([{"params": embeddings, "is_embedding": True}] if embeddings else [])]
    return qt.Celo2(groups, weights)


def contenders(ops: list[str], weights: str | None) -> dict[str, Callable[[nn.Module], torch.optim.Optimizer]]:
    made: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
        op: lambda m, op=op: learned(op, m, weights)  # type: ignore[misc]
        for op in ops
    }
    for lr in ADAM:
        made[f"adam {lr:g}"] = lambda m, lr=lr: torch.optim.Adam(m.parameters(), lr=lr)  # type: ignore[misc]
    for lr in LION:
        made[f"lion {lr:g}"] = lambda m, lr=lr: qt.Lion(m.parameters(), lr=lr, weight_decay=0.0)  # type: ignore[misc]
    return made


def measure(name: str, seed: int, steps: int, device: torch.device, ops: list[str], weights: str | None) -> dict:
    """A line: the losses of all contenders on one task."""
    task = TASKS[name]
    torch.manual_seed(1000 + seed)
    draw = task.data(device)
    generator = torch.Generator(device=device).manual_seed(2000 + seed)
    batches = [draw(generator) for _ in range(steps)]
    losses, elements = {}, 0
    for who, make in contenders(ops, weights).items():
        torch.manual_seed(seed)
        model = task.model().to(device)
        elements = sum(p.numel() for p in model.parameters())
        losses[who] = train(model, make(model), batches)
    return head(SCHEMA, device) | {
        "task": name,
        "of": task.doc,
        "seed": seed,
        "steps": steps,
        "elements": elements,
        "losses": losses,
    }


def _best(line: dict, kind: str) -> float:
    return min(loss for who, loss in line["losses"].items() if who.startswith(kind))


def _own(line: dict) -> list[str]:
    return [who for who in line["losses"] if who in LEARNED]


def text(line: dict) -> str:
    columns = [f"{who} {line['losses'][who]:.4f}" for who in _own(line)]
    columns += [f"adam {DEFAULT:g} {line['losses'][f'adam {DEFAULT:g}']:.4f}"]
    columns += [f"best {kind} {_best(line, kind):.4f}" for kind in ("adam", "lion")]
    head = f"{line['task']:<18}{line['elements']:>9,} elements, {line['steps']} steps, seed {line['seed']}"
    return f"{head}: {', '.join(columns)}"


def summary(lines: list[dict]) -> str:
    n, told = len(lines), []
    others = [
        (f"below Adam at {DEFAULT:g}", [line["losses"][f"adam {DEFAULT:g}"] for line in lines]),
        ("at or below the best of six Adams", [_best(line, "adam") for line in lines]),
        ("at or below the best of six Lions", [_best(line, "lion") for line in lines]),
    ]
    for who in _own(lines[0]):
        own = [line["losses"][who] for line in lines]
        for what, losses in others:
            k = sum(a < DIVERGED and a <= b for a, b in zip(own, losses))
            told.append(f"{who}: {what} in {k} of {n} ({100 * k / n:.0f} %)")
    return "\n".join(told)


def _run(words: argparse.Namespace, names: list[str], lengths: list[int], ops: list[str]) -> int:
    device, lines = device_of(words.device), []
    for steps in lengths:
        for name in names:
            for seed in range(words.first_seed, words.first_seed + words.seeds):
                lines.append(measure(name, seed, steps, device, ops, words.weights))
                tell(lines[-1], text, words.json)
    print(summary(lines))
    return 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m quern.bench heldout", description=__doc__)
    parser.add_argument("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    parser.add_argument("--tasks", default=",".join(TASKS), help=f"of {', '.join(TASKS)}; all unless given")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="10 unless given")
    parser.add_argument("--first-seed", type=int, default=0, metavar="K", help="0 unless given")
    parser.add_argument("--steps", default="200,1000", help="lengths of training; 200,1000 unless given")
    doc = f"of {', '.join(LEARNED)}; repeatable; all unless given"
    parser.add_argument("--op", action="append", choices=LEARNED, help=doc)
    doc = "with one --op: another file of weights than the one that comes with quern"
    parser.add_argument("--weights", metavar="FILE", help=doc)
    parser.add_argument("--json", "-j", metavar="FILE", help="append each task's losses as a line of JSON")
    words = parser.parse_args(argv)
    try:
        names, lengths = words.tasks.split(","), [int(length) for length in words.steps.split(",")]
    except ValueError:
        parser.error(f"--steps is {words.steps!r}, it must be numbers with commas between")
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        parser.error(f"there is no task {unknown[0]!r}; there are {', '.join(TASKS)}")
    if min(lengths) < 1 or words.seeds < 1:
        parser.error("--steps and --seeds must be 1 or more")
    ops = words.op or list(LEARNED)
    if words.weights and len(ops) != 1:
        parser.error("--weights is a file for one optimizer: name it with --op")
    return ended("python -m quern.bench heldout", words.json, lambda: _run(words, names, lengths, ops))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
