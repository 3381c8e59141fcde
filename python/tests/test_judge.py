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
import time

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

import cases  # noqa: E402
from quern.kernelbench import __main__ as command  # noqa: E402
from quern.kernelbench import _aggregate, _ceilings, _compare, _files, _judge, _process, _settings, _tree  # noqa: E402

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
        (["--tgt-problem", "/"], "/: it is a folder, and a Python file is wanted"),
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


def test_a_relative_path_of_the_library_reaches_a_candidate(tmp_path, capsys, monkeypatch):
    """A candidate's process runs in another folder."""
    library = pathlib.Path(os.environ["QUERN_LIBRARY"]).resolve()
    package = pathlib.Path(_process.__file__).parents[2]
    text = f"import sys\nsys.path.insert(0, {str(package)!r})\nimport quern\n" + cases.HONEST[0][1]
    reference, candidate = files(tmp_path, reference=cases.PROBLEM, candidate=text)
    monkeypatch.chdir(library.parent)
    monkeypatch.setenv("QUERN_LIBRARY", f"./{library.name}")
    status = command.main(["--ref-problem", reference, "--tgt-problem", candidate, *QUICK])
    assert status == 0, capsys.readouterr().out


def test_precision_is_a_class(tmp_path, capsys):
    half = cases.body("return self.right(x.bfloat16(), y.bfloat16()).float()")
    reference, rounded, right = files(tmp_path, reference=cases.PROBLEM, rounded=half, right=cases.HONEST[0][1])
    found = []
    for candidate in (rounded, right):
        command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK])
        found.append(json.loads(capsys.readouterr().out))
    assert found[0].get("precision", {"class": "wrong"})["class"] in ("bf16", "below bf16", "wrong")
    assert found[1]["precision"]["class"] == "baseline's"


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
        ("level1/2_old/level3/7_net.py", (3, 7)),
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
        _tree.read(tree, _tree.Memory(fd))
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
    back = _tree.read(json.loads(json.dumps(_tree.write(sent, _tree.Memory(fd)))), _tree.Memory(fd))
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


PRODUCT = MODEL.format("x @ x", "torch.randn(64, 64)")


@pytest.fixture
def ceilings(monkeypatch):
    """A machine whose memory and arithmetic have these rates."""

    def install(bytes_per_second, rate):
        made = _ceilings.Ceilings(bytes_per_second, {"float32": rate}, 1000.0, 0)
        monkeypatch.setattr(_ceilings, "_known", {"cpu": made})
        monkeypatch.setattr(_ceilings, "_of_cpu", lambda: made)

    return install


@pytest.mark.parametrize("machine, word", [((1e15, 1e15), None), ((1e15, 1e6), "note"), ((1e6, 1e15), "refused")])
def test_a_time_below_the_floor_is_refused(tmp_path, capsys, ceilings, machine, word):
    if not hasattr(torch.export, "default_decompositions"):
        pytest.skip("before torch 2.6 no operations are counted in inference mode")
    ceilings(*machine)
    candidate = PRODUCT.replace("Model(", "ModelNew(")
    reference, candidate = files(tmp_path, reference=PRODUCT, candidate=candidate)
    command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK])
    line = json.loads(capsys.readouterr().out)
    if word == "note":
        assert any("fewer operations" in note for note in line["notes"]), line
        return
    if word:
        assert line["verdict"] == word and "too fast to be true" in line["reason"], line
        return
    roof = line["roofline"]
    assert roof["operations"] == 2 * 64**3 and roof["bytes"] == 2 * 4 * 64**2 and roof["bound"] == "launch"
    median = line["timers"]["simple"]["candidate"]["median_ns"]
    assert roof["floor_ns"] == 1000 and roof["distance"] == pytest.approx(median / 1000)
    assert line["timers"]["benchmark"]["candidate"]["n"] >= 1


def test_the_least_time_counts_nothing_that_an_honest_kernel_may_skip():
    work = {"operations": 1e6, "convolutions": 0, "inputs": 1000, "nonzero": 1000, "sparse": False, "parameters": 500,
            "embeddings": 0, "outputs": 100}  # fmt: skip
    slow = _ceilings.Ceilings(1e9, {"float32": 1e9, "bf16": 1e10}, 0.0, 0)
    assert _ceilings.least_ns(work, slow, "tf32") == pytest.approx(1e6)
    assert _ceilings.least_ns(work, slow, "bf16") == pytest.approx(1e5)  # a class that may use the faster rate
    assert _ceilings.least_ns({**work, "convolutions": 1e6}, slow, "tf32") == pytest.approx(1e6 / 2.25)
    triangle = {**work, "sparse": True, "nonzero": 500, "embeddings": 400}
    assert _ceilings.least_ns(triangle, slow, "tf32") == pytest.approx(700)
    kept = _ceilings.Ceilings(1e9, {"float32": 1e9}, 0.0, 1 << 20)
    assert _ceilings.least_ns(triangle, kept, "tf32") == pytest.approx(600)


def test_ceilings_of_a_file(tmp_path, ceilings, capsys):
    ceilings(1e9, 1e9)
    path = tmp_path / "roof.jsonl"
    line = {"schema": "quern roofline 1", "backend": "cpu", "streams": [{"bytes": 1e6, "gbps": 7.0}],
            "operations_per_second": {"fp32 multiply-add": 5e8}}  # fmt: skip
    path.write_text("no JSON\n" + json.dumps(line) + "\n")
    found = _ceilings.of_file(str(path), "cpu")
    assert (found.bytes_per_second, found.rates["float32"], found.source) == (7e9, 1e9, str(path))
    (reference,) = files(tmp_path, reference=PRODUCT)
    words = ["--ref-problem", reference, "--tgt-problem", reference, "--device", "cpu", "--ceilings"]
    assert command.main([*words, reference]) == 2
    assert "has no line of `quern roofline --json` for cpu" in capsys.readouterr().err
    assert command.main([*words, str(tmp_path / "none")]) == 2
    assert "none: No such file" in capsys.readouterr().err


def test_every_distribution_is_passed_by_an_honest_candidate(tmp_path, capsys):
    problem = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.LazyLinear(40)

    def forward(self, x):
        return torch.softmax(self.linear(x), 1)

def get_inputs():
    return [torch.randn(16, 33)]
"""
    same = problem.replace("Model(", "ModelNew(").replace(
        "softmax(self.linear(x), 1)", "exp(torch.log_softmax(self.linear(x), 1))"
    )
    shallow = same.replace("self.linear(x)", "self.linear(x).clamp(-4, 4)")
    reference, same, shallow = files(tmp_path, reference=problem, same=same, shallow=shallow)
    found = []
    for candidate in (same, shallow):
        command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", "--check", "full", *QUICK])
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["verdict"] in ("faster", "same", "slower", "unclear") and found[0]["check"] == "full", found[0]
    assert found[1]["verdict"] == "wrong values", found[1]


def test_data_that_float32_cannot_compute_is_left_out(tmp_path, capsys):
    problem = MODEL.format("torch.sin(x * x * x * 1e4)", "torch.randn(500)")
    other = problem.replace("Model(", "ModelNew(").replace("x * x * x * 1e4", "x * 100 * x * x * 100")
    reference, candidate = files(tmp_path, reference=problem, candidate=other)
    words = [
        "--ref-problem",
        reference,
        "--tgt-problem",
        candidate,
        "--json",
        "-",
        "--tolerance",
        "current",
        "--check",
        "full",
    ]
    command.main(words + QUICK)
    line = json.loads(capsys.readouterr().out)
    assert line["verdict"] == "wrong values" or any("float64 does not confirm" in note for note in line["notes"]), line


def test_what_does_not_move_is_found():
    want, after = torch.ones(4), torch.tensor([1.0, 1.0, 1.05, 1.0])
    assert _compare.still(want, want, after, after.clone()) == ""
    assert "element 2 moves by 0.05, the candidate's by 0" in _compare.still(want, want, after, want)
    assert _compare.still(want, want, want, want) == ""


def test_a_speed_up_above_ten_is_checked_again(tmp_path, capsys):
    slow = MODEL.format("sum(x[k] for k in range(2000))", "torch.randn(2000, 10)")
    fast = MODEL.format("x.sum(0)", "0").replace("Model(", "ModelNew(")
    reference, candidate = files(tmp_path, reference=slow, candidate=fast)
    assert command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK]) == 0
    line = json.loads(capsys.readouterr().out)
    assert any("is suspicious; a second process" in note for note in line["notes"]), line


def test_flags_that_a_candidate_sets_are_told(judge, tmp_path):
    flips = cases.body("return self.right(x, y)", "torch.backends.cuda.matmul.allow_tf32 = True")
    line = verdict(judge, tmp_path, flips)
    assert line["verdict"] in ("faster", "same", "slower", "unclear")
    assert any("sets torch's matmul tf32" in note for note in line["notes"]), line


def test_times_under_two_settings_of_a_gpu_allow_no_word(judge, tmp_path, monkeypatch):
    read = iter([{"power limit": 700000, "compute mode": 0}, {"power limit": 350000, "compute mode": 0}])
    monkeypatch.setattr(_settings, "read", lambda device: next(read))
    line = verdict(judge, tmp_path, cases.HONEST[0][1])
    assert line["verdict"] == "unclear" and {s["word"] for s in line["speedup"].values()} == {"unclear"}, line
    assert any("the GPU's power limit changed" in note for note in line["notes"]), line


def test_waits_for_a_processor_are_no_hidden_time(judge, tmp_path, monkeypatch):
    text = cases.HONEST[0][1]
    ask = _process.Process.ask

    def slow(process, do, **request):  # the answer is there, and the judge gets no processor
        if do == "go" and process is judge.process:
            time.sleep(0.05)
            delayed.append(50_000_000)
        return ask(process, do, **request)

    delayed: list = []
    monkeypatch.setattr(_process.Process, "ask", slow)
    assert verdict(judge, tmp_path, text)["verdict"] == "refused"
    real = _process.Process.waited_ns
    monkeypatch.setattr(_process.Process, "waited_ns", lambda process: real(process) + sum(delayed))
    assert verdict(judge, tmp_path, text)["verdict"] in ("faster", "same", "slower", "unclear")


def test_a_slow_warm_up_leaves_the_count_of_samples(judge, tmp_path):
    line = verdict(judge, tmp_path, cases.body("time.sleep(0.4 if self.calls < 12 else 0)\nreturn self.right(x, y)"))
    assert line["timers"]["simple"]["candidate"]["n"] >= 11


def test_equal_weights_may_change_places(tmp_path, capsys):
    model = """
import torch

class NAME(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.FIRST = torch.nn.Parameter(torch.ones(5))
        self.SECOND = torch.nn.Parameter(torch.ones(5))

    def forward(self, x):
        return x * self.a + torch.sin(x) * self.b * 3

def get_inputs():
    return [torch.randn(20, 5)]
"""
    texts = [model.replace("NAME", name).replace("FIRST", a).replace("SECOND", b)
             for name, a, b in (("Model", "a", "b"), ("ModelNew", "b", "a"))]  # fmt: skip
    reference, candidate = files(tmp_path, reference=texts[0], candidate=texts[1])
    words = ["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", "--gradients", *QUICK]
    assert command.main(words) == 0, capsys.readouterr().out


def test_numbers_among_outputs_have_the_tolerance(tmp_path, capsys):
    sums = MODEL.format("x * 2, float(x.sum())", "torch.randn(300)")
    other = MODEL.format("x * 2, float(x.double().sum()) + BIAS", "0").replace("Model(", "ModelNew(")
    reference, right, wrong = files(
        tmp_path, reference=sums, right=other.replace("BIAS", "0"), wrong=other.replace("BIAS", "1")
    )
    for candidate, status in ((right, 0), (wrong, 1)):
        assert command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK]) == status


@pytest.mark.parametrize("kind", ["float32", "float16", "float64", "complex64", "int64"])
def test_large_outputs_are_compared_in_parts(kind):
    dtype, tolerance = getattr(torch, kind), _compare.Tolerance("original")
    want = (torch.arange(200_000) % 97).to(dtype)
    got = want.clone()
    assert not _compare.compare(got, want, tolerance).wrong
    got[150_000] += 5
    found = _compare.compare(got, want, tolerance)
    assert found.wrong.startswith("1 of 200000 elements") and "element 150000" in found.wrong and found.most == 5
    if dtype.is_floating_point:
        for spoilt in (float("nan"), float("inf")):
            got[150_000] = spoilt
            assert _compare.compare(got, want, tolerance).wrong
            same = want.clone()
            same[150_000] = spoilt
            assert not _compare.compare(got, same, tolerance).wrong


def test_hybrids_are_counted(tmp_path):
    own, both = files(tmp_path, own="import triton\n@triton.jit\ndef f(): pass", both="# torch.compile and load_inline")
    assert not _files.hybrid(own) and _files.hybrid(both)
    s = _aggregate.summary([{**made("faster", better=2.0), "hybrid": True}, made("wrong values")])
    assert s["hybrids"] == 1 and s["without_times"] == 1
    assert any("1 of the correct ones use torch.compile" in line for line in _aggregate.text("all", s))
