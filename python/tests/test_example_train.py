# SPDX-License-Identifier: Apache-2.0
"""The example that trains (examples/train_gpt): that a short run of it ends well and writes what it says, that each of
its checks can fail and notices what it is there for, and that what results/ keeps is what it makes of its runs."""

import csv
import dataclasses
import hashlib
import math
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/train_gpt"
sys.path.insert(0, str(EXAMPLE))

import checks  # noqa: E402
import control  # noqa: E402
import records  # noqa: E402
import report  # noqa: E402
import text  # noqa: E402
import train  # noqa: E402
from side_by_side import QUICK, Settings  # noqa: E402

CONTROL = ROOT / "results/train-gpt-control.csv"
RECORD = ROOT / "results/train-gpt.jsonl"
WRONG = [lion.__name__ for lion in control.WRONG]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """So that small work is quick beside other tests; and what train.py sets does not outlive this file."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def broken(found):
    return {check.what for check in found if not check.ok}


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, EXAMPLE / "train.py", *map(str, arguments)]
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=300)


def test_a_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- train_gpt run: begin -->\nold\n<!-- train_gpt run: end -->\nafter\n")
    done = run("--quick", "--steps", 50, "--threads", 1, "--out", tmp_path / "new", "--page", page)
    assert done.returncode == 0, done.stderr
    record = records.read(tmp_path / "new/train-gpt.jsonl")
    kinds = [(each["part"], each["optimizer"]) for each in record.runs]
    assert kinds == [("f32", "eager Lion"), ("f32", "quern.torch.Lion"), ("bf16", "to nearest"), ("bf16", "stochastic"),
                     ("bf16", "master copy"), ("optimizers", "torch.optim.AdamW"), ("optimizers", "quern.torch.Lion"),
                     ("optimizers", "quern.torch.SmallFCLopt"), ("optimizers", "quern.torch.Celo2")]  # fmt: skip
    for each in record.runs:
        assert [len(each[key]) for key in ("losses", "model_us", "optimizer_us")] == [50] * 3
        assert len(each["unmoved"]) == (50 if each["part"] == "bf16" else 0)
        assert all(map(math.isfinite, each["losses"]))
        assert each["losses"][0] == pytest.approx(math.log(256), abs=0.3)  # an untrained model knows nothing of bytes
        assert min(each["optimizer_us"]) > 0
    assert len(record.checks) == 16 and all(check["ok"] for check in record.checks)
    assert record.about["settings"]["steps"] == 50 and record.about["torch"] == torch.__version__
    tables = report.tables(record)["run"]
    assert tables in done.stdout
    assert page.read_text() == "before\n" + tables.join(
        ["<!-- train_gpt run: begin -->\n", "<!-- train_gpt run: end -->\nafter\n"]
    )
    drawn = (tmp_path / "new/train-gpt.svg").exists()
    assert drawn != ("no picture: it needs matplotlib" in done.stdout)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--steps", "39"], "--steps is 39: at least 40"),
        (["--threads", "0"], "--threads is 0: at least 1"),
    ],
)
def test_refused(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        train.parse(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


# ---- the checks ----
@pytest.fixture(scope="module")
def judged():
    """Every Lion of control.py beside the eager one: what its checks found."""
    return control.distances(control.RIGHT + control.WRONG, QUICK)


def test_a_right_lion_passes(judged):
    assert [broken(judged[lion.__name__]) for lion in control.RIGHT] == [set()]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_lion_is_noticed(judged, name):
    assert broken(judged[name])


def test_sign_of_zero_is_noticed_by_its_check(judged):
    """The loss knows nothing of it: what drifts is never read."""
    assert broken(judged["SignOfZeroIsOne"]) == {"weights without gradient apart, in lr"}


def test_nan_is_noticed(judged):
    nan = checks.Check("a", math.nan, 1.0), checks.Check("b", math.nan, 1.0, at_least=True)
    assert not any(check.ok for check in nan)
    assert math.isnan(checks.greatest([0.0, math.nan, 1.0]))


def test_a_wrong_lion_ends_the_run_with_1(monkeypatch, tmp_path, capsys):
    """In quern's place an optimizer with a learning rate that is off by a tenth."""
    monkeypatch.setattr(
        train, "Lion", lambda parameters, lr, **rest: control.EagerLion(parameters, lr=1.1 * lr, **rest)
    )
    monkeypatch.setattr(train, "PARTS", {"f32": train.f32_part})
    assert train.main(["--quick", "--steps", "40", "--threads", "1", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "train.py: f32: loss apart in the first 10 steps: " in told.err
    assert "**no**" in told.out
    assert not all(check["ok"] for check in records.read(tmp_path / "train-gpt.jsonl").checks)


@pytest.mark.parametrize(
    ("forced", "noticed"),
    [
        (dict(), None),
        (dict(stochastic_rounding=False), "stochastic: share that never moved"),
        (dict(master_weights=False), "master copy: share that never moved"),
        (dict(stochastic_rounding=True), "to nearest: weights that moved though no step can move them"),
    ],
)
def test_a_wrong_rounding_is_noticed(monkeypatch, forced, noticed):
    """A Lion that does not do as it is told, or does so untold."""
    right, few = train.Lion, dataclasses.replace(QUICK, batch=2, context=32)
    monkeypatch.setattr(train, "Lion", lambda parameters, **told: right(parameters, **{**told, **forced}))
    _, found = train.bf16_part(few)
    assert noticed in broken(found) if noticed else not broken(found)


# ---- optimizers side by side ----
def test_optimizers_are_side_by_side():
    runs, found = train.optimizers_part(dataclasses.replace(QUICK, steps=6))
    assert [name.rpartition(".")[2] for name in runs] == ["AdamW", "Lion", "SmallFCLopt", "Celo2"]
    moved = [[bool((p != s).any()) for p, s in zip(run.model.parameters(), run.start)] for run in runs.values()]
    assert all(all(each) for each in moved)
    assert broken(found)  # six steps teach nothing


# ---- the text ----
def test_text_is_the_same_for_ever():
    made = text.ledger(1 << 19, 0)
    assert made[:70] == b"24 October: Greta brought 14 sacks of oats and 21 of spelt, 35 in all."
    assert hashlib.sha256(made).hexdigest() == "68bb7b4a6318a5792b47907730be335180b0438b5385d78e4772b7b0c2ffe72d"


def test_entropy():
    """Over a long text: what all its entries weigh, each choice by itself."""
    made = text.ledger(1 << 19, 3)
    nats = math.log(28) + math.log(12) + math.log(16) + 2 * math.log(48) + 2 * math.log(8)
    assert text.entropy() == pytest.approx(made.count(b"\n") * nats / len(made), rel=2e-3)
    assert [len(set(choices)) for choices in text.DRAWN] == [28, 12, 16, 48, 8, 48, 8]


# ---- what is kept ----
def kept_control():
    with CONTROL.open(newline="") as lines:
        return list(csv.DictReader(lines))


BOUNDS = {"loss apart in the first 10 steps": checks.FIRST, "loss apart in any step": checks.EVERY,
          "mean loss apart, last tenth": checks.LAST}  # fmt: skip


def test_bounds_lie_between_right_and_wrong():
    """Those of today, against what was measured: twice what a right Lion came to, and each wrong one breaks one."""
    rows = kept_control()
    assert {row["lion"] for row in rows} == {lion.__name__ for lion in control.RIGHT + control.WRONG}
    for row in rows:
        bound = BOUNDS.get(row["check"], float(row["bound"]))
        assert float(row["bound"]) == bound
        assert (row["ok"] == "yes") == (float(row["value"]) <= bound)
        if row["lion"] not in WRONG and row["check"] in BOUNDS:
            assert 2 * float(row["value"]) <= bound
    for name in WRONG:
        assert any(row["ok"] == "no" for row in rows if row["lion"] == name)


def test_the_kept_run():
    """It is of this example as it stands, and all of its checks held."""
    record = records.read(RECORD)
    assert record.about["seconds"] < 240  # as the page says
    settings = Settings()
    assert record.about["settings"] == vars(settings)
    assert record.about["text_sha256"] == hashlib.sha256(text.ledger(settings.text_bytes, settings.seed)).hexdigest()
    assert all(check["ok"] for check in record.checks) and len(record.checks) == 16
    assert {check["what"]: check["bound"] for check in record.checks if check["what"] in BOUNDS} == BOUNDS


def test_the_kept_picture(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    assert f"matplotlib=={matplotlib.__version__}\n" in (EXAMPLE / "requirements.txt").read_text()
    import plot

    plot.draw(records.read(RECORD), tmp_path / "new.svg")
    assert (tmp_path / "new.svg").read_bytes() == (ROOT / "results/train-gpt.svg").read_bytes()
