# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.kernelbench` as its users call it: verdicts over files and folders, mistakes, precision, limits."""

import concurrent.futures.process
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

import cases  # noqa: E402
from judging import ADD_RELU, MODEL, OPTIONS, QUICK, UNMASKED, files  # noqa: E402
from quern.kernelbench import __main__ as command  # noqa: E402
from quern.kernelbench import _ceilings, _judge, _lines, _process, _run, _timing  # noqa: E402

torch = pytest.importorskip("torch")


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
    assert line["verdict"] == "baselines" and len(line["timers"]["simple"]["eager"]["samples_ns"]) >= 11


def test_outputs_of_whole_numbers_are_judged(tmp_path, capsys, monkeypatch):
    files(tmp_path, reference=MODEL.format("torch.argmax(x, 1)", "torch.randn(64, 33)"))
    files(tmp_path, candidate=MODEL.format("torch.max(x, 1).indices", "0").replace("Model(", "ModelNew("))
    monkeypatch.chdir(tmp_path)  # paths may be relative
    words = ["--ref-problem", "reference.py", "--tgt-problem", "candidate.py", "--json", "-", *QUICK]
    assert command.main(words) == 0, capsys.readouterr().out


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
    assert len(line["timers"]["benchmark"]["candidate"]["samples_ns"]) >= 1


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


def test_a_speed_up_above_ten_is_checked_again(tmp_path, capsys):
    slow = MODEL.format("sum(x[k] for k in range(2000))", "torch.randn(2000, 10)")
    fast = MODEL.format("x.sum(0)", "0").replace("Model(", "ModelNew(")
    reference, candidate = files(tmp_path, reference=slow, candidate=fast)
    assert command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK]) == 0
    line = json.loads(capsys.readouterr().out)
    assert any("is suspicious; a second process" in note for note in line["notes"]), line


def test_numbers_among_outputs_have_the_tolerance(tmp_path, capsys):
    sums = MODEL.format("x * 2, float(x.sum())", "torch.randn(300)")
    other = MODEL.format("x * 2, float(x.double().sum()) + BIAS", "0").replace("Model(", "ModelNew(")
    reference, right, wrong = files(
        tmp_path, reference=sums, right=other.replace("BIAS", "0"), wrong=other.replace("BIAS", "1")
    )
    for candidate, status in ((right, 0), (wrong, 1)):
        assert command.main(["--ref-problem", reference, "--tgt-problem", candidate, "--json", "-", *QUICK]) == status


def test_jobs_judge_what_one_does(tmp_path, capsys):
    problems = {f"kb/level1/{k}_Add": ADD_RELU for k in (1, 2, 3)}
    files(tmp_path, **problems, **{f"new/level1/{k}_Add": UNMASKED.replace("MASK", "pass") for k in (1, 2, 3)})
    words = ["run", str(tmp_path / "kb"), "--candidates", str(tmp_path / "new"), *QUICK]
    kept = tmp_path / "lines.jsonl"
    assert command.main([*words, "--jobs", "2", "--json", str(kept)]) == 0
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert sorted(line["number"] for line in lines) == [1, 2, 3]
    assert "3 of 3 problems judged, 3 correct" in capsys.readouterr().out
    assert command.main([*words, "--jobs", "0"]) == 2
    assert "--jobs is 0, it must be at least 1" in capsys.readouterr().err


def test_a_judge_prepares_beside_others_and_times_alone(tmp_path, monkeypatch):
    """Others may prepare, but not time, while one prepares, also for the second process of a candidate that is
    suspiciously fast; they may do neither while it times, and both behind it, whatever ended it."""
    lock = str(tmp_path / "lock")

    def free():
        """What another process might do now."""
        found = []
        for word, kind in (("prepare", fcntl.LOCK_SH), ("time", fcntl.LOCK_EX)):
            with open(lock, "a") as file, contextlib.suppress(BlockingIOError):
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                found.append(word)
        return found

    seen: dict[str, list] = {"make": [], "compile": [], "race": [], "baselines": []}

    def watch(owner, name, word):
        inner = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *arguments: seen[word].append(free()) or inner(*arguments))

    watch(_judge.Model, "__init__", "make")
    watch(_judge.Judge, "compile", "compile")
    watch(_timing, "race", "race")
    watch(_timing, "baselines", "baselines")
    monkeypatch.setattr(_judge, "SUSPICIOUS", 0.0)
    options = dataclasses.replace(OPTIONS, lock=lock)
    right, wrong, bad = files(
        tmp_path, right=ADD_RELU, wrong=ADD_RELU.replace("Model(", "ModelNew(").replace("x + y", "x - y"), bad="x +"
    )
    new = files(tmp_path, new=UNMASKED.replace("MASK", "pass"))[0]
    lines = list(_lines.judge(right, [new, wrong], options))
    assert lines[0]["verdict"] in _lines.CORRECT and lines[1]["verdict"] == "wrong values"
    alone, beside = [], ["prepare"]
    # The reference, the candidate that compiles, the one that is timed, its control, the second one; the wrong one's.
    assert seen["make"] == [beside, beside, beside, alone, beside, beside, beside, beside]
    assert seen["compile"] == [beside, beside] and seen["race"] == [alone, alone] and free() == ["prepare", "time"]
    assert _run._line(right, None, options)["verdict"] == "baselines" and seen["baselines"] == [alone]
    assert _run._line(bad, None, options)["verdict"] == "cannot be judged" and free() == ["prepare", "time"]


def test_no_job_starts_before_all_before_it_have_ended(monkeypatch):
    """Else somebody would always prepare, and nobody could time."""
    events, both = [], threading.Barrier(2)

    def line(problem, candidate, options):
        events.append(f"{problem} begins")
        both.wait(60)  # they run side by side
        time.sleep(0.2 if problem == "a" else 0)
        events.append(f"{problem} ends")
        return {}

    monkeypatch.setattr(_run, "_line", line)
    pool = concurrent.futures.ThreadPoolExecutor
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", lambda jobs, context: pool(jobs))
    work = {(1, k): (name, None) for k, name in enumerate("abcd")}
    assert {at for at, _ in _run._judged(work, OPTIONS, 2)} == set(work)
    assert sorted(events[:4]) == ["a begins", "a ends", "b begins", "b ends"], events


def test_what_ends_a_judge_ends_no_run(tmp_path, capsys, monkeypatch):
    """No memory for its own comparison is a line; a job that ends is a sentence."""
    files(tmp_path, **{"kb/level1/1_Add": ADD_RELU, "new/level1/1_Add": UNMASKED.replace("MASK", "pass")})
    words = ["run", str(tmp_path / "kb"), "--candidates", str(tmp_path / "new"), *QUICK]

    def no_memory(self):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 12.00 GiB.")

    with monkeypatch.context() as patch:
        patch.setattr(_judge.Judge, "compile", no_memory)
        assert command.main([*words, "--json", "-"]) == 2
    line = json.loads(capsys.readouterr().out)
    assert (line["verdict"], line["reason"]) == ("cannot be judged", "the judge itself: CUDA out of memory")

    def ended(*_):
        raise concurrent.futures.process.BrokenProcessPool
        yield

    monkeypatch.setattr(_run, "_judged", ended)
    assert command.main(words) == 2
    assert "a job ended in the middle of a problem" in capsys.readouterr().err


def test_an_element_changes_behind_all_that_is_queued(monkeypatch):
    """In `go`, not in `stage`: work that begins earlier reads other data. A warm call before has data of its own."""
    monkeypatch.syspath_prepend(str(pathlib.Path(_process.__file__).parent))  # as the process of a model finds it
    import _child

    memory = {name: _process._memory(name, False) for name in ("inputs", "outputs")}
    session = _child.Session({"device": "cpu", **{name: one.fd for name, one in memory.items()}})
    monkeypatch.setitem(_child.WATCHED, "torch.cuda.synchronize", (torch.cuda, "synchronize", torch.cuda.synchronize))
    x, seen = torch.arange(1.0, 7.0).reshape(2, 3), []
    session.sets, session.model = [[x]], lambda a: seen.append(a.clone()) or a * 2
    session.do_stage(0, 0.5, -1, "", False, 64, warm=True, check=True)
    assert torch.equal(seen.pop(), x) and not seen
    assert torch.equal(session.staged[0], x * 0.5)
    session.do_go(wait=True, flush=True)
    changed = x * 0.5
    changed[-1, -1] *= 50
    assert torch.equal(seen.pop(), changed) and torch.equal(session.outputs, changed * 2)
    assert torch.equal(session.kept[0], changed)  # with which the inputs are compared afterwards
