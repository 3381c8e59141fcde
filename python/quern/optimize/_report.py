# SPDX-License-Identifier: Apache-2.0
"""What was done to a model, and what it brought."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field

from ..bench import stats

COMPILED = "torch.compile"  # among the alternatives, where it was asked for; never chosen
GRAPHED = ", CUDA graph"  # behind the name of an alternative: as one launch
MODULE_GRAPHED = "the module" + GRAPHED


@dataclass
class Report:
    """chosen: "original", or the name of the plan that runs. why: sentences."""

    chosen: str = "original"
    why: list[str] = field(default_factory=list)
    samples: dict[str, list[int]] = field(default_factory=dict)  # ns of each alternative
    speedup: float = 1.0
    interval: tuple[float, float] | None = None
    # Steps of the plan: name, nodes, bytes, operations, why; where it was timed alone, ns and those of PyTorch's ops.
    kernels: list[dict] = field(default_factory=list)
    externs: dict[str, int] = field(default_factory=dict)  # PyTorch's ops by name
    reasons: dict[str, str] = field(default_factory=dict)  # why an op stays PyTorch's
    rejected: dict[str, str] = field(default_factory=dict)  # alternatives, and what is wrong with them
    n_nodes: int = 0
    folded: int = 0  # BatchNorms
    least_bytes: int = 0  # inputs, parameters and outputs once
    bandwidth: float = 0.0  # bytes per second of a copy
    program: str = ""  # the text of the plan
    seconds: float = 0.0  # without waiting for other jobs and compiling for torch.compile

    def describe_plan(self, plan: dict, ops: dict[str, str], kept: list[str]) -> None:
        """kept: nodes whose kernels were slower."""
        self.kernels = [step for step in plan["steps"] if step["kind"] == "kernel"]
        self.externs = dict(Counter(ops[step["node"]] for step in plan["steps"] if step["kind"] == "extern"))
        for note in plan.get("notes", []):
            why = "its kernel was slower" if note["node"] in kept else note["why"]
            self.reasons.setdefault(ops.get(note["node"], note["node"]), why)

    @property
    def floor_ns(self) -> float:
        return self.least_bytes / self.bandwidth * 1e9 if self.bandwidth else 0.0

    @property
    def times(self) -> dict[str, float]:
        """Median ns of each alternative."""
        return {name: statistics.median(each) for name, each in self.samples.items()}

    @property
    def over_better(self) -> float | None:
        """How many times as fast as the better of the module and torch.compile; None: the latter was not timed."""
        return self._over("original", COMPILED)

    @property
    def over_best(self) -> float | None:
        """The same over the best of both and either in a CUDA graph, as far as these were timed."""
        return self._over("original", COMPILED, MODULE_GRAPHED, COMPILED + GRAPHED)

    def _over(self, *names: str) -> float | None:
        times = self.times
        if COMPILED not in times:
            return None
        return min(times[name] for name in names if name in times) / times[self.chosen]

    def record(self) -> dict:
        """Members of a line of JSON: docs/result-line.schema.json."""
        return {
            "chosen": self.chosen,
            "why": self.why,
            "speedup": self.speedup,
            "interval": self.interval,
            **({} if self.over_better is None else {"over_better": self.over_better, "over_best": self.over_best}),
            "alternatives": {name: stats.series(samples) for name, samples in self.samples.items()},
            "kernels": [step["name"] for step in self.kernels],
            "externs": self.externs,
            "rejected": self.rejected,
            "nodes": self.n_nodes,
            "least_bytes": self.least_bytes,
            "floor_ns": self.floor_ns,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        lines = [f"runs: {self.chosen}" + (f", {_times(self.speedup, self.interval)}" if self.speedup != 1.0 else "")]
        if self.over_better is not None:
            lines.append(f"  {self.over_better:.3g} times as fast as the better of the module and torch.compile")
            if {MODULE_GRAPHED, COMPILED + GRAPHED} & self.times.keys():
                lines.append(f"  {self.over_best:.3g} times as fast as the best of these and both in CUDA graphs")
        lines += [f"  {sentence}" for sentence in self.why]
        if self.floor_ns:
            lines.append(f"floor: {_ns(self.floor_ns)} for {self.least_bytes} bytes of inputs, weights and outputs")
        for name, ns in sorted(self.times.items(), key=lambda item: item[1]):
            lines.append(f"  {_ns(ns):>10}  {name}")
        lines += [f"rejected: {name}: {why}" for name, why in self.rejected.items()]
        if self.folded:
            lines.append(f"folded: {self.folded} BatchNorm into the weights before them")
        if self.kernels:
            inside = sum(len(step["nodes"]) for step in self.kernels)
            lines.append(f"kernels: {len(self.kernels)} of {inside} of {self.n_nodes} nodes")
            lines += [f"  {_kernel(step, self.bandwidth)}" for step in self.kernels]
        own = [op for op in sorted(self.externs) if op.startswith("quern.")]
        if own:
            lines.append("quern's ops:")
            lines += [f"  {self.externs[op]} x {op}" for op in own]
        if len(own) < len(self.externs):
            lines.append("PyTorch's own:")
            lines += [
                f"  {n} x {op}" + (f": {self.reasons[op]}" if op in self.reasons else "")
                for op, n in sorted(self.externs.items())
                if op not in own
            ]
        return "\n".join(lines)


def _kernel(step: dict, bandwidth: float) -> str:
    figures = [f"{step[word]} {word}" for word in ("bytes", "operations") if step.get(word) is not None]
    if "ns" in step:
        figures.append(f"{_ns(step['ns'])} alone, PyTorch's ops {_ns(step['theirs_ns'])}")
    if bandwidth and step.get("bytes") is not None:
        figures.append(f"floor {_ns(step['bytes'] / bandwidth * 1e9)}")
    return f"{step['name']}: {', '.join(step['nodes'])}" + (f" ({', '.join(figures)})" if figures else "")


def _ns(ns: float) -> str:
    return f"{ns * 1e-3:.3g} us" if ns < 1e6 else f"{ns * 1e-6:.3g} ms"


def _times(ratio: float, interval: tuple[float, float] | None) -> str:
    return f"{ratio:.3g} times as fast" + (f" [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else "")
