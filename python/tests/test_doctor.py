# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.doctor`: it must say what only Python can tell, find what does not belong together, each fault made
here on purpose, and pass on the command's report and exit status."""

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

import pytest
import quern
from quern import _library, _ops, doctor

PACKAGE = pathlib.Path(quern.__file__).resolve().parent

# A command that says what the variables tell it to.
COMMAND = """\
#!/bin/sh
[ "$1" = --version ] && echo "quern ${SAY_VERSION-%s} (0123456789ab)" && exit
[ -z "$QUERN_LIBRARY" ] || echo 'quern: the variable QUERN_LIBRARY means nothing here' >&2
echo "$*" >>"$SAY_TO"
case "$*" in
*--json*)
  echo '{"version": "x", "met": true, "to_mend": 0,'
  echo '"lines": [{"topic": "cpu", "state": "ok", "text": "fast"}]}'
  ;;
*) echo 'ok    cpu       fast' ;;
esac
exit ${SAY_STATUS-0}
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def run(tmp_path):
    """run(*words, modules={name: source}, **variables): the doctor in a tree with such a command and only these
    frameworks; (exit status, lines as (word, topic, text, mend), all that was printed)."""
    library = tmp_path / "build/src/libquern.so"
    library.parent.mkdir(parents=True)
    shutil.copy(_library.path, library)
    program(tmp_path / "build/cli/quern", COMMAND % quern.__version__)
    shutil.copytree(PACKAGE, tmp_path / "package/quern", ignore=shutil.ignore_patterns("*.so*", "__pycache__"))

    def run(*words, modules=None, command=True, **variables):
        for name in ("torch", "jax", "numpy", "ml_dtypes", "cupy"):
            shutil.rmtree(tmp_path / "package" / name, ignore_errors=True)
        for name, source in (modules or {}).items():
            program(tmp_path / "package" / name / "__init__.py", source)
        if not command:
            (tmp_path / "build/cli/quern").unlink()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUERN_", "PYTHON"))}
        environment = {
            **kept,
            "PYTHONPATH": str(tmp_path / "package"),
            "QUERN_LIBRARY": str(library),
            "QUERN_LIBCUDA": "/nowhere/libcuda.so.1",
            "PATH": "/usr/bin:/bin",
            "SAY_TO": str(tmp_path / "said"),
            **variables,
        }
        # -S: none of the packages that are installed here
        done = subprocess.run(
            [sys.executable, "-S", "-m", "quern.doctor", *words], env=environment, capture_output=True, text=True
        )
        lines = re.findall(r"^(ok|none|MEND) +(\S+) +(.*)(?:\n {16}(.*))?", done.stdout, re.M)
        return done.returncode, lines, done.stdout + done.stderr

    return run


def line_of(lines, topic):
    (found,) = [line for line in lines if line[1] == topic]
    return found


TORCH = """
__version__ = "{version}"
class version: cuda = {cuda!r}
class cuda:
    device_count = staticmethod(lambda: {gpus})
get_num_threads = lambda: 3
"""


def test_nothing_to_mend(run, tmp_path):
    status, lines, printed = run(modules={"torch": TORCH.format(version="2.9.1+cpu", cuda=None, gpus=0)})
    assert status == 0, printed
    assert not [line for line in lines if line[0] == "MEND"], printed
    assert line_of(lines, "python")[2].startswith(sys.version.split()[0])
    assert sys.executable in line_of(lines, "python")[2]
    assert str(tmp_path / "build/src/libquern.so") + f", version {quern.__version__}" in line_of(lines, "library")[2]
    assert (
        str(tmp_path / "package/quern") + ", ops: " + ", ".join(op.name for op in _ops.all_ops())
        in line_of(lines, "package")[2]
    )
    assert line_of(lines, "command")[2] == f"{tmp_path}/build/cli/quern, version {quern.__version__}"
    assert line_of(lines, "torch")[2].startswith("2.9.1+cpu, built for no CUDA, 3 threads, " + str(tmp_path))
    assert line_of(lines, "jax") == ("none", "jax", "not installed: quern.jax cannot be used", "pip install jax")
    assert line_of(lines, "cpu") == ("ok", "cpu", "fast", "")
    assert "means nothing here" not in printed


def test_words_and_exit_status_pass_through(run, tmp_path):
    status, _, printed = run("--backend", "cpu", "--require=cpu", SAY_STATUS="3")
    assert status == 3, printed
    assert (tmp_path / "said").read_text(encoding="utf-8") == "doctor --backend=cpu --require=cpu\n"
    assert run(SAY_STATUS="1")[0] == 1
    assert run(SAY_STATUS="64")[0] == 64
    assert run("--no-such-word")[0] == 2


def test_json(run):
    status, _, printed = run("--json", modules={"numpy": "raise OSError('broken')"})
    report = json.loads(printed)
    assert status == 1
    assert report["version"] == quern.__version__
    assert report["met"] is True
    assert report["to_mend"] == 1
    assert {"topic": "cpu", "state": "ok", "text": "fast"} in report["lines"]
    (numpy,) = [line for line in report["lines"] if line["topic"] == "numpy"]
    assert numpy["state"] == "mend"
    assert "OSError: broken" in numpy["text"]
    assert numpy["mend"] == "python -c 'import numpy'"


def test_no_command(run):
    status, lines, printed = run(command=False)
    assert status == 0
    assert line_of(lines, "command")[0] == "none", printed


def test_required_without_the_command(run):
    status, _, printed = run("--require=cuda", command=False)
    assert status == 3
    assert "only the command can say whether cuda works, and it is not here" in printed


def test_command_of_another_version(run):
    status, lines, printed = run(SAY_VERSION="9.9.9")
    assert status == 1, printed
    word, _, text, mend = line_of(lines, "command")
    assert word == "MEND"
    assert f"is version 9.9.9, the library of this package {quern.__version__}" in text
    assert mend.startswith("pip install --force-reinstall quern")


def test_command_that_does_not_run(run, tmp_path):
    program(tmp_path / "build/cli/quern", "#!/bin/sh\necho 'no such library' >&2\nexit 127\n")
    status, lines, printed = run()
    assert status == 127, printed
    assert "does not tell its version: no such library" in line_of(lines, "command")[2]


@pytest.mark.parametrize("how", ["missing", "no library", "another version"])
def test_library_that_does_not_fit(run, tmp_path, how):
    """The import fails; the doctor must not."""
    library = tmp_path / "other.so"
    if how == "no library":
        library.write_bytes(b"not a library")
    elif how == "another version":
        source = tmp_path / "other.c"
        source.write_text('const char *qn_version(void) { return "9.9.9"; }\n', encoding="utf-8")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", source, "-o", library], check=True)
    status, lines, printed = run(QUERN_LIBRARY=str(library))
    assert status == 1, printed
    word, _, text, mend = line_of(lines, "library")
    assert word == "MEND"
    assert str(library) in text
    assert mend == "unset QUERN_LIBRARY"
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (TORCH.format(version="2.3.1", cuda=None, gpus=0), "quern.torch needs 2.4"),
        (TORCH.format(version="2.9.1", cuda="13.0", gpus=2), "it sees 2 GPUs and the library 0"),
        ("import os; os.abort()", "is installed and cannot be imported: the process ended with status -6"),
        ("import nowhere", "is installed and cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
    ],
    ids=["old", "other GPUs", "crash", "broken"],
)
def test_torch_that_does_not_fit(run, source, sentence):
    status, lines, printed = run(modules={"torch": source})
    assert status == 1, printed
    assert line_of(lines, "torch")[0] == "MEND"
    assert sentence in line_of(lines, "torch")[2]


@pytest.mark.parametrize(
    ("cuda", "gpus", "driver", "sentence"),
    [
        ("13.0", 1, 12040, "the driver is of CUDA 12.4"),
        (None, 1, 13000, "there are 1 GPUs here that it cannot use"),
        ("12.8", 1, 13000, None),
        ("13.2", 1, 13000, None),
    ],
    ids=str,
)
def test_torch_and_driver(monkeypatch, cuda, gpus, driver, sentence):
    said = {"version": "2.9.0", "cuda": cuda, "gpus": gpus if cuda else 0, "threads": 2, "path": "/somewhere/torch"}
    monkeypatch.setattr(doctor, "_is_installed", lambda name: True)
    monkeypatch.setattr(doctor, "_ask", lambda *program: said)
    monkeypatch.setattr(doctor, "_gpus", lambda library: (gpus, driver))
    report = doctor.Report(as_json=True)
    doctor._examine_torch(report, _library)
    (line,) = report.lines
    assert (line["state"] == doctor.MEND) == bool(sentence)
    assert (sentence or "2.9.0") in line["text"]


def test_as_a_module():
    assert quern.doctor is doctor
