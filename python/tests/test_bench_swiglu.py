# SPDX-License-Identifier: Apache-2.0
"""The bench of gated activations: that its check finds peers that are wrong, that inputs which a backward wrote over
are put back before each call, that lines and picture hold what was measured. No time is judged."""

import json
import xml.etree.ElementTree

import pytest

torch = pytest.importorskip("torch")

from quern.bench import __main__ as bench  # noqa: E402
from quern.bench import gated, heatmap, measure  # noqa: E402

DEVICE = torch.device("cpu")


def data(dtype=torch.bfloat16, gate=1.0):
    return gated.Data(5, 301, dtype, DEVICE, gate, seed=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("gate", [1.0, 1.3])
@pytest.mark.parametrize("kind", [gated.Quern, gated.Eager])
def test_right_ones_are_right(kind, gate, dtype):
    of = data(dtype, gate)
    worst, wrong = gated.check(kind(of), of)
    assert not wrong and 0 < worst <= 1
    assert torch.equal(of.a, of.kept[0]) and torch.equal(of.b, of.kept[1])


class NoGate(gated.Eager):
    """Its forward forgets the multiplier."""

    def forward(self):
        return gated.formula(self.of.a, self.of.b, 1.0)


class NoSlope(gated.Eager):
    """Its backward takes the sigmoid for the slope."""

    def backward(self):
        x = self.of.a.float() * self.of.gate
        da = self.of.dc * self.of.b * torch.sigmoid(x) * self.of.gate
        return da.to(self.of.dtype), super().backward()[1]


class Rounded(gated.Eager):
    """Eight bits of fraction less than it should have."""

    def forward(self):
        return super().forward().to(torch.float8_e4m3fn).to(self.of.dtype)


class NoTail(gated.Quern):
    """Leaves the last column alone."""

    def backward(self):
        da, db = super().backward()
        da[:, -1] = 0
        return da, db


@pytest.mark.parametrize(
    ("kind", "where"), [(NoGate, "forward"), (NoSlope, "da"), (Rounded, "forward"), (NoTail, "da")]
)
def test_wrong_ones_are_told(kind, where):
    of = data(gate=1.3)
    worst, wrong = gated.check(kind(of), of)
    assert where in wrong and worst > 1


@pytest.mark.parametrize("gate", [1.0, 1.3])
@pytest.mark.parametrize("kind", [gated.Quern, gated.Eager])
def test_right_ones_are_right_in_float8(kind, gate):
    of = data(gate=gate)
    worst, wrong = gated.check_quantize(kind(of), of)
    assert not wrong and 0 < worst <= 1


class OneScale(gated.Eager):
    """A scale of all rows where each has its own."""

    def quantize(self):
        c, scale = super().quantize()
        return c, scale.amax().expand_as(scale)


class Coarse(gated.Eager):
    """Three bits of fraction become two."""

    def quantize(self):
        c, scale = super().quantize()
        return c.float().to(torch.float8_e5m2).float().to(torch.float8_e4m3fn), scale


@pytest.mark.parametrize(("kind", "where"), [(OneScale, "scale"), (Coarse, "quantize: ")])
def test_wrong_ones_are_told_in_float8(kind, where):
    of = data()
    worst, wrong = gated.check_quantize(kind(of), of)
    assert where in wrong and worst > 1


def test_a_line_of_float8(tmp_path, monkeypatch):
    path = tmp_path / "q.jsonl"
    words = ["swiglu", "--device", "cpu", "--rounds", "6", "--peers", "eager,liger", "--json", str(path)]
    assert bench.main([*words, "-s", "3x200", "-d", "quantize"]) == 0
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line["direction"] == "quantize" and line["check"]["right"]
    assert line["fused"]["bytes"] == 3 * (200 * 5 + 4)
    assert [p["name"] for p in line["peers"] if not p["absent"]] == ["eager"]


def test_what_a_backward_wrote_over_is_put_back():
    of, seen = data(), []

    def run():
        seen.append(torch.equal(of.a, of.kept[0]))
        of.a.zero_()

    measure.in_turns(measure.Clock(False), of.restore, [(run, True), (lambda: None, False)], rounds=4)
    assert seen[-4:] == [True] * 4 and torch.equal(of.a, of.kept[0])
    measure.in_turns(measure.Clock(False), of.restore, [(run, False)], rounds=4)
    assert seen[-4:] == [False] * 4  # so the test above sees it


def test_lines_and_picture(tmp_path, capsys, monkeypatch):
    class Wrong(Rounded):
        name = "wrong"

    monkeypatch.setitem(gated.PEERS, "wrong", Wrong)
    path, drawn = tmp_path / "s.jsonl", tmp_path / "s.svg"
    words = ["swiglu", "--device", "cpu", "--rounds", "6", "--peers", "eager,wrong,liger", "--json", str(path)]
    assert bench.main([*words, "-s", "3x200", "-s", "1x77", "-m", "1", "-m", "1.3"]) == 0
    said = capsys.readouterr().out
    assert "swiglu both, 1 x 77, bfloat16, gate x 1.3" in said and "WRONG: forward" in said
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(x["rows"], x["gate_multiplier"], x["direction"]) for x in lines[:4]] == [
        (3, 1.0, "forward"),
        (3, 1.0, "backward"),
        (3, 1.0, "both"),
        (3, 1.3, "forward"),
    ]
    assert len(lines) == 12 and lines[1]["fused"]["bytes"] == 3 * 200 * 10 == lines[1]["copy"]["bytes"]
    by_name = {peer["name"]: peer for peer in lines[3]["peers"]}
    assert not by_name["wrong"]["check"]["right"] and by_name["eager"]["check"]["right"]
    assert by_name["liger"]["absent"]
    assert bench.main(["swiglu", "--json", str(path), "--heatmap", str(drawn)]) == 0
    texts = [e.text for e in xml.etree.ElementTree.parse(drawn).iter() if e.tag.endswith("text")]
    share = f"{lines[0]['share_of_copy']['ratio']:.2f}"
    assert share in texts and not any("wrong" in text for text in texts) and any("eager" in text for text in texts)


def test_a_wrong_quern_is_not_timed(tmp_path, monkeypatch, capsys):
    class Wrong(NoGate):
        name = "quern"

    monkeypatch.setitem(gated.PEERS, "quern", Wrong)
    path = tmp_path / "w.jsonl"
    assert (
        bench.main(["swiglu", "--device", "cpu", "--peers", "quern", "-s", "2x50", "-m", "1.3", "--json", str(path)])
        == 1
    )
    assert "quern is WRONG" in capsys.readouterr().out
    assert all("fused" not in json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-s", "0x5"], "a shape is rows x columns"),
        (["-s", "5"], "a shape is rows x columns"),
        (["-s", "axb"], "invalid literal"),
        (["--peers", "triton"], "there is no peer triton"),
        (["--device", "meta"], "must be cpu or cuda"),
        (["--json", "/nowhere/x.jsonl"], "cannot be written"),
    ],
)
def test_mistakes(words, sentence, capsys):
    assert bench.main(["swiglu", "--device", "cpu", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_gpu_that_is_not_there(capsys):
    n = torch.cuda.device_count()
    assert bench.main(["swiglu", "--device", f"cuda:{n}", "-s", "2x50"]) == 3
    assert f"cuda:{n} is asked for, and torch sees {n} GPUs" in capsys.readouterr().err


def test_a_file_without_measurements(tmp_path, capsys):
    (tmp_path / "e.jsonl").write_text('{"schema": "quern bench 1"}\n')
    words = ["swiglu", "--json", str(tmp_path / "e.jsonl"), "--heatmap", str(tmp_path / "e.svg")]
    assert bench.main(words) == 2 and not (tmp_path / "e.svg").exists()
    assert "no line of them" in capsys.readouterr().err
    with pytest.raises(heatmap.HeatmapError):
        heatmap.picture([])
