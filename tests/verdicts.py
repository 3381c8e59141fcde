# SPDX-License-Identifier: Apache-2.0
"""verdicts.py QUERN SOURCE - judges a faster, a same, a slower and a wrong candidate again and again while two other
programs compute: the word is the same each time, or unclear, and what is wrong is said so each time. 3 times, or as
often as $VERDICTS says; then what is many times faster or slower must be said so most of the time, which a machine with
much else to do may not allow."""

import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TIMES = int(os.environ.get("VERDICTS", "3"))
WORK = "for (volatile int k = 0; k < 8000;) k = k + 1;"


def judged(quern, problem, candidate):
    words = [quern, "judge", "--backend", "cpu", "--json", "-", str(problem), str(candidate)]
    told = subprocess.run(words, capture_output=True, text=True)
    return json.loads(told.stdout)["verdict"] if told.stdout else told.stderr


def main():
    quern, source = sys.argv[1], pathlib.Path(sys.argv[2]) / "tests/judge/sum"
    wrong = 0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            quick, slow, wrong_one = (pathlib.Path(folder, name) for name in ("quick", "slow", "wrong"))
            for at, start in ((quick, ""), (slow, WORK), (wrong_one, "")):
                shutil.copytree(source, at)
                body = at / "sum.metal"
                body.write_text(start + "\n" + body.read_text())
            body.write_text(body.read_text().replace("sum + ", "2 * sum + "))
            most = TIMES // 2 + 1 if "VERDICTS" in os.environ else 0
            cases = [
                ("faster", most, slow, quick),
                ("same", 0, quick, quick),
                ("slower", most, quick, slow),
                ("wrong values", TIMES, quick, wrong_one),
            ]
            for number, (word, least, problem, candidate) in enumerate(cases, 1):
                said = collections.Counter(judged(quern, problem, candidate) for _ in range(TIMES))
                right = not set(said) - {word, "unclear"} and said[word] >= least
                wrong += not right
                print(
                    f"{'' if right else 'not '}ok {number} - a {word} candidate, {TIMES} times: {dict(said)}",
                    flush=True,
                )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"1..{len(cases)}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
