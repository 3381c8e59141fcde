# SPDX-License-Identifier: Apache-2.0
"""A record of the example as tables in Markdown: report.py FILE.jsonl [--control FILE.csv] [--into FILE.md]

Prints them, or writes them into a page, between its marks. Needs nothing but Python."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path
from statistics import fmean, median

from records import Record, read

MARK = "<!-- train_gpt {}: {} -->"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def last_loss(run: dict) -> str:
    losses = run["losses"]
    return f"{fmean(losses[-max(1, len(losses) // 10) :]):.3f}"


def step_cells(run: dict) -> list[str]:
    """The optimizer's time and its share of the whole step, medians."""
    whole = [a + b for a, b in zip(run["model_us"], run["optimizer_us"])]
    own = median(run["optimizer_us"])
    return [f"{own / 1000:.2f} ms", f"{100 * own / median(whole):.1f} %"]


def rate(record: Record, part: str) -> str:
    return f"{record.about['settings']['lr' if part == 'f32' else 'bf16_lr']:g}"


def speeds(record: Record) -> str:
    rows = [[f"`{name}`", last_loss(run), *step_cells(run)] for name, run in record.part("f32").items()]
    head = [f"f32, lr {rate(record, 'f32')}", "loss at the end", "optimizer's step", "of the whole step"]
    return table(head, rows)


def roundings(record: Record) -> str:
    head = [f"bf16, lr {rate(record, 'bf16')}", "loss at the end", "weights that never moved", "optimizer's step"]
    rows = [[name, last_loss(run), f"{100 * run['unmoved'][-1]:.1f} %", step_cells(run)[0]]
            for name, run in record.part("bf16").items()]  # fmt: skip
    return table(head, rows)


def optimizers(record: Record) -> str:
    head = ["f32, each at its own rate", "loss at the end", "optimizer's step", "of the whole step"]
    rows = [[f"`{name}`", last_loss(run), *step_cells(run)] for name, run in record.part("optimizers").items()]
    return table(head, rows)


def checks(record: Record) -> str:
    rows = [[each["part"], each["what"], f"{each['value']:.2g}",
             f"{'at least' if each['at_least'] else 'at most'} {each['bound']:g}", "yes" if each["ok"] else "**no**"]
            for each in record.checks]  # fmt: skip
    return table(["part", "check", "measured", "bound", "holds"], rows)


def about(record: Record) -> str:
    told = record.about
    settings = told["settings"]
    return (
        f"{told['parameters']:,} parameters, {settings['steps']} steps of {settings['batch']} x {settings['context']} "
        f"bytes, {told['machine']}, threads: {told['threads']}, PyTorch {told['torch']}, quern {told['quern']} at "
        f"{told['commit']}, {told['date']}; {told['seconds']:.0f} s in all.\n"
    )


def tables(record: Record) -> dict[str, str]:
    return {"run": "\n".join([part(record) for part in (speeds, roundings, optimizers, checks, about)])}


def control(path: Path) -> str:
    """A row for each Lion: over its seeds the greatest of each check's values, bold where it broke the bound."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    bounds = {row["check"]: row["bound"] for row in rows}
    body = []
    for lion in dict.fromkeys(row["lion"] for row in rows):
        cells = [lion, str(len({row["seed"] for row in rows if row["lion"] == lion}))]
        for check in bounds:
            worst = max((row for row in rows if row["lion"] == lion and row["check"] == check),
                        key=lambda row: float(row["value"]))  # fmt: skip
            cells.append(worst["value"] if worst["ok"] == "yes" else f"**{worst['value']}**")
        body.append(cells)
    head = ["beside EagerLion", "seeds", *(f"{check} (at most {bound})" for check, bound in bounds.items())]
    return table(head, body)


def put_into(page: Path, texts: dict[str, str]) -> None:
    """Replaces what stands between the marks of each name."""
    text = page.read_text(encoding="utf-8")
    for name, new in texts.items():
        begin, end = MARK.format(name, "begin"), MARK.format(name, "end")
        pattern = re.compile(re.escape(begin) + "\n.*?" + re.escape(end), re.S)
        if not pattern.search(text):
            raise ValueError(f"{page} has no lines {begin} and {end} to write between")
        text = pattern.sub(lambda _, b=begin, n=new, e=end: f"{b}\n{n}{e}", text)
    page.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Tables of a record of this example, in Markdown.")
    parser.add_argument("record", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--control", type=Path, metavar="FILE.csv", help="what control.py printed, as a table too")
    parser.add_argument("--into", type=Path, metavar="FILE.md", help="write them between the marks of this page")
    arguments = parser.parse_args()
    texts = tables(read(arguments.record))
    if arguments.control:
        texts["control"] = control(arguments.control)
    if arguments.into:
        put_into(arguments.into, texts)
    else:
        print("\n".join(texts.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
