# SPDX-License-Identifier: Apache-2.0
"""The benches that train models by several optimizers: that each is trained on the same start and batches, that losses
are counted as the page says, and that mistakes in the arguments are refused. What is learned in so few steps is not
judged."""

import json

import pytest

torch = pytest.importorskip("torch")

from quern.bench import __main__ as bench  # noqa: E402
from quern.bench import gpt, heldout  # noqa: E402

CPU = torch.device("cpu")


def test_held_out_tasks_train_by_all(tmp_path, capsys):
    path = tmp_path / "lines.jsonl"
    words = ["heldout", "--device", "cpu", "--tasks", "transformer", "--seeds", "1", "--steps", "3"]
    assert bench.main([*words, "--json", str(path)]) == 0
    (line,) = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (line["task"], line["steps"], line["elements"]) == ("transformer", 3, 110400)
    assert list(line["losses"])[:3] == ["small_fc_lopt", "elo", "celo2"] and len(line["losses"]) == 15
    assert len(set(line["losses"].values())) == 15  # no two of them are one optimizer
    assert "celo2: below Adam at 0.001 in" in capsys.readouterr().out


def test_all_begin_alike():
    """Before the second step only the start and the batches tell."""
    line = heldout.measure("mlp", 3, 1, CPU, ["elo"], None)
    assert len(set(line["losses"].values())) == 1


def test_trainings_are_counted():
    def line(own, adam, best, lion):
        return {"losses": {"elo": own, "adam 0.001": adam, "adam 0.01": best, "lion 0.001": lion}}

    lines = [line(0.5, 0.7, 0.6, 0.4), line(0.5, 0.4, 0.5, 0.9), line(heldout.DIVERGED, heldout.DIVERGED, 1, 1)]
    assert heldout.summary(lines).splitlines() == [
        "elo: below Adam at 0.001 in 1 of 3 (33 %)",
        "elo: at or below the best of six Adams in 1 of 3 (33 %)",
        "elo: at or below the best of six Lions in 1 of 3 (33 %)",
    ]


def test_weights_are_of_one_optimizer(capsys):
    with pytest.raises(SystemExit):
        heldout.main(["--weights", "mine.safetensors", "--op", "elo", "--op", "celo2"])
    assert "--weights is a file for one optimizer: name it with --op" in capsys.readouterr().err


def test_held_out_tasks_that_cannot_begin_say_why(capsys):
    words = ["--device", "cpu", "--tasks", "mlp", "--seeds", "1", "--steps", "1"]
    for wrong, named in [
        (["--json", "/nowhere/x"], "/nowhere/x"),
        (["--op", "elo", "--weights", "/nowhere/y"], "/nowhere/y"),
    ]:
        assert heldout.main([*words, *wrong]) == 2
        assert named in capsys.readouterr().err
    with pytest.raises(SystemExit):
        heldout.main([*words, "--steps", "many"])
    assert "--steps is 'many', it must be numbers" in capsys.readouterr().err


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes(range(256)) * 8)
    return str(path)


def test_a_gpt_trains_by_each(text, tmp_path):
    path = tmp_path / "lines.jsonl"
    words = ["--device", "cpu", "--model", "gpt-10m", "--steps", "2", "--batch", "1", "--lr", "1e-3", "--text", text]
    chosen = [word for who in ("adamw", "lion", "celo2") for word in ("--optimizer", who)]
    assert bench.main(["gpt", *words, *chosen, "--json", str(path)]) == 0
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["optimizer"] for line in lines] == ["adamw", "lion", "celo2"]
    assert len({line["curve"][0] for line in lines}) == 1  # one start, one batch
    assert len({line["loss"] for line in lines}) == 3 and all(len(line["curve"]) == 2 for line in lines)


def test_all_parameters_of_a_gpt_are_trained_once():
    model = gpt.GPT(64, 1, 32, 8)
    matrices, embeddings, vectors = gpt._parts(model)
    assert {id(p) for p in [*matrices, *embeddings, *vectors]} == {id(p) for p in model.parameters()}
    assert len(matrices) == 4 and len(embeddings) == 2 and all(p.dim() == 1 for p in vectors)


def test_a_rate_rises_and_falls():
    factors = [gpt.factor(step, 100) for step in range(100)]
    assert factors[:5] == [0.2, 0.4, 0.6, 0.8, 1.0] and factors[5] == 1.0
    assert factors[5:] == sorted(factors[5:], reverse=True) and 0.1 < factors[-1] < 0.11


def test_a_text_that_is_too_short(text, capsys):
    words = ["--device", "cpu", "--model", "gpt-10m", "--steps", "7", "--batch", "1", "--text", text]
    assert gpt.main(words) == 2
    assert "7 steps of 1 sequences of 257 bytes: the text has 2,048" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        gpt.main([*words[:-1], "/nowhere"])
    assert "--text: " in capsys.readouterr().err


def test_a_gpt_bench_that_cannot_begin_says_why(text, capsys):
    words = ["--device", "cpu", "--model", "gpt-10m", "--steps", "1", "--batch", "1", "--text", text]
    assert gpt.main([*words, "--json", "/nowhere/lines.jsonl"]) == 2
    assert "/nowhere/lines.jsonl" in capsys.readouterr().err
    assert gpt.main([*words, "--device", "tpu"]) != 0
    assert "tpu" in capsys.readouterr().err


def test_an_older_pytorch_has_no_muon(text, capsys, monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    words = ["--device", "cpu", "--model", "gpt-10m", "--steps", "1", "--batch", "1", "--text", text]
    assert gpt.main([*words, "--optimizer", "muon"]) == 0
    assert "muon   is left out: PyTorch has it from 2.9 on" in capsys.readouterr().out
