# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on the CPU, with Lion of quern beside Lion as PyTorch users write it, and holds one against the
other; trains it with 16-bit weights, rounded in three ways; and with AdamW, Lion and learned optimizers side by side.
README.md shows what comes out.

Exit status: 0, or 1 if a check of checks.py does not hold."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import checks
import quern
import records
import report
import torch
from eager_lion import EagerLion
from quern.torch import Celo2, Lion, SmallFCLopt
from side_by_side import QUICK, Run, Settings, train
from text import entropy, ledger

HERE = Path(__file__).resolve().parent


def f32_part(settings: Settings) -> tuple[dict[str, Run], list[checks.Check]]:
    numbers = dict(lr=settings.lr, weight_decay=settings.weight_decay)
    makers = {
        "eager Lion": lambda m: EagerLion(m.parameters(), **numbers),
        "quern.torch.Lion": lambda m: Lion(m.parameters(), **numbers),
    }
    runs = train(settings, torch.float32, makers)
    return runs, checks.same_course(runs["quern.torch.Lion"], runs["eager Lion"], settings)


def bf16_part(settings: Settings) -> tuple[dict[str, Run], list[checks.Check]]:
    numbers = dict(lr=settings.bf16_lr, weight_decay=settings.weight_decay)
    makers = {
        "to nearest": lambda m: Lion(m.parameters(), **numbers),
        "stochastic": lambda m: Lion(m.parameters(), **numbers, stochastic_rounding=True, seed=settings.seed),
        "master copy": lambda m: Lion(m.parameters(), **numbers, master_weights=True),
    }
    runs = train(settings, torch.bfloat16, makers, watch=True)
    return runs, checks.freezing(*runs.values(), settings)


def optimizers_part(settings: Settings) -> tuple[dict[str, Run], list[checks.Check]]:
    decay = dict(weight_decay=settings.weight_decay)
    makers = {
        "torch.optim.AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=settings.adamw_lr, **decay),
        "quern.torch.Lion": lambda m: Lion(m.parameters(), lr=settings.lr, **decay),
        "quern.torch.SmallFCLopt": lambda m: SmallFCLopt(m.parameters()),
        "quern.torch.Celo2": lambda m: Celo2(m.groups()),
    }
    runs = train(settings, torch.float32, makers)
    return runs, [checks.learns(run, name) for name, run in runs.items()]


PARTS = {"f32": f32_part, "bf16": bf16_part, "optimizers": optimizers_part}


def machine() -> str:
    """The processor's name, as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str:
    """Of the checkout that this file stands in; "-dirty" behind it where that was changed."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no checkout"


def about(settings: Settings, threads: int) -> dict:
    return {
        "command": " ".join(["python", os.path.relpath(__file__, HERE.parents[1]), *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "threads": threads,
        "torch": torch.__version__,
        "quern": quern.__version__,
        "settings": dataclasses.asdict(settings),
        "first_steps": checks.FIRST_STEPS,
        "text_sha256": hashlib.sha256(ledger(settings.text_bytes, settings.seed)).hexdigest(),
        "entropy": entropy(),
    }


def run_parts(settings: Settings, threads: int) -> records.Record:
    begin = time.monotonic()
    record = records.Record(about(settings, threads), [], [])
    for part, run_part in PARTS.items():
        print(f"{part}: {settings.steps} steps ...", file=sys.stderr, flush=True)
        runs, found = run_part(settings)
        for name, run in runs.items():
            lists = {key: getattr(run, key) for key in ("losses", "model_us", "optimizer_us", "unmoved")}
            record.runs.append({"part": part, "optimizer": name, **lists})
            record.about["parameters"] = sum(weights.numel() for weights in run.start)
        record.checks += [{"part": part, **check.record()} for check in found]
    record.about["seconds"] = time.monotonic() - begin
    return record


def draw(record: records.Record, path: Path) -> str:
    """Draws the picture, where matplotlib is there; the line to print about it."""
    try:
        import plot
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        return f"no picture: it needs matplotlib (pip install -r {os.path.relpath(HERE / 'requirements.txt')})"
    plot.draw(record, path)
    return f"wrote {path}"


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small GPT, trained with quern's optimizers beside others.")
    parser.add_argument("--out", type=Path, default=Path("train-gpt"), metavar="DIR",
                        help="where train-gpt.jsonl and train-gpt.svg go (default: ./train-gpt)")  # fmt: skip
    parser.add_argument("--steps", type=int, help=f"at least {2 * Settings.warmup} (default: {Settings.steps})")
    parser.add_argument("--quick", action="store_true", help=f"a smaller model, {QUICK.steps} steps: for tests")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch and quern (default: 2)")
    parser.add_argument(
        "--page", type=Path, metavar="FILE.md", help="write the tables between the marks of this page too"
    )
    arguments = parser.parse_args(words)
    if arguments.steps is not None and arguments.steps < 2 * Settings.warmup:
        parser.error(f"--steps is {arguments.steps}: at least {2 * Settings.warmup}, or there is little to compare")
    if arguments.threads < 1:
        parser.error(f"--threads is {arguments.threads}: at least 1")
    return arguments


def main(words: list[str] | None = None) -> int:
    arguments = parse(words)
    settings = QUICK if arguments.quick else Settings()
    if arguments.steps is not None:
        settings = dataclasses.replace(settings, steps=arguments.steps)
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)  # now: not after a minute of work
    record = run_parts(settings, arguments.threads)
    records.write(record, arguments.out / "train-gpt.jsonl")
    record = records.read(arguments.out / "train-gpt.jsonl")  # so that all below is made of what is kept
    print("\n".join(report.tables(record).values()))
    print(f"wrote {arguments.out / 'train-gpt.jsonl'}")
    print(draw(record, arguments.out / "train-gpt.svg"))
    if arguments.page:
        report.put_into(arguments.page, report.tables(record))
    broken = [check for check in record.checks if not check["ok"]]
    for check in broken:
        print(
            f"train.py: {check['part']}: {check['what']}: {check['value']:g}, bound {check['bound']:g}", file=sys.stderr
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
