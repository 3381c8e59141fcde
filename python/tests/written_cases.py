# SPDX-License-Identifier: Apache-2.0
"""Calls whose arrays are compared before and after: every row of types of every op of lists, the functions that are
made of them, and the kernels that ship. A case is a function of a maker of arrays; it gives the call and its arrays by
name. Values are such that a write changes bits, and what is changed is found by the bytes, never by a description."""

import json
import pathlib

import lopt_golden
import quern
import velo_golden
from quern import _ops
from quern._abi import WRITE
from quern._library import DTYPE_NAMES

KERNELS = pathlib.Path(__file__).resolve().parent.parent.parent / "kernels"
NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
SETTINGS = {"lion": {"lr": 0.25, "weight_decay": 0.5}}


def of_row(name, row):
    def case(make):
        op = _ops.op(name)
        given = [(role, entry) for role, entry in zip(op.roles, op.rows[row]) if entry[0]]
        arrays = {role.plural: make((3, 8), NAMES[DTYPE_NAMES[dtype]]) for role, (dtype, _) in given}
        call = lambda: getattr(quern, name + "_")(**arrays, **SETTINGS.get(name, {}))  # noqa: E731
        return call, arrays, {role.plural for role, (_, access) in given if access & WRITE}

    return case


def in_part(make):
    """A list of two places, of which the second's gradients are written over a and b."""
    names = ["dc0", "dc1", "a0", "a1", "b0", "b1", "da0", "db0"]
    arrays = {name: make((3, 8), "float32") for name in names}
    dc0, dc1, a0, a1, b0, b1, da0, db0 = arrays.values()

    def call():
        quern.swiglu_backward_([dc0, dc1], [a0, a1], [b0, b1], grad_gates=[da0, None], grad_ups=[db0, None])

    return call, arrays, {"a1", "b1", "da0", "db0"}


def function(name, shapes, written, out_dtype=None, **words):
    """One of quern's functions; shapes: by argument, or by keyword where there is an equals sign."""

    def case(make):
        arrays = {key.rstrip("="): make(shape, "float32") for key, shape in shapes.items()}
        if out_dtype:
            arrays["out"] = make((3, 8), "float8_e4m3fn")
            words.update(out_dtype=out_dtype)
        by_word = {key.rstrip("="): arrays[key.rstrip("=")] for key in shapes if key.endswith("=")}
        if "out" in arrays:
            by_word["out"] = arrays["out"]
        places = [arrays[key] for key in shapes if not key.endswith("=")]
        return lambda: getattr(quern, name)(*places, **by_word, **words), arrays, set(written)

    return case


def learned(kind, *given):
    """A learned optimizer's step over plain arrays; its loss, where it has one, is an array too."""

    def case(make):
        arrays = {"param": make((8, 6), "float32"), "grad": make((8, 6), "float32")}
        if kind == "VeLO":
            arrays["loss"] = make((), "float32")
        optimizer = getattr(quern, kind)([(8, 6)], *given)
        rest = list(arrays.values())[2:]
        return lambda: optimizer.step([arrays["param"]], [arrays["grad"]], *rest), arrays, {"param"}

    return case


_2, _3, BOTH = {"a": (3, 8), "b": (3, 8)}, {"dc": (3, 8), "a": (3, 8), "b": (3, 8)}, {"dc": (3, 8), "both": (3, 16)}
MATRICES = {"x": (4, 32), "w": (32, 32), "bias": (32,)}
CASES = {
    f"{op.name}_ {' '.join(op.types[row])}": of_row(op.name, row) for op in _ops.ops() for row in range(len(op.rows))
}
CASES |= {
    "in part": in_part,
    "swiglu": function("swiglu", _2, ()),
    "swiglu out": function("swiglu", {**_2, "out=": (3, 8)}, ["out"]),
    "swiglu both": function("swiglu", {"both": (3, 16)}, (), layout="halves"),
    "swiglu float8": function("swiglu", _2, ["out"], "float8_e4m3fn"),
    "swiglu float8 scale": function("swiglu", {**_2, "scale=": (3, 1)}, ["out"], "float8_e4m3fn"),
    "swiglu_backward": function("swiglu_backward", _3, ()),
    "swiglu_backward both": function("swiglu_backward", BOTH, (), layout="interleaved"),
    "swiglu_backward in place": function("swiglu_backward", _3, ["a", "b"], in_place=True),
    "swiglu_backward both in place": function("swiglu_backward", BOTH, ["both"], layout="halves", in_place=True),
    "SmallFCLopt": learned("SmallFCLopt", lopt_golden.weights()),
    "ELO": learned("ELO", lopt_golden.weights()),
    "VeLO": learned("VeLO", *velo_golden.weights(), 10),
    "gemm_norm": function("gemm_norm", MATRICES, ()),
    "gemm_norm out": function("gemm_norm", {**MATRICES, "out=": (4, 32)}, ["out"]),
}


def _extents(text, at):
    inside = text[text.index("[") + 1 : text.rindex("]")]
    return tuple(eval(extent, {}, at) for extent in inside.split(",")) if inside.strip() else ()


def shipped(name, out):
    """A kernel that ships, at a small size of its own; out: it writes arrays that it is given."""

    def case(make):
        about = json.loads((KERNELS / name / "kernel.json").read_text())
        kernel = quern.load_kernel(name)
        size = next(size for size in about["sizes"] if size.get("n", 2) > 1 or size.get("gh", 1) > 1)
        arrays = {}
        for word in kernel.arguments:
            text = about["inputs"][word]
            spd = "spd" in about.get("fill", {}).get(word, "")
            arrays[word] = make(_extents(text, size), NAMES.get(text.split()[0].split("|")[0], "float32"), spd)
        inputs, words = list(arrays.values()), {}
        if out:
            for made, word in zip(kernel(*inputs) if len(kernel.returned) > 1 else [kernel(*inputs)], kernel.returned):
                arrays[word] = make(tuple(made.shape), str(made.dtype).rpartition(".")[2])
            words["out"] = [arrays[word] for word in kernel.returned]
        return lambda: kernel(*inputs, **words), arrays, set(kernel.returned) if out else set()

    return case


SHIPPED = sorted(path.parent.name for path in KERNELS.glob("*/kernel.json"))
CASES |= {f"{name} {word}".strip(): shipped(name, bool(word)) for name in SHIPPED for word in ("", "out")}
