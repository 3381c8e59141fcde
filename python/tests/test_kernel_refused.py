# SPDX-License-Identifier: Apache-2.0
"""Refused kernels and calls. Each refusal is an exception with a sentence that names the kernel and
what is wrong; nothing is written, and the next call works."""

import os
import pathlib
import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

import kernel_bodies as bodies  # noqa: E402
import quern  # noqa: E402

ADD = "uint i = thread_position_in_grid.x; out[i] = x[i] + y[i];"


def add(**more):
    return quern.metal_kernel("add", ["x", "y"], ["out"], ADD, **more)


def call(kernel, *inputs, **changed):
    given = dict(
        inputs=list(inputs) or [np.ones(4, np.float32), np.ones(4, np.float32)],
        grid=(4, 1, 1),
        threadgroup=(4, 1, 1),
        output_shapes=[(4,)],
        output_dtypes=[np.float32],
    )
    given.update(changed)
    return kernel(**given)


# ---- making one ----
@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        (dict(name="two words"), ValueError, "two words"),
        (dict(name=""), ValueError, "identifier"),
        (dict(name=3), TypeError, "name is an int, it must be a str"),
        (dict(name="nul\0"), ValueError, "name has a NUL in it"),
        (dict(input_names=["x", "x"]), ValueError, "x"),
        (dict(input_names=["x", "out"]), ValueError, "out"),
        (dict(input_names=["x", "1y"]), ValueError, "1y"),
        (dict(input_names="xy"), TypeError, "input_names is 'xy', it must be a list of names"),
        (dict(input_names=[1]), TypeError, "one of add: input_names is an int"),
        (dict(output_names=[]), ValueError, "output"),
        (dict(source=3), TypeError, "source is an int, it must be a str or a path"),
        (dict(source="out[0] = 1;\0"), ValueError, "source has a NUL"),
        (dict(source="out[0] = 1; /* no end"), ValueError, "line 1: what begins with"),
        (dict(header=b"int x;"), TypeError, "header is a bytes"),
        (dict(math="quick"), ValueError, "math is 'quick'; it may be safe, relaxed, fast"),
        (dict(compile_options={"speed": 1}), ValueError, "compile_options has 'speed'"),
        (dict(atomic_outputs=["x"]), ValueError, "atomic_outputs has 'x'; there are out"),
        (dict(strided=["z"]), ValueError, "strided has 'z'; there are x, y"),
        (dict(contracts={"z": "f32"}), ValueError, "contracts has 'z'; there are x, y, out"),
        (dict(contracts={"x": "f33 [n]"}), ValueError, "f33"),
    ],
)
def test_what_is_no_kernel(given, error, sentence):
    whole = dict(name="add", input_names=["x", "y"], output_names=["out"], source=ADD)
    whole.update(given)
    with pytest.raises(error, match=sentence):
        quern.metal_kernel(**whole)


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        (17, "a cluster of 17 blocks: CUDA's dialect has clusters, of at most 16"),
        (-1, "cluster is -1; it must be a number of threadgroups"),
        (2.0, "cluster is 2.0; it must be a number of threadgroups"),
    ],
)
def test_what_is_no_cluster(cluster, sentence):
    with pytest.raises(ValueError, match=sentence):
        quern.cuda_kernel("k", ["x"], ["out"], "out[threadIdx.x] = x[threadIdx.x];", cluster=cluster)


def test_a_processor_has_no_clusters():
    kernel = quern.cuda_kernel("k", ["x"], ["out"], "out[threadIdx.x] = x[threadIdx.x];", cluster=2)
    with pytest.raises((ValueError, RuntimeError, NotImplementedError), match="needs a GPU of compute capability 9.0"):
        call(kernel, np.ones(4, np.float32))
    text = kernel.emit("cuda", inputs=[np.ones(4, np.float32)], grid=(8, 1, 1), threadgroup=(4, 1, 1),
                       output_shapes=[(4,)], output_dtypes=[np.float32])  # fmt: skip
    assert "__cluster_dims__(2, 1, 1) __launch_bounds__(4, 1)" in text
    for form in ("hip", "mlx"):
        with pytest.raises((ValueError, RuntimeError, NotImplementedError), match="a cluster of 2 blocks"):
            kernel.emit(form, inputs=[np.ones(4, np.float32)], grid=(8, 1, 1), threadgroup=(4, 1, 1),
                        output_shapes=[(4,)], output_dtypes=[np.float32])  # fmt: skip


def test_math_modes_by_both_names():
    for options in ({}, {"math": "fast"}, {"compile_options": {"math_mode": "relaxed"}}):
        assert call(add(**options))[0].tolist() == [2, 2, 2, 2]


# ---- calling it ----
@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        (dict(inputs=[np.ones(4)]), ValueError, "add: inputs has 1 of 2: x, y"),
        (dict(inputs=[1, 2, 3]), ValueError, "add: inputs has 3 of 2: x, y"),
        (dict(inputs=3), TypeError, "add: inputs is an int, it must be a list"),
        (dict(inputs=[None, 1]), TypeError, "add: x is None, it must be an array or a number"),
        (dict(inputs=[[1, 2], 1]), TypeError, "add: x is a list, it must be an array or a number"),
        (dict(inputs=["1", 1]), TypeError, "add: x is a str"),
        (dict(inputs=[np.array(["a"]), 1]), TypeError, "add: x is str"),
        (dict(inputs=[np.ones(4, ">f4"), 1]), TypeError, "add: x is float32 in the other byte order"),
        (dict(inputs=[np.ones(4, np.longdouble), 1]), TypeError, "add: x is .*; storage types are float32"),
        (dict(output_shapes=[(4,), (4,)]), ValueError, "add: output_shapes has 2 of 1: out"),
        (dict(output_shapes=None), ValueError, "add: out: output_shapes is wanted"),
        (dict(output_shapes=[4]), TypeError, "add: out: its shape is 4, it must be|it must be a sequence of integers"),
        (dict(output_shapes=[(-4,)]), ValueError, r"add: out: its shape is \(-4,\); an extent is not negative"),
        (dict(output_shapes=[(4.0,)]), TypeError, "its shape is"),
        (dict(output_dtypes=["float33"]), TypeError, "add: out is 'float33'; storage types are float32, "),
        (dict(output_dtypes=[float]), TypeError, "add: out is <class 'float'>; storage types are"),
        (dict(output_dtypes=[]), ValueError, "add: output_dtypes has 0 of 1"),
        (dict(grid=(0, 1, 1)), ValueError, "add: grid"),
        (dict(grid=(-1, 1, 1)), ValueError, r"add: grid is \(-1, 1, 1\)"),
        (dict(grid=(4.0, 1, 1)), TypeError, r"add: grid is \(4.0, 1, 1\); it must be three integers"),
        (dict(grid=(1, 1, 1, 1)), ValueError, "add: grid is"),
        (dict(grid=(1 << 64, 1, 1)), ValueError, "add: grid is"),
        (dict(threadgroup=(1025, 1, 1)), ValueError, "threadgroup .* at most 1024"),
        (dict(threadgroup=(64, 64, 1)), ValueError, "has 4096 threads, at most 1024"),
        (dict(threadgroup=(4, 0, 1)), ValueError, "threadgroup"),
        (dict(template=[("T", 1.5)]), ValueError, "template T is neither a bool, an int nor a storage type"),
        (dict(template=[("T", "what")]), TypeError, "the template value T is 'what'"),
        (dict(template=[("T", np.ones(3))]), TypeError, "the template value T is array"),
        (dict(template=[("1T", 1)]), ValueError, '"1T" is no identifier'),
        (dict(template=[("T", 1), ("T", 2)]), ValueError, "template T is given twice"),
        (dict(template=[("T",)]), TypeError, "it must be a list of pairs"),
        (dict(template=[(1, 1)]), TypeError, "template has the name 1"),
        (dict(template=3), TypeError, "template is 3"),
        (dict(init_value=[1, 2]), ValueError, "init_value has 2 of 1"),
        (dict(init_value="zero"), TypeError, "an init_value is 'zero'"),
        (dict(stream=0), ValueError, "add: stream is given, and the arrays are not on a GPU"),
        (dict(limit=0), ValueError, "limit is 0; it must be a number of seconds above 0"),
        (dict(limit=float("nan")), ValueError, "limit is nan"),
        (dict(shared_memory=-1), ValueError, "shared_memory is -1"),
        (dict(shared_memory=1.5), TypeError, "shared_memory is 1.5, it must be an int"),
        (dict(in_place={"out": "z"}), ValueError, "in_place has 'z'; there are x, y"),
        (dict(in_place={"z": "x"}), ValueError, "in_place has 'z'; there are out"),
        (dict(in_place=["out"]), TypeError, "in_place is"),
        (dict(in_place={"out": "x"}, output_shapes=[(2,)]), ValueError, r"has the shape \(4,\), and output_sha"),
        (dict(in_place={"out": "x"}, output_dtypes=["f16"]), TypeError, "is float32, and output_dtypes says 'f16'"),
        (dict(out=[np.ones(4)]), TypeError, "is float64, and output_dtypes says"),
        (dict(out=[np.ones(4, np.float32)], in_place={"out": "x"}), ValueError, "one of both"),
        (dict(out=[1.0], output_shapes=None, output_dtypes=None), TypeError, "add: out is a number, it must be an"),
    ],
)  # fmt: skip
def test_what_is_no_call(changed, error, sentence):
    kernel = add()
    for _ in range(2):  # and not from anything that the first attempt left
        with pytest.raises(error, match=sentence):
            call(kernel, **changed)
    assert call(kernel)[0].tolist() == [2, 2, 2, 2]


def test_unknown_arguments():
    with pytest.raises(TypeError, match="unexpected keyword argument 'threads'"):
        call(add(), threads=3)
    with pytest.raises(TypeError, match="add: there is no argument 'threads'"):
        add().text(inputs=[], grid=(1, 1, 1), threads=3)
    with pytest.raises(TypeError, match="add: grid is wanted"):
        add().text(inputs=[])
    with pytest.raises(ValueError, match="form is 'java'; it may be cuda, hip, metal, mlx"):
        add().emit("java", inputs=[], grid=(1, 1, 1))


def test_nothing_is_written_where_a_call_is_refused():
    x, y = np.ones(4, np.float32), np.full(4, 7, np.float32)
    kernel = add(contracts={"x": "f32 [n]", "y": "f32 [n]"})
    with pytest.raises(ValueError, match="add"):
        call(kernel, x, np.ones(5, np.float32), out=[y], output_shapes=None)
    with pytest.raises(ValueError):
        call(kernel, x, x, out=[y], init_value=3, threadgroup=(2000, 1, 1), output_shapes=None)
    assert y.tolist() == [7, 7, 7, 7]


def test_what_may_not_be_written():
    x = np.ones(4, np.float32)
    x.flags.writeable = False
    y = np.ones(4, np.float32)
    kernel = add()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"add: x \(ndarray\) is read-only, and it would be written"):
            call(kernel, x, y, in_place={"out": "x"}, output_shapes=None, output_dtypes=None)
        with pytest.raises(ValueError, match=r"add: out \(ndarray\) is read-only"):
            call(kernel, y, y, out=[x], output_shapes=None, output_dtypes=None)
        with pytest.raises(TypeError, match="add: x is a number, it must be an array"):
            call(kernel, 1.0, y, in_place={"out": "x"}, output_shapes=None, output_dtypes=None)
        # the same call with what may be written makes a plan, which must not let the next one through
        call(kernel, y.copy(), y, in_place={"out": "x"}, output_shapes=None, output_dtypes=None)
        call(kernel, y, y, out=[y.copy()], output_shapes=None, output_dtypes=None)
    assert x.tolist() == [1, 1, 1, 1]


def test_outputs_that_overlap():
    x = np.ones(8, np.float32)
    with pytest.raises(ValueError, match="add"):
        call(add(), x[:4], x[4:], out=[x[2:6]], output_shapes=None)
    assert x.tolist() == [1] * 8


def test_contracts_are_said_and_kept():
    kernel = add(contracts={"x": "f32|f16 [n, 2]", "y": "f32|f16 [n, 2]"})
    assert "x  f32|f16 [n, 2]" in kernel.__doc__
    with pytest.raises(ValueError, match=r'add: input "x" is f32 \[4\]; its contract is "f32\|f16 \[n, 2\]"'):
        call(kernel)
    with pytest.raises((ValueError, TypeError), match=r'add: input "x" is f64 \[2, 2\]'):
        call(kernel, np.ones((2, 2)), np.ones((2, 2)))
    x = np.ones((2, 2), np.float32)
    assert call(kernel, x, x)[0].tolist() == [2, 2, 2, 2]


def test_a_body_that_does_not_compile():
    wrong = quern.metal_kernel("wrong", ["x"], ["out"], "int a = 1;\nout[0] = nothing + a;\n")
    for _ in range(2):
        with pytest.raises(quern.CompileError, match=r"wrong: wrong:2") as caught:
            wrong(inputs=[1], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(1,)], output_dtypes=["f32"])
        assert "out[0] = nothing + a;" in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    assert call(add())[0].tolist() == [2, 2, 2, 2]


def test_bfloat16_without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="pip install ml_dtypes"):
        call(add(), output_dtypes=["bfloat16"])


# ---- checks and limits ----
def test_a_race_is_found():
    race = quern.metal_kernel("race", [], ["out"], "uint i = thread_position_in_grid.x;\nout[i] = i;\nout[0] = i;\n")
    given = dict(
        inputs=[], grid=(64, 1, 1), threadgroup=(64, 1, 1), output_shapes=[(64,)], output_dtypes=["i32"], check=True
    )
    with pytest.raises(quern.KernelError, match="race") as caught:
        race(**given)
    found = quern.findings()
    assert found == caught.value.findings
    assert found[0].text == str(caught.value) or found[0].text in str(caught.value)
    kinds = {one.kind for one in found}
    assert "race" in kinds
    first = next(one for one in found if one.kind == "race")
    assert {first.line, first.other_line} <= {2, 3}
    assert first.where == "out"
    assert len(first.thread) == 3


def test_a_checked_kernel_that_is_right():
    assert call(add(), check=True)[0].tolist() == [2, 2, 2, 2]
    assert call(add(), check=True, seed=7)[0].tolist() == [2, 2, 2, 2]
    assert quern.findings() == ()


def test_a_write_out_of_bounds_is_found():
    kernel = quern.metal_kernel("over", [], ["out"], "out[thread_position_in_grid.x] = 1;")
    with pytest.raises(quern.KernelError, match="over"):
        kernel(
            inputs=[], grid=(9, 1, 1), threadgroup=(16, 1, 1), output_shapes=[(8,)], output_dtypes=["i32"], check=True
        )
    assert [one.kind for one in quern.findings()] == ["out of bounds"]


def test_a_body_that_loops_for_ever_is_stopped():
    kernel = quern.metal_kernel("ever", ["x"], ["out"], "while (x[0] == 1) { out[0] += 1; }")
    with pytest.raises(quern.KernelError, match="ever"):
        kernel(
            inputs=[np.ones(1, np.float32)], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(1,)],
            output_dtypes=["f32"], init_value=0, limit=0.2,
        )  # fmt: skip
    assert call(add())[0].tolist() == [2, 2, 2, 2]
    assert call(add(), limit=10.0)[0].tolist() == [2, 2, 2, 2]


# ---- the package ----
def run(program):
    package = pathlib.Path(quern.__file__).resolve().parents[1]
    environment = dict(os.environ, PYTHONPATH=str(package))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_brings_neither_numpy_nor_kernels():
    program = (
        "import sys, quern; "
        "print(*[name for name in ('numpy', 'torch', 'quern._kernel', 'quern._kernel_abi') if name in sys.modules])"
    )
    assert run(program) == ""
    assert run("import sys, quern; quern.metal_kernel; print('numpy' in sys.modules)") == "False"


def test_a_kernel_in_a_forked_child():
    program = f"""
import os, numpy as np, quern
kernel = quern.metal_kernel("add", ["x", "y"], ["out"], {ADD!r})
def call():
    x = np.ones(4096, np.float32)
    return kernel(inputs=[x, x], grid=(4096, 1, 1), threadgroup=(64, 1, 1), output_shapes=[(4096,)],
                  output_dtypes=["f32"])[0].sum()
call()
child = os.fork()
if not child:
    os._exit(int(call() != 8192))
print(os.waitpid(child, 0)[1], call())
"""
    assert run(program) == "0 8192.0"


def test_a_failed_call_keeps_no_memory():
    """Frames and arrays of a call that raises are let go: a hundred of a megabyte each."""
    kernel = quern.metal_kernel("wrong", ["x"], ["out"], "out[0] = nothing;")
    import resource

    def attempt():
        with pytest.raises(quern.CompileError):
            kernel(
                inputs=[np.ones(1 << 18, np.float32)], grid=(1, 1, 1), threadgroup=(1, 1, 1),
                output_shapes=[(1 << 18,)], output_dtypes=["f32"], init_value=1,
            )  # fmt: skip

    attempt()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(40):
        attempt()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10


def test_bodies_are_what_they_were():
    """The shared bodies compile in every math mode: they are what other tests stand on."""
    for math in ("safe", "relaxed", "fast"):
        kernel = quern.metal_kernel("myexp", ["inp"], ["out"], bodies.EXP, math=math)
        (out,) = kernel(
            inputs=[np.zeros(3, np.float32)], template=[("T", "f32")], grid=(3, 1, 1), threadgroup=(3, 1, 1),
            output_shapes=[(3,)], output_dtypes=["f32"],
        )  # fmt: skip
        assert out.tolist() == [1, 1, 1]
