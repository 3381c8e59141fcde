# SPDX-License-Identifier: Apache-2.0
"""quern.testing.check_kernel: a right kernel passes, each planted bug is an AssertionError with its finding, and a call
that checks nothing is refused. The example is run as its page says."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

import quern  # noqa: E402
from quern.testing import check_kernel  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
X = np.linspace(-2, 2, 70, dtype=np.float32)
REVERSE = """uint i = thread_position_in_grid.x, lane = thread_position_in_threadgroup.x;
threadgroup float part[64];
part[lane] = x[i];
threadgroup_barrier(mem_flags::mem_threadgroup);
out[i] = part[threads_per_threadgroup.x - 1 - lane];"""
WANTED = np.concatenate([X[:64][::-1], X[64:][::-1]])


def check(body=REVERSE, **more):
    call = dict(inputs=[X], grid=(70, 1, 1), threadgroup=(64, 1, 1), output_shapes=[(70,)], output_dtypes=["f32"])
    check_kernel(quern.metal_kernel("reverse", ["x"], ["out"], body), **{**call, "expected": WANTED, **more})


def test_a_right_kernel_passes():
    check()
    check(expected=[WANTED])
    check(expected=lambda x: np.concatenate([x[:64][::-1], x[64:][::-1]]))


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("threadgroup_barrier(mem_flags::mem_threadgroup);", "", "reverse, line 5: .*part"),
        ("part[lane] = x[i];", "part[lane] = x[i + 1];", "reverse, line 3: .* reads bytes .* of x, which has 280"),
        ("part[lane] = x[i];", "if (lane > 3) part[lane] = x[i];", "line 5: .* part before anything wrote there"),
        ("out[i] =", "if (i != 7) out[i] =", "out"),
        ("- 1 - lane", "- lane - (lane ? 1 : 1) * 1 + (i == 9)", r"out\[\d+\] is|reads"),
    ],
    ids=["race", "out of bounds", "uninitialised", "not written", "one element"],
)
def test_planted_bugs_are_found(old, new, finding):
    assert old in REVERSE
    with pytest.raises(AssertionError, match=finding):
        check(REVERSE.replace(old, new))


def test_a_wrong_value_is_named():
    wrong = WANTED.copy()
    wrong[7] += 1e-5
    with pytest.raises(AssertionError, match=r"out\[7\] is 1\.24637675, 1\.24638677 is expected; 1 of 70"):
        check(expected=wrong)
    check(expected=wrong, atol=2e-5)
    with pytest.raises(AssertionError, match=r"out has the shape \(70,\), \(69,\) is expected"):
        check(expected=WANTED[:69])
    with pytest.raises(AssertionError, match="1 outputs, 2 are expected"):
        check(expected=[WANTED, WANTED])


def test_nan_equals_nan_and_nothing_else():
    body = "uint i = thread_position_in_grid.x; out[i] = metal::sqrt(x[i]);"
    with np.errstate(invalid="ignore"):
        wanted = np.sqrt(X)
    check(body, expected=wanted)
    with pytest.raises(AssertionError, match=r"out\[0\] is nan, 0 is expected"):
        check(body, expected=np.nan_to_num(wanted))


def test_integers_are_exact():
    body = "out[thread_position_in_grid.x] = int(thread_position_in_grid.x) + 1;"
    wanted = np.arange(1, 71, dtype=np.int32)
    check(body, expected=wanted, output_dtypes=["i32"])
    wanted[3] = 3
    with pytest.raises(AssertionError, match=r"out\[3\] is 4, 3 is expected"):
        check(body, expected=wanted, output_dtypes=["i32"])


def test_inputs_are_not_changed_by_outputs_in_place():
    x = X.copy()
    body = "out[thread_position_in_grid.x] = out[thread_position_in_grid.x] + 1;"
    check(body, inputs=[x], in_place={"out": "x"}, expected=X + 1, output_shapes=None, output_dtypes=None)
    np.testing.assert_array_equal(x, X)


def folder(path, body):
    made = {
        "name": "twice", "inputs": {"x": "f32 [n]"}, "outputs": {"out": "f32 [n]"}, "grid": ["n"], "threadgroup": [64],
        "sizes": [{"n": 1}, {"n": 65}], "reference": {"source": "reference.metal"}, "agreement": "bitwise",
    }  # fmt: skip
    (path / "kernel.json").write_text(json.dumps(made))
    (path / "twice.metal").write_text(body)
    (path / "reference.metal").write_text("out[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];")
    return path


def test_a_folder(tmp_path):
    right = "uint i = thread_position_in_grid.x; out[i] = x[i] + x[i];"
    check_kernel(folder(tmp_path, right))
    check_kernel(quern.load_kernel(tmp_path), quick=False, orders=1)
    check_kernel(tmp_path, inputs=[X], expected=2 * X)
    folder(tmp_path, right.replace("x[i] + x[i]", "x[i] + 1"))
    with pytest.raises(AssertionError, match=r"failed(.|\n)*not ok .* twice n=1, (.|\n)*the reference"):
        check_kernel(tmp_path)
    with pytest.raises(AssertionError, match=r"kernel twice: out\[0\] is -1, -4 is expected"):
        check_kernel(tmp_path, inputs=[X], expected=2 * X)
    folder(tmp_path, right.replace("x[i] +", "x[i + 1] +"))
    with pytest.raises(AssertionError, match="not ok .*checking mode(.|\n)*reads bytes"):
        check_kernel(tmp_path)


def test_what_would_check_nothing_is_refused(tmp_path):
    with pytest.raises(TypeError, match="inputs is missing; only a folder has sizes"):
        check(inputs=None)
    with pytest.raises(TypeError, match="expected, grid requires inputs"):
        check_kernel(folder(tmp_path, "out[0] = 1;"), expected=X, grid=(1, 1, 1))
    with pytest.raises(ValueError, match="orders is 0"):
        check(orders=0)
    with pytest.raises(FileNotFoundError, match="no kernel that ships"):
        check_kernel("no_such_kernel")
    (tmp_path / "kernel.json").write_text("{")
    with pytest.raises(ValueError, match=r"kernel\.json"):
        check_kernel(tmp_path)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 70, dtype=torch.bfloat16)
    kernel = quern.metal_kernel("twice", ["x"], ["out"], "uint i = thread_position_in_grid.x; out[i] = x[i] + x[i];")
    call = dict(inputs=[x], grid=(70, 1, 1), output_shapes=[(70,)], output_dtypes=[x.dtype])
    check_kernel(kernel, expected=lambda x: x * 2, **call)
    with pytest.raises(AssertionError, match=r"out\[0\] is -2, -3 is expected"):
        check_kernel(kernel, expected=lambda x: x * 3, **call)


def test_the_example():
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "examples/kernel_tests")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "9 passed" in done.stdout, done.stdout + done.stderr
