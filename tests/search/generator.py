#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""generator.py MANNER - a generator of `quern search`, good or bad. Each line that it reads goes to $HEARD."""

import json
import os
import sys
import time

manner = sys.argv[1]


def say(**message):
    print(json.dumps(message), flush=True)


def candidate(text, name="c"):
    say(type="candidate", id=name, kind="body", source=text, note=manner)


if manner == "dies":
    sys.exit(7)
if manner == "crashes":
    os.kill(os.getpid(), 9)
n = 0
for line in sys.stdin:
    with open(os.environ["HEARD"], "a") as heard:
        heard.write(f"{manner} {line}")
    message = json.loads(line)
    if message["type"] == "end":
        break
    if message["type"] != "ask":
        continue
    if manner == "good":  # one wrong, one that is the problem's own again, two that are right, then nothing
        n += 1
        if n == 1:
            candidate("// WRONG", "bad")
        elif n == 2:
            candidate("// SPEED=1.2", "fast")
            candidate("// SPEED=1.2", "twice")
        elif n == 3:
            candidate("// SPEED=1.9", "best")
        else:
            say(type="log", text="that is all")
            say(type="done")
    elif manner == "steady":
        n += 1
        candidate(f"// SPEED=0.{n:04d}", f"s{n}")
    elif manner == "stalls":
        time.sleep(600)
    elif manner == "floods":
        while True:
            candidate("// SPEED=0.5")
    elif manner == "chatters":
        while True:
            say(type="log", text="x" * 30)
    elif manner == "gigabyte":
        part = "x" * (1 << 20)
        sys.stdout.write('{"type": "candidate", "id": "huge", "kind": "body", "source": "')
        for _ in range(1024):
            sys.stdout.write(part)
        sys.stdout.write('"}\n')
        sys.stdout.flush()
    elif manner == "long":  # one line is too long, the next is not
        n += 1
        candidate("x" * (5 << 20) if n == 1 else f"// SPEED=1.3 {n}", f"l{n}")
        if n == 3:
            say(type="done")
    elif manner == "malformed":  # in one write: each wrong line counts as an answer, and an answer is asked for again
        wrong = (
            {"type": "nothing"},
            {"type": "candidate", "id": "x", "kind": "variant", "name": "y"},
            {"type": "candidate", "kind": "body", "source": "z"},
            {"type": "candidate", "id": "f", "kind": "folder", "files": {"kernel.json": "{}", "../../escape": "x"}},
        )
        print("\n".join(["this is no JSON\n[1, 2]\n", *map(json.dumps, wrong), ""]), end="", flush=True)
    elif manner == "deaf":  # asks nothing, reads nothing more
        candidate("// SPEED=0.7")
        time.sleep(600)
    elif manner in ("CRASH", "SILENT", "HANG"):
        n += 1
        if n > 1:
            say(type="done")
        else:
            candidate(f"// {manner}", manner)
