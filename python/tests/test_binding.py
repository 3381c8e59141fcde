# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: what an import brings and costs, what a library that does not fit is told, signatures and
documents that follow from the descriptions, threads, forks and the interpreter's end, options and devices."""

import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest
import quern
from quern import _abi, _about, _library, _ops, _signature, _tensors, _threads

PACKAGE = pathlib.Path(quern.__file__).resolve().parent


def run(program, *, package=PACKAGE.parent, flags=(), check=True, **variables):
    """A program in an interpreter of its own; what it printed on both streams."""
    environment = {**os.environ, "PYTHONPATH": str(package), **variables}
    environment = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(program)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert not check or done.returncode == 0, done.stdout
    return done.stdout


# ---- import ----
def test_import_brings_no_framework():
    said = run("import sys, quern; quern.lion_([], [], []); dir(quern); print(*sys.modules)").split()
    assert not {"numpy", "torch", "jax", "ml_dtypes", "cupy"} & set(said)


def test_import_brings_little():
    """An import's time comes from the modules it loads; tools/import_cost.py measures the time."""
    brought = "import sys; before = set(sys.modules); import {}; print(*set(sys.modules) - before)"
    said = set(run(brought.format("quern")).split())
    assert {name for name in said if name.startswith("quern")} == {
        "quern",
        "quern._abi",
        "quern._about",
        "quern._library",
        "quern._threads",
    }
    others = {name for name in said if not name.startswith("quern")}
    assert others <= set(run(brought.format("__future__, collections, ctypes, threading, types")).split())


def test_submodules_are_imported_when_named():
    assert run("import quern; print(quern.doctor.__name__)").strip() == "quern.doctor"
    assert "torch" not in run("import sys, quern; print('quern.torch' in sys.modules)")
    with pytest.raises(AttributeError, match="module 'quern' has no attribute 'liom_'"):
        quern.liom_  # noqa: B018


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("liom_", r"did you mean quern\.lion_\?"),
        ("lion", r"the op lion is the function quern\.lion_, which works in place"),
        ("swiglu_quantize", r"it is quern\.swiglu\(\.\.\., out_dtype="),
        ("small_fc_lopt", r"did you mean quern\.SmallFCLopt\?"),
        ("VELO", r"did you mean quern\.VeLO\?"),
        ("zzzz", "no attribute 'zzzz'$"),
        ("__wrapped__", "no attribute '__wrapped__'$"),
    ],
)
def test_a_name_that_is_not_there_suggests_another(name, words):
    with pytest.raises(AttributeError, match=words):
        getattr(quern, name)


def test_framework_that_is_missing(tmp_path):
    """The sentence says what to install; hasattr-style names stay quiet."""
    program = """
        import quern, sys
        sys.modules["torch"] = sys.modules["jax"] = None
        for name in ("torch", "jax"):
            try:
                getattr(quern, name)
            except ImportError as error:
                print(error)
    """
    said = run(program)
    for name in ("torch", "jax"):
        assert f"quern.{name} needs {name}, which is not installed: pip install {name}" in said


def test_help_and_names():
    names = dir(quern)
    assert {"lion_", "ops", "describe", "devices", "set_num_threads", "LibraryError", "__version__"} <= set(names)
    assert not [name for name in names if name.startswith("_") and not name.startswith("__")]
    assert all(hasattr(quern, name) for name in quern.__all__)
    said = run("import sys; sys.modules['torch'] = None; import quern; help(quern); help(quern.lion_)", TERM="dumb")
    assert "Storage types" in said


# ---- the library ----
def broken(tmp_path, **variables):
    """The message of `import quern`."""
    return run(
        "try:\n    import quern\nexcept ImportError as error:\n    print(type(error).__name__, error)",
        package=tmp_path,
        **variables,
    )


@pytest.fixture
def package(tmp_path):
    """A copy without a library beside it."""
    shutil.copytree(PACKAGE, tmp_path / "quern", ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
    return tmp_path


def compile_library(path, text):
    source = path.with_suffix(".c")
    source.write_text(text, encoding="utf-8")
    subprocess.run([os.environ.get("CC", "cc"), "-w", "-shared", "-fPIC", source, "-o", path], check=True)
    return str(path)


def test_missing_library_names_every_path(package):
    said = broken(package, QUERN_LIBRARY=None)
    assert said.startswith("LibraryError quern: no libquern could be loaded; tried ")
    assert f"{package}/quern/libquern.so.0: cannot open shared object file" in said
    assert "; libquern.so.0: cannot open shared object file" in said
    assert "QUERN_LIBRARY=/path/to/libquern.so names another" in said
    said = broken(package, QUERN_LIBRARY="/nowhere/libquern.so")
    assert "tried /nowhere/libquern.so: cannot open" in said
    assert "libquern.so.0" not in said


def test_library_beside_the_package_comes_first(package):
    shutil.copy(_library.path, package / "quern/libquern.so.0")
    program = "import quern; from quern import _library; print(_library.path)"
    assert run(program, package=package, QUERN_LIBRARY=None).strip() == f"{package}/quern/libquern.so.0"


def test_library_without_our_functions(package):
    path = compile_library(package / "other.so", "int x;")
    assert f"quern: {path} has no qn_version; it is not the library of this package" in broken(
        package, QUERN_LIBRARY=path
    )


# Every function that is looked for, so that only what is said can be wrong.
FUNCTIONS = "".join(
    f"void *{name}(void);\n" for name in _abi.PROTOTYPES if name not in ("qn_version", "qn_struct_bytes")
)


def test_library_of_another_version(package):
    """Its structs differ: each is held against ours before anything is called."""
    stubs = FUNCTIONS.replace("(void);", "(void) { return 0; }")
    text = """
        const char *qn_version(void) { return "9.9.9"; }
        unsigned long qn_struct_bytes(const char *name) { return 12; }
    """
    path = compile_library(package / "other.so", stubs + text)
    said = broken(package, QUERN_LIBRARY=path)
    assert said.startswith(
        f"LibraryError quern: qn_device has 12 bytes in {path} (version 9.9.9) and 8 in this package"
    )


@pytest.mark.parametrize("struct", list(_abi.STRUCTS))
def test_every_struct_is_compared(monkeypatch, struct):
    real = _library.lib.qn_struct_bytes

    class Other:
        qn_version = _library.lib.qn_version

        @staticmethod
        def qn_struct_bytes(name):
            return real(name) + (8 if name.decode() == struct else 0)

    with pytest.raises(quern.LibraryError, match=f"quern: {struct} has "):
        _library.compare(Other, "/some/where.so", _abi.STRUCTS)


def test_params_structs_are_compared():
    """One that grew in the library, and one whose members moved."""
    members = [("size", _ops.c_size_t, 0), ("lr", _ops.c_double, 8)]
    assert _ops._struct("fits", members, 16)
    with pytest.raises(quern.LibraryError, match="has 16 bytes here, the library says 24"):
        _ops._struct("grew", members, 24)
    with pytest.raises(quern.LibraryError, match="lr is at 8 here, the library says 16"):
        _ops._struct("moved", [members[0], ("lr", _ops.c_double, 16)], 24)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("QN_BAD_ARGUMENT", ValueError),
        ("QN_BAD_TYPE", TypeError),
        ("QN_BAD_FILE", ValueError),
        ("QN_UNSUPPORTED", RuntimeError),
        ("QN_NO_DEVICE", RuntimeError),
        ("QN_NO_LIBRARY", RuntimeError),
        ("QN_NO_MEMORY", MemoryError),
        ("QN_DRIVER_ERROR", RuntimeError),
        ("QN_COMPILE_ERROR", quern.CompileError),
        ("QN_IO_ERROR", OSError),
        ("QN_FORKED", RuntimeError),
        ("QN_KERNEL_ERROR", quern.KernelError),
    ],
)
def test_status_becomes_an_exception(name, error):
    names = [_library.lib.qn_status_name(code).decode() for code in range(20)]
    with pytest.raises(error) as caught:
        _library.check(names.index(name))
    assert type(caught.value) is error


# ---- signature and document ----
def test_signature_is_the_one_that_is_promised():
    signature = inspect.signature(quern.lion_)
    names = list(signature.parameters)
    assert names[:7] == ["params", "grads", "exp_avgs", "lr", "betas", "weight_decay", "eps"]
    defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
    assert [defaults[name] for name in names[3:7]] == [1e-4, (0.9, 0.99), 0.0, None]
    assert signature.parameters["masters"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name", _about.list_ops())
def test_every_member_of_a_description_has_a_keyword(name):
    op = _ops.op(name)
    function = getattr(quern, f"{name}_")
    words = _signature.keywords(op)
    assert [word.role for word in words if word.role] == sorted(op.roles, key=lambda role: role.optional)
    assert sorted(param.name for word in words for param in word.params) == sorted(op.params)
    assert [word.name for word in words] == list(inspect.signature(function).parameters)
    document = inspect.getdoc(function)
    for word in words:
        assert f"\n{word.name} : " in document
    for row in op.types:
        assert all(kind in "f32 bf16 f16 f64 none" for kind in row)
    assert document.count("\n") < 200
    assert max(map(len, document.splitlines())) <= 100


class Description:
    """An op as it might be, with what lion has not: three numbered members, one alone, another order."""

    def __init__(self):
        def number(name, default, least=0.0, most=1.0):
            return _ops.Param(name, f"what {name} is", _abi.PARAM_DOUBLE, 8, default, least, most, True, (), None)

        names = ("rate1", "rate2", "rate3", "top1", "alpha1", "beta2")
        self.name, self.roles, self.Hyper = "other", (), None
        self.params = {name: number(name, k / 10) for k, name in enumerate(names)}


def test_numbered_members_become_one_keyword():
    words = {word.name: word for word in _signature.keywords(Description())}
    assert list(words) == ["rates", "top1", "alpha1", "beta2", "stream"]
    assert words["rates"].default == (0.0, 0.1, 0.2)
    assert words["rates"].annotation == "tuple[SupportsFloat, SupportsFloat, SupportsFloat]"


def test_describe():
    said = quern.describe("lion")
    assert json.loads(json.dumps(said)) == said
    assert [role["keyword"] for role in said["tensors"]] == ["params", "grads", "exp_avgs", "masters"]
    assert next(param for param in said["params"] if param["name"] == "beta1")["range"] == "in [0, 1)"
    assert {variant["backend"] for variant in said["variants"]} == {"cpu", "emulator", "cuda"}
    assert ["f32", "f32", "f32", "none"] in said["types"]
    with pytest.raises(ValueError, match='did you mean "lion"'):
        quern.describe("loin")


# ---- packed tensors ----
def test_tensors_are_what_ctypes_would_make():
    shapes, strides = [(3, 4), (), (7,), (2, 3, 4)], [None, (), None, (12, 1, 3)]
    made = _tensors.Tensors([1, 1 << 47, 3, 4], 2, shapes, strides, (1, 5))
    assert len(made) == 4
    for k, address in enumerate([1, 1 << 47, 3, 4]):
        one = _abi.Tensor.from_address(made.address + 40 * k)
        assert (one.data, one.dtype, one.ndim) == (address, 2, len(shapes[k]))
        assert (one.device.kind, one.device.index) == (1, 5)
        extents = (_ops.c_uint64 * one.ndim).from_address(one.shape or 0) if one.ndim else ()
        assert tuple(extents) == shapes[k]
        assert bool(one.strides) == (strides[k] is not None)
        if strides[k]:
            assert tuple((_ops.c_uint64 * one.ndim).from_address(one.strides)) == strides[k]
    other = made.like([5, 6, 7, 8], 3)
    assert [_abi.Tensor.from_address(other.address + 40 * k).data for k in range(4)] == [5, 6, 7, 8]
    assert [_abi.Tensor.from_address(other.address + 40 * k).dtype for k in range(4)] == [3] * 4
    assert [_abi.Tensor.from_address(made.address + 40 * k).dtype for k in range(4)] == [2] * 4
    assert _abi.Tensor.from_address(other.address + 120).ndim == 3
    with pytest.raises(ValueError, match="3"):
        made.move([1, 2, 3])
    with pytest.raises(ValueError, match="1 addresses, 2 shapes"):
        _tensors.Tensors([1], 1, [(1,), (2,)])
    with pytest.raises(ValueError, match=r"shape \(3,\) has the strides \(1, 2\)"):
        _tensors.Tensors([1], 1, [(3,)], [(1, 2)])


# ---- threads ----
@pytest.fixture
def threads():
    yield
    quern.set_num_threads(None)


def test_threads(threads):
    assert quern.get_num_threads() == len(os.sched_getaffinity(0))
    quern.set_num_threads(3)
    assert quern.get_num_threads() == 3
    assert _library.lib.qn_pool_threads(_threads.pool().handle) == 3
    assert _threads.pool() is _threads.pool()
    quern.set_num_threads(1)
    assert _threads.pool() is None
    for wrong, error in (
        (0, ValueError),
        (-1, ValueError),
        (5000, ValueError),
        (2.5, TypeError),
        ("2", TypeError),
        (True, TypeError),
        (2**32 + 2, ValueError),
        (2**40, ValueError),
        (-(2**32) + 2, ValueError),
        (2**200, ValueError),
    ):
        with pytest.raises(error):
            quern.set_num_threads(wrong)
        assert quern.get_num_threads() == 1


def test_only_some_pools_are_kept(threads):
    """Whoever goes through all numbers of threads is not left with all of them."""
    before = len(os.listdir("/proc/self/task"))
    for n in range(2, 12):
        quern.set_num_threads(n)
    assert len(os.listdir("/proc/self/task")) - before <= 8 + 9 + 10 + 11
    assert len(_threads._pools) <= 4


def test_affinity():
    program = (
        "import os, quern; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(quern.get_num_threads())"
    )
    assert run(program).strip() == "1"


STEP = """
    import array, os, sys, threading
    import quern
    from quern import _threads

    class Floats:
        def __init__(self, n):
            self.memory = array.array("f", [1.0]) * n
            data = (self.memory.buffer_info()[0], False)
            self.__array_interface__ = {"shape": (n,), "typestr": "<f4", "data": data, "version": 3}

    def step():
        p, g, m = (Floats(1 << 18) for _ in range(3))
        quern.lion_(p, g, m, lr=0.5)
        assert p.memory[7] == 0.5 and p.memory[(1 << 18) - 1] == 0.5, p.memory[7]

    quern.set_num_threads(4)
"""


def test_fork():
    """The parent's threads are not in the child: it starts its own, and neither hangs."""
    program = (
        STEP
        + """
    step()
    if (child := os.fork()) == 0:
        step()
        alive = len(os.listdir("/proc/self/task"))
        os._exit(0 if alive == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    step()
    print("done")
    """
    )
    assert run(program, flags=["-W", "ignore::DeprecationWarning"]).strip() == "done"


def test_end_of_the_interpreter():
    """With pools alive, with one in a cycle, and with a call in progress on another thread."""
    program = (
        STEP
        + """
    step()
    class Cycle: pass
    cycle = Cycle(); cycle.me, cycle.pool = cycle, _threads.pool(3)
    def forever():
        while True: step()
    threading.Thread(target=forever, daemon=True).start()
    print("done")
    """
    )
    assert run(program).strip() == "done"


def test_many_threads_call_at_once():
    program = (
        STEP
        + """
    def several():
        for _ in range(20): step()
    callers = [threading.Thread(target=several) for _ in range(4)]
    switching = threading.Thread(target=lambda: [quern.set_num_threads(n) for n in [1, 2, 3, 4, 5, 6, 7] * 10])
    for thread in [*callers, switching]: thread.start()
    for thread in [*callers, switching]: thread.join()
    print("done")
    """
    )
    assert run(program).strip() == "done"


# ---- options, devices ----
def test_options():
    assert set(quern.options()) >= {"cpu", "cache", "cache_dir", "libcuda"}
    before = quern.get_option("cache_bytes")
    try:
        quern.set_option("cache_bytes", "1M")
        assert quern.options()["cache_bytes"] == "1M"
    finally:
        quern.set_option("cache_bytes", None)
    assert quern.get_option("cache_bytes") == before
    with pytest.raises(ValueError, match="nearest"):
        quern.get_option("cach")
    with pytest.raises(ValueError, match="auto"):
        quern.set_option("cpu", "sse9")
    assert quern.get_option("cpu") in ("auto", "ref", "avx2", "avx512", "avx512bf16", "amx", "neon")


def test_devices():
    first = quern.devices()[0]
    assert first.name == "cpu"
    assert first.model
    assert first.memory_bytes >= first.free_bytes > 0
    assert [device.name for device in quern.devices()[1:]] == [f"cuda:{k}" for k in range(len(quern.devices()) - 1)]
