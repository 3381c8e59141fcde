# SPDX-License-Identifier: Apache-2.0
"""Lines between `quern search` and its generators against docs/search-protocol.schema.json: what the search says to a
program, what `mutate` answers; and lines that are wrong, which the schema must not pass."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from quern._command import environment, find

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/search-protocol.schema.json").read_text(encoding="utf-8"))
KNOWN = {"$ref", "additionalProperties", "allOf", "anyOf", "const", "description", "items", "maxLength", "minLength",
         "minimum", "pattern", "properties", "required", "type"}  # fmt: skip
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
         "null": type(None)}  # fmt: skip


def is_a(value, kind):
    return isinstance(value, TYPES[kind]) and not (isinstance(value, bool) and kind in ("integer", "number"))


def wrong(value, schema):
    """What does not follow the schema, of whose words those in KNOWN are understood."""
    assert schema.keys() <= KNOWN, schema.keys() - KNOWN
    found = []
    if "$ref" in schema:
        found += wrong(value, SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]])
    if "type" in schema and not is_a(value, schema["type"]):
        return [*found, f"{value!r:.60} is no {schema['type']}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{value!r:.60} is not {schema['const']}")
    for part in schema.get("allOf", ()):
        found += wrong(value, part)
    if "anyOf" in schema and all(wrong(value, part) for part in schema["anyOf"]):
        found.append(f"{value!r:.60} is none of the alternatives")
    if isinstance(value, dict):
        found += [f"there is no {name}" for name in schema.get("required", ()) if name not in value]
        for name, part in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            found += [f"{name}: {what}" for what in wrong(part, inner)]
    if isinstance(value, list):
        found += [what for part in value for what in wrong(part, schema.get("items", {}))]
    if isinstance(value, str):
        found += ["a text too short or long"] * (
            not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        )
        found += [f"{value!r:.60} is not {schema.get('pattern')}"] * (not re.search(schema.get("pattern", ""), value))
    if is_a(value, "number") and value < schema.get("minimum", value):
        found.append(f"{value} is too small")
    return found


def wrong_line(line):
    return wrong(line, SCHEMA["$defs"][line["type"]])


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """The lines that a program hears in a whole search."""
    folder = tmp_path_factory.mktemp("search")
    shutil.copytree(ROOT / "kernels/exp", folder / "exp")
    judge = folder / "judge"
    judge.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/search/judge.py" "$@"\n', encoding="utf-8")
    judge.chmod(0o755)
    env = {**environment(), "HEARD": str(folder / "heard"), "JUDGED": str(folder / "judged")}
    good = f"'{sys.executable}' '{ROOT}/tests/search/generator.py' good"
    words = [find(), "search", str(folder / "exp"), "--backend", "cpu", "--judge", str(judge), "--generator", good,
             "--store", str(folder / "store")]  # fmt: skip
    subprocess.run(words, check=True, capture_output=True, env=env, timeout=300)
    return [json.loads(line.split(" ", 1)[1]) for line in (folder / "heard").read_text(encoding="utf-8").splitlines()]


def test_what_the_search_says(heard):
    assert [wrong_line(line) for line in heard] == [[]] * len(heard)
    assert {line["type"] for line in heard} == {"problem", "ask", "tell", "end"}
    assert heard[0]["type"] == "problem" and heard[-1]["type"] == "end"


def test_what_mutate_answers(heard):
    lines = [json.dumps(line) + "\n" for line in heard if line["type"] in ("problem", "ask")]
    env = {name: value for name, value in environment().items() if name not in os.environ or name != "QUERN_DEVICE"}
    done = subprocess.run([find(), "search", "--generate-here", "mutate"], input="".join(lines), text=True, check=True,
                          capture_output=True, env=env, timeout=60)  # fmt: skip
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [wrong_line(line) for line in said] == [[]] * len(said)
    assert {"candidate", "pass"} >= {line["type"] for line in said} and len(said) >= 5


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"id": ""}, "too short"),
        ({"id": "x" * 128}, "too short or long"),
        ({"id": None}, "no string"),
        ({"kind": "variant"}, "is not ^(body"),
        ({"source": ""}, "is not ."),
        ({"files": {"a": "b"}}, "no kernel.json"),
        ({"note": 3}, "no string"),
    ],
)
def test_wrong_candidates_do_not_pass(change, word):
    good = {"type": "candidate", "id": "a", "kind": "body", "source": "x"}
    assert not wrong_line(good)
    assert any(word in what for what in wrong_line({**good, **change}))


def test_wrong_lines_of_the_search_do_not_pass(heard):
    problem = heard[0]
    for name in ("source", "seed", "device", "accepts"):
        assert wrong_line({k: v for k, v in problem.items() if k != name})
    assert wrong_line({**problem, "bound": "luck"}) and wrong_line({**problem, "floor_ns": -1})
