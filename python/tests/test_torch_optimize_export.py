# SPDX-License-Identifier: Apache-2.0
"""python -m quern.optimize: the file that it writes runs, reads well, and passes the judge; a problem that cannot be
read or run has a sentence."""

import pathlib
import re
import runpy

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.kernelbench import _judge, _process  # noqa: E402
from quern.optimize import __main__ as command  # noqa: E402
from quern.optimize import _kept, _timing, runtime  # noqa: E402

GIB = 1 << 30
LIMITS = _process.Limits(90, 3 * GIB, 32, file_bytes=GIB // 4, folder_bytes=GIB // 8)
OPTIONS = _judge.Options(
    trials=11, warmup=1, seconds=3, compile_modes=(), threads=1, run_limits=LIMITS, compile_limits=LIMITS
)
BODY = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.first = nn.Conv2d(3, n, 3, bias=False)
        self.norm = nn.BatchNorm2d(n)
        self.last = nn.Linear(n, 5)
        self.weights = torch.tensor([1.0, 2.0, 3.0, 4.0, -5.0])

    def forward(self, x, scale):
        y = torch.relu(self.norm(self.first(x))).mean((2, 3))
        return self.last(y) * self.weights.to(y.device) * scale, y

def get_inputs():
    return [torch.randn(2, 3, 9, 9), 1.5]

def get_init_inputs():
    return [6]
"""
EVAL = BODY.replace("        self.last =", "        self.eval()\n        self.last =")


@pytest.fixture(autouse=True)
def own_choices(tmp_path, monkeypatch):
    monkeypatch.setattr(_kept, "folder", lambda: tmp_path / "choices")


@pytest.fixture
def planned(monkeypatch):
    order = lambda samples: sorted(samples, key=lambda name: name == "original")  # noqa: E731
    monkeypatch.setattr(_timing, "ranking", order)
    monkeypatch.setattr(_timing, "faster", lambda *_: (True, 2.0, None))


def write(tmp_path, text, *words):
    problem, new = tmp_path / "problem.py", tmp_path / "new.py"
    problem.write_text(text)
    status = command.main([str(problem), "--out", str(new), "--device", "cpu", "--seconds", "0.01", *words])
    return status, problem, new


def alike(new):
    """ModelNew and Model of the file, with the same weights."""
    names, made = runpy.run_path(str(new)), []
    for name in ("ModelNew", "Model"):
        torch.manual_seed(0)
        made.append(names[name](6))
    return made


@pytest.mark.parametrize("text", [BODY, EVAL], ids=["train", "eval"])
def test_the_judge_accepts_the_file(planned, tmp_path, text):
    status, problem, new = write(tmp_path, text)
    assert status == 0 and "quern_plan" in new.read_text()
    _judge.fresh_seed()
    with _judge.Judge(str(problem), OPTIONS) as judge:
        line = judge.judge(str(new))
    assert line["verdict"] in ("faster", "same", "slower", "unclear"), line
    assert line["deterministic"] and line["max_abs"] < 1e-4 and judge.same_weights


def test_the_file_runs_its_plan_and_the_model_for_other_calls(planned, tmp_path):
    _, _, new = write(tmp_path, BODY)
    made, model = alike(new)
    assert set(made.state_dict()) == set(model.state_dict())
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        for args in ((x, 1.5), (x, 2.0), (x[:1], 1.5), (x.double().float().transpose(2, 3), 1.5)):
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(made(*args), model(*args)))
        assert isinstance(made.quern_rebuilt.fast, runtime.Fast)
        assert made.quern_rebuilt.fast.results((x, 1.5), {}) is not None
        model(x, 1.5)
        assert torch.allclose(made.norm.running_mean, model.norm.running_mean)
        made.eval(), model.eval()
        assert torch.allclose(made(x, 1.5)[0], model(x, 1.5)[0], atol=1e-5)
    made(x, 1.5)[0].sum().backward()
    assert made.last.weight.grad is not None


def test_the_file_reads_well(planned, tmp_path):
    _, _, new = write(tmp_path, EVAL)
    text = new.read_text()
    assert text.startswith(EVAL.rstrip()) and "pickle" not in text and max(map(len, text.splitlines())) < 400
    assert re.search(r"^def quern_plan\(", text, re.M) and "attributes={'weights': (torch.float32, (5,), (1,))}" in text


LITERAL = BODY.replace("self.weights.to(y.device)", "torch.tensor([1.0, 2.0]).sum()")
MOVED = BODY.replace("[1.0, 2.0, 3.0, 4.0, -5.0]", "[1.0, 2.0, 3.0, 4.0, -5.0], dtype=torch.double").replace(
    "        y = torch", "        self.weights = self.weights.to(x.dtype)\n        y = torch"
)


def test_a_constant_of_the_forward_is_written_as_numbers(planned, tmp_path):
    _, _, new = write(tmp_path, LITERAL)
    assert "torch.tensor([1.0, 2.0], dtype=torch.float32)" in new.read_text()


def test_an_attribute_that_the_first_call_moves_is_read_at_each_call(planned, tmp_path):
    _, _, new = write(tmp_path, MOVED)
    (made, model), x = alike(new), torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        for number in range(4):
            if number == 2:
                made.weights, model.weights = made.weights * 3, model.weights * 3
            assert torch.allclose(made(x, 1.5)[0], model(x, 1.5)[0], atol=1e-5)
            assert (made.quern_rebuilt.fast is None) == (number == 0)
        assert made.quern_rebuilt.fast.results((x, 1.5), {}) is not None
        del made.weights
        with pytest.raises(AttributeError, match="weights"):  # the module's own
            made(x, 1.5)


def test_a_model_that_gains_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(_timing, "faster", lambda *_: (False, 0.9, None))
    status, _, new = write(tmp_path, BODY)
    names = runpy.run_path(str(new))
    assert status == 0 and names["ModelNew"].forward is names["Model"].forward


UNWRITABLE = {
    "its result is neither": BODY.replace("* scale, y", '* scale, {"y": y}'),
    "it has the names": BODY.replace("import torch\n", "import torch\nquern = 3\nresult = quern\n"),
    "has 5000 elements": BODY.replace(
        "torch.tensor([1.0, 2.0, 3.0, 4.0, -5.0])", "lambda w=torch.rand(1000, 5): w"
    ).replace("self.weights.to", "self.weights()[:1].exp().to"),
}


@pytest.mark.parametrize("why", UNWRITABLE)
def test_what_cannot_be_written_is_kept(planned, tmp_path, why):
    status, _, new = write(tmp_path, UNWRITABLE[why])
    assert status == 0 and why in new.read_text() and "quern_plan" not in new.read_text()
    names = runpy.run_path(str(new))
    names["ModelNew"](6)(torch.randn(2, 3, 9, 9), 1.5)


BROKEN = {
    "problem.py:2: invalid syntax": "\nimport import\n",
    "defines no Model": "import torch\n",
    "defines no get_inputs": "class Model: pass\n",
    "fails: ZeroDivisionError": "1 / 0\n",
    "fails: TypeError": BODY.replace("return [6]", "return []"),
    "fails: RuntimeError": BODY.replace("nn.Linear(n, 5)", "nn.Linear(n + 1, 5)"),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_problem_has_a_sentence(tmp_path, capsys, why):
    status, _, new = write(tmp_path, BROKEN[why])
    assert status == 2 and why in capsys.readouterr().err and not new.exists()


@pytest.mark.parametrize("words, why", [
    (["--device", "tpu"], "must be cpu, cuda or cuda:N"), (["--seconds", "0"], "must be above 0"),
    (["--out", "/nowhere/x.py"], "No such file"),
])  # fmt: skip
def test_bad_options_have_sentences(tmp_path, capsys, words, why):
    assert write(tmp_path, BODY, *words)[0] == 2 and why in capsys.readouterr().err


def test_the_problem_is_not_written_over(tmp_path, capsys):
    problem = tmp_path / "problem.py"
    problem.write_text(text := BODY)
    (tmp_path / "link.py").symlink_to(problem)
    for out in ("problem.py", "link.py"):
        assert command.main([str(problem), "--out", str(tmp_path / out)]) == 2
        assert "the problem itself" in capsys.readouterr().err and problem.read_text() == text


def test_a_missing_file(tmp_path, capsys):
    assert command.main([str(tmp_path / "none.py"), "--out", str(tmp_path / "x.py")]) == 2
    assert "No such file" in capsys.readouterr().err and pathlib.Path(tmp_path).is_dir()
