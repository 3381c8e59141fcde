# SPDX-License-Identifier: Apache-2.0
"""Lines of measured times against docs/result-line.schema.json: those that the command and each bench of the package
write now, and those in results/, where older files are named with what their lines lack."""

import copy
import json
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = {
    name: json.loads((ROOT / "docs" / name).read_text(encoding="utf-8"))
    for name in ("result-line.schema.json", "verdict-line.schema.json")
}
SCHEMA = SCHEMAS["result-line.schema.json"]
KINDS = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}


def wrong(value, schema, where=""):
    """What does not follow the schema, of whose words these are understood."""
    assert schema.keys() <= {"$schema", "$defs", "title", "description", "type", "required", "properties", "pattern",
                             "minimum", "minItems", "items", "allOf"}  # fmt: skip
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    known = ["boolean"] if isinstance(value, bool) else [k for k in KINDS if isinstance(value, KINDS[k])]
    if not set(kinds) & set(known):
        return [f"{where} is no {' or '.join(kinds)}"]
    found = [one for other in schema.get("allOf", ()) for one in wrong(value, SCHEMAS[other["$ref"]], where)]
    found += [f"{where}.{name}" for name in schema.get("required", ()) if name not in value]
    for name, inner in schema.get("properties", {}).items():
        if name in value:
            found += wrong(value[name], inner, f"{where}.{name}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{where} is {value!r}")
    if isinstance(value, (int, float)) and value < schema.get("minimum", value):
        found.append(f"{where} is {value}")
    if isinstance(value, list):
        found += [f"{where} is too short"] * (len(value) < schema.get("minItems", 0))
        found += [
            one
            for k, each in enumerate(value)
            if "items" in schema
            for one in wrong(each, schema["items"], f"{where}[{k}]")
        ]
    return found


def series_in(value, where=""):
    if isinstance(value, dict):
        if "median_ns" in value:
            yield where, value
        for name, inner in value.items():
            yield from series_in(inner, f"{where}.{name}")
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            yield from series_in(inner, f"{where}[{k}]")


def lacks(line):
    verdict = str(line.get("schema")).startswith("quern verdict")
    found = wrong(line, SCHEMAS["verdict-line.schema.json"] if verdict else SCHEMA)
    series = list(series_in(line))
    for where, one in series:
        found += wrong(one, SCHEMA["$defs"]["series"], where)
    return found + ([] if series or verdict else ["no series"])


# ---- lines that are written now ----
def of_command(path):
    from quern._command import find

    command = [find(), "bench", "lion", "-w", "2x9", "-b", "cpu", "--seconds", "0.01", "--json", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def of_kernel_judge(path):
    from quern._command import find

    problem = ROOT / "tests" / "judge" / "sum"
    command = [find(), "judge", problem, problem, problem / "reference.metal", "-b", "cpu", "--json", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def of_package(*words):
    def run(path):
        pytest.importorskip("torch")
        from quern.bench.__main__ import main

        assert main([*words, "--json", str(path)]) == 0

    return run


def of_judge(path):
    """A correct candidate, a broken one, a problem that cannot be judged, and the baselines alone."""
    pytest.importorskip("torch")
    from quern.kernelbench.__main__ import main

    add = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    inputs = "def get_inputs():\n    return [torch.randn(9, 5)]\n"
    for name, text in (
        ("level1/1_add", add + inputs),
        ("right", add.replace("Model(", "ModelNew(")),
        ("broken", "import torch +"),
        ("zero", add.replace("+ 1", "* 0") + inputs),
    ):
        (path.parent / f"{name}.py").parent.mkdir(exist_ok=True)
        (path.parent / f"{name}.py").write_text(text, encoding="utf-8")
    words = ["--num-trials", "11", "--compile", "none", "--device", "cpu", "--threads", "1", "--json", str(path)]
    at = {name: str(path.parent / f"{name}.py") for name in ("level1/1_add", "right", "broken", "zero")}
    both = ["--tgt-problem", at["right"], "--tgt-problem", at["broken"]]
    assert main(["--ref-problem", at["level1/1_add"], *both, *words]) == 1
    assert main(["--ref-problem", at["zero"], "--tgt-problem", at["right"], *words]) == 2
    assert main(["run", str(path.parent), *words]) == 0


ON_CPU = ("--device", "cpu")
WRITERS = {
    "command": of_command,
    "kernel judge": of_kernel_judge,
    "lion": of_package("lion", *ON_CPU, "-w", "2x9", "--peers", "eager", "--quick", "--seconds", "0.1"),
    "swiglu": of_package("swiglu", *ON_CPU, "-s", "4x16", "--peers", "eager", "--rounds", "6"),
    "gemm": of_package("gemm", *ON_CPU, "-s", "4x16x32x4", "-p", "fp32", "--rounds", "6"),
    "lopt": of_package("lopt", *ON_CPU, "-w", "2x9", "--rounds", "6"),
    "judge": of_judge,
    "doors": of_package("doors", "--samples", "6", "--only", "numpy: quern.swiglu_"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_new_line_follows_the_schema(name, tmp_path):
    path = tmp_path / "lines.jsonl"
    WRITERS[name](path)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines
    for line in lines:
        assert lacks(line) == []


def test_a_verdict_that_lacks_something_is_found(tmp_path):
    path = tmp_path / "lines.jsonl"
    of_judge(path)
    right, broken, unjudgeable, baselines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    words = [line["verdict"] for line in (broken, unjudgeable, baselines)]
    assert words == ["syntax error", "cannot be judged", "baselines"] and baselines["candidate"] is None
    schema = SCHEMAS["verdict-line.schema.json"]
    for name in [*schema["required"], *SCHEMA["required"]]:
        spoilt = copy.deepcopy(right)
        del spoilt[name]
        assert f".{name}" in lacks(spoilt) if name != "schema" else lacks(spoilt)
    spoilt = copy.deepcopy(right)
    spoilt["verdict"], spoilt["gradients"] = "fast", 1
    del spoilt["speedup"]["better"]["of"], spoilt["timers"]["simple"]["eager"]["interval_ns"]
    found = [".verdict is 'fast'", ".gradients is no boolean", ".speedup.better.of", ".timers.simple.eager.interval_ns"]
    assert sorted(lacks(spoilt)) == sorted(found)


def test_what_lacks_something_is_found(tmp_path):
    path = tmp_path / "lines.jsonl"
    of_command(path)
    line = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert lacks(line) == []
    for name in SCHEMA["required"]:
        spoilt = copy.deepcopy(line)
        del spoilt[name]
        assert lacks(spoilt) == [f".{name}"]
    spoilt = copy.deepcopy(line)
    del spoilt["fused"]["samples_ns"], spoilt["machine"]["driver"]
    spoilt["commit"] = ""
    assert lacks(spoilt) == [".commit is ''", ".machine.driver", ".fused.samples_ns"]
    spoilt["fused"] = {**line["fused"], "samples_ns": []}
    assert ".fused.samples_ns is too short" in lacks(spoilt)


# ---- lines of results/ ----
_HEAD = {".commit", ".build", ".machine.processor", ".machine.system", ".machine.driver", ".machine.device_compiler"}
# Files from before the schema, with what their lines lack: a file that is measured again leaves this list.
OLDER = {
    "doors-h200": {*_HEAD, ".machine.device", ".schema"},
    **dict.fromkeys(
        [
            "gemm-variants-h200",
            "lopt-h200",
            "lopt-train-h200",
            "swiglu-peers-h200",
            "swiglu-quantize-h200",
        ],
        _HEAD,
    ),
}
# Lines without series: rooflines, break-even sizes, tuned shapes, checks, losses of a training, older comparisons,
# models that run as they were.
WITHOUT_SERIES = {
    "cpu-xeon",
    "gpt-h200",
    "h200",
    "h200-check",
    "heldout-h200",
    "kernels-h200",
    "kernels-numpy",
    "optimize-current-h200",
    "optimize-h200",
    "train-gpt",
    "tune-h200",
}


def test_lines_of_results():
    found, without = {}, set()
    for path in sorted((ROOT / "results").glob("*.jsonl")):
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if next(series_in(line), None) is None:
                if line.get("check", {}).get("right", True):  # a wrong result has no time
                    without.add(path.stem)
            else:
                lacking = set(lacks(line))
                assert found.setdefault(path.stem, lacking) == lacking, path
    assert {name: value for name, value in found.items() if value} == OLDER
    assert without == WITHOUT_SERIES
