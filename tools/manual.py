# SPDX-License-Identifier: Apache-2.0
"""Make one man page from --help: manual.py HELP2MAN OUT VERSION QUERN [VERB]. The text is argp's; help2man sets it."""

import pathlib
import re
import shlex
import subprocess
import sys

help2man, out, version, quern, *verb = sys.argv[1:]


def help_of(*words):
    return subprocess.run([quern, *words, "--help"], check=True, capture_output=True, text=True).stdout


brief = "fused compute kernels that come with proof"
if verb:
    verbs = help_of().split("Verbs:\n")[1].split("\n\n")[0]
    brief = re.sub(r"\s+", " ", re.search(rf"^  {verb[0]} +(.*(?:\n {{5,}}.*)*)", verbs, re.M).group(1))
page = subprocess.run(
    [help2man, "--no-info", f"--name={brief}", f"--version-string={version}", shlex.join([quern, *verb])],
    check=True,
    capture_output=True,
    text=True,
).stdout
name = "-".join(["quern", *verb])
page = re.sub(
    r'^\.TH \S+ "1" "[^"]*"', f'.TH {name.upper()} "1" ""', page, count=1, flags=re.M
)  # no date: builds repeat
page = re.sub(r"(?<=\.SH NAME\n)quern[^\\\n]*", f"{name} ", page, count=1)
others = help_of().split("Verbs:\n")[1].split("\n\n")[0] if not verb else ""
also = ["quern"] if verb else ["quern-" + other for other in re.findall(r"^  ([\w-]+)  ", others, re.M)]
page += '.SH "SEE ALSO"\n' + ",\n".join(f".BR {other} (1)" for other in also) + "\n"
pathlib.Path(out).write_text(page)
