# SPDX-License-Identifier: Apache-2.0
"""The findings of a checked launch, as an exception, a warning or nothing; and the lines that errors of a text name."""

import json
import warnings

import numpy as np
import pytest
import quern

SAME = """uint i = thread_position_in_grid.x;
threadgroup float part[2];
part[i / 32] = 0;
threadgroup_barrier(mem_flags::mem_threadgroup);
out[i] = part[i / 32] + x[i];"""
TWO = SAME.replace("= 0;", "= i;")  # and with values that differ
X = np.arange(64, dtype=np.float32)


def call(body, header="", make=quern.metal_kernel, name="zeros", **more):
    kernel = make(name, ["x"], ["out"], body, header)
    return kernel(
        inputs=[X], grid=(64, 1, 1), threadgroup=(64, 1, 1), output_shapes=[(64,)], output_dtypes=["f32"], **more
    )[0]


def test_equal_values_are_a_kind_of_their_own():
    with pytest.raises(quern.KernelError, match="the values are equal") as caught:
        call(SAME, check=True)
    (finding,) = caught.value.findings
    assert (finding.kind, finding.line, finding.where) == ("same value", 3, "part")
    assert "    3 | part[i / 32] = 0;" in str(caught.value)
    np.testing.assert_array_equal(caught.value.outputs[0], X)
    with pytest.raises(quern.KernelError) as caught:
        call(TWO, check=True)
    assert [finding.kind for finding in caught.value.findings] == ["race"]


def test_findings_as_warnings_with_the_outputs():
    with pytest.warns(quern.FindingsWarning, match="line 3: thread") as caught:
        out = call(SAME, check="warn")
    np.testing.assert_array_equal(out, X)
    (warning,) = caught
    assert warning.filename == __file__
    assert [finding.kind for finding in warning.message.findings] == ["same value"]
    assert warning.message.findings == quern.findings()
    assert warning.message.outputs[0] is out


def test_a_launch_that_was_stopped_is_no_warning():
    with pytest.raises(quern.KernelError, match="ran longer than"):
        call("for (int k = 0; k >= 0; k = (k + 1) & 1023) out[0] = k;", check="warn", limit=0.05)


@pytest.mark.parametrize("ignore", ["same value", ["race", "same_value"], ("same-value",)])
def test_kinds_that_are_ignored(ignore):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for check in (True, "warn"):
            np.testing.assert_array_equal(call(SAME, check=check, ignore=ignore), X)


def test_others_are_found_all_the_same():
    with pytest.raises(quern.KernelError) as caught:
        call(TWO + "\nif (i == 3) out[i + 64] = 0;", check=True, ignore="race")
    assert [finding.kind for finding in caught.value.findings] == ["out of bounds"]


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        (dict(ignore="rice"), ValueError, '"rice" is no kind .* out of bounds, race, .* same value'),
        (dict(ignore=["race", "time limit"]), ValueError, '"time limit" is no kind of finding that can be ignored'),
        (dict(ignore=3), TypeError, "ignore is 3"),
        (dict(check="warm"), ValueError, "check is 'warm'"),
    ],
)
def test_kinds_and_checks_that_there_are_not(more, error, words):
    with pytest.raises(error, match=words):
        call(SAME, **{"check": True, **more})


def test_words_of_the_active_lanes_are_no_finding():
    body = """uint i = thread_position_in_grid.x;
    float v = x[i];
    if (i % 32 >= 24) { out[i] = v; if (i % 32 >= 28) return; }
    if (i % 32 < 16) out[i] = simd_sum(v) + simd_max(v) - simd_prefix_inclusive_sum(v);
    else { threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = v; }"""
    kinds = ["divergent barrier"]  # which it has
    call(body, check=True, ignore=kinds)


def test_a_folder_says_what_is_ignored(tmp_path):
    (tmp_path / "zeros.metal").write_text(SAME)
    made = {
        "name": "zeros", "inputs": {"x": "f32 [n]"}, "outputs": {"out": "f32 [n]"}, "grid": ["n"], "threadgroup": [64],
        "sizes": [{"n": 64}],
    }  # fmt: skip
    (tmp_path / "kernel.json").write_text(json.dumps(made))
    with pytest.raises(quern.KernelError, match="equal"):
        quern.load_kernel(tmp_path)(X, check=True)
    (tmp_path / "kernel.json").write_text(json.dumps({**made, "ignore": ["same value"]}))
    np.testing.assert_array_equal(quern.load_kernel(tmp_path)(X, check=True), X)


# ---- lines of errors ----
@pytest.mark.parametrize(
    ("body", "header", "words"),
    [
        ("uint i = 0;\nif (x[i] < 2) {\n  out[i] = 1;\n", "", r"zeros:2:15: .* \{ is never closed\n    2 \| if \(x"),
        ("out[0] = 1;\n  }\n", "", r"zeros:2:3: .* \} closes nothing .*\n    2 \|   \}"),
        ("\nout[0] = (1 + x[0];\n", "", r"zeros:2:10: .* \( is never closed"),
        ("out[0] = x[(0];\n", "", r"zeros:1:12: .* \( is not closed before the \] of line 1"),
        ("out[0] = 1; } void more() {", "", r"zeros:1:13: .* closes nothing"),
        ("#if 1\nif (x[0] > 0) {\n#else\n{\n#endif\nout[0] = 1;", "", r"zeros:2:15: .* \{ is never closed"),
        (
            "out[0] = f(1);",
            "float f(float y) {\n  if (y > 1) {\n    return y;\n}\n",
            r"zeros \(header\):1:18: .* never",
        ),
        ("out[0] = f(1);", "float f(float y) {\n  return z;\n}\n", r"\(header\):2.*'z'.*(\n.*)?    2 \|   return z;"),
        ("out[0] = 1;\nout[0] = y;", "", r"zeros:2.*'y'.*\n    2 \| out\[0\] = y;"),
    ],
)
def test_errors_are_told_at_lines_of_the_text(body, header, words):
    with pytest.raises(quern.CompileError, match=words):
        call(body, header)


@pytest.mark.parametrize("body", ["#ifdef A\nif (1) {\n#else\nif (2) {\n#endif\nout[thread_position_in_grid.x] = 1; }",
                                  "#define OPEN {\nOPEN out[thread_position_in_grid.x] = 1; }"])  # fmt: skip
def test_brackets_of_macros_and_branches_are_no_mistake(body):
    assert (call(body) == 1).all()


@pytest.mark.parametrize(
    ("body", "header", "words"),
    [
        ("#include <vector>\nout[0] = 1;", "", r"kernel zeros: body, line 1: #include <vector>.*\n    1 \| #include"),
        ("out[0] = 1;", "\n#include <vector>\n", r"kernel zeros: header, line 2: #include <vector>.*\n    2 \| #incl"),
        ("out[0] = 1;\n/* never", "", r"kernel zeros: body, line 2: .*/\* never"),
        ("out[0] = 1;", "\nconst char c = 'x;\n", r"kernel zeros: header, line 2: .*'x;"),
    ],
)
def test_refusals_name_the_kernel_and_which_text(body, header, words):
    with pytest.raises(ValueError, match=words):
        call(body, header)


# ---- names ----
WORDS = ["int", "thread_position_in_grid", "float4", "while", "__x", "quern_x", "x_shape", "NAN", "half"]


@pytest.mark.parametrize("name", WORDS)
def test_names_that_the_language_has_are_refused(name):
    for make in (
        lambda: quern.metal_kernel("zeros", ["x", name], ["out"], "out[0] = 1;"),
        lambda: quern.metal_kernel("zeros", ["x"], [name], "x[0] = 1;"),
        lambda: call("out[0] = 1;", template={name: 3}),
    ):
        with pytest.raises(ValueError, match=f'kernel zeros: "{name}" .*cannot name'):
            make()


@pytest.mark.parametrize("name", ["metal", "int", "template"])
def test_kernels_are_not_called_so(name):
    with pytest.raises(ValueError, match=f"kernel {name}: its name is a word of the language"):
        call("out[0] = 1;", name=name)


def test_what_only_contains_such_a_word_is_a_name():
    kernel = quern.metal_kernel("metals", ["int_", "threadIdx", "x_shapes"], ["out"], "out[0] = int_ + threadIdx + TT;")
    (out,) = kernel(inputs=[1, 2, 3], template={"TT": 4}, grid=(1, 1, 1), output_shapes=[(1,)], output_dtypes=["f32"])
    assert out == 7
