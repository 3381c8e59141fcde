# SPDX-License-Identifier: Apache-2.0
"""What the benches of single ops (swiglu, gemm, lopt) share: how their lines begin, a copy of as many bytes, how a
measurement is told, and how the command ends. Nothing is measured here."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import torch

from .._command import CommandError
from . import record, stats


def head(schema: str, device: torch.device, **machine: Any) -> dict:
    """How each line begins. `machine`: what else there is to say of it."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return stats.head(schema, device.type, device.index or 0, **versions, **machine)


class Copy:
    """A copy that moves as many bytes in all, half of them read and half written."""

    name = "copy"

    def __init__(self, nbytes: int, device: torch.device) -> None:
        self.source, self.target = (torch.zeros(nbytes // 2, dtype=torch.uint8, device=device) for _ in range(2))

    def run(self) -> None:
        self.target.copy_(self.source)


def rate(series: dict) -> str:
    return f"{series['gbps']:.{0 if series['gbps'] >= 100 else 2}f} GB/s"


def tell(line: dict, text: Callable[[dict], str], path: str | None) -> None:
    """Prints a measurement as people read it and appends it to the file, if one is named."""
    print(text(line), flush=True)
    if path:
        record.append(path, line)


def parsed(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    arguments = parser.parse_args(argv)
    if arguments.rounds is not None and not 1 <= arguments.rounds <= 1000:
        parser.error(f"--rounds is {arguments.rounds}, it must be from 1 to 1000")
    return arguments


def ended(program: str, json: str | None, run: Callable[[], int]) -> int:
    """What `run` gives, after the file was found to be one that can be written; where something is raised, the exit
    status that `python -m quern.bench` has for it, and a sentence."""
    try:
        folder = os.path.dirname(os.path.abspath(json or "."))
        if json and not os.access(json if os.path.exists(json) else folder, os.W_OK):
            raise ValueError(f"{json}: it cannot be written")
        return run()
    except CommandError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.status
    except (ValueError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"{program}: {(str(error).splitlines() or [type(error).__name__])[0]}", file=sys.stderr)
        return 1 if isinstance(error, torch.cuda.OutOfMemoryError) else 3
