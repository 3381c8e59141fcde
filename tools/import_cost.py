# SPDX-License-Identifier: Apache-2.0
"""Times `import quern`: tools/import_cost.py [PYTHON], with QUERN_LIBRARY where the library is not installed.

20 turns, each in interpreters of its own: ctypes, which every binding of this form pays for, and the package. Prints
the least and the median processor's time of each, in ms. It judges nothing; results/import-python.txt is what it
printed."""

import pathlib
import statistics
import subprocess
import sys

TURNS = 20
PROGRAM = "import time; t = time.process_time(); import {}; print(1e3 * (time.process_time() - t))"


def main(python=sys.executable):
    package = pathlib.Path(__file__).resolve().parents[1] / "python"
    times = {"ctypes": [], "quern": []}
    for _ in range(TURNS):
        for name, taken in times.items():
            done = subprocess.run([python, "-c", PROGRAM.format(name)], cwd=package, check=True, capture_output=True)
            taken.append(float(done.stdout))
    for name, taken in times.items():
        print(f"import {name:8} least {min(taken):6.1f} median {statistics.median(taken):6.1f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
