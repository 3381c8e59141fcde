# SPDX-License-Identifier: Apache-2.0
"""Where the time of a cold compile of the one-line exp body goes on the processor: tools/compile_cost.py [BUILD].

Takes the text and the flags that the library gives its compiler, runs the steps by themselves, 20 turns of all, and
prints each one's least and median wall time and the processor's time; with valgrind also the compiler's instructions,
which no busy machine blurs. It judges nothing. results/kernel-compile-cpu.txt is what it printed."""

import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

TURNS = 20
CAPTURE = """#!/bin/sh
if [ "$1" = --version ]; then exec g++ --version; fi
n=$(ls {place}/*.cc 2>/dev/null | wc -l)
cat > {place}/$n.cc
echo "$@" > {place}/$n.args
exec g++ "$@" < {place}/$n.cc
"""


def capture(build, place):
    """The second cold compile of `kernel_cost`: its first exp. (The very first one warms what a process does once.)"""
    script = place / "capture"
    script.write_text(CAPTURE.format(place=place))
    script.chmod(0o755)
    environment = dict(os.environ, QUERN_CXX=str(script))
    subprocess.run([build / "tests/kernel_cost"], env=environment, check=True, stdout=subprocess.DEVNULL)
    flags = (place / "1.args").read_text().split()
    return place / "1.cc", flags[: flags.index("-MD")]


def timed(command):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall * 1e3, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def instructions(command):
    """Of cc1plus alone."""
    said = subprocess.run(["g++", "-###", *command[1:]], check=True, capture_output=True, text=True).stderr
    line = next(line for line in said.splitlines() if "cc1plus" in line and line.startswith(" "))
    arguments = [word.strip('"') for word in line.split() if word != "|"]
    if "-o" in arguments:  # else it reads only, or writes into a pipe
        arguments[arguments.index("-o") + 1] = "/dev/null"
    said = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ).stderr
    return int(re.search(r"Collected : (\d+)", said).group(1)) / 1e6


def main(build):
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        text, flags = capture(build, place)
        straight = flags.index("-O1")
        general, made, empty = flags[:straight], place / "o.o", place / "empty.cc"
        empty.write_text("")
        compile_ = ["-pipe", "-c", "-o", made]
        link = ["-shared", "-nostartfiles", "-nodefaultlibs", "-Wl,--as-needed", "-o", place / "o.so", made]
        steps = {
            "an empty file": ["g++", *flags, *compile_, empty],
            "the text, read only": ["g++", *flags, "-fsyntax-only", text],
            "compiled with all of -O3": ["g++", *general, *compile_, text],
            "compiled as straight text": ["g++", *flags, *compile_, text],
            "linked by ld alone": ["ld", "-shared", "--eh-frame-hdr", "--hash-style=gnu", *link[-3:]],
            "linked by g++, with libraries": ["g++", *link, "-lm", "-lc", "-lgcc"],
        }
        took = {name: [] for name in steps}
        for _ in range(TURNS):
            for name, command in steps.items():
                took[name].append(timed([str(word) for word in command]))
        print(f"exp's text: {len(text.read_text().splitlines())} lines, {text.stat().st_size} bytes; {TURNS} turns, ms")
        for name, command in steps.items():
            wall, spent = (sorted(column) for column in zip(*took[name]))
            line = f"{name:32} wall least {wall[0]:6.1f} median {wall[TURNS // 2]:6.1f}   processor's time least "
            line += f"{spent[0]:6.1f} median {spent[TURNS // 2]:6.1f}"
            if shutil.which("valgrind") and "linked" not in name:
                line += f"   {instructions([str(word) for word in command]):6.1f} million instructions"
            print(line, flush=True)


main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build"))
