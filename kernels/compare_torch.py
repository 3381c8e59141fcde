# SPDX-License-Identifier: Apache-2.0
"""The kernels of these folders on a GPU beside PyTorch's own functions in the same run, as JSON lines: median and
quartiles of device times, the cache flushed before each call. python kernels/compare_torch.py [NAME ...]"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys

import quern
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")


def measure(call, rounds=21):
    times = []
    for k in range(rounds + 3):
        flush.fill_(k)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    low, middle, high = statistics.quantiles(times[3:], n=4)
    return {"ms": round(middle, 5), "quartiles": [round(low, 5), round(high, 5)]}


def kernel_of(name):
    about = json.loads((HERE / name / "kernel.json").read_text())
    return quern.metal_kernel(
        name=name,
        input_names=list(about["inputs"]),
        output_names=list(about["outputs"]),
        source=(HERE / name / about["source"]).read_text(),
        header=(HERE / name / about["header"]).read_text() if "header" in about else "",
        atomic_outputs=about.get("atomic", False),
    )


def call_of(kernel, inputs, threads, group, shapes, init=None, **template):
    first = {} if init is None else {"init_value": init}
    values = [("T", torch.float32), *template.items()] if template else []
    return lambda: kernel(
        inputs=inputs,
        template=values,
        grid=(threads, 1, 1),
        threadgroup=(group, 1, 1),
        output_shapes=shapes,
        output_dtypes=[torch.float32] * len(shapes),
        **first,
    )


def tell(kernel, workload, ours, peers, moved, copy):
    row = {"kernel": kernel, "workload": workload, **measure(ours)}
    row |= {"gb_per_s": round(moved / row["ms"] / 1e6, 1), "share_of_copy": round(moved / row["ms"] / copy, 4)}
    for name, peer in peers.items():
        row[name] = measure(peer, 3 if kernel.startswith("qr") else 11)["ms"]
    row |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "quern": quern.__version__}
    print(json.dumps(row), flush=True)


def exp(copy):
    n = 1 << 28
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    peers = {"torch_ms": lambda: torch.exp(x, out=out), "copy_ms": lambda: out.copy_(x)}
    tell("exp", "2^28", call_of(kernel_of("exp"), [x], n, 256, [(n,)]), peers, 8 * n, copy)
    vector = call_of(kernel_of("exp_vector"), [x], n // 4, 256, [(n,)], WIDTH=4)
    tell("exp_vector", "2^28", vector, peers, 8 * n, copy)


def softmax(copy):
    for rows, n in ((65536, 1024), (65536, 1000), (8192, 8192), (1024, 4096)):
        x = torch.randn(rows, n, device="cuda")
        group = min(1024, max(32, (-(-n // 16) + 31) // 32 * 32))
        ours = call_of(kernel_of("softmax"), [x], rows * group, group, [(rows, n)], WIDTH=4 if n % 4 == 0 else 1)
        tell("softmax", f"{rows}x{n}", ours, {"torch_ms": lambda x=x: torch.softmax(x, -1)}, 8 * rows * n, copy)


def grid_sample(copy):
    x = torch.randn(8, 1024, 1024, 64, device="cuda")
    cotangent = torch.randn(8, 256, 256, 64, device="cuda")
    line = torch.linspace(-1, 1, 256, device="cuda")
    rows, columns = torch.meshgrid(line, line, indexing="ij")
    straight = torch.stack([columns, rows], -1)[None].repeat(8, 1, 1, 1)
    smooth = (straight * 0.9 + 0.02 * torch.randn(8, 256, 256, 2, device="cuda")).contiguous()
    forward, back = kernel_of("grid_sample"), kernel_of("grid_sample_vjp")
    samples, least = 8 * 256 * 256, cotangent.numel() * 4
    for name, grid in (("smooth", smooth), ("random", torch.rand(8, 256, 256, 2, device="cuda") * 2 - 1)):
        work = f"x 8x1024x1024x64, {name} grid 8x256x256x2"
        peers, peers_back = {}, {}
        for layout, image in (
            ("torch_nchw_ms", x.permute(0, 3, 1, 2).contiguous()),
            ("torch_nhwc_ms", x.permute(0, 3, 1, 2)),
        ):
            image = image.detach().requires_grad_()
            place = grid.clone().requires_grad_()
            result = F.grid_sample(image, place, padding_mode="zeros", align_corners=False)
            flow = torch.empty_like(result).copy_(cotangent.permute(0, 3, 1, 2))
            peers[layout] = lambda i=image, g=grid: F.grid_sample(
                i.detach(), g, padding_mode="zeros", align_corners=False
            )
            peers_back[layout] = lambda r=result, i=image, p=place, f=flow: torch.autograd.grad(
                r, (i, p), f, retain_graph=True
            )
        ours = call_of(forward, [x, grid], samples * 16, 256, [cotangent.shape], C=64, WIDTH=4)
        tell("grid_sample", work, ours, peers, 5 * least, copy)
        shapes = [x.shape, grid.shape]
        ours = call_of(back, [x, grid, cotangent], samples * 32, 256, shapes, init=0, C=64)
        tell("grid_sample_vjp", work, ours, peers_back, x.numel() * 4 + 13 * least, copy)
        del peers, peers_back, image, place, result, flow


def cholesky(copy):
    for batch, n in ((65536, 8), (65536, 16), (16384, 32), (4096, 64), (1024, 128), (256, 256), (32, 1024)):
        a = torch.randn(batch, n, n, device="cuda")
        a = a @ a.mT / n + 0.1 * torch.eye(n, device="cuda")
        peers, shapes = {"torch_ms": lambda a=a: torch.linalg.cholesky_ex(a)}, [a.shape, (batch, 16)]
        if n <= 32:
            lanes = 8 if n <= 8 else 16 if n <= 16 else 32
            ours = call_of(
                kernel_of("cholesky_small"), [a], batch * lanes, 128, shapes, N=n, LANES=lanes, EXTENDED=False
            )
            tell("cholesky_small", f"{batch}x{n}", ours, peers, 8 * a.numel(), copy)
        group = min(1024, (n + 31) // 32 * 32)
        values = {"BLOCK": 16 if n >= 512 else 8, "EXTENDED": False, "LARGEST": 8192}
        ours = call_of(kernel_of("cholesky"), [a], batch * group, group, shapes, **values)
        tell("cholesky", f"{batch}x{n}", ours, peers, 8 * a.numel(), copy)


def qr(copy):
    for batch, n in ((4096, 8), (4096, 16), (4096, 32), (4096, 64), (1024, 128), (256, 256)):
        a = torch.randn(batch, n, n, device="cuda")
        peers, square, health = {"torch_ms": lambda a=a: torch.linalg.qr(a)}, a.shape, (batch, 16)
        if n <= 32:
            values = {"M": n, "N": n, "SIMDS": 2, "EXTENDED": False}
            ours = call_of(kernel_of("qr_small"), [a], batch * 32, 64, [square, square, health], **values)
            tell("qr_small", f"{batch}x{n}x{n}", ours, peers, 12 * a.numel(), copy)
        group = min(256, max(32, (2 * n + 31) // 32 * 32))
        values = {"PANEL": 8, "PANEL_FLOATS": 3072, "SIMDS": 8, "EXTENDED": False, "REORTHOGONALISE": False}
        ours = call_of(
            kernel_of("qr"), [a], batch * group, group, [square, square, square, (batch, n), health], **values
        )
        tell("qr", f"{batch}x{n}x{n}", ours, peers, 16 * a.numel(), copy)


def copy_rate():
    """GB/s, read and written."""
    x = torch.randn(1 << 30, device="cuda")
    y = torch.empty_like(x)
    return 8 * x.numel() / measure(lambda: y.copy_(x))["ms"]


def main():
    copy = copy_rate()
    torch.cuda.empty_cache()
    for part in (exp, softmax, grid_sample, cholesky, qr):
        if part.__name__ in (sys.argv[1:] or [part.__name__]):
            part(copy)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
