# SPDX-License-Identifier: Apache-2.0
"""Sum up what tools/test.sh left in build/results: results.py [--complete] [LANE...].

A line of TAP counts as one; so does a test that ends badly without a line that says so. --complete fails besides unless
what ran is what should have: every lane that this machine can run, every test that meson knows in that lane, a check of
each op, variant and row of types that `quern list --json` says runs here, an NVRTC compile of each op's rows for each
architecture. What is not possible here is listed with its reason. The last line is "N passed, N failed"."""

import collections
import json
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
LANES = {  # lane: its build folder, and what of meson's suites runs in it (None: all but `without`)
    "gcc": ("build", None, set()),
    "valgrind": ("build", {"contract"}, set()),
    "asan": ("build-asan", None, {"nvrtc", "text", "build"}),
    "clang": ("build-clang", None, {"nvrtc", "text"}),
    "tsan": ("build-tsan", {"threads"}, set()),
    "aarch64": ("build-aarch64", None, set()),
}
TAP = re.compile(r"^(not )?ok\b\s*(\d*)\s*-?\s*(.*)$", re.M)


def short(name):
    """Meson says "quern:core+contract / pool"."""
    return name.rpartition(" / ")[2]


def lines_of(test):
    """(ok, what, is it skipped) for each line of TAP of one test of meson's log."""
    found = [(not bad, what, "# SKIP" in what) for bad, _, what in TAP.findall(test.get("stdout") or "")]
    if test["result"] not in ("OK", "SKIP") and all(ok for ok, _, _ in found):
        found.append((False, f"ends with {test['result']}, exit status {test.get('returncode')}", False))
    return found


def read(lane):
    path = root / "build/results" / f"{lane}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else None


def introspect(folder, what):
    return json.loads((root / folder / f"meson-info/intro-{what}.json").read_text(encoding="utf-8"))


def known_tests(folder, only, without):
    tests = introspect(folder, "tests")
    suites = {t["name"]: {s.rpartition(":")[2] for s in t["suite"]} for t in tests}
    return {name for name, of in suites.items() if not of & without and (only is None or of & only)}


def missing_tests(ran):
    """Lanes and tests that should have run."""
    for lane, (folder, only, without) in LANES.items():
        if ran.get(lane) is None:
            yield f"lane {lane} did not run"
            continue
        names = {short(test["name"]) for test in ran[lane]}
        for name in sorted(known_tests(folder, only, without) - names):
            yield f"{lane}: {name} did not run"


def types_of(row, tensors):
    return " ".join(row["tensors"][t["name"]]["dtype"] for t in tensors if t["name"] in row["tensors"])


def wanted_checks(op):
    """How the lines begin that the registry and the variants of this machine imply; `quern check` names them."""
    runs = [v for v in op["variants"] if v["state"] == "runs"]
    rows = range(len(op["types"]))
    for variant in runs:
        target = f"{variant['backend']}/{variant['name']}"
        yield from (f"{op['name']} leg1/{target}/row{row} " for row in rows)
        yield f"{op['name']} leg3/{target}/"
    yield from (f"{op['name']} leg2/cpu/ref/row{row} " for row in rows)
    yield from (f"{op['name']} leg4/{backend}" for backend in sorted({v["backend"] for v in runs}))
    yield f"{op['name']} leg5/"
    for test in introspect("build", "tests"):
        arch = test["name"].removeprefix("nvrtc ")
        if arch.startswith("sm_"):
            yield from (f"{arch} {op['name']} ({types_of(row, op['tensors'])}) flags" for row in op["types"])


def missing_checks(ran, ops):
    lines = [what for test in ran.get("gcc") or [] for ok, what, skipped in lines_of(test) if ok and not skipped]
    for op in ops:
        for head in wanted_checks(op):
            if not any(line.startswith(head) for line in lines):
                yield f'no check passed that begins "{head}"'


def main():
    complete = "--complete" in sys.argv[1:]
    lanes = [a for a in sys.argv[1:] if a != "--complete"] or list(LANES)
    ran = {lane: tests for lane in lanes if (tests := read(lane)) is not None}
    passed = failed = 0
    for lane, tests in ran.items():
        lines = [(short(test["name"]), *line) for test in tests for line in lines_of(test)]
        bad = [(name, what) for name, ok, what, _ in lines if not ok]
        skipped = [(name, what) for name, ok, what, skip in lines if ok and skip]
        passed += len(lines) - len(bad) - len(skipped)
        failed += len(bad)
        print(
            f"{lane:<12} {len(tests):4} tests, {len(lines) - len(bad) - len(skipped):6} passed, {len(bad)} failed"
            + (f", {len(skipped)} not possible here" if skipped else "")
        )
        for name, what in bad:
            print(f"  failed: {name}: {what}")
        for reason, n in collections.Counter(what.partition("# SKIP")[2].strip() for _, what in skipped).items():
            print(f"  not possible here ({n}): {reason}")
    if complete:
        listed = subprocess.run(
            [root / "build/cli/quern", "list", "--json"], check=True, capture_output=True, text=True
        )
        ops = json.loads(listed.stdout)["ops"]
        missing = [*missing_tests(ran), *missing_checks(ran, ops)]
        failed += len(missing)
        for what in missing:
            print(f"  failed: {what}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
