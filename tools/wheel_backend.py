# SPDX-License-Identifier: Apache-2.0
"""The build backend that pyproject.toml names: meson-python, and the two things in which a package round a plain shared
library differs from one round an extension module. Its wheel serves every Python 3 of the platform, so it is tagged
py3-none; and an editable install is the package's folder on the path with what was built put into it, which needs
neither meson nor ninja at import. After a change of C code, install again."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import mesonpy
from mesonpy import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]
get_requires_for_build_editable = get_requires_for_build_wheel
PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "python" / "quern"


def wheel(*arguments):
    """Run the command of the package wheel; its last line."""
    command = [sys.executable, "-m", "wheel", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    made = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    return wheel("tags", "--python-tag=py3", "--abi-tag=none", "--remove", pathlib.Path(wheel_directory, made))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as work:
        made = build_wheel(work, config_settings, metadata_directory)
        wheel("unpack", "--dest", work, pathlib.Path(work, made))
        (tree,) = (folder for folder in pathlib.Path(work).iterdir() if folder.is_dir())
        for built in (*(tree / "quern").glob("libquern.so*"), tree / "quern/__init__.pyi"):
            shutil.copy2(built, PACKAGE)
        shutil.rmtree(tree / "quern")
        (tree / "quern.pth").write_text(f"{PACKAGE.parent}\n", encoding="utf-8")
        wheel("pack", "--dest-dir", wheel_directory, tree)
        return made
