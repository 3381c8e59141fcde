# SPDX-License-Identifier: Apache-2.0
"""Holds what tools/wheel.sh put into dist/ against what a user may expect of it: the name, exactly the files, no needs;
it works in an environment that holds nothing else, and the source archive can be installed for editing."""

import ast
import email
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
VERSION = re.search(r"\bversion: '([^']+)'", (ROOT / "meson.build").read_text(encoding="utf-8")).group(1)
IMPORT_MS = 50  # the most that `import quern` may take
# A user's machine: nothing of this tree or this shell is found by accident.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("QUERN_", "PYTHON", "LD_"))}


STEP = """
import array, quern

class Plain:
    def __init__(self, *values):
        self.values = array.array("f", values)
        self.__array_interface__ = {
            "version": 3, "typestr": "<f4", "shape": (len(values),), "data": (self.values.buffer_info()[0], False)
        }

param, grad, exp_avg = Plain(1, 2, 3), Plain(1, -1, 0), Plain(0, 0, 0)
quern.lion_(param, grad, exp_avg, lr=0.5)
print(list(param.values))
"""


def only(pattern):
    (path,) = DIST.glob(pattern)
    return path


def run(*command, cwd):
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def environment(folder, *install):
    """A new environment in which pip has installed this and nothing else; its folder of programs."""
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    run(folder / "venv/bin/python", "-m", "pip", "install", "--disable-pip-version-check", *install, cwd=folder)
    return folder / "venv/bin"


@pytest.fixture(scope="module")
def wheel():
    return only("*.whl")


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    return environment(tmp_path_factory.mktemp("installed"), "--no-index", wheel)


def test_name(wheel):
    assert re.fullmatch(rf"quern-{re.escape(VERSION)}-py3-none-manylinux_\d+_\d+_\w+(\.manylinux\w+)*\.whl", wheel.name)


def test_contents(wheel):
    """One library, the package's sources and type stub, the command, and what every wheel has."""
    with tarfile.open(only("*.tar.gz")) as archive:
        names = [name.partition("/")[2] for name in archive.getnames() if not archive.getmember(name).isdir()]
        modules = {name[len("python/") :] for name in names if name.startswith("python/quern/")}
        modules |= {f"quern/{name}" for name in names if re.fullmatch(r"kernels/\w+/[^/]*(?<!\.py)", name)}
    infos = {
        f"quern-{VERSION}.dist-info/{name}"
        for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE", "entry_points.txt")
    }
    command = f"quern-{VERSION}.data/scripts/quern"
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if not name.endswith("/")}
    assert files == modules | infos | {command, "quern/libquern.so.0", "quern/__init__.pyi"}


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_bytes(archive.read(f"quern-{VERSION}.dist-info/METADATA"))
    assert metadata["Version"] == VERSION
    assert metadata["Requires-Python"] == ">=3.9"
    assert all("extra ==" in need for need in metadata.get_all("Requires-Dist"))


def test_audit(wheel):
    """The tag in the name is the one that the symbols of the library and of the command allow."""
    said = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=DIST)
    tag = re.search(r'platform\s+tag:\s+"(\w+)"', said).group(1)
    assert tag in wheel.name


def test_kernels_that_ship(programs, tmp_path):
    """By name; without arrays of NumPy's their documents are all that can be asked."""
    said = run(programs / "python", "-c", "import quern; print(quern.load_kernel('qr').__doc__)", cwd=tmp_path)
    assert "QR" in said
    said = run(programs / "quern", "doctor", "--backend", "cpu", cwd=tmp_path)
    assert "meson" not in said and "ninja" not in said


def test_step(programs, tmp_path):
    """Neither NumPy nor any framework is there: an object with the array interface is enough."""
    assert ast.literal_eval(run(programs / "python", "-c", STEP, cwd=tmp_path)) == [0.5, 2.5, 3.0]


def test_import_brings_no_framework(programs, tmp_path):
    """With modules of those names on the path, that fail when they are imported."""
    for name in ("numpy", "torch", "jax"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name} is imported')\n", encoding="utf-8")
    run(programs / "python", "-c", "import quern", cwd=tmp_path)


def test_import_time(programs, tmp_path):
    code = "import time; t = time.perf_counter(); import quern; print((time.perf_counter() - t) * 1e3)"
    assert min(float(run(programs / "python", "-c", code, cwd=tmp_path)) for _ in range(7)) <= IMPORT_MS


def test_command(programs, tmp_path):
    assert run(programs / "quern", "--version", cwd=tmp_path).startswith(f"quern {VERSION} ")
    assert "lion" in run(programs / "quern", "list", cwd=tmp_path)
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", programs / "quern", cwd=tmp_path))
    assert all(re.match(r"(libc|libm|libdl|libpthread|ld-linux.*)\.so", name) for name in needed), needed


def test_editable(tmp_path):
    """A change of the package's Python is seen without installing again."""
    run("tar", "-xzf", only("*.tar.gz"), cwd=tmp_path)
    source = tmp_path / f"quern-{VERSION}"
    programs = environment(tmp_path, "--editable", source)
    with open(source / "python/quern/__init__.py", "a", encoding="utf-8") as file:
        file.write("\nedited = True\n")
    assert run(programs / "python", "-c", "import quern; print(quern.edited)", cwd=tmp_path) == "True\n"
    assert run(programs / "quern", "--version", cwd=tmp_path).startswith(f"quern {VERSION}")
