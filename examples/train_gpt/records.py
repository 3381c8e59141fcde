# SPDX-License-Identifier: Apache-2.0
"""A run of the example as JSON lines: first what was run and where, then a line for each training, then one for each
check. Reading needs nothing but Python."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FIRST = "quern train-gpt"  # the key of the first line; its value is the format's number
FORMAT = 1


@dataclass
class Record:
    about: dict
    runs: list[dict]  # part, optimizer, losses, model_us, optimizer_us, unmoved
    checks: list[dict]  # part, what, value, bound, at_least, ok

    def part(self, name: str) -> dict[str, dict]:
        """A part's runs by their optimizer."""
        return {run["optimizer"]: run for run in self.runs if run["part"] == name}


def rounded(value: object) -> object:
    """Seven digits: more than a f32 loss has, or a clock."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return value


def write(record: Record, path: Path) -> None:
    lines = [{FIRST: FORMAT, **record.about}, *record.runs, *record.checks]
    text = "".join(json.dumps({key: rounded(value) for key, value in line.items()}) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def read(path: Path) -> Record:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if not lines or lines[0].get(FIRST) != FORMAT:
        raise ValueError(f"{path} does not begin as a record of this example does, with {{{FIRST!r}: {FORMAT}")
    about = {key: value for key, value in lines[0].items() if key != FIRST}
    return Record(
        about, [each for each in lines[1:] if "losses" in each], [each for each in lines[1:] if "what" in each]
    )
