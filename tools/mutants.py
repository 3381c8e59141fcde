#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong versions of the sources, each of which a check must find: mutants.py [NAME...]

tests/mutants/*.txt lists them, one after the other, as replacements:

    mutant lion-found-inf-nan
    file src/op/lion/lion.math.h
    check lion --backend cpu --quick --leg golden
    about a found_inf of NaN counts as not found
    - *c->found_inf != 0.0f
    + *c->found_inf > 0.0f

The text behind `- ` (several such lines are several lines) stands in the file exactly once; what is behind `+ ` takes
its place. A line `open` marks a mutant that no check has been seen to kill: it is tried by its name alone, and is
counted as a hole otherwise. A line `processor FLAG` marks one that only a processor with it can kill. `check
ARGUMENTS` must find it: `quern check ARGUMENTS`; or, where that cannot see it, `test NAME`: the test of that name.
Lines that begin with # and empty lines are comments.

A mutant is applied to a copy of the tree (--tree), which is kept and compiled step by step; it is killed if the copy
compiles and the check then fails. Before any of them, their checks must pass on the copy as it is. Fails if a mutant
survives, does not compile or does not fit the sources.

    mutants.py                             all
    mutants.py NAME...                     those, or those whose names begin so
    mutants.py --sample 6 --seconds 240    six, drawn by date, as far as the time goes
    mutants.py --texts                     only whether every text fits the sources: no compiler, no copy"""

import argparse
import datetime
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "mutants"
LIMIT = 600  # seconds that a check or a test may take: one that hangs has found something


class Mutant:
    def __init__(self, name, where):
        self.name, self.where = name, where
        self.file = self.check = self.about = None
        self.old, self.new = [], []
        self.open = False
        self.processor = None

    def text(self):
        return "\n".join(self.old), "\n".join(self.new)

    def complaint(self, root):
        """Why it does not fit the sources under root; None: it does."""
        if not self.file or not self.check or not self.about or not self.old:
            return "it needs a file, a check, an about and a text"
        if self.check.split()[0] not in ("check", "test"):
            return f"{self.check} is neither a check nor a test"
        if not (root / self.file).is_file():
            return f"there is no file {self.file}"
        old, new = self.text()
        found = (root / self.file).read_text().count(old)
        if found != 1:
            return f"its text stands {found} times in {self.file}, it must stand there once"
        return "its text is its replacement" if old == new else None


def read_table():
    mutants = []
    for path in sorted(TABLE.glob("*.txt")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path.relative_to(ROOT)}:{number}"
            word, _, rest = line.partition(" ")
            if not line or word.startswith("#"):
                continue
            if word == "mutant":
                mutants.append(Mutant(rest, where))
            elif word in ("file", "about", "processor") and mutants:
                setattr(mutants[-1], word, rest)
            elif line == "open" and mutants:
                mutants[-1].open = True
            elif word in ("check", "test") and mutants:
                mutants[-1].check = line
            elif word in ("-", "+") and mutants:
                (mutants[-1].old if word == "-" else mutants[-1].new).append(rest)
            else:
                sys.exit(f"mutants.py: {where}: {line!r} is not understood")
    return mutants


def texts_fit(mutants):
    names, wrong = set(), 0
    for m in mutants:
        complaint = "its name is taken" if m.name in names else m.complaint(ROOT)
        names.add(m.name)
        if complaint:
            wrong += 1
            print(f"# {m.where}: {m.name}: {complaint}")
    return not wrong


class Tree:
    """The copy: sources, and a build of them."""

    def __init__(self, path):
        self.path, self.build = path, path / "build"
        listed = subprocess.run(["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, capture_output=True)
        names = {n for n in listed.stdout.decode().split("\0") if n and (ROOT / n).is_file()}
        for name in names:
            self.put(name, (ROOT / name).read_bytes())
            shutil.copymode(ROOT / name, path / name)
        for there in path.rglob("*"):
            name = there.relative_to(path)
            if name.parts[0] not in ("build", "subprojects") and there.is_file() and str(name) not in names:
                there.unlink()
        if not (self.build / "build.ninja").is_file():
            # A mutant may leave a variable unused.
            setup = [ROOT / "tools" / "meson.sh", "setup", "-Dwerror=false", self.build, path]
            subprocess.run(setup, check=True, stdout=subprocess.DEVNULL)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("QUERN_")}
        self.environment.setdefault("XDG_CACHE_HOME", str(self.build / "test-cache"))
        self.environment.update(CCACHE_BASEDIR=str(path), CCACHE_NOHASHDIR="1")
        by_ccache = [links for links in ("/usr/lib/ccache", "/usr/lib64/ccache") if os.path.isdir(links)]
        self.environment["PATH"] = os.pathsep.join([*by_ccache, self.environment["PATH"]])

    def put(self, name, data):
        to = self.path / name
        if to.is_file() and to.read_bytes() == data:
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)

    def run(self, command):
        """Exit status and output; 124 where it took too long."""
        try:
            done = subprocess.run(
                command,
                cwd=self.build,
                env=self.environment,
                timeout=LIMIT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return 124, f"it took more than {LIMIT} s\n"
        return done.returncode, done.stdout

    def compiles(self, check):
        kind, rest = check.split(" ", 1)
        target = "cli/quern" if kind == "check" else "all"
        if kind == "test":  # meson knows a test's programs; most need one
            program = "tests/test_" + rest.split()[0]
            target = program if self.run(["ninja", "-t", "query", program])[0] == 0 else "all"
        return self.run(["ninja", target])

    def finds(self, check):
        """True, what failed; False, ""; None, why it says neither."""
        kind, rest = check.split(" ", 1)
        if kind == "check":
            status, output = self.run(["cli/quern", "check", *rest.split()])
            failed = [line for line in output.splitlines() if line.startswith("not ok")]
        else:
            meson = [str(ROOT / "tools" / "meson.sh"), "test", "--print-errorlogs", rest]  # builds what it loads, too
            status, output = self.run(meson)
            failed = [line for line in output.splitlines() if line.lstrip().startswith("not ok")]
            if "No suitable tests defined" in output or not status and "Ok: " not in output:
                return None, f"there is no test {rest}"
        if status in (2, 3) and kind == "check":
            return None, output.strip()
        return (True, failed[0] if failed else f"exit status {status}") if status else (False, "")


def choose(mutants, order):
    if order.names:
        unknown = [n for n in order.names if not any(m.name.startswith(n) for m in mutants)]
        if unknown:
            sys.exit(f"mutants.py: no mutant is called {unknown[0]}, and none begins so")
        return [m for m in mutants if any(m.name.startswith(n) for n in order.names)]
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    away = {m.name for m in mutants if m.processor and m.processor not in flags}
    if away:
        print(f"# {len(away)} mutants are of another processor, and not tried")
    mutants = [m for m in mutants if m.name not in away]
    known = [m for m in mutants if not m.open]
    if len(known) < len(mutants):
        print(f"# {len(mutants) - len(known)} mutants are open, that is not seen killed, and not tried")
    mutants = known
    if not order.sample:
        return mutants
    seed = order.seed or datetime.date.today().isoformat()
    print(f"# {order.sample} of {len(mutants)} mutants, drawn with --seed {seed}")
    return random.Random(seed).sample(mutants, min(order.sample, len(mutants)))


def try_one(tree, m):
    """The mutant's fate: killed, survived or wrong, and a word on it."""
    original = (tree.path / m.file).read_bytes()
    old, new = m.text()
    tree.put(m.file, original.decode().replace(old, new).encode())
    try:
        status, output = tree.compiles(m.check)
        if status:
            return "wrong", "it does not compile:\n" + output[-2000:]
        found, word = tree.finds(m.check)
    finally:
        tree.put(m.file, original)
    return ("wrong" if found is None else "killed" if found else "survived"), word


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--list", action="store_true", help="names, checks and what each is about")
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--seed", metavar="TEXT", help="of the sample (default: today's date)")
    parser.add_argument("--seconds", type=float, default=0, help="begin no mutant after so long")
    parser.add_argument("--tree", type=pathlib.Path, default=ROOT / "build" / "mutants", help="where the copy is kept")
    order = parser.parse_args()
    started = time.monotonic()
    mutants = read_table()
    if not texts_fit(mutants):
        print("not ok 1 - every mutant's text stands in its file once\n1..1")
        return 1
    if order.texts:
        print(f"ok 1 - the texts of {len(mutants)} mutants stand in their files, each once\n1..1")
        return 0
    chosen = choose(mutants, order)
    if order.list:
        for m in chosen:
            print(f"{m.name}: {m.about}; {m.check}")
        return 0
    tree = Tree(order.tree.resolve())
    sound = {}  # checks that passed on the copy as it is
    count = {"killed": 0, "survived": 0, "wrong": 0}
    for number, m in enumerate(chosen, 1):
        if order.seconds and number > 1 and time.monotonic() - started > order.seconds:
            print(f"# {order.seconds:g} s are over: {len(chosen) - number + 1} mutants are not tried")
            break
        begun = time.monotonic()
        if m.check not in sound:
            status, output = tree.compiles(m.check)
            found, word = (None, output[-2000:]) if status else tree.finds(m.check)
            sound[m.check] = "" if found is False else word
        if sound[m.check]:
            fate, word = "wrong", f"its check does not pass on the sources as they are: {sound[m.check]}"
        else:
            fate, word = try_one(tree, m)
        count[fate] += 1
        seconds = time.monotonic() - begun
        print(f"{'' if fate == 'killed' else 'not '}ok {number} - {m.name}: {fate} ({m.check}, {seconds:.0f} s)")
        if fate != "killed":
            print("".join(f"#   {line}\n" for line in [m.about, *word.splitlines()]), end="")
        sys.stdout.flush()
    tried = sum(count.values())
    print(
        f"1..{tried}\n# {count['killed']} killed, {count['survived']} survived, {count['wrong']} wrong, "
        f"{time.monotonic() - started:.0f} s"
    )
    return 0 if count["killed"] == tried else 1


if __name__ == "__main__":
    sys.exit(main())
