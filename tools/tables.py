#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a table from results/: tables.py ops|doors|sweep|heldout|gpt|optimize|networks [--into FILE.md] writes it
between the marks of that file.

ops    one row per op: its time on the H200 and on the CPU, and the speed-up over the fastest correct peer of that run
doors  one row per Python call: its host time, and that of eager PyTorch's calls for the same result
sweep  one row per op and machine: the distribution of its ratios over random problems
heldout  one row per task and length: of how many trainings a learned optimizer has the lower loss
gpt    one row per model and optimizer: its loss at each rate
optimize one row per level of KernelBench: what quern.torch.optimize makes of its problems
networks one row per network of examples/networks: the same on a processor"""

import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LLAMA = {"rows": 8192, "cols": 14336, "type": "bfloat16", "gate_multiplier": 1.0}
GPT2 = {"workload": "gpt2-124m", "types": "f32 f32 f32"}
GPT = {"workload": "gpt2-355m", "precision": "f16x3"}
WIDE = {"rows": 512, "cols": 14336, "type": "float32"}
PRODUCT = {"m": 1024, "n": 8192, "k": 8192}
# op: the workload, the file in results/ and the members by which its line is chosen (the last such line counts)
GPU = {
    "lion": ("GPT-2 124M, f32", "peers-h200", GPT2),
    "swiglu": ("8192 x 14336, bf16", "swiglu-peers-h200", {"direction": "forward", **LLAMA}),
    "swiglu_backward": ("8192 x 14336, bf16", "swiglu-peers-h200", {"direction": "backward", **LLAMA}),
    "swiglu_quantize": ("8192 x 14336, bf16", "swiglu-quantize-h200", {"direction": "quantize", **LLAMA}),
    "gemm_norm": ("1024 x 8192 x 8192, tf32", "gemm-h200", PRODUCT),
    "small_fc_lopt": ("GPT-2 355M, f32", "lopt-h200", {"op": "small_fc_lopt", **GPT}),
    "elo": ("GPT-2 355M, a whole training step", "lopt-train-h200", {"op": "elo", **GPT}),
    "velo": ("GPT-2 355M, f32", "lopt-h200", {"op": "velo", "workload": "gpt2-355m"}),
    "celo2": ("GPT-2 355M, f32", "celo2-h200", {"precision": "f16x3"}),
}
OTHER_OPS = ("adamw", "newton_schulz_bf16", "newton_schulz_fp32")  # peers that compute something else
CPU = {
    "lion": ("GPT-2 124M, f32", "peers-cpu-epyc", GPT2),
    "swiglu": ("512 x 14336, f32", "ops-cpu-epyc", {"direction": "forward", **WIDE}),
    "swiglu_backward": ("512 x 14336, f32", "ops-cpu-epyc", {"direction": "backward", **WIDE}),
    "swiglu_quantize": ("512 x 14336, f32", "ops-cpu-epyc", {"direction": "quantize", **WIDE}),
    "gemm_norm": ("128 x 512 x 1024, f32", "ops-cpu-epyc", {"m": 128}),
    "small_fc_lopt": ("GPT 10M, f32", "ops-cpu-epyc", {"op": "small_fc_lopt"}),
    "elo": ("GPT 10M, f32", "ops-cpu-epyc", {"op": "elo"}),
    "velo": ("GPT 10M, f32", "ops-cpu-epyc", {"op": "velo"}),
    "celo2": ("GPT 10M, f32", "ops-cpu-epyc", {"op": "celo2"}),
}
NAMES = {
    "compile": "torch.compile",
    "materialised": "PyTorch ops",
    "liger": "Liger",
    "compile tf32": "torch.compile",
    "compile fp32": "torch.compile",
}


def line(file, members):
    text = (ROOT / "results" / f"{file}.jsonl").read_text(encoding="utf-8")
    return [one for one in map(json.loads, text.splitlines()) if members.items() <= one.items()][-1]


def timed(one):
    """The time in ns, and (name, ratio with interval) of each correct peer that computes the same."""
    if "rows" in one and "m" in one:  # of products a row per class of precision
        rows = {r["name"]: r for r in one["rows"]}
        row = rows.get("quern tf32") or rows["quern fp32"]
        return row["step"]["median_ns"], [(row["beside"], row["speedup"])]
    peers = [
        p for p in one.get("peers", []) if p.get("speedup") and not p.get("other_op") and p["name"] not in OTHER_OPS
    ]
    right = [p for p in peers if not (p.get("check") or {}).get("wrong")]
    series = one["step"] if one["schema"].startswith("quern lopt") else one["fused"]
    return series["median_ns"], [(p["name"], p["speedup"]) for p in right]


def cells(table, op):
    if op not in table:
        return "- | -"
    workload, file, members = table[op]
    ns, peers = timed(line(file, members))
    text, unit = (f"{ns / 1e6:.4g}", "ms") if ns >= 1e6 else (f"{ns / 1e3:.4g}", "us")
    if not peers:
        return f"{workload}: {text} {unit} | -"
    name, ratio = min(peers, key=lambda peer: peer[1]["ratio"])
    low, high = ratio["interval"]
    digits = 1 if low > 10 else 3
    over = f"{ratio['ratio']:.{digits}f}x [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{workload}: {text} {unit} | {over} {NAMES.get(name, name)}"


def ops():
    rows = [
        "| op | H200 | speed-up over the best peer | 2-core EPYC | speed-up over the best peer |",
        "|---|---|---|---|---|",
    ]
    rows += [f"| [`{op}`](src/op/{op}/README.md) | {cells(GPU, op)} | {cells(CPU, op)} |" for op in {**GPU, **CPU}]
    return "\n".join(rows) + "\n"


def doors():
    text = (ROOT / "results/doors-h200.jsonl").read_text(encoding="utf-8")
    rows = ["| call | quern, us | instead | us |", "|---|---|---|---|"]
    for one in map(json.loads, text.splitlines()):
        framework, _, call = one["case"].partition(": ")
        if framework == "torch cuda":
            other = one["other"]
            rows.append(f"| {call} | {one['median_ns'] / 1e3:.1f} | {other['name']} | {other['median_ns'] / 1e3:.1f} |")
    return "\n".join(rows) + "\n"


def distribution(ratios):
    """geometric mean | least | share under 0.97"""
    if not ratios:
        return "- | - | -"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    under = sum(ratio < 0.97 for ratio in ratios) / len(ratios)
    return f"{mean:.2f} | {min(ratios):.2f} | {100 * under:.0f} %"


def sweep():
    rows = [
        "| op | on | seed, problems | device time: mean | least | under 0.97 | host time: mean | least | under 0.97 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for file in sorted((ROOT / "results").glob("sweep-*.jsonl")):
        lines = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()]
        groups = sorted({(one["problem"]["op"], one["problem"]["seed"], one["machine"]["device"]) for one in lines})
        for op, seed, device in groups:
            of = [one for one in lines if (one["problem"]["op"], one["problem"]["seed"]) == (op, seed)]
            times = distribution([one["speedup"]["ratio"] for one in of if "speedup" in one])
            host = distribution([one["host_speedup"] for one in of if "host_speedup" in one])
            where = device if device.startswith("NVIDIA") else f"{device}, 2 threads"
            rows.append(f"| `{op}` | {where} | {seed}, {len(of)} | {times} | {host} |")
    return "\n".join(rows) + "\n"


def unsteady(one):
    """Whether a median of the model or of its plan is 15 % and 2 us above the least of its samples."""
    series = [one["alternatives"].get(name) for name in ("original", one["chosen"])]
    return any(s and s["median_ns"] > max(1.15 * s["min_ns"], s["min_ns"] + 2000) for s in series)


def mean(gains):
    return math.exp(sum(map(math.log, gains)) / len(gains))


def optimize():
    """Of each file: a row a level, and one of all."""
    rows = [
        "| on | level | problems | faster | over the model | greatest | over the better of it and torch.compile | "
        "over the best, CUDA graphs too | unsteady | seconds, median |",
        "|---" * 10 + "|",
    ]

    def among(lines, word):
        ratios = [one[word] for one in lines if word in one]
        return f"{mean(ratios):.2f} of {len(ratios)}" if ratios else "-"

    for path, sizes in (("optimize-h200", ""), ("optimize-current-h200", ", large"), ("optimize-cpu-xeon", "")):
        lines = [json.loads(text) for text in (ROOT / f"results/{path}.jsonl").read_text().splitlines()]
        machine = lines[0]["machine"]
        device = (machine["device"] if machine["arch"] else f"{machine['processor']}, 2 threads") + sizes
        for level in [*sorted({one["problem"].split("/")[0] for one in lines}), ""]:
            chosen = [one for one in lines if one["problem"].startswith(level)]
            gains = sorted(one["speedup"] if one["chosen"] != "original" else 1.0 for one in chosen)
            seconds = sorted(one["seconds"] for one in chosen)[len(chosen) // 2]
            rows.append(
                f"| {device} | {level.removeprefix('level') or 'all'} | {len(chosen)} | {sum(g > 1 for g in gains)} | "
                f"{mean(gains):.2f} | {gains[-1]:.1f} | {among(chosen, 'over_better')} | "
                f"{among(chosen, 'over_best')} | {sum(map(unsteady, chosen))} | {seconds:.1f} |"
            )
    return "\n".join(rows) + "\n"


def networks():
    """A row a network of examples/networks."""
    rows = ["| network | model, ms | torch.compile, ms | optimized, ms | over the better of both | seconds |"]
    rows.append("|---" * 6 + "|")
    lines = [json.loads(text) for text in (ROOT / "results/networks-cpu-xeon.jsonl").read_text().splitlines()]
    for one in lines:
        of = {name: each["median_ns"] / 1e6 for name, each in one["alternatives"].items()}
        name = pathlib.Path(one["problem"]).stem
        rows.append(
            f"| [{name}](../examples/networks/{name}.py) | {of['original']:.1f} | {of['torch.compile']:.1f} | "
            f"{of[one['chosen']]:.1f} | {one['over_better']:.2f} | {one['seconds']:.0f} |"
        )
    gains = [one["over_better"] for one in lines]
    rows.append(f"| geometric mean | | | | **{mean(gains):.2f}** | |")
    return "\n".join(rows) + "\n"


def threes(numbers, word=str):
    return [", ".join(map(word, numbers[k : k + 3])) for k in range(0, len(numbers), 3)]


def heldout():
    ops = ("small_fc_lopt", "elo", "celo2")
    head = ["task", "parameters", "steps", "seeds", *(f"`{op}`" for op in ops)]
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    runs, every = {}, []
    text = (ROOT / "results/heldout-h200.jsonl").read_text(encoding="utf-8")
    for one in map(json.loads, text.splitlines()):
        runs.setdefault((one["steps"], one["elements"], f"{one['task']}: {one['of']}"), []).append(one["losses"])

    def least(losses, name):
        return min(loss for key, loss in losses.items() if key.startswith(name) and math.isfinite(loss or math.nan))

    for (steps, elements, task), losses in sorted(runs.items()):
        below = []
        for op in ops:
            below.append(sum(loss[op] < loss["adam 0.001"] for loss in losses))
            below += [sum(loss[op] <= least(loss, name) for loss in losses) for name in ("adam", "lion")]
        every.append([len(losses), *below])
        rows.append(f"| {task} | {elements:,} | {steps:,} | {len(losses)} | " + " | ".join(threes(below)) + " |")
    seeds, *below = map(sum, zip(*every))
    shares = " | ".join(f"**{n}**" for n in threes(below, lambda n: f"{100 * n / seeds:.0f} %"))
    return "\n".join([*rows, f"| **all** | | | **{seeds}** | {shares} |"]) + "\n"


def gpt():
    runs = {}
    text = (ROOT / "results/gpt-h200.jsonl").read_text(encoding="utf-8")
    for one in map(json.loads, text.splitlines()):
        who = one["elements"], one["model"], one["steps"], one["optimizer"]
        runs.setdefault(who, []).append((one["lr"], one["loss"]))
    rows = ["| model | steps | optimizer | best rate | loss there | loss at all rates |", "|---" * 6 + "|"]
    for (_, model, steps, who), made in sorted(runs.items()):
        loss, rate = min((loss, rate) for rate, loss in made)
        every = ", ".join(f"{rate:g}: {loss:.3f}" for rate, loss in sorted(made))
        rows.append(f"| {model} | {steps} | {who} | {rate:g} | {loss:.3f} | {every} |")
    return "\n".join(rows) + "\n"


name = sys.argv[1]
made = {
    "ops": ops,
    "doors": doors,
    "sweep": sweep,
    "heldout": heldout,
    "gpt": gpt,
    "optimize": optimize,
    "networks": networks,
}[name]()
if sys.argv[2:3] == ["--into"]:
    page = pathlib.Path(sys.argv[3])
    begin, end = (re.escape(f"<!-- tools/tables.py {name}: {word} -->\n") for word in ("begin", "end"))
    between = re.compile(f"(?<={begin}).*?(?={end})", re.S)
    page.write_text(between.sub(lambda _: made, page.read_text(encoding="utf-8")), encoding="utf-8")
else:
    sys.stdout.write(made)
