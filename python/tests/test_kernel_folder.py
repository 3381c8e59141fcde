# SPDX-License-Identifier: Apache-2.0
"""A kernel's folder as a function: what kernel.json says becomes shapes, types, templates and grid; the health buffer
becomes an exception; a capture is such a folder. How kernel.json is read is the library's, and tested with it."""

import json
import pathlib
import pickle
import shutil

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

import quern  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


# ---- folders ----
def folder(path, body, header=None, **members):
    path.mkdir(exist_ok=True)
    whole = {
        "name": "scale",
        "doc": "x times by, row by row.",
        "inputs": {"x": "f32|f16 [..., n]", "by": "x.dtype [n]"},
        "outputs": {"out": "x.dtype [..., n]"},
        "grid": ["n", 1, 1],
        "threadgroup": [64, 1, 1],
        **members,
    }
    whole = {key: value for key, value in whole.items() if value is not None}
    if header is not None:
        whole["header"] = "helpers.h"
        (path / "helpers.h").write_text(header, encoding="utf-8")
    (path / f"{whole['name']}.metal").write_text(body, encoding="utf-8")
    (path / "kernel.json").write_text(json.dumps(whole), encoding="utf-8")
    return path


ROWS = """
uint column = thread_position_in_grid.x;
for (int row = 0; row < ROWS; row++) out[row * COLUMNS + column] = x[row * COLUMNS + column] * by[column];
"""


def test_shapes_types_templates_and_grid_follow_from_the_inputs(tmp_path):
    kernel = quern.load_kernel(
        folder(tmp_path, ROWS, inputs={"x": "f32|f16|bf16 [rows, n]", "by": "x.dtype [n]"},
               outputs={"out": "x.dtype [rows, n]"}, templates={"ROWS": "rows", "COLUMNS": "n"})
    )  # fmt: skip
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.float32):
        for shape in ((3, 5), (1, 7)):
            x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
            by = np.full(shape[1], 2).astype(dtype)
            for _ in range(2):
                out = kernel(x, by)
                assert out.dtype == dtype
                np.testing.assert_array_equal(out, (x * by).astype(dtype))
    assert repr(kernel).startswith("<quern kernel scale(x, by) of ")
    assert "x times by, row by row." in kernel.__doc__
    assert "x  f32|f16|bf16 [rows, n]" in kernel.__doc__


def test_any_number_of_leading_extents(tmp_path):
    body = "uint i = thread_position_in_grid.x; for (int k = i; k < TOTAL; k += N) out[k] = x[k] * by[i];"
    kernel = quern.load_kernel(folder(tmp_path, body, templates={"N": "n", "TOTAL": 1 << 20}))
    for shape in ((4,), (2, 4), (2, 3, 4)):
        x = np.ones(shape, np.float32)
        out = kernel(x, np.full(4, 3, np.float32), TOTAL=x.size)
        assert out.shape == shape
        assert (out == 3).all()


@pytest.mark.parametrize(("by", "value"), [(3, 3), ("n + 1", 4)])
def test_scalars_templates_and_threadgroup_by_name(tmp_path, by, value):
    kernel = quern.load_kernel(
        folder(
            tmp_path,
            "uint i = thread_position_in_grid.x; out[i] = x[i] * by + OFFSET + (TWICE ? 100 : 0);",
            inputs={"x": "f32 [n]", "by": "f64 []"}, outputs={"out": "f64 [n]"}, scalars={"by": by},
            templates={"OFFSET": 1, "TWICE": False},
        )
    )  # fmt: skip
    x = np.ones(3, np.float32)
    assert kernel(x).tolist() == [value + 1] * 3
    assert kernel(x, by=0.1).tolist() == [1.1] * 3  # in double, as its contract has it
    assert kernel(x, OFFSET=-5, threadgroup=(2, 1, 1)).tolist() == [value - 5] * 3
    assert kernel(x, TWICE=True).tolist() == kernel(x, TWICE=1).tolist() == [value + 101] * 3
    assert kernel(x).tolist() == [value + 1] * 3
    to = np.zeros(3)
    assert kernel(x, out=to) is to
    assert to.tolist() == [value + 1] * 3


def test_init_in_place_atomic_header_and_two_outputs(tmp_path):
    body = """
    uint i = thread_position_in_grid.x;
    float before = y_in[i];
    y[i] = twice(before);
    atomic_fetch_add_explicit(&total[0], before, memory_order_relaxed);
    """
    kernel = quern.load_kernel(
        folder(
            tmp_path, body, "inline float twice(float x) { return 2 * x; }\n",
            inputs={"y_in": "f32 [n]"}, outputs={"y": "f32 [n]", "total": "f32 [1]"}, atomic=["total"],
            init={"total": 10}, in_place={"y": "y_in"},
        )
    )  # fmt: skip
    y = np.arange(4, dtype=np.float32)
    made, total = kernel(y)
    assert made is y
    assert y.tolist() == [0, 2, 4, 6]
    assert total.tolist() == [16]


HEALTHY = """
if (thread_position_in_grid.x == 0) {
    dbg[0] = 1;
    if (x[0] < 0) { dbg[13] = 4; dbg[14] = x[0]; } else { dbg[15] = 1; }
}
out[thread_position_in_grid.x] = metal::sqrt(x[thread_position_in_grid.x]);
"""


def healthy(tmp_path, fallback=None):
    return quern.load_kernel(
        folder(tmp_path, HEALTHY, name="roots", inputs={"x": "f32 [n]"}, outputs={"out": "f32 [n]", "dbg": "f32 [16]"},
               init={"dbg": 0}),
        fallback,
    )  # fmt: skip


def test_the_health_buffer_becomes_an_exception(tmp_path):
    kernel = healthy(tmp_path)
    assert kernel(np.array([4, 9], np.float32)).tolist() == [2, 3]
    with pytest.raises(quern.KernelError, match="roots: error 4, a numerical fault"):
        kernel(np.array([-4, 9], np.float32))


def test_or_a_fallback(tmp_path):
    seen = []
    kernel = healthy(tmp_path, lambda x: seen.append(x) or "fell back")
    x = np.array([-4, 9], np.float32)
    assert kernel(x) == "fell back"
    assert seen[0] is x
    assert kernel(x, fallback=lambda x: "elsewhere") == "elsewhere"
    assert kernel(np.array([4, 9], np.float32)).tolist() == [2, 3]


def test_one_health_buffer_a_matrix(tmp_path):
    body = "uint i = thread_position_in_grid.x; out[i] = x[i]; dbg[16 * i] = 1; if (x[i] >= 0) dbg[16 * i + 15] = 1;"
    kernel = quern.load_kernel(
        folder(tmp_path, body, name="batch", inputs={"x": "f32 [n]"}, outputs={"out": "f32 [n]", "dbg": "f32 [n, 16]"},
               init={"dbg": 0})
    )  # fmt: skip
    x = np.arange(5, dtype=np.float32)
    assert kernel(x).tolist() == x.tolist()
    x[3] = -1
    with pytest.raises(quern.KernelError, match="batch, number 3 of 5: it began and did not come to its end"):
        kernel(x)


def test_torch_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    kernel = healthy(tmp_path)
    out = kernel(torch.tensor([4.0, 9.0]))
    assert isinstance(out, torch.Tensor)
    assert out.tolist() == [2, 3]
    with pytest.raises(quern.KernelError, match="error 4"):
        kernel(torch.tensor([-4.0, 9.0]))


def test_as_an_op_of_torch(tmp_path):
    """Shapes of the op's fake implementation come from the file, symbolic ones too."""
    torch = pytest.importorskip("torch")
    import quern.torch

    body = "uint i = thread_position_in_grid.x; y[i] = x[i] * x[i];"
    square = quern.load_kernel(
        folder(tmp_path / "f", body, name="square", inputs={"x": "f32|f64 [n]"}, outputs={"y": "x.dtype [n]"})
    )
    body = "uint i = thread_position_in_grid.x; x_grad[i] = 2 * x[i] * c[i];"
    vjp = quern.load_kernel(
        folder(tmp_path / "b", body, name="square_vjp", inputs={"x": "f32|f64 [n]", "c": "x.dtype [n]"},
               outputs={"x_grad": "x.dtype [n]"})
    )  # fmt: skip
    f = quern.function(forward=square, vjp=vjp)
    assert quern.check_gradient(f, [np.array([1.0, 2.0, -3.0])]) < 1e-8
    op = quern.torch.register("quern_tests::folder_square", f)
    torch.library.opcheck(op, (torch.randn(5, dtype=torch.float64, requires_grad=True),))
    compiled = torch.compile(lambda x: op(x) + 1, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (3, 8):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), x * x + 1)


def test_extents_that_are_expressions_stay_symbols(tmp_path):
    """One compiled graph serves all sizes."""
    torch = pytest.importorskip("torch")
    import quern.torch

    wide = "..., max(n, 1 + n / 7 % 3, m), TWICE*2 / min(x.bytes, 4) + align(m, m) / m * 3"
    body = "uint i = thread_position_in_grid.x; for (int k = 0; k < 4; k++) out[4 * i + k] = x[i] + y[0] * k;"
    kernel = quern.load_kernel(
        folder(tmp_path, body, name="wide", inputs={"x": "f32 [..., n]", "y": "f32 [m]"}, grid=["n", 1, 1],
               outputs={"out": f"f32 [{wide}]"}, templates={"TWICE": "min(m, 1) + 1"})
    )  # fmt: skip
    op = quern.torch.register("quern_tests::folder_wide", quern.function(kernel))
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def sums(x, y):
        out = op(x, y)
        return out.sum(-1), out.shape[0]

    compiled = torch.compile(sums, fullgraph=True, dynamic=True, backend=backend)
    for n in (5, 9, 40):
        x, y = torch.randn(n), torch.randn(3)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x, y), (4 * x + 6 * y[0], n))
    assert len(graphs) == 1


def test_a_vjp_that_names_whose_cotangents_it_gives(tmp_path):
    body = "uint i = thread_position_in_grid.x; y[i] = x[i] * k[i];"
    product = quern.load_kernel(
        folder(tmp_path / "f", body, name="product", inputs={"x": "f64 [n]", "k": "f64 [n]"}, outputs={"y": "f64 [n]"})
    )
    body = "uint i = thread_position_in_grid.x; k_grad[i] = x[i] * c[i];"
    vjp = quern.load_kernel(
        folder(tmp_path / "b", body, name="product_vjp", inputs={"x": "f64 [n]", "k": "f64 [n]", "c": "f64 [n]"},
               outputs={"k_grad": "f64 [n]"})
    )  # fmt: skip
    f = quern.function(product, vjp=vjp)
    x = np.array([1.0, 2.0])
    assert f.gradient((x, x), (x,))[0] is None
    assert quern.check_gradient(f, [x, x], of=[1]) < 1e-8


def test_a_copy_of_one(tmp_path):
    kernel = pickle.loads(pickle.dumps(healthy(tmp_path)))
    assert kernel(np.array([4, 9], np.float32)).tolist() == [2, 3]


# ---- those that ship ----
SHIPPED = sorted(path.parent for path in ROOT.glob("kernels/*/kernel.json"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_kernel_that_ships_is_a_function(path):
    kernel = quern.load_kernel(path)
    assert kernel.name == path.name
    assert kernel.__doc__.startswith(json.loads((path / "kernel.json").read_text(encoding="utf-8"))["doc"])


def shipped(name):
    return quern.load_kernel(ROOT / "kernels" / name)


def test_softmax_of_rows_of_any_length():
    for shape in ((3, 1), (4, 33), (2, 1000)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        wanted = np.exp(x - x.max(1, keepdims=True), dtype=np.float64)
        np.testing.assert_allclose(shipped("softmax")(x), wanted / wanted.sum(1, keepdims=True), rtol=2e-6)


def test_grid_sample_with_its_gradient_in_torch():
    torch = pytest.importorskip("torch")
    import quern.torch

    sample = quern.torch.function(quern.function(shipped("grid_sample"), vjp=shipped("grid_sample_vjp")))
    x = torch.randn(2, 5, 7, 3, requires_grad=True)
    grid = (2 * torch.rand(2, 4, 3, 2) - 1).requires_grad_()
    theirs = [one.detach().clone().requires_grad_() for one in (x, grid)]
    wanted = torch.nn.functional.grid_sample(theirs[0].permute(0, 3, 1, 2), theirs[1], align_corners=False)
    cotangent = torch.randn(2, 4, 3, 3)
    out = sample(x, grid)
    torch.testing.assert_close(out, wanted.permute(0, 2, 3, 1))
    out.backward(cotangent)
    wanted.permute(0, 2, 3, 1).backward(cotangent)
    torch.testing.assert_close(x.grad, theirs[0].grad)
    torch.testing.assert_close(grid.grad, theirs[1].grad, atol=1e-5, rtol=1e-4)


def test_a_matrix_that_is_not_positive_definite_is_told():
    a = np.stack([np.eye(4, dtype=np.float32) * 4] * 3)
    np.testing.assert_array_equal(shipped("cholesky")(a), np.stack([np.eye(4) * 2] * 3))
    a[1, 2, 2] = -1
    with pytest.raises(quern.KernelError, match="cholesky, number 1 of 3: error 4"):
        shipped("cholesky")(a)
    np.testing.assert_array_equal(shipped("cholesky")(a, fallback=np.abs), np.abs(a))


# ---- refused ----
@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        (dict(outputs=None), 'the member "outputs" is missing'),
        (dict(gird=["n"]), 'there is no member "gird"; did you mean "grid"'),
        (dict(inputs={"x": "f33 [n]"}), "inputs.x: there is no storage type f33; did you mean f32"),
        (dict(name="while"), "while"),
        (dict(cluster=17), "cluster: is a whole number, it must be a number of blocks from 1 to 16"),
        (dict(cluster="2"), "cluster: is a text, it must be a number of blocks from 1 to 16"),
        (dict(cluster=2), "a cluster of 2 blocks: CUDA's dialect has clusters"),
    ],
)
def test_what_is_no_folder(tmp_path, members, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        quern.load_kernel(folder(tmp_path, ROWS, **members))
    assert str(tmp_path / "kernel.json") in str(caught.value)


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="kernel.json"):
        quern.load_kernel(tmp_path)


def test_a_shipped_kernel_is_loaded_by_its_name(tmp_path, monkeypatch):
    """A folder of that name here comes first; where there is neither, the sentence has what ships."""
    monkeypatch.chdir(tmp_path)
    assert quern.load_kernel("exp").folder == str(ROOT / "kernels/exp")
    with pytest.raises(FileNotFoundError, match="no kernel that ships: cholesky, .*exp, .*softmax"):
        quern.load_kernel("exq")
    with pytest.raises(FileNotFoundError, match="exq has no kernel.json"):
        quern.load_kernel("./exq")
    shutil.copytree(ROOT / "kernels/exp_vector", tmp_path / "exp")
    assert quern.load_kernel("exp").name == "exp_vector"
    (tmp_path / "kernel.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="kernel.json:1:2: "):
        quern.load_kernel(tmp_path)
    (tmp_path / "kernel.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="it must be an object"):
        quern.load_kernel(tmp_path)


def test_calls_that_do_not_fit(tmp_path):
    body = "uint i = thread_position_in_grid.x; out[i] = x[i] * by[i];"
    kernel = quern.load_kernel(
        folder(tmp_path, body, inputs={"x": "f32|f16 [n]", "by": "x.dtype [n]"}, outputs={"out": "x.dtype [n]"})
    )
    x = np.ones(4, np.float32)
    with pytest.raises(TypeError, match=r"scale takes 2 arrays \(x, by\), 1 is given"):
        kernel(x)
    with pytest.raises(TypeError, match=r"scale takes 2 .* 1 is given and by by name: give arrays by place"):
        kernel(x, by=x)
    with pytest.raises(ValueError, match=r'scale: x has 2 dimensions, its contract "f32\|f16 \[n\]" wants 1'):
        kernel(np.ones((2, 2), np.float32), x)
    with pytest.raises(TypeError, match="scale: by is f16, its contract wants the type of x, which is f32"):
        kernel(x, x.astype(np.float16))
    with pytest.raises(ValueError, match=r'scale: extent 1 of by is 5, its contract "x.dtype \[n\]" makes it 4'):
        kernel(x, np.ones(5, np.float32))
    with pytest.raises(TypeError, match=r"scale: x is f64, its contract wants f32\|f16"):
        kernel(x.astype(np.float64), x.astype(np.float64))
    with pytest.raises(TypeError, match="unexpected keyword argument 'TILE'"):
        kernel(x, x, TILE=3)
    assert kernel(x, x).tolist() == [1, 1, 1, 1]


# ---- captures ----
@pytest.mark.parametrize("first", [float("nan"), float("inf"), -float("inf")])
def test_a_first_value_that_is_no_finite_number_is_captured(tmp_path, first):
    kernel = quern.metal_kernel(
        "half_written", ["x"], ["y"], "uint i = thread_position_in_grid.x; if (i % 2) y[i] = x[i];"
    )
    x = np.arange(4, dtype=np.float32)
    call = {"grid": (4, 1, 1), "threadgroup": (4, 1, 1), "output_shapes": [(4,)], "output_dtypes": ["float32"]}
    with quern.capture(tmp_path / "seen"):
        (want,) = kernel(inputs=[x], init_value=first, **call)
    (folder,) = (tmp_path / "seen").iterdir()
    np.testing.assert_array_equal(quern.load_kernel(folder)(x), want)
    np.testing.assert_array_equal(want, [first, 1, first, 3])


def test_a_capture_is_a_folder_that_gives_the_same(tmp_path):
    kernel = quern.metal_kernel("add", ["x", "y"], ["out"], "uint i = thread_position_in_grid.x; out[i] = x[i] + y;")
    x = np.arange(4, dtype=np.float32)

    def call():
        return kernel(
            inputs=[x, 2.5], grid=(4, 1, 1), threadgroup=(4, 1, 1), output_shapes=[(4,)], output_dtypes=["f32"]
        )[0]  # fmt: skip

    call()
    with quern.capture(tmp_path / "seen") as seen:
        first = call()
        call()
    call()
    assert seen.launches == 2
    folders = sorted((tmp_path / "seen").iterdir())
    assert len(folders) == 2
    np.testing.assert_array_equal(quern.load_kernel(folders[0])(x), first)
    with pytest.raises(ValueError), quern.capture(""):
        pass
    with quern.capture(tmp_path / "outer"), pytest.raises(ValueError), quern.capture(tmp_path / "inner"):
        pass
