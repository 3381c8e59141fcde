#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judge.py PROBLEM CANDIDATE ... - plays the judge of `quern search` in tests: a verdict line that depends on the
candidate's text alone. A threadgroup of 128 is fast, 512 is fast at first sight only, other sizes are slow; a body with
the word SPEED=x is x times as fast; WRONG is wrong at line 7, CRASH ends the judge, HANG stops it, SILENT says
nothing."""

import json
import os
import pathlib
import re
import sys
import time

path, full = pathlib.Path(sys.argv[2]), "full" in sys.argv
folder = path.is_dir()
text = "".join(file.read_text() for file in (sorted(path.iterdir()) if folder else [path]))
with open(os.environ["JUDGED"], "a") as seen:
    seen.write(f"{path.name} {'full' if full else 'quick'}\n")
if "HANG" in text:
    time.sleep(600)
if "CRASH" in text:
    print("the judge met a crash", file=sys.stderr)
    os.kill(os.getpid(), 11)
if "SILENT" in text:
    sys.exit(3)
speed = re.search(r"SPEED=([0-9.]+)", text)
group = re.search(r'"threadgroup": \[\s*(\d+)', text)
if speed:
    ratio = float(speed.group(1))
elif group and folder:
    ratio = {128: 1.4, 256: 1.0, 512: 1.0 if full else 1.6}.get(int(group.group(1)), 0.6)
else:
    ratio = 1.0
word = "faster" if ratio > 1.05 else "slower" if ratio < 0.95 else "same"
line = {"schema": "quern verdict 1", "verdict": word, "reason": "", "notes": [], "timer": "simple"}
if "WRONG" in text:
    line |= {"verdict": "wrong values", "reason": "body.metal:7: element 3 is 1, it must be 2"}
elif "UNFIT" in text:
    line |= {"verdict": "cannot be judged", "reason": "the reference is constant"}
else:
    line["timers"] = {"simple": {"candidate": {"median_ns": 1000 / ratio}}}
    line["speedup"] = {"better": {"of": "own", "ratio": ratio, "interval": [0.98 * ratio, 1.02 * ratio], "word": word}}
    line["roofline"] = {"bound": "memory", "floor_ns": 250, "headroom": 4.0}
print(json.dumps(line))
