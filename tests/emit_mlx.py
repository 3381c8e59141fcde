# SPDX-License-Identifier: Apache-2.0
"""emit_mlx.py WRITER QUERN KERNELS: the emitted MLX programs are compiled and run by Python over an mlx.core that notes
what it is asked for; names, text, options and call must be those of the kernels in emit_kernels.h. The program of a
kernel's folder, called at several sizes, must launch as `quern kernel run` does. Prints TAP."""

import contextlib
import io
import json
import pathlib
import runpy
import subprocess
import sys
import tempfile
import types

notes = []
counts = {"lines": 0, "bad": 0}


def check(condition, what):
    counts["lines"] += 1
    counts["bad"] += not condition
    print(f"{'' if condition else 'not '}ok {counts['lines']} - {what}")


class Kernel:
    def __init__(self, kind, options):
        self.kind, self.options = kind, options

    def __call__(self, **call):
        notes.append((self.kind, self.options, call))
        return [f"output {name}" for name in self.options["output_names"]]


def mlx():
    """What a program may use of MLX: types by name, the two makers, zeros, contiguous."""
    core = types.ModuleType("mlx.core")
    for name in ["uint8", "int32", "float16", "bfloat16", "float32"]:
        setattr(core, name, name)
    core.zeros = lambda shape, dtype: ("zeros", shape, dtype)
    core.contiguous = lambda array: ("contiguous", array)
    core.fast = types.SimpleNamespace(
        metal_kernel=lambda **options: Kernel("metal", options), cuda_kernel=lambda **options: Kernel("cuda", options)
    )
    package = types.ModuleType("mlx")
    package.core = core
    return {"mlx": package, "mlx.core": core}


def run(path):
    notes.clear()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(path), run_name="__main__")
    check(said.getvalue().startswith("output "), f"{path.name} prints its outputs")
    return notes[0] if len(notes) == 1 else (None, {}, {})


def same(what, got, wanted):
    for key in sorted(wanted.keys() | got.keys()):
        check(
            key in got and key in wanted and repr(got[key]) == repr(wanted[key]),
            f"{what}: {key} is {got.get(key, 'not given')!r}".replace("#", "number ").replace("\n", " "),
        )


BODY = """uint3 p = thread_position_in_grid;
if (p.z) return;
uint elem = p.y * threads_per_grid.x + p.x;
uint loc = elem_to_loc(elem, inp_shape, inp_strides, inp_ndim);
float x = inp[loc] * scale + few[p.x % 3] + (FLIP ? N : 0);
twice[elem] = helper(x, count) * out_shape[1]; // "\\n"
out[elem] = x + ceildiv(int(elem), 4);"""


class Array:
    def __init__(self, shape):
        self.shape = tuple(shape)


def quern(*words):
    return subprocess.run([sys.argv[2], *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout


def serves_all_sizes(name, sizes, *options):
    """The program made for one size, called with the shapes of others, beside a launch of each on the processor."""
    path = folder / f"{name}.py"
    path.write_text(quern("emit", pathlib.Path(sys.argv[3]) / name, "--form", "mlx", *options), encoding="utf-8")
    function = runpy.run_path(str(path))[f"{name}_"]
    for size in sizes:
        ran = json.loads(quern("kernel", "run", pathlib.Path(sys.argv[3]) / name, "--size", size, "--json", *options))
        notes.clear()
        function(*(Array(one["shape"]) for one in ran["inputs"].values()))
        call = notes[0][2]
        check(repr(list(call["grid"])) == repr(ran["grid"]), f"{name}, size {size}: grid {call['grid']}")
        check(list(call["threadgroup"]) == ran["threadgroup"], f"{name}, size {size}: group {call['threadgroup']}")
        shapes = [tuple(one["shape"]) for one in ran["outputs"].values()]
        check(call["output_shapes"] == shapes, f"{name}, size {size}: outputs {shapes}")
    return call


folder = pathlib.Path(tempfile.mkdtemp())
try:
    subprocess.run([sys.argv[1], folder], check=True, stdout=subprocess.DEVNULL)
    for path in sorted(folder.glob("*.py")):
        check(compile(path.read_text(encoding="utf-8"), path.name, "exec"), f"Python compiles {path.name}")
    sys.modules.update(mlx())

    kind, options, call = run(folder / "myexp.py")
    check(kind == "metal", "myexp is a metal_kernel")
    same("myexp", options, {
        "name": "myexp", "input_names": ["inp"], "output_names": ["out"], "ensure_row_contiguous": True,
        "atomic_outputs": False,
        "source": "uint elem = thread_position_in_grid.x;\nT tmp = inp[elem];\nout[elem] = metal::exp(tmp);",
    })  # fmt: skip
    same("myexp", call, {
        "inputs": [("zeros", (4, 16), "float16")], "template": [("T", "float32")], "grid": (64, 1, 1),
        "threadgroup": (256, 1, 1), "output_shapes": [(4, 16)], "output_dtypes": ["float16"],
    })  # fmt: skip

    kind, options, call = run(folder / "strided.py")
    same("strided", options, {
        "name": "strided", "input_names": ["inp", "few", "scale", "count"], "output_names": ["out", "twice"],
        "source": "const int out_shape[] = {6, 8}; " + BODY, "ensure_row_contiguous": False, "atomic_outputs": False,
        "header": "inline float helper(float x, int n) { return x * 2 + n; }",
    })  # fmt: skip
    scale, count = call["inputs"][2:]
    check(abs(scale - 0.7946773) < 1e-6 and count == 6, f"strided: scalars are {scale!r} and {count!r}")
    same("strided", call, {
        "inputs": [("zeros", (6, 8), "float32"), ("contiguous", ("zeros", (3,), "bfloat16")), scale, count],
        "template": [("N", -3), ("FLIP", True), ("T", "bfloat16")], "grid": (8, 6, 1), "threadgroup": (4, 4, 1),
        "output_shapes": [(6, 8), (6, 8)], "output_dtypes": ["float32", "float16"],
    })  # fmt: skip

    kind, options, call = run(folder / "histogram.py")
    check(options["atomic_outputs"] is True and call["init_value"] == 5, "histogram: atomic, from 5 on")
    kind, options, call = run(folder / "rows.py")
    check(kind == "cuda" and "atomic_outputs" not in options, "rows is a cuda_kernel")
    check(call["grid"] == (32, 8, 1) and call["threadgroup"] == (32, 4, 1), "rows: grid in threads")

    serves_all_sizes("exp", [1, 2])
    call = serves_all_sizes("softmax", [1, 5, 8])
    check(call["template"] == [("T", "float32"), ("WIDTH", 4)], "softmax: a template follows from the sizes")
    call = serves_all_sizes("softmax", [4], "--threadgroup", "64", "--set", "WIDTH=1", "--dtype", "inp=f16")
    check(call["template"] == [("T", "float16"), ("WIDTH", 1)], "softmax: one that is given stays")
    serves_all_sizes("grid_sample", [1, 3])
finally:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
print(f"1..{counts['lines']}")
sys.exit(counts["bad"] > 0)
