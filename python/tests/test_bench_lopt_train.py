# SPDX-License-Identifier: Apache-2.0
"""The bench of whole training steps: that the models have the lists' parameters, that a share follows from the two
times, that all of a step is in them, and what is said where something does not fit. No time is judged."""

import json
import math

import pytest

torch = pytest.importorskip("torch")

from quern.bench import __main__ as bench  # noqa: E402
from quern.bench import lopt_models, lopt_peers, lopt_train, measure, stats  # noqa: E402

WORDS = ["lopt", "--device", "cpu", "--threads", "1", "--train", "gpt-10m"]
SMALL = {
    "gpt": lopt_models.Trained(lambda: lopt_models.GPT(64, 1, 50, 8), 2, "sequences of 8"),
    "vit": lopt_models.Trained(lambda: lopt_models.ViT(64, 1, 4, 8, 10), 2, "images of 8 x 8"),
}


def use(monkeypatch, model):
    monkeypatch.setitem(lopt_models.TRAINED, "gpt-10m", model)


@pytest.fixture(autouse=True)
def _small_model(monkeypatch):
    use(monkeypatch, SMALL["gpt"])
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["vit-b16", "gpt2-124m", "gpt2-355m"])
def test_models_have_the_parameters_of_their_lists(name):
    assert lopt_models.shapes_of(name) == stats.workload(name)


@pytest.mark.parametrize(("kind", "choices"), [("gpt", 50), ("vit", 10)])
def test_a_model_begins_with_chance_and_all_of_it_is_trained(kind, choices, monkeypatch):
    use(monkeypatch, SMALL[kind])
    model = lopt_train.Model("gpt-10m", 2, torch.device("cpu"))
    model.run()
    assert abs(float(model.loss) - math.log(choices)) < 0.5
    assert all(param.grad.count_nonzero() for param in model.params)


def test_a_gpt_does_not_see_what_is_to_come():
    model = SMALL["gpt"].make()
    lopt_models.fill(model)
    tokens, wanted = model.data(1)
    hidden = []
    model.norm.register_forward_hook(lambda module, given, made: hidden.append(made))
    for last in (0, 1):
        tokens[0, -1] = last
        model(tokens, wanted)
    assert torch.equal(hidden[0][0, :-1], hidden[1][0, :-1]) and not torch.equal(hidden[0][0, -1], hidden[1][0, -1])


@pytest.mark.parametrize(("op", "kind"), [("small_fc_lopt", "vit"), ("velo", "gpt")])
def test_a_line_holds_what_was_measured(op, kind, monkeypatch, capsys, tmp_path):
    use(monkeypatch, SMALL[kind])
    path = tmp_path / "lines.jsonl"
    assert bench.main([*WORDS, "--op", op, "--rounds", "6", "--batch", "3", "--json", str(path)]) == 0
    (line,) = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (line["schema"], line["op"], line["batch"]) == ("quern lopt train 1", op, 3)
    assert line["check"]["right"] and 0 < line["loss"] < 10
    adamw, plain, pylo = line["peers"]
    assert (adamw["name"], plain["name"], pylo["name"]) == ("adamw", "materialised", "pylo") and pylo["absent"]
    for of in (line, adamw, plain):
        whole, part = of["step"]["samples_ns"], of["optimizer"]["samples_ns"]
        assert len(whole) == len(part) == 6 and all(0 < p < w for p, w in zip(part, whole))
        share = stats.ratio_paired(part, whole)
        assert of["share"] == {"ratio": share.ratio, "interval": [share.low, share.high]} and share.high <= 1
    assert {adamw["verdict"], plain["verdict"]} <= {"faster", "same", "slower", "unclear"}
    told = capsys.readouterr().out
    assert f"{op}, training gpt-10m, 3 " in told and "its share" in told and "materialised" in told


def test_a_share_is_the_optimizers_part_of_the_whole(monkeypatch, tmp_path):
    now = 0

    def spend(ns):
        nonlocal now
        now += ns

    run, begun = lopt_train.Model.run, lopt_train._begun
    monkeypatch.setattr(measure, "now_ns", lambda: now)
    monkeypatch.setattr(lopt_train.Model, "run", lambda self: (run(self), spend(300)))
    first = iter([7000, 7000])  # which are not timed
    monkeypatch.setattr(lopt_train, "_quern", lambda *_: lambda: spend(next(first, 100)))
    monkeypatch.setattr(lopt_train, "_begun", lambda name, model, make: begun(name, model, lambda: lambda: spend(900)))
    path = tmp_path / "lines.jsonl"
    assert bench.main([*WORDS, "--rounds", "11", "--json", str(path)]) == 0  # fewer pairs have no verdict
    line = json.loads(path.read_text(encoding="utf-8"))
    assert (line["step"]["median_ns"], line["optimizer"]["median_ns"]) == (400, 100)
    assert line["share"]["ratio"] == pytest.approx(0.25)
    assert line["peers"][0]["share"]["ratio"] == pytest.approx(0.75)
    assert line["peers"][0]["speedup"]["ratio"] == pytest.approx(3) and line["peers"][0]["verdict"] == "faster"


def raises(error):
    def fail(*_, **__):
        raise error

    return fail


MEMORY = [torch.cuda.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]


@pytest.mark.parametrize("error", MEMORY)
def test_a_model_that_does_not_fit(error, monkeypatch, capsys):
    monkeypatch.setattr(lopt_train, "Model", raises(error))
    assert bench.main(WORDS) == 1
    said = capsys.readouterr().err
    assert "a training step of gpt-10m over 2 sequences of 8 does not fit the memory of cpu" in said


@pytest.mark.parametrize("error", MEMORY)
def test_a_peer_that_does_not_fit(error, monkeypatch, capsys):
    monkeypatch.setattr(torch.optim, "AdamW", raises(error))
    monkeypatch.setattr(lopt_peers, "free_bytes", lambda device: 1 << 16)
    assert bench.main([*WORDS, "--rounds", "1"]) == 0
    told = capsys.readouterr().out
    assert "does not fit the memory of cpu beside the model" in told and "GiB, and 0 are free" in told


def test_what_else_goes_wrong_is_told_as_it_is(monkeypatch, capsys):
    monkeypatch.setattr(torch.optim, "AdamW", raises(RuntimeError("no such kernel")))
    assert bench.main([*WORDS, "--rounds", "1"]) == 3
    assert "no such kernel" in capsys.readouterr().err


def test_a_loss_that_is_no_number_gets_no_time(monkeypatch, capsys):
    run = lopt_train.Model.run
    monkeypatch.setattr(lopt_train.Model, "run", lambda self: (run(self), self.loss.fill_(float("nan"))))
    assert bench.main([*WORDS, "--op", "velo", "--rounds", "1"]) == 1
    assert "nothing is timed: the model's loss has become nan" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [["--train", "gpt3"], ["--train", "vit-b16", "-w", "vit-b16"], ["--batch", "2"], [*WORDS[1:], "--batch", "0"]],
)
def test_mistakes(words, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main(["lopt", *words])
    assert ended.value.code == 2 and capsys.readouterr().err
