# SPDX-License-Identifier: Apache-2.0
"""A record of the example as a picture: plot.py FILE.jsonl FILE.svg

Left, Lion of quern beside eager Lion: both losses, and how far apart they are, with the bounds. Middle, 16-bit weights:
the losses, and the share of weights that never moved. Right, several optimizers: the losses by step and by time. The
same record gives the same bytes. Needs matplotlib, in the version that requirements.txt says."""

from __future__ import annotations

import sys
from itertools import accumulate
from operator import add
from pathlib import Path

import matplotlib
from records import Record, read

matplotlib.use("svg")  # before pyplot looks for a screen
from matplotlib import pyplot

LOOK = {
    "svg.hashsalt": "quern",  # names inside the file, which are random otherwise
    "svg.fonttype": "none",  # letters stay letters
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.edgecolor": "#808080",
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "legend.frameon": False,
}
EAGER, OURS, BOUND = "#f0a860", "#1d4f91", "#c43c39"
OPTIMIZERS = ("#909090", "#1d4f91", "#c43c39", "#2b8a3e")
# Coinciding lines are drawn thin over thick, so that both are seen.
ROUNDINGS = {
    "to nearest": {"color": "#c43c39", "linewidth": 1.2},
    "stochastic": {"color": "#9cc3ee", "linewidth": 4.0},
    "master copy": {"color": "#26323f", "linewidth": 1.0},
}


def draw_losses(axes, record: Record) -> None:
    (eager, theirs), (quern, ours) = record.part("f32").items()
    steps = range(1, len(ours["losses"]) + 1)
    axes.plot(steps, theirs["losses"], color=EAGER, linewidth=4.5, label=eager)
    axes.plot(steps, ours["losses"], color=OURS, linewidth=1.0, label=quern)
    draw_floor(axes, record)
    axes.set_title("f32: the same curve twice")
    axes.set_ylabel("loss, nats a byte")
    axes.legend()


def draw_floor(axes, record: Record) -> None:
    floor = record.about["entropy"]
    axes.axhline(floor, color="#909090", linewidth=0.8, linestyle=":")
    axes.annotate("entropy of the text", (0.02, floor), xycoords=("axes fraction", "data"), color="#707070",
                  xytext=(0, 3), textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set_ylim(bottom=0)


def draw_difference(axes, record: Record) -> None:
    theirs, ours = (run["losses"] for run in record.part("f32").values())
    steps = range(1, len(ours) + 1)
    bounds = [
        each["bound"] for each in record.checks if each["part"] == "f32" and each["what"].startswith("loss apart")
    ]
    first = record.about["first_steps"]
    # A difference of 0 has no place on this axis: such points are left out.
    points = [(step, abs(a - b)) for step, a, b in zip(steps, ours, theirs) if a != b]
    axes.semilogy(
        *zip(*points), color=OURS, linewidth=0, marker="o", markersize=1.8, label="difference of the two losses"
    )
    axes.plot([1, first], [bounds[0]] * 2, color=BOUND, linewidth=1.2, label="bounds that the run checks")
    axes.plot([first, len(ours)], [bounds[1]] * 2, color=BOUND, linewidth=1.2)
    axes.set_title("f32: apart by")
    axes.set_ylabel("difference of losses")
    axes.set_xlabel("step")
    axes.legend(loc="lower right")


def draw_roundings(axes, record: Record) -> None:
    for name, run in record.part("bf16").items():
        axes.plot(range(1, len(run["losses"]) + 1), run["losses"], label=name, **ROUNDINGS[name])
    draw_floor(axes, record)
    axes.set_title("bf16 weights: nearest learns less")
    axes.set_ylabel("loss, nats a byte")
    axes.legend(title="rounding of the weights", loc="lower left", bbox_to_anchor=(0, 0.1))


def draw_unmoved(axes, record: Record) -> None:
    for name, run in record.part("bf16").items():
        share = [100 * each for each in run["unmoved"]]
        axes.plot(range(1, len(share) + 1), share, label=name, **ROUNDINGS[name])
    axes.set_ylim(0, 100)
    axes.set_title("bf16 weights: nearest freezes most of them")
    axes.set_ylabel("% of weights that never moved")
    axes.set_xlabel("step")
    axes.legend()


def smooth(losses: list[float], width: int = 10) -> list[float]:
    """Means of the last `width` values: batches differ more than optimizers do."""
    return [sum(losses[max(0, k - width + 1) : k + 1]) / min(width, k + 1) for k in range(len(losses))]


def draw_optimizers(by_step, by_time, record: Record) -> None:
    for (name, run), colour in zip(record.part("optimizers").items(), OPTIMIZERS):
        losses = smooth(run["losses"])
        seconds = [us * 1e-6 for us in accumulate(map(add, run["model_us"], run["optimizer_us"]))]
        by_step.plot(range(1, len(losses) + 1), losses, color=colour, linewidth=1.2, label=name)
        by_time.plot(seconds, losses, color=colour, linewidth=1.2, label=name)
    for axes in (by_step, by_time):
        draw_floor(axes, record)
        axes.set_ylabel("loss, nats a byte, mean of 10 steps")
        axes.legend()
    by_step.set_title("f32: optimizers by step")
    by_time.set_title("f32: optimizers by time")
    by_time.set_xlabel("seconds")


def draw(record: Record, path: Path) -> None:
    with pyplot.rc_context(LOOK):
        figure, axes = pyplot.subplots(2, 3, figsize=(13.2, 6.4), layout="constrained")
        draw_losses(axes[0][0], record)
        draw_difference(axes[1][0], record)
        draw_roundings(axes[0][1], record)
        draw_unmoved(axes[1][1], record)
        draw_optimizers(axes[0][2], axes[1][2], record)
        for each in axes.flat:
            each.set_axisbelow(True)
            each.set_xlim(0, None if each is axes[1][2] else record.about["settings"]["steps"] * 1.01)
        figure.savefig(path, metadata={"Date": None, "Title": "quern: a small GPT, trained with its optimizers"})
        pyplot.close(figure)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("plot.py FILE.jsonl FILE.svg")
    draw(read(Path(sys.argv[1])), Path(sys.argv[2]))
