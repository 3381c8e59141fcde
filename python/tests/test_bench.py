# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.bench`: its statistics are the command's, its lines are read by the command, its peers take turns,
and its refusals say what is wrong. What its oracle finds is in test_bench_oracle.py. No figure is judged here."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from bench_peers import CPU, SETTINGS, WRONG, make, no_op, planted  # noqa: E402
from quern import __version__  # noqa: E402
from quern.bench import __main__ as bench  # noqa: E402
from quern.bench import command, doors, measure, peers, progress, record, stats, table  # noqa: E402


# ---- statistics, and lines, against the command ----
def quern(*arguments, status=0):
    done = subprocess.run([command.find(), *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def of_command(tmp_path_factory):
    path = tmp_path_factory.mktemp("command") / "a.jsonl"
    quern("bench", "lion", "-w", "5x1003", "-b", "cpu", "--seconds", 0.0001, "--json", path)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(1.1, 1.2, "faster"), (0.5, 0.9, "slower"), (0.99, 1.01, "same"), (0.9, 1.1, "unclear"), (None, None, "unclear")],
)
def test_a_word_only_where_the_interval_allows_it(low, high, word):
    assert stats.Ratio(1.0, low, high).verdict == word


def test_few_samples_have_no_interval():
    assert stats.summarize([3.0, 1.0, 2.0, 5.0, 4.0]).low is None
    assert stats.summarize([3.0, 1.0, 2.0, 5.0, 4.0, 6.0]).low == 1.0
    assert stats.ratio_paired([2.0] * 5, [1.0] * 5) == stats.Ratio(pytest.approx(2.0), None, None)
    assert stats.speedup_paired([2.0] * 10, [1.0] * 10) == stats.Ratio(2.0, None, None)
    assert stats.speedup_paired([2.0] * 11, [1.0] * 11).verdict == "faster"
    assert stats.summarize(list(map(float, range(1001)))).low == pytest.approx(469, abs=1)  # approximated from here on


def test_samples_that_are_no_times_are_refused():
    for samples in ([], [1.0, -1.0], [float("nan")]):
        with pytest.raises(ValueError, match="samples"):
            stats.summarize(samples)
    assert stats.summarize([1.0]).median == 1.0  # the command goes on


def test_an_interval_has_the_ratio_of_the_two_times_beside_it():
    above, below = [2.0] * 8 + [1.0] * 7, [2.0] * 7 + [1.0] * 8  # two speeds: the medians fall on different ones
    speedup = stats.speedup_paired(above, below)
    assert (speedup.ratio, speedup.high) == (2.0, 2.0) and speedup.low <= 1.0 and speedup.verdict == "unclear"


class Fixed(peers.Eager):
    """A stand-in for quern's own peer that takes no compiler and no time."""

    name, package = "quern", "torch"


def run(*arguments):
    return bench.main(["lion", "--device", "cpu", "--quick", "--seconds", "0.2", *map(str, arguments)])


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def measured(tmp_path, capsys, monkeypatch, one_thread):
    """A whole run with a wrong peer, one that raises and one that is not installed."""
    wrong = planted("Wrong", WRONG["sign_0_is_1"][0])
    wrong.name = "wrong"

    class Raises(peers.Eager):
        name = "raises"

        def step(self):
            raise RuntimeError("no compiler\nand more")

    class Missing(peers.Eager):
        name, package = "missing", "no-such-distribution"

    kinds = [peers.Quern, peers.Eager, wrong, Raises, Missing, peers.AdamW]
    monkeypatch.setitem(peers.OF, "lion", {kind.name: kind for kind in kinds})
    path = tmp_path / "p.jsonl"
    assert run("--threads", "1", "-w", "5x1003", "--json", path) == 0
    return json.loads(path.read_text()), path, capsys.readouterr().out


def test_a_line_is_one_of_the_command(measured, of_command):
    line, _, _ = measured
    theirs = of_command[-1]
    only_theirs = {"unfused", "speedup", "verdict", "launches", "allocated_bytes", "workspace_bytes"}
    assert set(theirs) - set(line) == only_theirs
    assert set(line) - set(theirs) == {"by", "python", "peers"}
    for key in set(theirs) & set(line):
        assert type(line[key]) is type(theirs[key]), key
    assert set(line["fused"]) == set(theirs["fused"]) and set(line["machine"]) == set(theirs["machine"])
    assert (line["types"], line["workload"], line["settings"]) == ("f32 f32 f32", "5x1003", "weight_decay=0.1")
    assert line["machine"]["threads"] == 1 == line["python"]["torch_threads"]
    rounds = len(line["fused"]["samples_ns"])
    assert rounds >= 6 and {len(c["samples_ns"]) for c in line["ceilings"]} == {rounds}


def test_peers_are_told_as_they_are(measured):
    line, _, said = measured
    eager, wrong, raises, missing, adamw = line["peers"]
    assert eager["version"].startswith("torch 2.") and f"eager {eager['version'][6:]} " in said
    assert eager["check"]["right"] and eager["step"]["bytes"] == 20 * 5015 and not eager["other_op"]
    assert wrong["check"]["wrong"].startswith("sign(0) is not taken as 0")
    assert raises["absent"] == "failed: RuntimeError: no compiler"
    assert missing["absent"] == "no-such-distribution is not installed"
    assert adamw["other_op"] and adamw["step"]["bytes"] == 28 * 5015
    for peer in (eager, wrong, adamw):
        speedup = stats.speedup_paired(peer["step"]["samples_ns"], line["fused"]["samples_ns"])
        assert peer["speedup"] == record.ratio(speedup) and peer["verdict"] == speedup.verdict
    rows = {row.split()[0]: row for row in said.splitlines() if row.strip()}
    assert f"({table.duration(wrong['step']['median_ns'])})" in rows["wrong"] and "WRONG: sign(0)" in rows["wrong"]
    assert "(" not in rows["eager"].replace("(too few", "") and "another op" in rows["adamw"]
    assert "failed: RuntimeError" in rows["raises"]


def test_the_command_reads_it(measured):
    line, path, _ = measured
    rows = quern("report", path, "--peers").splitlines()
    assert "quern.torch.Lion" in rows[2] and table.duration(line["fused"]["median_ns"]) in rows[2]
    assert f"({table.duration(line['peers'][1]['step']['median_ns'])})" in rows[4] and "wrong: sign(0)" in rows[4]
    assert "failed: RuntimeError: no compiler" in rows[5] and "not installed" in rows[6] and "another op" in rows[7]
    assert "lion | 5x1003" not in quern("report", path)
    said = quern("compare", path, path)
    assert "through quern.torch.Lion" in said and "1.000x" in said


def test_lines_are_appended(measured, tmp_path):
    line, path, _ = measured
    record.append(str(path), line)
    first, second = map(json.loads, path.read_text().splitlines())
    assert first == second == line
    with pytest.raises(ValueError, match="JSON"):
        record.append(str(path), {"x": float("nan")})


def test_a_wrong_quern_has_a_line_without_times(tmp_path, capsys, monkeypatch):
    wrong = planted("Wrong", no_op)
    wrong.name = "quern"
    monkeypatch.setitem(peers.OF, "lion", {"quern": wrong, "eager": peers.Eager})
    path = tmp_path / "w.jsonl"
    assert run("-w", "5x1003", "--json", path) == 1
    assert "quern is WRONG, so nothing is timed: 5" in capsys.readouterr().out
    line = json.loads(path.read_text())
    assert not line["check"]["right"] and not {"fused", "peers", "ceilings"} & set(line)
    assert "5x1003" not in quern("report", path, "--peers")


def test_several_measurements_and_a_budget(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(peers.OF, "lion", {"quern": Fixed, "eager": peers.Eager})
    path = tmp_path / "m.jsonl"
    assert run("-w", "2x100", "-w", "1x7", "--types", "f32", "--types", "bf16 bf16 bf16", "--json", path) == 0
    ran = [(line["workload"], line["types"]) for line in map(json.loads, path.read_text().splitlines())]
    assert ran == [(w, t) for w in ("2x100", "1x7") for t in ("f32 f32 f32", "bf16 bf16 bf16")]
    assert run("-w", "2x100", "-w", "1x7", "--time-budget", "1e-9") == 1
    assert "2x100, types f32: not measured, the 1e-09 s are spent" in capsys.readouterr().err


def test_a_models_own_shapes(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(peers.OF, "lion", {"quern": Fixed, "eager": peers.Eager})
    a = {"dtype": "F32", "shape": [31, 7], "data_offsets": [0, 868]}
    b = {"dtype": "BF16", "shape": [7], "data_offsets": [868, 882]}
    text = json.dumps({"a": a, "b": b}).encode()
    (tmp_path / "two.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(882))
    assert run("--params", tmp_path / "two.safetensors") == 0
    assert "lion over two.safetensors: 2 tensors, 224 elements" in capsys.readouterr().out


# ---- turns ----
class Counted:
    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def step(self):
        self.calls.append(self.name)


class Instant(measure.Clock):
    def step(self, run):
        run()
        return 1000.0


def test_peers_and_ceilings_take_turns():
    calls = []
    counted = [Counted(name, calls) for name in "ab"]
    session = measure.Session(Instant(False), counted, lambda: calls.append("|"), lambda _: None)
    session.run(seconds=1e-9, least=30)
    text = "".join(calls)
    assert text.startswith("aaabbb")  # the warming up
    rounds = [text[k : k + 3] for k in range(6, len(text), 3)]
    assert len(rounds) == 30 and all(sorted(each) == ["a", "b", "|"] for each in rounds)
    assert len(set(rounds)) == 6  # whoever goes before is not always the same
    assert [len(times.step) for times in session.times] == [30, 30]


def test_rounds_end_when_medians_are_known_and_gc_is_as_it_was():
    import gc

    assert gc.isenabled()
    was = []
    session = measure.Session(Instant(False), [Counted("a", [])], lambda: was.append(gc.isenabled()), lambda _: None)
    session.run(seconds=3600, least=2)
    assert len(session.order) == 6 and not any(was)  # the fewest that have an interval
    assert gc.isenabled()


def test_the_clock_of_a_processor_waits_for_the_step():
    import time

    clock = measure.Clock(hot=True)
    calls = []

    def run():
        calls.append(1)
        time.sleep(0.01)

    assert 1e7 <= clock.step(run) < 1e9
    assert len(calls) == 2  # hot: right behind one that is not timed


class Event:
    """Stands in for a device's: the queue is the host's own clock."""

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = measure.now_ns()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e-6


@pytest.fixture
def device_clock(monkeypatch):
    """The clock of a GPU without one, and what it did: "c" the cover written, "." a wait."""
    did = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: did.append("."))
    clock = measure.CudaClock(False, CPU, 1 << 16)

    class Cover:
        def zero_(self):
            did.append("c")

    clock.cover, clock.covers = Cover(), 3
    return clock, did


@pytest.mark.parametrize("took_ms", [0.05, 0.3, 1.0, 7.0])
def test_the_cover_lasts_a_millisecond(monkeypatch, took_ms):
    """As often as the quickest of its tries needs, and no oftener."""
    tries = iter([5 * took_ms, 2 * took_ms, took_ms, 3 * took_ms, took_ms])
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "elapsed_time", lambda self, end: next(tries))
    clock = measure.CudaClock(False, CPU, 1 << 16)
    assert (clock.covers - 1) * took_ms * 1e6 <= measure.LEAD_NS < clock.covers * took_ms * 1e6
    assert measure.CudaClock(True, CPU, 0).cover is None


def test_what_is_timed_on_a_device(device_clock):
    clock, did = device_clock
    clock.step(lambda: did.append("s"))
    assert "".join(did) == "cccs"
    did.clear()
    assert clock.wall(lambda: did.append("s"), 4) > 0
    assert "".join(did) == ".ssss."  # no wait between steps
    did.clear()
    spent = clock.host(lambda: did.append("s"), lambda: did.append("m"), 3)
    assert "".join(did) == ".msmsms." and len(spent) == 3
    did.clear()
    clock.hot = True
    clock.step(lambda: did.append("s"))
    assert "".join(did) == "ss"  # hot: right behind one that is not timed


def test_a_session_on_a_device_takes_all_series_and_moves_gradients(device_clock):
    clock, _ = device_clock
    of = make()
    used = []

    class Watched(peers.Eager):
        def use(self, grads):
            super().use(grads)
            used.append(grads[0].data_ptr())

    session = measure.Session(clock, [Watched(of, SETTINGS), peers.Foreach(of, SETTINGS)], lambda: None, lambda _: None)
    used.clear()
    session.run(seconds=1e-9, least=6)
    for times in session.times:
        assert len(times.step) == len(times.wall) == 6
        assert len(times.host) == len(times.host_moved) >= 6
    assert len(used) == len(session.times[0].host_moved)
    assert len(set(used)) == 2 and all(a != b for a, b in zip(used, used[1:]))


# ---- progress ----
def test_what_takes_long_is_told_while_it_runs():
    """A peer that compiles for minutes says nothing itself."""
    said, deadline = [], time.monotonic() + 60
    with progress.waiting(said.append, "checking: compile", every_s=0.01):
        while len(said) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    known = list(said)
    assert known[:2] == ["checking: compile", "checking: compile, 0 s"] and len(known) >= 3
    time.sleep(0.05)
    assert said == known  # nothing runs beside what is timed


def test_rounds_that_are_needed_are_not_told_as_seconds():
    class Unsteady(Instant):
        def step(self, run):
            return 1000.0 * (1 + len(said) % 7)

    said = []
    session = measure.Session(Unsteady(False), [Counted("a", [])], lambda: None, said.append)
    session.run(seconds=3600.0, least=4)
    rounds = [line for line in said if line.startswith("round")]
    assert rounds[:5] == [*(f"round {k} of at least 4, 0 s" for k in (1, 2, 3, 4)), "round 5 at 0 s of 3600"]


# ---- refusals ----
def refused(capsys, status, words, *arguments):
    assert run(*arguments) == status
    said = capsys.readouterr()
    *progress, sentence = said.err.splitlines()
    assert words in sentence and sentence.startswith("python -m quern.bench: ")
    assert {line.partition(",")[0] for line in progress} <= {"making data", "checking: quern"} and said.out == ""


def test_mistakes_are_told_in_a_sentence(capsys, tmp_path):
    refused(capsys, 2, "there is no workload gpt2-124; did you mean gpt2-124m?", "-w", "gpt2-124")
    refused(capsys, 2, "there is no peer foreech; did you mean foreach?", "--peers", "eager,foreech")
    refused(capsys, 2, "there is no peer qqqq; there are quern, eager", "--peers", "qqqq")
    refused(capsys, 2, "f16 f16 f32 f32", "-w", "2x9", "--types", "f64")
    refused(capsys, 1, "two.safetensors: No such file", "--params", tmp_path / "two.safetensors")
    refused(capsys, 2, "it cannot be written", "--json", tmp_path / "no/such/x.jsonl")
    refused(capsys, 2, "--threads is 0", "--threads", "0")
    refused(capsys, 1, "GB are free: choose a smaller workload", "-w", "4x100G")
    refused(capsys, 1, "PyTorch's .grad is of the parameter's type", "-w", "2x9", "--types", "f32 bf16 f32")
    assert bench.main(["lino"]) == 2
    assert "lion" in capsys.readouterr().err
    assert bench.main(["lion", "--device", "meta"]) == 2
    assert "it must be cpu or cuda" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        run("--seconds", "-1")
    assert ended.value.code == 2
    assert "--seconds is -1" in capsys.readouterr().err


def test_a_gpu_that_is_not_there(capsys):
    assert bench.main(["lion", "--device", f"cuda:{torch.cuda.device_count()}"]) == 3
    assert f"torch sees {torch.cuda.device_count()} GPUs" in capsys.readouterr().err


def test_without_pytorch(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert bench.main(["lion"]) == 3
    assert "PyTorch is wanted" in capsys.readouterr().err


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_command_is_missing_or_another(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("QUERN_COMMAND", "/nowhere/quern")
    refused(capsys, 3, "tried /nowhere/quern: not there; QUERN_COMMAND=", "-w", "2x9")
    monkeypatch.setenv("QUERN_COMMAND", script(tmp_path / "old", """echo '{"version": "0.0.9"}'"""))
    refused(capsys, 3, f"old: version 0.0.9, the library is {__version__}", "-w", "2x9")
    monkeypatch.setenv("QUERN_COMMAND", script(tmp_path / "none", "echo hello"))
    refused(capsys, 3, "none: not quern's command", "-w", "2x9")
    version = json.dumps({"version": __version__})
    dies = f"[ $1 = bench ] && echo boom >&2 && exit 7; echo '{version}'"
    monkeypatch.setenv("QUERN_COMMAND", script(tmp_path / "dies", dies))
    refused(capsys, 7, "boom", "-w", "2x9")


def test_the_command_is_found_where_it_is_built():
    where = pathlib.Path(os.environ["QUERN_LIBRARY"]).resolve().parents[1]
    assert pathlib.Path(command.find()) == where / "cli/quern" or os.environ.get("QUERN_COMMAND")


def test_a_companion_that_ends_early(tmp_path):
    with command.Companion(["lion", "--workload", "2x100", "--backend", "cpu"]) as companion:
        companion.round()
        companion._process.kill()
        with pytest.raises(command.CommandError):
            companion.round()
    assert companion._process.poll() is not None


def test_the_list_of_peers(capsys):
    assert bench.main(["lion", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in peers.LION) and "torch " + torch.__version__.split("+")[0] in said


@pytest.mark.cuda
@pytest.mark.parametrize("types", ["f32", "bf16 bf16 bf16 f32"])
def test_on_a_gpu(tmp_path, capsys, types):
    """Device time, many steps without a wait, and the host alone, for each peer."""
    path = tmp_path / "g.jsonl"
    arguments = ["lion", "--device", "cuda", "-w", "64x4K", "--quick", "--peers", "eager,foreach,adamw"]
    assert bench.main([*arguments, "--types", types, "--json", str(path)]) == 0, capsys.readouterr().err
    line = json.loads(path.read_text())
    entries = [line, *(peer for peer in line["peers"] if not peer["absent"])]
    assert len(entries) >= 3 and line["cache"] == "cold" and line["backend"] == "cuda"
    for entry in entries:
        step = entry.get("step", line["fused"])
        assert len(step["samples_ns"]) == len(entry["wall"]["samples_ns"]) >= 6
        assert 0 < entry["host"]["median_ns"] < 1e9 and 0 < entry["host_moved"]["median_ns"] < 1e9
        assert entry["wall"]["median_ns"] > 0.5 * step["min_ns"]
    eager = line["peers"][0]
    assert eager["wall"]["median_ns"] > line["wall"]["median_ns"]  # hundreds of launches against one
    assert line["host_same_ns"] == line["host"]["median_ns"] and not line["impossible"]
    assert " of many" in quern("report", path, "--peers")


def test_a_door_that_there_is_not_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        doors.main(["--only", "nosuch"])
    assert "--only is 'nosuch', no door's name has this in it" in capsys.readouterr().err
