# SPDX-License-Identifier: Apache-2.0
"""What the tests of the judge of KernelBench files share: its options, small problems and candidates, files of them."""

import cases
from quern.kernelbench import _judge, _process

GIB = 1 << 30


LIMITS = _process.Limits(90, 3 * GIB, 32, file_bytes=GIB // 4, folder_bytes=GIB // 8)


OPTIONS = _judge.Options(
    trials=11, warmup=1, seconds=3, compile_modes=(), threads=1, run_limits=LIMITS, compile_limits=LIMITS
)


def opened(folder, options):
    problem = folder / "problem.py"
    problem.write_text(cases.PROBLEM)
    _judge.fresh_seed()
    return _judge.Judge(str(problem), options)


def verdict(judge, tmp_path, text):
    candidate = tmp_path / "candidate.py"
    candidate.write_text(text)
    return judge.judge(str(candidate))


ADD_RELU = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y)

def get_inputs():
    return [torch.randn(32, 100), torch.randn(32, 100)]
"""


UNMASKED = """
import torch

class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        out = torch.relu(x + y)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        MASK
        return g, g

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return Add.apply(x, y)
"""


QUICK = [
    "--num-trials",
    "11",
    "--num-warmup",
    "1",
    "--seconds",
    "2",
    "--compile",
    "none",
    "--device",
    "cpu",
    "--threads",
    "1",
]


def files(tmp_path, **texts):
    paths = []
    for name, text in texts.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(str(path))
    return paths


MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {}

def get_inputs():
    return [{}]
"""
