# SPDX-License-Identifier: Apache-2.0
"""Sum up what tools/test.py left in build/results: results.py [--complete] [LANE...].

A line of TAP counts as one, and so does a case of pytest; so does a test that ends badly without a line that says so.
What was not possible here is listed with its reason; a Python lane may have only the reasons that tools/lanes.py gives
it, any other is a failure, and so is a lane that is named and did not run. --complete fails besides unless what ran is
what should have: every lane, every test that meson knows in that lane, a check of each op, variant and row of types
that `quern list --json` says runs here, an NVRTC compile of each op's rows for each architecture, and every file of
python/tests. What failed comes behind all else, with the end of what the test said, so that a log that was cut still
shows it. The last line is "N passed, N failed"."""

import ast
import collections
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

from lanes import LANES, MESON, NO_GPU, ROOT, may_skip, suites_run

root = pathlib.Path(ROOT)

TAP = re.compile(r"^(not )?ok\b\s*(\d*)\s*-?\s*(.*)((?:\n#.*)*)$", re.M)
SAID = 20  # lines that are shown of a failed test
# One thing that a test showed or should have: `skipped` is the reason why it could not, or None; `said` is what the
# test printed of its failure.
Line = collections.namedtuple("Line", "test ok what skipped said", defaults=("",))


def short(name):
    """Meson says "quern:core+contract / pool"."""
    return name.rpartition(" / ")[2]


def lines_of_meson(path):
    for test in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        name, good = short(test["name"]), True
        for bad, _, what, said in TAP.findall(test.get("stdout") or ""):
            _, skip, reason = what.partition("# SKIP")
            good = good and not bad
            yield Line(name, not bad, what, reason.strip() if skip and not bad else None, said)
        if good and test["result"] not in ("OK", "SKIP"):
            how = f"ends with {test['result']}, exit status {test.get('returncode')}"
            yield Line(name, False, how, None, (test.get("stdout") or "") + (test.get("stderr") or ""))


def reason_of(skipped):
    """A file that is skipped as a whole has the reason in a tuple's repr: (path, line, "Skipped: reason")."""
    reason = skipped.get("message", "")
    return ast.literal_eval(skipped.text)[2].removeprefix("Skipped: ") if reason == "collection skipped" else reason


def lines_of_pytest(path, lane):
    """The file that a case stands in is its test; a file that is skipped as a whole is one case."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".strip(".")
        test = next((part for part in name.split(".") if part.startswith("test_")), name)
        skipped = case.find("skipped")
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        if broken is not None:
            yield Line(test, False, name, None, broken.text or "")
        elif skipped is None:
            yield Line(test, True, name, None)
        elif may_skip(lane, reason := reason_of(skipped)):
            yield Line(test, True, name, reason)
        else:
            yield Line(test, False, f"{name} is skipped, and may not be: {reason}", None)


def read(lane):
    """The lane's lines, or None if it did not run."""
    path = root / f"build/results/{lane}.{'jsonl' if lane in MESON else 'xml'}"
    if not path.exists():
        return None
    return list(lines_of_meson(path) if lane in MESON else lines_of_pytest(path, lane))


def introspect(folder, what):
    return json.loads((root / folder / f"meson-info/intro-{what}.json").read_text(encoding="utf-8"))


def known_tests(lane):
    return {test["name"] for test in introspect(lane.build, "tests") if suites_run(lane, test["suite"])}


def missing_tests(ran):
    """Lanes and tests that should have run."""
    for lane in LANES:
        if ran.get(lane) is None:
            yield f"lane {lane} did not run"
        elif lane in MESON:
            names = {line.test for line in ran[lane]}
            for name in sorted(known_tests(MESON[lane]) - names):
                yield f"{lane}: {name} did not run"
        elif not any(line.ok and not line.skipped for line in ran[lane]):
            yield f"{lane}: nothing passed"


def missing_files(ran):
    """Each file of Python tests shows something in the full suite, unless all of it needs GPUs, and is at least looked
    at without any framework."""
    for path in sorted((root / "python/tests").rglob("test_*.py")):
        if not any(line.test == path.stem for line in ran.get("python") or []):
            yield f"python: {path.name} did not run"
        shown = [line for line in ran.get("torch") or [] if line.test == path.stem and line.ok]
        if not any(line.skipped is None or re.fullmatch(NO_GPU, line.skipped) for line in shown):
            yield f"torch: nothing of {path.name} passed"


def types_of(row, tensors):
    return " ".join(row["tensors"][t["name"]]["dtype"] for t in tensors if t["name"] in row["tensors"])


def wanted_checks(op):
    """How the lines begin that the registry and the variants of this machine imply; `quern check` names them. Of ops
    whose tensors have shapes of their own leg 1 is leg 2 as well, and their kernels are what they list, as those of ops
    are whose tensors' shapes follow by rule. Rows in double have one kernel, which is the formula in double itself: leg
    2 has nothing to hold it against, and devices none to compile."""
    shaped = all(tensor["single"] for tensor in op["tensors"])
    own = any(tensor["shape"] for tensor in op["tensors"])
    on_devices = any(variant["backend"] == "cuda" for variant in op["variants"])
    runs = [v for v in op["variants"] if v["state"] == "runs"]
    rows = [k for k, row in enumerate(op["types"]) if "f64" not in types_of(row, op["tensors"]).split()]
    for variant in runs:
        target = f"{variant['backend']}/{variant['name']}"
        here = range(len(op["types"])) if target == "cpu/ref" else rows
        yield from (f"{op['name']} leg1/{target}/row{row} " for row in here)
        yield f"{op['name']} leg3/{target}{':' if own else '/'}"
    if not shaped:
        yield from (f"{op['name']} leg2/cpu/ref/row{row} " for row in rows)
    yield from (f"{op['name']} leg4/{backend}" for backend in sorted({v["backend"] for v in runs}))
    yield f"{op['name']} leg5/"
    for test in introspect("build", "tests"):
        arch = test["name"].removeprefix("nvrtc ")
        if not on_devices:
            continue
        if arch.startswith("sm_") and own:
            yield f"{arch} {op['name']}, "
        elif arch.startswith("sm_"):
            yield from (f"{arch} {op['name']} ({types_of(op['types'][k], op['tensors'])}) flags" for k in rows)


def missing_checks(ran, ops):
    """Of the lane quick only what has no normal level counts: what it compiles for its architecture, planted bugs."""
    whole = ("nvrtc ", "check selftest")
    shown = [*(ran.get("full") or []), *(line for line in ran.get("quick") or [] if line.test.startswith(whole))]
    lines = [line.what for line in shown if line.ok and line.skipped is None]
    for op in ops:
        for head in wanted_checks(op):
            if not any(line.startswith(head) for line in lines):
                yield f'no check passed that begins "{head}"'


def missing(ran):
    command = [root / "build/cli/quern", "list", "--json"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    return [*missing_tests(ran), *missing_files(ran), *missing_checks(ran, json.loads(listed.stdout)["ops"])]


def main():
    complete = "--complete" in sys.argv[1:]
    named = [a for a in sys.argv[1:] if a != "--complete"]
    ran = {lane: lines for lane in named or LANES if (lines := read(lane)) is not None}
    passed, failures = 0, []
    for lane, lines in ran.items():
        bad = [line for line in lines if not line.ok]
        skipped = collections.Counter(line.skipped for line in lines if line.skipped is not None)
        good = len(lines) - len(bad) - sum(skipped.values())
        passed += good
        failures += [(f"{lane}: {line.test}: {line.what}", line.said) for line in bad]
        tests = len({line.test for line in lines})
        rest = f", {sum(skipped.values())} not possible here" if skipped else ""
        print(f"{lane:<12} {tests:4} tests, {good:6} passed, {len(bad)} failed{rest}")
        for reason, n in skipped.items():
            print(f"  not possible here ({n}): {reason}")
    did_not = missing(ran) if complete else [f"lane {lane} did not run" for lane in named if lane not in ran]
    failures += [(what, "") for what in did_not]
    for what, said in failures:
        print(f"  failed: {what}")
        for text in said.strip().splitlines()[-SAID:]:
            print(f"    {text}")
    print(f"{passed} passed, {len(failures)} failed")
    return bool(failures) or passed == 0


if __name__ == "__main__":
    sys.exit(main())
