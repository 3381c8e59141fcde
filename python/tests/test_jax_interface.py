# SPDX-License-Identifier: Apache-2.0
"""The interface of quern.jax beside the descriptions, the modules that its import loads, and src/xla/ffi.h, which is
written from XLA's interface and not copied, beside the header of jaxlib."""

import inspect
import pathlib
import re
import shutil
import subprocess

import pytest

pytest.importorskip("numpy")
jax = pytest.importorskip("jax")

import quern.jax  # noqa: E402
from jax_lists import LION, ROOT, python  # noqa: E402
from quern import _abi, _ops  # noqa: E402


def test_keywords_and_docs_are_the_descriptions():
    said = inspect.signature(quern.jax.lion).parameters
    assert list(said)[:4] == ["params", "grads", "exp_avgs", "lr"]
    assert said["betas"].default == (LION.params["beta1"].default, LION.params["beta2"].default)
    for param in LION.params.values():
        if param.type != _abi.PARAM_DEVICE_HYPER:
            name = "betas" if param.name.startswith("beta") else param.name
            assert name in said and param.doc.split()[0] in quern.jax.lion.__doc__
    assert {op.name for op in _ops.ops()} <= set(quern.jax.__all__) & set(dir(quern.jax))
    assert quern.jax.lion is quern.jax.lion and not hasattr(quern.jax, "lions")


def test_jax_is_imported_by_quern_jax_only():
    assert python("import sys, quern; print('jax' in sys.modules, 'numpy' in sys.modules)") == "False False"


# Our names of the interface's structs and members, and its own.
LAYOUT = {
    ("xla_extension", "XLA_FFI_Extension_Base"): "size=struct_size type=type next=next",
    ("xla_version", "XLA_FFI_Api_Version"): "head.extensions=extension_start major=major_version minor=minor_version",
    ("xla_metadata", "XLA_FFI_Metadata"): "size=struct_size version=api_version traits=traits",
    ("xla_metadata_extension", "XLA_FFI_Metadata_Extension"): "base=extension_base metadata=metadata",
    ("xla_buffer", "XLA_FFI_Buffer"): "head.size=struct_size type=dtype data=data rank=rank extents=dims",
    ("xla_span", "XLA_FFI_ByteSpan"): "at=ptr length=len",
    ("xla_scalar", "XLA_FFI_Scalar"): "type=dtype value=value",
    ("xla_array", "XLA_FFI_Array"): "type=dtype n=size data=data",
    ("xla_values", "XLA_FFI_Args"): "n=size kinds=types values=args",
    ("xla_values", "XLA_FFI_Rets"): "n=size kinds=types values=rets",
    ("xla_attributes", "XLA_FFI_Attrs"): "n=size kinds=types names=names values=attrs",
    ("xla_error_create", "XLA_FFI_Error_Create_Args"): "message=message code=errc",
    ("xla_error_message", "XLA_FFI_Error_GetMessage_Args"): "error=error message=message",
    ("xla_error_destroy", "XLA_FFI_Error_Destroy_Args"): "error=error",
    ("xla_stream_get", "XLA_FFI_Stream_Get_Args"): "context=ctx stream=stream",
    ("xla_schedule", "XLA_FFI_ThreadPool_Schedule_Args"): "context=ctx task=task data=data",
    ("xla_threads_get", "XLA_FFI_ThreadPool_NumThreads_Args"): "context=ctx n_threads=num_threads",
    ("xla_ordinal_get", "XLA_FFI_DeviceOrdinal_Get_Args"): "context=ctx ordinal=device_ordinal",
    ("xla_api", "XLA_FFI_Api"): "version=api_version error_create=XLA_FFI_Error_Create "
    "error_message=XLA_FFI_Error_GetMessage error_destroy=XLA_FFI_Error_Destroy stream_get=XLA_FFI_Stream_Get "
    "schedule=XLA_FFI_ThreadPool_Schedule threads_get=XLA_FFI_ThreadPool_NumThreads "
    "ordinal_get=XLA_FFI_DeviceOrdinal_Get",
    ("xla_frame", "XLA_FFI_CallFrame"): "head.size=struct_size api=api context=ctx stage=stage operands=args "
    "results=rets attributes=attrs",
}
NUMBERS = {
    "XLA_METADATA": "XLA_FFI_Extension_Metadata",
    "XLA_TRAIT_CAPTURABLE": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
    "XLA_BUFFER": "XLA_FFI_ArgType_BUFFER",
    "QN_XLA_MAJOR": "XLA_FFI_API_MAJOR",
    **{f"XLA_{name}": f"XLA_FFI_AttrType_{name}" for name in ("ARRAY", "DICTIONARY", "SCALAR", "STRING")},
    **{f"XLA_{name}": f"XLA_FFI_ExecutionStage_{name}" for name in ("INSTANTIATE", "PREPARE", "INITIALIZE", "EXECUTE")},
    **{
        f"XLA_{name}": f"XLA_FFI_DataType_{name}"
        for name in ["PRED", "S8", "S16", "S32", "S64", "U8", "U16", "U32", "U64", "F16", "F32", "F64", "BF16"]
    },
    **{
        f"XLA_{name}": f"XLA_FFI_Error_Code_{name}"
        for name in ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "UNIMPLEMENTED", "INTERNAL"]
    },
}


def test_declarations_are_laid_out_as_jaxlibs_header(tmp_path):
    """A C compiler holds every member that is used against the header's, and every number."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    lines = [
        "#define XLA_FFI_CallFrame our_frame",
        "#define XLA_FFI_Error our_error",
        '#include "xla/ffi.h"',
        "#undef XLA_FFI_CallFrame",
        "#undef XLA_FFI_Error",
        '#include "xla/ffi/api/c_api.h"',
    ]
    header = pathlib.Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
    minor = int(re.search(r"define XLA_FFI_API_MINOR (\d+)", header).group(1))
    for (ours, theirs), members in LAYOUT.items():
        if minor < 3 and ours in ("xla_ordinal_get", "xla_api"):  # they grew since, at their ends
            continue
        for ours_member, theirs_member in (pair.split("=") for pair in members.split()):
            one, other = f"(({ours} *)0)->{ours_member}", f"((struct {theirs} *)0)->{theirs_member}"
            lines.append(
                f"_Static_assert(offsetof({ours}, {ours_member}) == offsetof(struct {theirs}, {theirs_member}) && "
                f'sizeof {one} == sizeof {other}, "{ours}.{ours_member}");'
            )
    lines += [f'_Static_assert((int){ours} == (int){theirs}, "{ours}");' for ours, theirs in NUMBERS.items()]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines).replace("struct XLA_FFI_ByteSpan", "XLA_FFI_ByteSpan") + "\n", encoding="utf-8")
    include = ["-I", str(ROOT / "src"), "-I", jax.ffi.include_dir()]
    done = subprocess.run(
        [compiler, "-std=c17", "-Wno-pedantic", "-fsyntax-only", *include, str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_an_op_without_a_hyper_struct():
    a = jax.numpy.linspace(-3, 3, 8).reshape(2, 4)
    wanted, gradients_of = jax.vjp(lambda a, b: jax.nn.silu(a) * b, a, a + 1)
    (made,) = quern.jax.swiglu(jax.numpy.zeros((2, 4)), a, a + 1)
    assert jax.numpy.allclose(made, wanted, rtol=1e-5)
    for made, of in zip(quern.jax.swiglu_backward(wanted, a, a + 1), gradients_of(wanted)):
        assert jax.numpy.allclose(made, of, rtol=1e-5, atol=1e-6)
    # With gradients apart gates and ups are only read: they are no results, and donating leaves them.
    apart = quern.jax.swiglu_backward(wanted, a, a + 1, grad_gates=a * 0, grad_ups=a * 0, donate=True)
    assert len(apart) == 2 and not a.is_deleted() and a[0, 0] == -3
    for made, of in zip(apart, gradients_of(wanted)):
        assert jax.numpy.allclose(made, of, rtol=1e-5, atol=1e-6)
    in_part = quern.jax.swiglu_backward(
        [wanted, wanted], [a, a], [a + 1, a + 1], grad_gates=[a * 0, None], grad_ups=[a * 0, None]
    )
    for at, place in ((2, 0), (3, 0), (0, 1), (1, 1)):
        assert jax.numpy.array_equal(in_part[at][place], apart[at % 2])
    assert jax.numpy.array_equal(in_part[0][0], a) and in_part[2][1] is None
    assert "operands" not in quern.jax.swiglu.__doc__ and "step are operands" in quern.jax.lion.__doc__
    assert "alpha (number):" in quern.jax.swiglu.__doc__ and "lr (number or array of ()" in quern.jax.lion.__doc__
    with pytest.raises(TypeError, match="must be known on the host"):
        quern.jax.swiglu(a, a, a, alpha=jax.numpy.ones(()))
