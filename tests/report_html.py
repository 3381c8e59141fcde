# SPDX-License-Identifier: Apache-2.0
"""The page of `quern report --html`, against means computed here: report_html.py QUERN; prints TAP."""

import html.parser
import json
import math
import pathlib
import resource
import subprocess
import sys
import tempfile

quern = sys.argv[1]
work = pathlib.Path(tempfile.mkdtemp())
count = failures = 0


def check(what, good):
    global count, failures
    count += 1
    failures += not good
    print(f"{'ok' if good else 'not ok'} {count} - {what}")


def report(text):
    (work / "in.jsonl").write_text(text)
    (work / "out.html").unlink(missing_ok=True)
    done = subprocess.run(
        [quern, "report", work / "in.jsonl", "--html", work / "out.html"], capture_output=True, text=True
    )
    return done, (work / "out.html").read_text() if (work / "out.html").exists() else ""


def verdict(number, ratio, word="faster", candidate="new.py", kind="baseline's"):
    over = {"of": "eager", "ratio": ratio, "interval": [ratio * 0.9, ratio * 1.1], "word": word}
    timers = {"event": {name: {"median_ns": t} for name, t in (("eager", 2e6), ("candidate", 2e6 / ratio))}}
    timers["event"]["compile default"] = {"median_ns": 1e6 if number % 2 else 4e6}
    return {"schema": "quern verdict 1", "machine": {"device": "a device"}, "problem": f"level1/{number}_x.py",
            "candidate": candidate, "level": 1, "verdict": word, "reason": "", "timer": "event", "timers": timers,
            "precision": {"class": kind}, "speedup": {"eager": over, "better": over}}  # fmt: skip


class Table(html.parser.HTMLParser):
    """The first table's numbers, row by row, and every tag."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.tags, self.tables = [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.tables += tag == "table"
        if tag == "tr" and self.tables == 1:
            self.rows.append([])
        if tag == "td" and self.tables == 1:
            self.rows[-1].append(dict(attributes).get("data-v"))


lines = [
    verdict(1, 3.0),
    verdict(2, 1.7),
    verdict(3, 0.5, "slower"),
    verdict(4, 1.2),
    verdict(4, 2.2),
    verdict(5, 9, kind="tf32"),
]
lines.append(verdict(6, 4.0) | {"verdict": "wrong values"})
done, page = report("\n".join(map(json.dumps, lines)) + "\nno json\n" + '{"schema": "another 1"}\n')
table = Table(page)
want = math.exp(sum(map(math.log, (3, 1.7, 1, 2.2, 1, 1))) / 6)
check("a page is made", done.returncode == 0 and page.startswith("<!doctype html>"))
own = table.rows[1]
check("its mean is the geometric mean, a fallback as 1, the last verdict of two", abs(float(own[9]) - want) < 1e-8)
check("which counts six problems, four correct, three faster", [float(x) for x in own[3:6]] == [6, 4, 3])
check("a class has a mean of its own", abs(float(table.rows[2][9]) - 9) < 1e-8 and float(table.rows[2][3]) == 1)
check("a mean where compiled wins", abs(float(own[11]) - math.exp(math.log(3) / 3)) < 1e-8)
check(
    "other lines are counted", "1 lines are malformed and 1 of another schema" in done.stderr and "in.jsonl:8" in page
)
check("it needs no network", "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", ""))

full = subprocess.run(
    [quern, "report", work / "in.jsonl", "--html", work / "full.html"],
    capture_output=True,
    text=True,
    restore_signals=False,  # Python ignores SIGXFSZ
    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
)
check("a disk that is full is the reason", full.returncode == 1 and "File too large" in full.stderr)
check("and nothing is left", not list(work.glob("full.html*")))

evil = "<script>alert(1)</script>\"'&"
plain = table.tags.count("script")
done, page = report(json.dumps(verdict(1, 2.0, candidate=evil) | {"reason": evil, "problem": evil, "check": evil}
                               | {"machine": {"device": evil}, "precision": {"class": evil}}))  # fmt: skip
check("text from lines is text", page and page.count("<script") == plain and page.count("</script") == plain)

search = [{"event": "begin", "seconds": 0, "problem": "p", "generators": ["space", "x"], "seed": 3}]
steps = [(5, "faster", 1.5), (6, "slower", 0.5), (7, "refused", 9), (8, "faster", 1.25), (9, "faster", 1.75)]
search += [{"event": "candidate", "seconds": s, "fate": f, "speedup": r} for s, f, r in steps]
done, page = report("\n".join(json.dumps({"schema": "quern search 1"} | line) for line in search))
check("a search's best over time", "1.5 after 5 s" in page and "1.75 after 9 s" in page)
check("of what was faster than the best alone", "1.25 after" not in page and ": 9 after" not in page)

for what, text in (("an empty file", ""), ("a file of another schema", '{"schema": "another 1"}\n')):
    done, page = report(text)
    check(f"{what} is refused", done.returncode == 2 and "no verdict and no search" in done.stderr and not page)
print(f"1..{count}")
sys.exit(failures > 0)
