# SPDX-License-Identifier: Apache-2.0
"""Print the path of an NVRTC that compiles for every architecture named: nvrtc.py 75 80 ... The one that QUERN_LIBNVRTC
names, a toolkit's, or the Python package nvidia-cuda-nvrtc, which is fetched into .venv if none of them will do."""

import ctypes
import glob
import os
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
wanted = {int(arch) for arch in sys.argv[1:]}


def in_venv():
    return sorted(glob.glob(f"{root}/.venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.*"), reverse=True)


def serves(path):
    """Whether this library loads and knows all that is wanted."""
    try:
        library = ctypes.CDLL(path)
        n = ctypes.c_int()
        if library.nvrtcGetNumSupportedArchs(ctypes.byref(n)):
            return False
        archs = (ctypes.c_int * n.value)()
        return not library.nvrtcGetSupportedArchs(archs) and wanted <= set(archs)
    except (OSError, AttributeError):
        return False


def fetch():
    python = root / ".venv/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", root / ".venv"], check=True)
    print("fetching nvidia-cuda-nvrtc into .venv", file=sys.stderr)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "nvidia-cuda-nvrtc"],
        check=True,
        stdout=sys.stderr,
    )


named = os.environ.get("QUERN_LIBNVRTC")
candidates = [named] if named else sorted(glob.glob("/usr/local/cuda*/lib64/libnvrtc.so.*"), reverse=True) + in_venv()
found = next(filter(serves, candidates), None)
if not found and not named:
    fetch()
    found = next(filter(serves, in_venv()), None)
if not found:
    sys.exit(f"no NVRTC here compiles for all of {sorted(wanted)}; tried: {candidates or in_venv() or 'nothing'}")
print(found)
