# SPDX-License-Identifier: Apache-2.0
"""examples/kernelbench: the judge accepts each solution on the processor; the larger problems are left out. The
statistics that ResNet-18 keeps are those of the reference."""

import pathlib
import runpy

import pytest

torch = pytest.importorskip("torch")

from quern.kernelbench import _files, _judge, _process  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/kernelbench"
LEFT_OUT = {
    "101_silu_mul": "large",
    "194_linear_hardtanh_mish_group_norm_large": "large",
    "9_resnet18_hybrid": "on a processor the layers of 9_resnet18_train",
}
GIB = 1 << 30
LIMITS = _process.Limits(120, 4 * GIB, 32)
OPTIONS = _judge.Options(
    trials=11, warmup=1, seconds=0.5, compile_modes=(), threads=1, run_limits=LIMITS, compile_limits=LIMITS
)
RESNET = FOLDER / "solutions/level3/9_resnet18_train.py"
PROBLEMS = _files.problems(str(FOLDER / "problems"), [])
SOLUTIONS = [path for path in sorted(FOLDER.glob("solutions/*/*.py")) if path.stem not in LEFT_OUT]


def accepted(line):
    return line["verdict"] in ("faster", "same", "slower", "unclear")


def test_each_problem_has_a_solution():
    assert set(PROBLEMS) == set(_files.by_problem(str(FOLDER / "solutions")))
    assert {level for level, _ in PROBLEMS} == {1, 2, 3} and len(SOLUTIONS) >= 10


@pytest.mark.parametrize("solution", SOLUTIONS, ids=[path.stem for path in SOLUTIONS])
def test_the_judge_accepts_it(solution):
    _judge.fresh_seed()
    with _judge.Judge(PROBLEMS[_files.place(str(solution))], OPTIONS) as judge:
        line = judge.judge(str(solution))
    assert accepted(line), line
    if solution != RESNET:  # statistics of few pixels multiply rounding: README.md
        assert line["precision"]["class"] in ("fp32", "baseline's"), line["precision"]


def test_statistics_are_the_references():
    torch.manual_seed(0)
    model = runpy.run_path(PROBLEMS[3, 9])["Model"](10, True)
    torch.manual_seed(0)
    own = runpy.run_path(str(RESNET))["ModelNew"](10, True)
    images = torch.randn(2, 3, 64, 64)
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(own(images), model(images), rtol=1e-3, atol=1e-4)
        for mine, theirs in zip(own.buffers(), model.buffers()):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
        own.eval(), model.eval()
        with torch.inference_mode():  # with weights that were folded anew
            torch.testing.assert_close(own(images), model(images), rtol=1e-3, atol=1e-4)
        own.train(), model.train()
