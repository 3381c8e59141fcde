# SPDX-License-Identifier: Apache-2.0
"""The base of every Python test: the package of this tree over the library that was just built (QUERN_LIBRARY, else
build/src), never another that happens to be installed; and the marks that say what a test needs of the machine. A file
that needs a framework begins with `pytest.importorskip`; tools/results.py holds what a lane skipped against the reasons
that the lane may have, and sees to it that each file has run in some lane."""

import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("QUERN_LIBRARY", str(ROOT / "build/src/libquern.so"))


def refuse_another_library():
    """A wrong library or package would make every result below a statement about something else."""
    try:
        import quern
        from quern import _library
    except ImportError as error:
        raise pytest.UsageError(str(error)) from None
    package = pathlib.Path(quern.__file__).resolve().parent
    if package != ROOT / "python/quern":
        raise pytest.UsageError(f"quern is imported from {package}, not from this tree: {ROOT / 'python/quern'}")
    wanted = pathlib.Path(os.environ["QUERN_LIBRARY"]).resolve()
    if pathlib.Path(_library.path).resolve() != wanted:
        raise pytest.UsageError(f"the library is {_library.path}, not {wanted}")
    version = re.search(r"\bversion: '([^']+)'", (ROOT / "meson.build").read_text(encoding="utf-8")).group(1)
    if quern.__version__ != version:
        raise pytest.UsageError(f"{wanted} is version {quern.__version__}, the tree {version}: build it again")
    return f"{wanted} {version}"


def gpus():
    """How many CUDA devices the library sees; where there is no driver it says so with a status, and that is none."""
    import ctypes

    from quern._library import KINDS, lib

    count = ctypes.c_int()
    try:
        lib.qn_device_count(KINDS["cuda"], ctypes.byref(count))
    except RuntimeError:
        return 0
    return count.value


def pytest_configure(config):
    config.quern_library = refuse_another_library()


def pytest_report_header(config):
    return f"quern: {config.quern_library}, {gpus()} GPUs"


def pytest_collection_modifyitems(items):
    here = gpus()
    for item in items:
        if item.get_closest_marker("two_gpus") and here < 2:
            # Which device and stream a launch goes to is seen without a GPU too: test_streams.py, over the mock driver.
            item.add_marker(pytest.mark.skip(reason="needs two GPUs"))
        elif item.get_closest_marker("cuda") and here < 1:
            # The kernels' bits are seen without one on the emulator: `quern check --backend emulator`.
            item.add_marker(pytest.mark.skip(reason="no GPU"))
