# SPDX-License-Identifier: Apache-2.0
"""The type stub that the build makes: it says what the functions are at run time, and a type checker that reads it
takes a good program and finds each fault of a bad one."""

import ast
import inspect
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import quern
from quern import _about, _stubs

PACKAGE = pathlib.Path(quern.__file__).resolve().parent

GOOD = """\
import numpy as np
import quern

p, g, m = (np.zeros(3, np.float32) for _ in range(3))
quern.lion_(p, g, m)
quern.lion_([p], (g,), iter([m]), 1e-3, (0.9, 0.99), 0.1, None)
quern.lion_([p], [g], [m], lr=np.float32(1e-3), eps=1e-8, decay="relative", masters=[None], tensor_id=[3], stream=0)
quern.lion_(p, g, m, found_inf=np.zeros(1, np.float32), rounding="stochastic", seed=np.uint64(3))
quern.set_num_threads(None)
threads: int = quern.get_num_threads()
names: tuple[str, ...] = quern.ops()
error: type[ImportError] = quern.LibraryError
version: str = quern.__version__
kernel: quern.Kernel = quern.metal_kernel("k", ["x"], ["y"], "y[0] = x[0];", atomic_outputs=["y"], math="fast")
made: list[object] = kernel(inputs=[p, 2.5], template=[("T", p.dtype)], grid=(3, 1, 1), threadgroup=(1, 1, 1),
                            output_shapes=[p.shape], output_dtypes=["f32"], init_value=0)
text: str = quern.cuda_kernel("k", ["x"], ["y"], "y[0] = x[0];", shared_memory=64).text(inputs=[p], grid=(1, 1, 1))
registers: int = kernel.info(inputs=[p], grid=(1, 1, 1)).registers
f = quern.function(lambda x: x, vjp=lambda x, c, y: c).jvp(lambda x, t: t)
worst: float = quern.check_gradient(f, [p], step=1e-6)
lines: list[int | None] = [one.line for one in quern.findings()]
with quern.capture("folder") as seen:
    quern.load_kernel("kernels/exp")(p)
launches: int | None = seen.launches
velo = quern.VeLO([(3,)], "mlp.safetensors", "rnn.safetensors", 9)
velo.step([p], [g], 2.5)
skipped: int = velo.skipped_steps
elo = quern.ELO([p.shape], {"network.input.bias": p}, 0.5, clip_grad=1.0, lr_scale=[1, 2], precision="tf32")
elo.lr = 0.25
"""

BAD = """\
import numpy as np
import quern

p, g, m = (np.zeros(3, np.float32) for _ in range(3))
quern.lion_(p, g)
quern.lion_(p, g, "momentum")
quern.lion_(p, g, 1.0)
quern.lion_(p, [g, None], m)
quern.lion_(p, g, m, lr="1e-3")
quern.lion_(p, g, m, lr=None)
quern.lion_(p, g, m, betas=0.9)
quern.lion_(p, g, m, betas=(0.9, 0.99, 0.999))
quern.lion_(p, g, m, decay="cubed")
quern.lion_(p, g, m, seed=1.5)
quern.lion_(p, g, m, maximize=0.5)
quern.lion_(p, g, m, momentum=m)
quern.lion_(p, g, m, 1e-3, (0.9, 0.99), 0.0, None, 1.0, [m])
new: int = quern.lion_(p, g, m)
quern.adam_(p, g, m)
quern.set_num_threads("two")
quern.metal_kernel("k", ["x"], ["y"])
quern.metal_kernel(3, ["x"], ["y"], "y[0] = x[0];")
quern.metal_kernel("k", ["x"], ["y"], "y[0] = x[0];", shared_memory=3)
quern.metal_kernel("k", ["x"], ["y"], "y[0] = x[0];")(inputs=[p])
quern.check_gradient(3, [p])
quern.VeLO([(3,)], "mlp.safetensors", "rnn.safetensors", 9).skipped_steps = 1
quern.ELO([(3,)], "elo.safetensors", lr="1e-3")
quern.ELO([(3,)], "elo.safetensors", step_mult=2.0)
quern.SmallFCLopt([(3,)], "mulo.safetensors", precision="fp64")
quern.VeLO([(3,)], num_steps=9)
"""


def stub_signature(name):
    """(name, kind, default) of every parameter, read from the stub's text."""
    (found,) = [
        node for node in ast.parse(_stubs.text()).body if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    given, kinds = found.args, inspect.Parameter
    assert not given.posonlyargs
    assert given.vararg is None
    assert given.kwarg is None
    absent = [inspect.Parameter.empty] * (len(given.args) - len(given.defaults))
    defaults = absent + [ast.literal_eval(node) for node in given.defaults]
    made = [(arg.arg, kinds.POSITIONAL_OR_KEYWORD, default) for arg, default in zip(given.args, defaults)]
    return made + [
        (arg.arg, kinds.KEYWORD_ONLY, ast.literal_eval(default))
        for arg, default in zip(given.kwonlyargs, given.kw_defaults)
    ]


@pytest.mark.parametrize("op", _about.list_ops())
def test_signature_is_the_one_at_run_time(op):
    function = getattr(quern, f"{op}_")
    at_run_time = [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]
    assert stub_signature(f"{op}_") == at_run_time
    document = inspect.getdoc(function)
    assert document == ast.get_docstring(
        next(node for node in ast.parse(_stubs.text()).body if getattr(node, "name", None) == f"{op}_")
    )


@pytest.mark.parametrize("name", ["Celo2", "ELO", "SmallFCLopt", "VeLO"])
def test_a_constructor_is_the_one_at_run_time(name):
    (made,) = [node for node in ast.parse(_stubs.text()).body if getattr(node, "name", None) == name]
    given, absent = made.body[0].args, inspect.Parameter.empty
    names = [arg.arg for arg in given.args[1:] + given.kwonlyargs]
    defaults = [absent] * (len(given.args) - 1 - len(given.defaults)) + [
        ast.literal_eval(node) for node in given.defaults + given.kw_defaults
    ]
    at_run_time = inspect.signature(getattr(quern, name)).parameters.values()
    assert list(zip(names, defaults)) == [(word.name, word.default) for word in at_run_time]
    assert len(given.kwonlyargs) == sum(word.kind == word.KEYWORD_ONLY for word in at_run_time)


def test_every_public_name_is_there():
    tree = ast.parse(_stubs.text())
    names = {
        alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) and node.level for alias in node.names
    }
    names |= {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    names |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert set(quern.__all__) <= names
    assert {"doctor", "torch", "jax"} <= names


def test_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "__init__.pyi"
    _stubs.main([str(path)])
    assert path.read_text(encoding="utf-8") == _stubs.text()
    assert list(tmp_path.iterdir()) == [path]


# ---- a type checker ----
@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """check(program) -> {line: message} of mypy's findings, with the package as it is installed."""
    pytest.importorskip("mypy")
    pytest.importorskip("numpy")
    folder = tmp_path_factory.mktemp("typed")
    shutil.copytree(PACKAGE, folder / "quern", ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
    _stubs.main([str(folder / "quern/__init__.pyi")])

    def run(program):
        (folder / "program.py").write_text(program, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--no-error-summary",
            "program.py",
        ]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = re.findall(r"^program\.py:(\d+): error: (.*)$", done.stdout, re.M)
        assert bool(found) == bool(done.returncode), done.stdout
        return {int(line): message for line, message in found}

    return run


def test_a_good_program(check):
    assert check(GOOD) == {}


def test_a_bad_program(check):
    found = check(BAD)
    assert sorted(found) == list(range(5, len(BAD.splitlines()) + 1)), found
