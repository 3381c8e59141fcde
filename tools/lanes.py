# SPDX-License-Identifier: Apache-2.0
"""The lanes of tests, as data: tools/test.py runs them, tools/results.py holds what they left against what stands here.
A lane of meson runs suites of a build folder; a lane of Python runs pytest in an environment of the tree, .venv-NAME
(tools/venv.sh), over a build's library. `make test` runs those of which `contributor` is true, `make test-all` all."""

import collections
import os
import platform
import re

X86 = platform.machine() == "x86_64"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# A build folder: the compiler, and what `meson setup` is given. A lane under a sanitizer looks at memory and threads;
# avx512 differs from avx2 in its words alone, so that it is left out there: it takes longest to compile.
Build = collections.namedtuple("Build", "compiler arguments", defaults=([],))
BUILDS = {
    "build": Build(os.environ.get("CC", "cc")),
    "build-asan": Build("gcc", ["-Db_sanitize=address,undefined", "-Davx512=false"]),
    "build-clang": Build("clang"),
    "build-tsan": Build("clang", ["-Db_sanitize=thread", "-Dcommand=disabled", "-Davx512=false"]),
    "build-aarch64": Build("aarch64-linux-gnu-gcc", ["--cross-file", "tools/aarch64.ini", "-Dcommand=disabled"]),
}

# only, without: meson's suites that run (None: all) and that do not; archs: what its NVRTC must compile for.
Meson = collections.namedtuple(
    "Meson", "build only without contributor archs arguments env", defaults=(None, (), False, (), (), {})
)
MESON = {
    # The contributor's lane: everything once, without the tests that take minutes, and one in three graphs: the lane of
    # clang computes all.
    "quick": Meson("build", without=("full",), contributor=True, archs=(90,), env={"QN_GRAPHS_APART": "3"}),
    # The rest of it: the normal level of the checks, every architecture, the text of the tree.
    "full": Meson("build", only=("full",), archs=(75, 80, 86, 89, 90, 100, 120)),
    "valgrind": Meson("build", only=("contract",), arguments=("--setup", "valgrind")),
    # Under AddressSanitizer and UBSan: everything that runs our code in a way of its own.
    "asan": Meson("build-asan", without=("nvrtc", "text", "build", "alike"), env={"QN_GRAPHS_APART": "3"}),
    # All but the kernels that ship, whose code the C++ compiler makes in both, and scripts that start the command: what
    # they ask of it is asked under gcc and asan, and checks of ops and the search, which judges, start it here.
    "clang": Meson("build-clang", without=("nvrtc", "text", "kernels", "cli", "alike")),
    # Kernels are compiled for the processor; here for the tier below, which none of the other lanes compiles for.
    "tsan": Meson("build-tsan", only=("threads",), env={"QUERN_CPU": "avx2"} if X86 else {}),
    # Under qemu. The emulator compiles for where it runs; qemu lets it start the cross compiler. Plans of graphs are
    # the same as on the other processor, where all kernels of the tests are compiled and run.
    "aarch64": Meson("build-aarch64", env={"CXX": "aarch64-linux-gnu-g++", "QN_GRAPHS_APART": "5"}),
}

NO_GPU = "no GPU|needs two GPUs"
PACKAGES = "mypy|ruff|torch|jax|kernels|timm|lion_pytorch|bitsandbytes|deepspeed|cupy|liger_kernel|matplotlib"
NO_FRAMEWORK = f"could not import '({PACKAGES})(\\.\\w+)*'.*"
NOT_ARRAYS = ("bench", "convert", "doctor", "example", "judge", "result_lines", "stubs", "style")
# skips: the only reasons for which the lane may skip a case.
Python = collections.namedtuple(
    "Python", "build environment skips contributor arguments asan", defaults=(False, (), False)
)
PYTHON = {
    "python": Python("build", "numpy", f"{NO_GPU}|{NO_FRAMEWORK}", contributor=True),
    "torch": Python("build", "torch", f"{NO_GPU}|could not import '(deepspeed|cupy)(\\.\\w+)*'.*"),
    "torch-oldest": Python("build", "torch-oldest", f"{NO_GPU}|{NO_FRAMEWORK}|before torch 2.(5|6|10) .*"),
    # The installed package, as pip and a wheel's user see it (tools/wheel.sh): the tree's own library is not used.
    "wheel": Python(None, "wheel", ""),
    # Tests that hand arrays to asan's library; not those that read text, start the command or measure time.
    "python-asan": Python(
        "build-asan",
        "numpy",
        f"{NO_GPU}|{NO_FRAMEWORK}",
        arguments=[f"--ignore-glob=*/test_{of}*.py" for of in NOT_ARRAYS],
        asan=True,
    ),
}
LANES = [*MESON, *PYTHON]
CONTRIBUTOR = [name for name, lane in {**MESON, **PYTHON}.items() if lane.contributor]


def suites_run(lane, suites):
    """Whether a test of these suites runs in a lane of meson; meson writes "project:suite"."""
    of = {suite.rpartition(":")[2] for suite in suites}
    return not of & set(lane.without) and (lane.only is None or bool(of & set(lane.only)))


def may_skip(lane, reason):
    return re.fullmatch(PYTHON[lane].skips, reason) is not None
