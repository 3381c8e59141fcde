# SPDX-License-Identifier: Apache-2.0
"""Run lanes of the test matrix: test.py [--keep] [--minutes=N] [--tests=NAME,...] [all | LANE...]; without lanes, make
test's.

tools/lanes.py says what the lanes are. Each leaves its results and what it said in build/results, which
tools/results.py sums up at the end; its status is this program's. --keep runs no lane again whose results are there,
and counts them; --tests runs only these of a lane of meson. A command of a lane that runs for 60 minutes, or past
--minutes from the start, is killed with all that it started, which is named: a test that hangs fails its lane.
Lanes of meson run one after the other and show what they do; lanes of Python keep one core busy, so that one runs
beside them, and show their log when they end. A build folder that is there is configured again, since tools may have
been installed after it was made. Compilers are run by ccache where it is installed: all copies of the tree share
objects then."""

import argparse
import collections
import contextlib
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from lanes import BUILDS, CONTRIBUTOR, LANES, MESON, PYTHON, ROOT, suites_run

RESULTS = pathlib.Path("build/results")
CCACHE = [path for path in ("/usr/lib/ccache", "/usr/lib64/ccache") if os.path.isdir(path)][:1]
guards = collections.defaultdict(threading.Lock)  # of what two lanes share: a build folder, the tools of Python
built = set()
only_tests = []
LIMIT = 60 * 60
deadline = float("inf")  # of time.monotonic()


def environment():
    """Nothing of the user's is read or written; what tests compile is kept here, with room for all lanes: kernels are
    found by their text, and most have the same one in several. Frameworks run in one thread, unless a test asks for
    more: beside other work each wait of one thread for another takes milliseconds. Their threads give way to others."""
    at = os.path.join(ROOT, "build")
    os.environ.update(XDG_CACHE_HOME=f"{at}/test-cache", QUERN_CACHE_BYTES="8G", OMP_WAIT_POLICY="passive")
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each start of PyTorch would compile all of it, which takes 20 s
    os.environ.update(CCACHE_BASEDIR=ROOT, CCACHE_NOHASHDIR="1")
    os.environ.setdefault("CCACHE_DIR", f"{at}/ccache")


def kill_tree(root):
    """Kill a process and its descendants, and name them."""
    children, found = collections.defaultdict(list), [root]
    for stat in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, parent = re.match(r"(\d+) \(.*\) \S (\d+)", pathlib.Path(stat).read_text(), re.DOTALL).groups()
            children[int(parent)].append(int(pid))
    for pid in found:
        found += children[pid]
    for pid in found:
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            os.kill(pid, signal.SIGKILL)
            print(f"killed: {words[:200]}", flush=True)


def call(command, log=None, **env):
    """Run it; its status, and the seconds of processor time that it and its children took."""
    command = [str(word) for word in command]
    left = min(LIMIT, deadline - time.monotonic())
    if left <= 0:
        raise RuntimeError("there is no time left for it")
    process = subprocess.Popen(command, stdout=log, stderr=log and subprocess.STDOUT, env={**os.environ, **env})
    timer = threading.Timer(left, kill_tree, [process.pid])
    timer.start()
    _, status, used = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def said(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def meson(log, *words, **env):
    """Run it into a log, the end of which is shown if it fails; the processor time."""
    status, used = call(["tools/meson.sh", *words], log, **env)
    if status:
        log.seek(0)
        print("".join(log.readlines()[-60:]), flush=True)
        raise RuntimeError(f"meson {' '.join(words)} ends with {status}")
    return used


def targets(folder):
    """The targets to compile: all, or, if no lane runs all tests of the build, those that its tests need."""
    lanes = [lane for lane in MESON.values() if lane.build == folder]
    if any(lane.only is None for lane in lanes):
        return []
    info = pathlib.Path(folder, "meson-info")
    tests, known = (json.loads((info / f"intro-{of}.json").read_text()) for of in ("tests", "targets"))
    needed = {of for t in tests if any(suites_run(lane, t["suite"]) for lane in lanes) for of in t["depends"]}
    return [f"{target['name']}:{target['type'].replace(' ', '_')}" for target in known if target["id"] in needed]


def build(folder):
    """Configure and compile it, once; the processor time."""
    with guards[folder]:
        if folder in built:
            return 0
        build = BUILDS[folder]
        there = os.path.exists(f"{folder}/build.ninja")
        if there:  # meson must search again for programs that it did not find
            steps = [["configure", "--clearcache", folder], ["setup", "--reconfigure", folder]]
        else:
            steps = [["setup", folder, *build.arguments]]
        total = 0
        with open(RESULTS / f"{folder}.log", "w+", encoding="utf-8") as log:
            for step in steps:
                total += meson(log, *step, CC=build.compiler)
            path = os.pathsep.join([*CCACHE, os.environ["PATH"]])
            total += meson(log, "compile", "-C", folder, *targets(folder), PATH=path)
        built.add(folder)
        return total


def run_meson(name, lane):
    used = build(lane.build)
    for old in glob.glob(f"{lane.build}/meson-logs/testlog*.json"):
        os.remove(old)
    select = [word for s in lane.only or () for word in ("--suite", s)]
    select += [word for s in lane.without for word in ("--no-suite", s)]
    command = ["tools/meson.sh", "test", "-C", lane.build, "--no-rebuild", "--print-errorlogs"]
    status, spent = call([*command, *lane.arguments, *select, *only_tests], **lane.env)
    (log,) = glob.glob(f"{lane.build}/meson-logs/testlog*.json")
    shutil.copy(log, RESULTS / f"{name}.jsonl")
    return status, used + spent


def run_python(name, lane):
    env, used = {}, build(lane.build) if lane.build else 0
    with guards["venv"]:
        python = said("tools/venv.sh", lane.environment)
    if lane.build:
        env["QUERN_LIBRARY"] = os.path.join(ROOT, lane.build, "src/libquern.so")
    if lane.asan:  # Python is not built for it: it is loaded first, and what Python never frees is no leak of ours
        env["LD_PRELOAD"] = said("gcc", "-print-file-name=libasan.so")
        env["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1:protect_shadow_gap=0"
        env["PYTHONMALLOC"] = "malloc"
    command = [python, "-m", "pytest", "-q"] if lane.build else ["tools/wheel.sh", "-q"]
    with open(RESULTS / f"{name}.log", "w", encoding="utf-8") as log:
        options = ["--durations=10", "--junitxml", f"{ROOT}/{RESULTS}/{name}.xml", *lane.arguments]
        status, spent = call([*command, *options], log, **env)
    return status, used + spent


def run(name, failed):
    """Run a lane, and note its name in `failed` if it does not end well."""
    start = time.monotonic()
    kind = MESON if name in MESON else PYTHON
    for ending in ("jsonl", "xml"):
        (RESULTS / f"{name}.{ending}").unlink(missing_ok=True)
    print(f"== {name}{', in the background' if kind is PYTHON else ''}", flush=True)
    try:
        status, used = (run_meson if kind is MESON else run_python)(name, kind[name])
    except (RuntimeError, OSError, ValueError, subprocess.CalledProcessError) as error:
        status, used = str(error), 0
    text = ""
    if kind is PYTHON:
        text = (RESULTS / f"{name}.log").read_text(encoding="utf-8") if (RESULTS / f"{name}.log").exists() else ""
    if status:
        failed.append(name)
        text += f"{name}: {status}\n"
    print(f"{text}{name}: {time.monotonic() - start:.0f} s, {used:.0f} s of processor time", flush=True)


def work(queues, failed):
    for queue in queues:
        while queue:
            try:
                name = queue.popleft()
            except IndexError:
                break
            run(name, failed)


def main():
    global deadline
    parser = argparse.ArgumentParser(prog="test.py", description=__doc__.partition("\n\n")[2])
    parser.add_argument(
        "lanes", nargs="*", metavar="LANE", help=f"all, or of {' '.join(LANES)}; make test's unless given"
    )
    parser.add_argument("--keep", action="store_true", help="run no lane again whose results are there")
    parser.add_argument("--minutes", type=float, default=deadline, help="kill what runs longer, from the start")
    parser.add_argument(
        "--tests", type=lambda names: names.split(","), default=[], help="of lanes of meson, with commas"
    )
    given = parser.parse_args()
    named = given.lanes
    only_tests.extend(given.tests)
    deadline = time.monotonic() + 60 * given.minutes
    lanes = LANES if named == ["all"] else named or CONTRIBUTOR
    if unknown := set(lanes) - set(LANES):
        sys.exit(f"test.py: there is no lane {min(unknown)}; lanes are {' '.join(LANES)}")
    os.chdir(ROOT)
    environment()
    if not given.keep and not set(named) - {"all"}:
        shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    to_run = lanes
    if given.keep:
        to_run = [name for name in lanes if not any((RESULTS / f"{name}.{e}").exists() for e in ("jsonl", "xml"))]
    archs = sorted({arch for name in to_run if name in MESON for arch in MESON[name].archs})
    if archs:
        os.environ["QUERN_LIBNVRTC"] = said(sys.executable, "tools/nvrtc.py", *map(str, archs))
    failed = []
    meson = collections.deque(name for name in to_run if name in MESON)
    python = collections.deque(name for name in to_run if name in PYTHON)
    beside = threading.Thread(target=work, args=([python], failed), daemon=True)
    beside.start()
    work([meson, python], failed)
    beside.join()
    return subprocess.call([sys.executable, "tools/results.py", *lanes]) or bool(failed)


if __name__ == "__main__":
    sys.exit(main())
