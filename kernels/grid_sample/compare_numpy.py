# SPDX-License-Identifier: Apache-2.0
"""The two grid_sample kernels on the processor beside the same arithmetic in NumPy's array operations, as JSON lines:
python kernels/grid_sample/compare_numpy.py [--threads N] [--rounds N]. Both sides' results are compared first."""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import time

import numpy as np
import quern

SHAPE, GRID = (1, 256, 256, 64), (1, 256, 256, 2)


def square(x, grid):
    """For each corner: row numbers of x as (pixels, channels), weights, what is inside; and the weights' parts."""
    n, height, width, _ = x.shape
    px = (grid[..., 0] + 1) * np.float32(0.5 * width) - np.float32(0.5)
    py = (grid[..., 1] + 1) * np.float32(0.5 * height) - np.float32(0.5)
    left, up = np.floor(px), np.floor(py)
    right, down = px - left, py - up
    image = np.arange(n).reshape(n, 1, 1)
    corners = []
    for k in range(4):
        u, v = left.astype(np.int64) + (k & 1), up.astype(np.int64) + (k >> 1)
        inside = (u >= 0) & (u < width) & (v >= 0) & (v < height)
        at = (image * height + np.clip(v, 0, height - 1)) * width + np.clip(u, 0, width - 1)
        weight = (right if k & 1 else 1 - right) * (down if k >> 1 else 1 - down)
        corners.append((at, np.where(inside, weight, 0).astype(np.float32), inside))
    return corners, right, down


def forward(x, grid):
    rows = x.reshape(-1, x.shape[-1])
    return sum(rows[at] * weight[..., None] for at, weight, _ in square(x, grid)[0])


def vjp(x, grid, cotangent):
    rows, channels = x.reshape(-1, x.shape[-1]), x.shape[-1]
    corners, right, down = square(x, grid)
    x_grad, product = np.zeros_like(rows), []
    for at, weight, inside in corners:
        np.add.at(x_grad, at.reshape(-1), (cotangent * weight[..., None]).reshape(-1, channels))
        product.append(np.where(inside, (rows[at] * cotangent).sum(-1), 0))
    along_x = (1 - down) * (product[1] - product[0]) + down * (product[3] - product[2])
    along_y = (1 - right) * (product[2] - product[0]) + right * (product[3] - product[1])
    scale = np.array([0.5 * x.shape[2], 0.5 * x.shape[1]], np.float32)
    return x_grad.reshape(x.shape), np.stack([along_x, along_y], -1) * scale


def kernel_of(name):
    folder = pathlib.Path(__file__).resolve().parent.parent / name
    about = json.loads((folder / "kernel.json").read_text())
    return quern.metal_kernel(
        name=name,
        input_names=list(about["inputs"]),
        output_names=list(about["outputs"]),
        source=(folder / about["source"]).read_text(),
        header=(folder / about["header"]).read_text(),
        atomic_outputs=about.get("atomic", False),
    )


def timed(call):
    """Milliseconds by the clock, and of all processors' time."""
    begin, work = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - begin) * 1e3, (time.process_time() - work) * 1e3


def side_by_side(ours, theirs, rounds):
    """Medians, of rounds in which both have their turn, so that what else the machine does meets both. Each is called
    twice in its turn and the second call counts: the first also pays for what the other left behind, pages that went
    back to the system and caches full of its temporaries. It is told beside."""
    pairs = [[(timed(call), timed(call)) for call in (ours, theirs)] for _ in range(rounds)]

    def middle(of):
        return statistics.median(of(*pair) for pair in pairs)

    return {
        "ms": round(middle(lambda a, _: a[1][0]), 3),
        "numpy_ms": round(middle(lambda _, b: b[1][0]), 3),
        "times": round(middle(lambda a, b: b[1][0] / a[1][0]), 2),
        "processor_ms": round(middle(lambda a, _: a[1][1]), 3),
        "numpy_processor_ms": round(middle(lambda _, b: b[1][1]), 3),
        "first_ms": round(middle(lambda a, _: a[0][0]), 3),
        "first_times": round(middle(lambda a, b: b[0][0] / a[0][0]), 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=0, help="quern's; all that are usable unless given")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if options.threads:
        quern.set_num_threads(options.threads)
    rng = np.random.default_rng(1)
    x = rng.standard_normal(SHAPE, np.float32)
    line = np.linspace(-0.9, 0.9, GRID[1], dtype=np.float32)  # a smooth warp, as images have them
    smooth = np.stack(np.meshgrid(line, line), -1)[None]
    grid = (smooth + 0.02 * rng.standard_normal(GRID, np.float32)).astype(np.float32)
    cotangent = rng.standard_normal(GRID[:3] + SHAPE[3:], np.float32)
    one, other = kernel_of("grid_sample"), kernel_of("grid_sample_vjp_rows")
    rows = 16  # of an image that a thread owns, whatever the number of threads
    samples = GRID[0] * GRID[1] * GRID[2]

    def ours():
        return one(
            inputs=[x, grid],
            template=[("T", np.float32), ("C", SHAPE[3]), ("WIDTH", SHAPE[3])],  # a whole pixel a thread
            grid=(samples, 1, 1),
            threadgroup=(256, 1, 1),
            output_shapes=[cotangent.shape],
            output_dtypes=[np.float32],
        )

    def ours_back():
        return other(
            inputs=[x, grid, cotangent],
            template=[("T", np.float32), ("C", SHAPE[3]), ("ROWS", rows)],
            grid=(SHAPE[0] * SHAPE[1] // rows, 1, 1),
            threadgroup=(1, 1, 1),
            output_shapes=[x.shape, grid.shape],
            output_dtypes=[np.float32, np.float32],
        )

    for name, call, peer in (
        ("grid_sample", ours, lambda: [forward(x, grid)]),
        ("grid_sample_vjp_rows", ours_back, lambda: vjp(x, grid, cotangent)),
    ):
        worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(call(), peer(), strict=True))
        if not worst < 1e-5:
            raise SystemExit(f"{name}: differs from NumPy's by {worst:.2g} of the largest value")
        row = {
            "kernel": name,
            "workload": f"x {SHAPE}, smooth grid {GRID}",
            "threads": quern.get_num_threads(),
            **side_by_side(call, peer, options.rounds),
        }
        print(json.dumps({**row, "numpy": np.__version__, "difference": worst}))


if __name__ == "__main__":
    main()
