# SPDX-License-Identifier: Apache-2.0
"""The judge of KernelBench files: each known cheat that a processor can show is refused, each broken candidate gets its
own verdict and leaves nothing running, each honest candidate is accepted."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

import cases  # noqa: E402
from quern.kernelbench import __main__ as command  # noqa: E402
from quern.kernelbench import _aggregate, _files, _judge, _process, _tree  # noqa: E402

GIB = 1 << 30
LIMITS = _process.Limits(90, 3 * GIB, 32, file_bytes=GIB // 4, folder_bytes=GIB // 8)
OPTIONS = _judge.Options(
    trials=11, warmup=1, seconds=3, compile_modes=(), threads=1, run_limits=LIMITS, compile_limits=LIMITS
)


def judging(folder, options):
    problem = folder / "problem.py"
    problem.write_text(cases.PROBLEM)
    _judge.fresh_seed()
    return _judge.Judge(str(problem), options)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    with judging(tmp_path_factory.mktemp("problem"), OPTIONS) as made:
        yield made


@pytest.fixture(scope="module")
def cuda_judge(tmp_path_factory):
    limits = dataclasses.replace(LIMITS, seconds=60, memory_bytes=16 * GIB)
    options = dataclasses.replace(OPTIONS, device="cuda", run_limits=limits, compile_limits=limits)
    with judging(tmp_path_factory.mktemp("problem"), options) as made:
        yield made


CUDA_CASES = [c for c in cases.CHEATS if "thread" not in c[1] and "works on" not in c[1]] + cases.CUDA_CHEATS


@pytest.mark.cuda
@pytest.mark.parametrize("row, name, text, word, reason", CUDA_CASES, ids=[f"{c[0]}-{c[1]}" for c in CUDA_CASES])
def test_a_cheat_is_refused_on_a_gpu(cuda_judge, tmp_path, row, name, text, word, reason):
    line = verdict(cuda_judge, tmp_path, text)
    assert re.fullmatch(word, line["verdict"]), line
    assert re.search(reason, line["reason"]), line


@pytest.mark.cuda
@pytest.mark.parametrize("name, text", cases.HONEST, ids=[c[0] for c in cases.HONEST])
def test_an_honest_candidate_is_accepted_on_a_gpu(cuda_judge, tmp_path, name, text):
    line = verdict(cuda_judge, tmp_path, text)
    assert line["verdict"] in ("faster", "same", "slower", "unclear"), line
    assert line["timers"]["event"]["candidate"]["n"] >= 11


def verdict(judge, tmp_path, text):
    candidate = tmp_path / "candidate.py"
    candidate.write_text(text)
    return judge.judge(str(candidate))


@pytest.mark.parametrize("row, name, text, word, reason", cases.CHEATS, ids=[f"{c[0]}-{c[1]}" for c in cases.CHEATS])
def test_a_cheat_is_refused(judge, tmp_path, row, name, text, word, reason):
    line = verdict(judge, tmp_path, text)
    assert re.fullmatch(word, line["verdict"]), line
    assert re.search(reason, line["reason"]), line


def running(words):
    return subprocess.run(["pgrep", "-f", words], capture_output=True).returncode == 0


@pytest.mark.parametrize("name, text, word, reason", cases.BROKEN, ids=[c[0] for c in cases.BROKEN])
def test_a_broken_candidate_has_its_own_verdict(judge, tmp_path, name, text, word, reason):
    usual = judge.options.run_limits
    if name in ("hang", "flood"):
        judge.options.run_limits = judge.options.compile_limits = dataclasses.replace(usual, seconds=3)
    line = verdict(judge, tmp_path, text)
    judge.options.run_limits = judge.options.compile_limits = usual
    assert re.fullmatch(word, line["verdict"]), line
    assert re.search(reason, line["reason"]), line
    assert not running("sleep 987")


@pytest.mark.parametrize("name, text", cases.HONEST, ids=[c[0] for c in cases.HONEST])
def test_an_honest_candidate_is_accepted(judge, tmp_path, name, text):
    line = verdict(judge, tmp_path, text)
    assert line["verdict"] in ("faster", "same", "slower", "unclear"), line
    assert line["deterministic"] and line["timers"]["simple"]["candidate"]["n"] >= 11


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


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("mask, right", [("pass", False), ("g = g * (ctx.saved_tensors[0] > 0)", True)])
def test_a_wrong_gradient_is_refused_where_gradients_are_asked_for(tmp_path, capsys, gradients, mask, right):
    reference, candidate = files(tmp_path, reference=ADD_RELU, candidate=UNMASKED.replace("MASK", mask))
    words = ["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK]
    status = command.main(words + (["--gradients"] if gradients else []))
    line = json.loads(capsys.readouterr().out)
    assert status == (1 if gradients and not right else 0), line
    assert (line["verdict"] == "wrong values") == (status == 1)


MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {}

def get_inputs():
    return [{}]
"""
UNJUDGEABLE = [
    ("torch.zeros_like(x)", "torch.randn(8, 9)", "a wrong output passes"),
    ("x.sum() * 0 + 3", "torch.randn(8, 9)", "the output of other inputs"),
    ("x + torch.rand_like(x)", "torch.randn(8, 9)", "draws random numbers"),
    ("x @ x", "torch.randn(8, 9)", "forward fails"),
    ("x", "torch.nn.Linear(2, 2)", "unfit inputs: the inputs have a Linear"),
    ("x", "1 / 0", "inputs fail"),
    ("x +", "torch.randn(8, 9)", "syntax error"),
]


@pytest.mark.parametrize("forward, inputs, reason", UNJUDGEABLE, ids=[u[2] for u in UNJUDGEABLE])
def test_a_problem_that_proves_nothing_is_refused(tmp_path, capsys, forward, inputs, reason):
    reference, candidate = files(tmp_path, reference=MODEL.format(forward, inputs), candidate=cases.HONEST[0][1])
    assert command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK]) == 2
    line = json.loads(capsys.readouterr().out)
    assert line["verdict"] == "cannot be judged" and reason in line["reason"], line


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--num-trials", "3"], "--num-trials is 3, it must be at least 11"),
        (["--compile", "fast"], "torch.compile has no mode fast"),
        (["--device", "tpu"], "--device is tpu"),
        (["--memory", "0"], "--memory is 0.0, it must be above 0"),
        (["--tgt-dir", "/no/such/folder"], "/no/such/folder: there is no such folder"),
    ],
)
def test_a_mistake_in_the_call_is_a_sentence(tmp_path, capsys, words, sentence):
    (reference,) = files(tmp_path, reference=ADD_RELU)
    assert command.main(["--ref-problem", reference, *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_verdict_for_a_reader(tmp_path, capsys):
    reference, candidate = files(tmp_path, reference=cases.PROBLEM, new_kernel=cases.HONEST[0][1])
    assert command.main(["--ref-problem", reference, "--tgt-dir", str(tmp_path), *QUICK]) == 0
    out = capsys.readouterr().out
    assert out.startswith("new_kernel.py: correct, ") and "speed-up over better (eager)" in out and "do_bench" in out


def test_precision_is_a_class(tmp_path, capsys):
    half = cases.body("return self.right(x.bfloat16(), y.bfloat16()).float()")
    reference, rounded, right = files(tmp_path, reference=cases.PROBLEM, rounded=half, right=cases.HONEST[0][1])
    found = []
    for candidate in (rounded, right):
        command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK])
        found.append(json.loads(capsys.readouterr().out))
    assert found[0].get("class", "wrong") in ("bf16", "below bf16", "wrong") and found[1]["class"] == "baseline's"


def test_a_run_over_a_folder_continues_where_it_ended(tmp_path, capsys):
    files(
        tmp_path,
        **{
            "kb/level1/1_Add": ADD_RELU,
            "kb/level1/2_Sum": cases.PROBLEM,
            "kb/level2/1_Zero": MODEL.format("x * 0", "torch.ones(3)"),
        },
    )
    files(
        tmp_path,
        **{
            "new/level1/2_Sum": cases.HONEST[0][1],
            "new/level1/1_Add": UNMASKED.replace("MASK", "pass"),
            "new/level2/1_Zero": cases.HONEST[0][1],
        },
    )
    kept = tmp_path / "lines.jsonl"
    words = ["run", str(tmp_path / "kb"), "--candidates", str(tmp_path / "new"), "--json", str(kept), *QUICK]
    assert command.main([*words, "--levels", "1"]) == 0
    first = kept.read_text()
    assert command.main(words) == 2
    out, lines = capsys.readouterr().out, kept.read_text()
    assert lines.startswith(first) and len(lines.splitlines()) == 3
    assert "level 1: 2 of 2 problems judged, 2 correct" in out and "all: 2 of 3 problems judged" in out
    assert "excluded: " in out and "a wrong output passes" in out


def test_baselines_alone(tmp_path, capsys):
    files(tmp_path, **{"kb/level1/1_Add": ADD_RELU})
    assert command.main(["run", str(tmp_path / "kb"), "--json", "-", *QUICK]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["verdict"] == "baselines" and line["timers"]["simple"]["eager"]["n"] >= 11


def made(verdict, **speedup):
    return {
        "problem": "p",
        "verdict": verdict,
        "reason": "",
        "speedup": {k: {"ratio": v, "of": "eager", "word": verdict} for k, v in speedup.items()},
    }


def test_means_count_a_loss_as_one():
    lines = [
        made("faster", better=4.0, eager=4.0),
        made("slower", better=0.25, eager=0.25),
        made("wrong values"),
        made("cannot be judged"),
    ]
    s = _aggregate.summary(lines)
    assert s["geometric_mean"]["better"] == pytest.approx(4 ** (1 / 3)) and s["geometric_mean_all"] == pytest.approx(
        4 ** (1 / 4)
    )
    assert s["fast"] == {"0.0": 2 / 3, "1.0": 1 / 3, "1.5": 1 / 3, "2.0": 1 / 3, "3.0": 1 / 3, "5.0": 0.0}
    assert _aggregate.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "path, at",
    [
        ("a/level1/23_Softmax.py", (1, 23)),
        ("level_3/problem_9/x_kernel.py", (3, 9)),
        ("level2-94-kernel.py", (2, 94)),
        ("x.py", None),
    ],
)
def test_a_path_names_level_and_number(path, at):
    assert _files.place(path) == at


def leaf(**changes):
    return {"tensor": {"dtype": "float32", "shape": [4], "stride": [1], "at": 0, "bytes": 16, **changes}}


@pytest.mark.parametrize(
    "tree",
    [
        leaf(at=8), leaf(at=-4), leaf(shape=[5]), leaf(shape=[-4]), leaf(shape=[1 << 60]), leaf(dtype="object"),
        leaf(dtype=[]), leaf(bytes=4), leaf(stride=[]), leaf(shape="4"), leaf(at=True), {"tensor": None},
        {"float": "x"}, {"value": [1]}, {"list": 3}, {"other": 1}, [], None, {"list": [{"list": [{"list": [[]]}]}]},
        {"tuple": [leaf(), leaf(at=4)]},
    ],
)  # fmt: skip
def test_a_tree_from_a_candidate_is_only_data(tree):
    fd = os.memfd_create("values")
    os.ftruncate(fd, 16)
    with pytest.raises(_tree.Unfit):
        _tree.read(tree, fd)
    os.close(fd)


def test_values_survive_the_way(tmp_path):
    fd = os.memfd_create("values")
    sent = [
        torch.randn(3, 4).t(),
        {"a": (1, 2.5, None, "x")},
        torch.tensor(7),
        torch.empty(0, 3),
        torch.ones(2, dtype=torch.bool),
    ]
    back = _tree.read(json.loads(json.dumps(_tree.write(sent, fd))), fd)
    os.close(fd)
    assert back[1] == sent[1] and back[0].told_stride == (1, 4)
    assert all(torch.equal(a, b) for a, b in zip(_tree.tensors(back), _tree.tensors(sent)))


def test_outputs_of_whole_numbers_are_judged(tmp_path, capsys, monkeypatch):
    files(tmp_path, reference=MODEL.format("torch.argmax(x, 1)", "torch.randn(64, 33)"))
    files(tmp_path, candidate=MODEL.format("torch.max(x, 1).indices", "0").replace("Model(", "ModelNew("))
    monkeypatch.chdir(tmp_path)  # paths may be relative
    words = ["--ref-problem", "reference.py", "--tgt-problem", "candidate.py", "--json", "-", *QUICK]
    assert command.main(words) == 0, capsys.readouterr().out


def test_an_output_that_is_not_well_formed_ends_no_run(judge, tmp_path):
    nested = cases.body("out = self.right(x, y)\nfor _ in range(30):\n    out = [out]\nreturn out")
    assert verdict(judge, tmp_path, nested)["verdict"] == "wrong type"
    fourth = "if self.calls > 5:\n    raise ValueError('enough')\nreturn self.right(x, y)"
    line = verdict(judge, tmp_path, cases.body(fourth))
    assert line["verdict"] == "forward fails" and "enough" in line["reason"]


def test_kept_outputs_cannot_be_scaled(tmp_path, capsys):
    scaled = """
import torch

class ModelNew(torch.nn.Module):
    kept = {}

    def forward(self, a, b):
        for (first, total), out in self.kept.items():
            factor = a[0, 0] / first
            if abs(a.sum() / total / factor - 1) < 1e-4:
                return out * factor * factor
        out = a @ b
        self.kept[float(a[0, 0]), float(a.sum())] = out
        return out
"""
    inputs = "torch.randn(128, 128), torch.randn(128, 128)"
    problem = MODEL.format("x @ y", inputs).replace("self, x", "self, x, y")
    reference, candidate = files(tmp_path, reference=problem, candidate=scaled)
    command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK])
    line = json.loads(capsys.readouterr().out)
    assert line["verdict"] in ("wrong values", "slower", "unclear"), line
