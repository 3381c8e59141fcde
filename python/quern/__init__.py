# SPDX-License-Identifier: Apache-2.0
"""quern: fused compute kernels that come with proof, on the CPU and on NVIDIA GPUs.

For plain arrays (NumPy, CuPy, PyTorch's tensors, anything with DLPack or an array interface) each op is a function that
works in place: lion_(params, grads, exp_avgs, lr=1e-4, ...). SmallFCLopt, ELO, VeLO and Celo2 are learned
optimizers.
quern.torch has the optimizer for PyTorch, quern.jax the op for JAX, quern.testing a check of kernels for your own
tests; `python -m quern.doctor` says what works here and how to mend what does not."""

from __future__ import annotations

# Imported when they are first named; each with the framework that it needs.
_SUBMODULES = {
    "bench": "torch",
    "convert_learned_optimizer": "numpy",
    "doctor": None,
    "jax": "jax",
    "testing": None,
    "torch": "torch",
}
_FUNCTIONS: tuple[str, ...] = ()  # of the ops; made when they are first named
_LATER = {  # where they are written; imported when they are first named
    "Celo2": "_celo2_arrays",
    "ELO": "_lopt_arrays",
    "Finding": "_kernel_findings",
    "FindingsWarning": "_kernel_findings",
    "FolderKernel": "_folder",
    "GradientError": "_gradient",
    "Kernel": "_kernel",
    "SmallFCLopt": "_lopt_arrays",
    "VeLO": "_velo_arrays",
    "capture": "_capture",
    "check_gradient": "_gradient",
    "cuda_kernel": "_kernel",
    "findings": "_kernel_findings",
    "function": "_function",
    "gemm_norm": "_gemm",
    "jvp": "_function",
    "load_kernel": "_folder",
    "metal_kernel": "_kernel",
    "swiglu": "_swiglu",
    "swiglu_backward": "_swiglu",
    "vjp": "_function",
}

try:
    from ._about import Device, describe, devices, get_option, list_ops, ops, options, set_option
    from ._library import CompileError, KernelError, LibraryError
    from ._library import version as __version__
    from ._threads import get_num_threads, set_num_threads

    _FUNCTIONS = tuple(f"{name}_" for name in list_ops())
    del list_ops
except ImportError:
    with open("/proc/self/cmdline", encoding="utf-8", errors="replace") as words:  # Python 3.9 has no sys.orig_argv
        if "quern.doctor" not in words.read().split("\0"):  # which is to say why
            raise

__all__ = [  # noqa: PLE0604 (the functions' names come from the library)
    *_FUNCTIONS,
    *_LATER,
    "CompileError",
    "Device",
    "KernelError",
    "LibraryError",
    "__version__",
    "describe",
    "devices",
    "get_num_threads",
    "get_option",
    "ops",
    "options",
    "set_num_threads",
    "set_option",
]


def __getattr__(name: str):
    if name in _FUNCTIONS:
        from ._call import function

        made = function(name[:-1])
        globals()[name] = made
        return made
    if name in _LATER:
        from importlib import import_module

        made = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
        return made
    if name in _SUBMODULES:
        return _submodule(name)
    from ._names import absent

    instead = None
    if f"{name}_" in _FUNCTIONS:
        instead = f"the op {name} is the function quern.{name}_, which works in place"
    elif name == "swiglu_quantize":
        instead = 'it is quern.swiglu(..., out_dtype="float8_e4m3fn")'
    raise absent(__name__, name, [*__all__, *_SUBMODULES], instead)


def _submodule(name: str):
    from importlib import import_module

    try:
        return import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        if error.name != _SUBMODULES[name]:
            raise
        raise ImportError(
            f"quern.{name} needs {error.name}, which is not installed: pip install {error.name}"
        ) from None


def __dir__() -> list[str]:
    # help() names all that is listed, so what cannot be imported is not.
    from importlib.util import find_spec

    there = [name for name, framework in _SUBMODULES.items() if framework is None or find_spec(framework)]
    return sorted({*__all__, *there, *(name for name in globals() if name.startswith("__"))})
