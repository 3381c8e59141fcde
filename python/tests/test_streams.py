# SPDX-License-Identifier: Apache-2.0
"""Devices and streams without a GPU: over the driver of the C tests (tests/mock), which notes every launch with its
device and stream and refuses what belongs to another device. A launch on the wrong stream or device, a missing wait,
memory that is not given back: each fails here. PyTorch and CuPy are played by modules of their names. What a real GPU
shows is in test_arrays_torch.py."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
from quern import _library

MOCKS = pathlib.Path(_library.path).resolve().parents[1] / "tests"

STAGE = '''
import contextlib, ctypes, sys, types
import quern
from quern import _abi
from quern._library import lib

lib.qn_stream_create.argtypes = [_abi.Device, ctypes.POINTER(ctypes.c_void_p)]
CUDA = 1

class Launch(ctypes.Structure):
    _fields_ = [("kernel", ctypes.c_char * 64), ("device", ctypes.c_int), ("blocks", ctypes.c_uint),
                ("threads", ctypes.c_uint), ("yz_and_shared_bytes", ctypes.c_uint * 5),
                ("stream", ctypes.c_void_p), ("argument", ctypes.c_int)]

FUNCTIONS = [("calls", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_char_p)),
             ("call_name", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_size_t)),
             ("launches", ctypes.CFUNCTYPE(ctypes.c_size_t)),
             ("launch", ctypes.CFUNCTYPE(ctypes.POINTER(Launch), ctypes.c_size_t)),
             ("live", ctypes.CFUNCTYPE(ctypes.c_size_t)), ("live_bytes", ctypes.c_void_p), ("depth", ctypes.c_void_p),
             ("retained", ctypes.c_void_p), ("push", ctypes.c_void_p),
             ("fail_next", ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_int))]

class Api(ctypes.Structure):
    _fields_ = FUNCTIONS

def stream_on(index):
    made = ctypes.c_void_p()
    lib.qn_stream_create(_abi.Device(CUDA, index), ctypes.byref(made))
    return made.value

S0, T0, S1 = stream_on(0), stream_on(0), stream_on(1)   # two streams of the first device, one of the second
_get = ctypes.CDLL(quern.get_option("libcuda")).mock_cuda
_get.restype = ctypes.POINTER(Api)
api = _get().contents

def launches():
    """(device, stream) of every launch since the last look."""
    first, launches.seen = launches.seen, api.launches()
    return [(api.launch(k)[0].device, api.launch(k)[0].stream or 0) for k in range(first, launches.seen)]
launches.seen = 0

def calls():
    """Names of the driver's calls since the last look, waits and launches only."""
    first, calls.seen = calls.seen, api.calls(None)
    names = [api.call_name(k + 1).decode() for k in range(first, calls.seen)]
    return [name for name in names if name in ("cuStreamSynchronize", "cuLaunchKernel")]
calls.seen = 0

def memory(index, n=8):
    made = ctypes.c_void_p()
    lib.qn_memory_allocate(_abi.Device(CUDA, index), 4 * n, ctypes.byref(made))
    return made.value

def warm():
    """Compiles what is needed, so that only steps are noted from here on."""
    for index in (0, 1):
        quern.lion_(*(Interface(index) for _ in range(3)))
    launches(), calls()

# ---- arrays: with the interface, with DLPack, of "torch", of "cupy" ----
class Interface:
    stream = None
    def __init__(self, index, stream=None, n=8):
        self.index, self.n, self.pointer = index, n, memory(index, n)
        self.stream = stream
    @property
    def __cuda_array_interface__(self):
        data = (self.pointer, False)
        return {"shape": (self.n,), "typestr": "<f4", "data": data, "version": 3, "stream": self.stream}
    def __dlpack_device__(self):
        return (2, self.index)

class Place(str):
    """A torch.device."""
    type = "cuda"
    index = property(lambda self: int(self[-1]))

class Tensor:
    layout, dtype = "strided", "torch.float32"
    def __init__(self, index, n=8):
        self.shape, self.device, self.pointer = (n,), Place(f"cuda:{index}"), memory(index, n)
        self.version, self.inference = 0, False
    def data_ptr(self): return self.pointer
    def stride(self): return (1,)
    def is_neg(self): return False
    def is_contiguous(self): return True
    def is_inference(self): return self.inference
    def element_size(self): return 4

CURRENT = {0: 0, 1: 0}   # of both frameworks, by device

class Stream:
    def __init__(self, handle): self.cuda_stream = handle

def torch():
    made = types.ModuleType("torch")
    made.Tensor, made.strided, made.uint8 = Tensor, "strided", "uint8"
    made.nn = types.SimpleNamespace(Parameter=Tensor)
    made.cuda = types.SimpleNamespace(current_stream=lambda index: Stream(CURRENT[index]))
    made.get_num_threads = lambda: 1
    made.device = lambda kind, index: index
    index_of = lambda device: 0 if device == "cpu" else device
    made.empty = lambda n, dtype, device: Tensor(index_of(device), *(n if isinstance(n, tuple) else (n,)))
    def increment_version(tensors):
        for tensor in tensors: tensor.version += not tensor.inference
    made._C = types.SimpleNamespace(_increment_version=increment_version)
    made.inference_mode = contextlib.nullcontext
    sys.modules["torch"] = made

def complete():
    """The other parts of PyTorch that fast calls use."""
    made = sys.modules["torch"]
    never, made.float32 = (lambda: False), Tensor.dtype
    names = "_len_torch_dispatch_stack", "_len_torch_function_stack", "_are_functorch_transforms_active", "_is_tracing"
    made._C.__dict__.update(dict.fromkeys(names, never), _cuda_getCurrentRawStream=CURRENT.get)
    made.version, made.Size = types.SimpleNamespace(hip=None), type("Size", (tuple,), {})
    made.autograd = types.SimpleNamespace(forward_ad=types.SimpleNamespace(_current_level=-1))
    made.is_grad_enabled, made.empty_like = never, lambda like: like.new_empty(like.shape)
    Tensor.new_empty = lambda self, shape: Tensor(self.device.index, *shape)
    Tensor.requires_grad, Tensor.is_conj = False, lambda self: False
    Tensor.is_cpu, Tensor.is_cuda, Tensor.get_device = False, True, lambda self: self.device.index

class Device:
    entered = []
    def __init__(self, index): self.id = index
    def __enter__(self): Device.entered.append(self.id)
    def __exit__(self, *_): Device.entered.pop()

class Ndarray(Interface):
    """CuPy's interface names the current stream of the current device, which may be another than the array's."""
    def __init__(self, index, n=8):
        super().__init__(index, 1, n)
        self.device, self.data = Device(index), types.SimpleNamespace(ptr=self.pointer)

def cupy():
    made = types.ModuleType("cupy")
    made.ndarray = Ndarray
    current = lambda: types.SimpleNamespace(ptr=CURRENT[Device.entered[-1]])
    made.cuda = types.SimpleNamespace(Device=Device, get_current_stream=current)
    made.empty = lambda n, dtype: Ndarray(Device.entered[-1], n)
    sys.modules["cupy"] = made

def three(make, *arguments):
    return [make(*arguments) for _ in range(3)]

def refuses(error, sentence, call):
    try:
        call()
    except error as caught:
        assert sentence in str(caught), caught
    else:
        raise AssertionError("nothing was raised")
    assert launches() == []
'''


@pytest.fixture
def play(tmp_path):
    """play(program): runs it on the stage above, with two GPUs."""

    def run(program):
        driver, compiler = MOCKS / "libmock_cuda.so", MOCKS / "libmock_nvrtc.so"
        assert driver.exists(), f"{driver} is not there: build the tests"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "QUERN_LIBCUDA": str(driver),
            "QUERN_LIBNVRTC": str(compiler),
            "QUERN_MOCK": "devices=2",
            "QUERN_CACHE": "off",
        }
        done = subprocess.run(
            [sys.executable, "-c", STAGE + textwrap.dedent(program)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout

    return run


def test_stream_of_the_interface(play):
    play("""
    warm()
    quern.lion_(*three(Interface, 0, S0))
    assert launches() == [(0, S0)]
    quern.lion_(*three(Interface, 1, S1))
    assert launches() == [(1, S1)]
    quern.lion_(*three(Interface, 1))
    quern.lion_(*three(Interface, 1, 1))
    assert launches() == [(1, 0), (1, 0)]   # none named, and the legacy one by its other name
    assert "cuStreamSynchronize" not in calls()   # nothing waited
    refuses(ValueError, "stream 0 in its __cuda_array_interface__", lambda: quern.lion_(*three(Interface, 0, 0)))
    """)


def test_current_stream_of_torch(play):
    play("""
    warm()
    torch()
    CURRENT.update({0: S0, 1: S1})
    tensors = three(Tensor, 0)
    quern.lion_(*tensors)
    assert launches() == [(0, S0)]
    assert [tensor.version for tensor in tensors] == [1, 0, 1]
    quern.lion_(*three(Tensor, 1))
    CURRENT[0] = T0
    quern.lion_(*three(Tensor, 0))
    assert launches() == [(1, S1), (0, T0)]
    tensors[0].inference = True   # counts nothing, and would refuse to
    quern.lion_(*tensors)
    assert [tensor.version for tensor in tensors] == [1, 0, 2]
    """)


def test_fast_calls(play):
    """The same in one entry into C: stream, device, new results, workspace; a failing launch is an error."""
    play("""
    from quern import _call
    warm()
    torch(), complete()
    CURRENT.update({0: S0, 1: S1})
    tensors, others = three(Tensor, 0), three(Tensor, 1)
    quern.lion_(*tensors), quern.swiglu_(*tensors), launches(), calls()
    _call.Call.__call__ = None   # the longer way
    quern.lion_(*tensors)
    quern.lion_(*others)
    CURRENT[0] = T0
    quern.lion_(*tensors)
    assert launches() == [(0, S0), (1, S1), (0, T0)]
    assert [tensor.version for tensor in tensors] == [4, 0, 3]
    tensors[0].inference = True
    quern.lion_(*tensors)
    assert [tensor.version for tensor in tensors] == [4, 0, 4]
    made = quern.swiglu(*others[:2])
    assert type(made) is Tensor and made.device.index == 1 and made.version == 0
    quern.lion_(*others, cautious=True)   # in whose workspace changes are counted
    assert launches()[:2] == [(0, T0), (1, S1)] and calls() == ["cuLaunchKernel"] * 7
    lists = [[Tensor(1, n) for n in (8, 5, 3)] for _ in range(3)]
    quern.lion_(*lists, cautious=True)
    assert set(launches()) == {(1, S1)}
    assert [[one.version for one in of_role] for of_role in lists] == [[1] * 3, [0] * 3, [1] * 3]
    refuses(TypeError, "NoneType", lambda: quern.lion_(tensors[0], others[1], tensors[2]))
    lists[1][0], other = tensors[1], lists[1][0]   # on the other device
    refuses(TypeError, "NoneType", lambda: quern.lion_(*lists))
    lists[1][:2] = other, Tensor(1, 4)   # of another shape
    refuses(TypeError, "NoneType", lambda: quern.lion_(*lists))
    api.fail_next(1, 700)
    refuses(RuntimeError, "700", lambda: quern.swiglu_(*others))
    """)


def test_fast_calls_of_kernels(play):
    play("""
    warm()
    torch(), complete()
    CURRENT.update({0: S0, 1: S1})
    kernel = quern.cuda_kernel("twice", ["x", "by"], ["out"], "out[threadIdx.x] = x[threadIdx.x] * by;")
    words = {"grid": (8, 1, 1), "threadgroup": (8, 1, 1)}
    fresh = {"output_shapes": [(8,)], "output_dtypes": [sys.modules["torch"].float32]}
    calls = [lambda k, **more: kernel(inputs=[Tensor(k), 2.0], **words, **fresh, **more),
             lambda k, **more: kernel(inputs=[Tensor(k), 3.0], out=[Tensor(k)], **words, **more)]
    for call in calls:
        call(0), call(0), call(1), launches()
        learned, kernel._learn = kernel._learn, None   # no call goes the longer way any more
        made = call(0)[0], call(1)[0], call(0, stream=T0)[0]
        assert launches() == [(0, S0), (1, S1), (0, T0)]
        assert [tensor.device.index for tensor in made] == [0, 1, 0]
        assert [tensor.version for tensor in made] == [calls.index(call)] * 3
        kernel._learn = learned
    """)


def test_current_stream_of_cupy(play):
    """Of the array's device, not of the current one."""
    play("""
    warm()
    cupy()
    CURRENT.update({0: S0, 1: S1})
    quern.lion_(*three(Ndarray, 0))
    quern.lion_(*three(Ndarray, 1))
    assert launches() == [(0, S0), (1, S1)]
    assert Device.entered == []
    """)


def test_a_list_on_several_devices(play):
    """Each part on its device and that device's current stream."""
    play("""
    warm()
    torch()
    CURRENT.update({0: S0, 1: S1})
    lists = [[Tensor(index) for index in (1, 0, 1)] for _ in range(3)]
    quern.lion_(*lists)
    assert sorted(launches()) == sorted([(1, S1), (0, S0)])
    assert [tensor.version for tensor in lists[2]] == [1, 1, 1]
    lists[1][1] = Tensor(1)
    refuses(ValueError, "lion: grad[1] is on cuda:1 and the call is on cuda:0", lambda: quern.lion_(*lists))
    lists[1][1] = Tensor(0, 4)
    refuses(ValueError, "lion: grad[1] has the shape 4 and param[1] has 8", lambda: quern.lion_(*lists))
    """)


def test_explicit_stream(play):
    play("""
    warm()
    torch()
    CURRENT[0] = S0
    for stream in (T0, Stream(T0), type("S", (), {"ptr": T0})(), type("S", (), {"handle": ctypes.c_void_p(T0)})(),
                   type("S", (), {"__cuda_stream__": lambda self: (0, T0)})()):
        quern.lion_(*three(Tensor, 0), stream=stream)
        assert launches() == [(0, T0)]
    quern.lion_(*three(Tensor, 0), stream=0)
    assert launches() == [(0, 0)]
    quern.lion_(*three(Interface, 0, S0), stream=T0)   # ordered by whoever gave it
    assert launches() == [(0, T0)]
    assert "cuStreamSynchronize" not in calls()
    refuses(RuntimeError, "CUDA_ERROR_INVALID_HANDLE", lambda: quern.lion_(*three(Tensor, 1), stream=T0))
    lists = [[Tensor(1), Tensor(0)] for _ in range(3)]
    sentence = "lion: stream is given, and arrays are on cuda:0, cuda:1: a stream is of one device"
    refuses(ValueError, sentence, lambda: quern.lion_(*lists, stream=T0))
    """)


def test_arrays_that_are_ordered_elsewhere_are_waited_for(play):
    """PyTorch's stream is taken; the other's work is waited for, and ours too where the other's array is written."""
    play("""
    warm()
    torch()
    CURRENT[0] = S0
    quern.lion_(Tensor(0), Interface(0, T0), Tensor(0))
    assert launches() == [(0, S0)]
    assert calls() == ["cuStreamSynchronize", "cuLaunchKernel"]
    quern.lion_(Tensor(0), Tensor(0), Interface(0, T0))
    assert launches() == [(0, S0)]
    assert calls() == ["cuStreamSynchronize", "cuLaunchKernel", "cuStreamSynchronize"]
    quern.lion_(Tensor(0), Tensor(0), Interface(0, S0))
    assert calls() == ["cuLaunchKernel"]
    launches()
    quern.lion_(Interface(0, T0), Tensor(0), Interface(0, T0))   # whichever comes first
    assert launches() == [(0, S0)]
    """)


def test_dlpack_is_given_the_stream(play):
    """The producer makes the stream wait; it must be the one that the launch is on, whichever array comes first."""
    play("""
    import struct
    warm()
    torch()
    given = []

    class DLPack:
        def __init__(self, index):
            self.index, self.pointer = index, memory(index)
            self.shape = (ctypes.c_int64 * 1)(8)
            shape = ctypes.addressof(self.shape)
            # data; device, ndim; dtype; shape, strides, byte_offset
            self.tensor = struct.pack("<QiiiBBHQQQ", self.pointer, 2, index, 1, 2, 32, 1, shape, 0, 0)
            self.memory = ctypes.create_string_buffer(self.tensor)
        def __dlpack_device__(self):
            return (2, self.index)
        def __dlpack__(self, *, stream, max_version=None, copy=None):
            given.append(stream)
            make = ctypes.pythonapi.PyCapsule_New
            make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
            return make(ctypes.addressof(self.memory), b"dltensor", None)

    quern.lion_(*three(DLPack, 0))
    assert launches() == [(0, 0)]
    assert given == [1, 1, 1]   # CUDA's name for the legacy default stream; 0 is ambiguous there
    given.clear()
    CURRENT.update({0: S0, 1: S1})
    quern.lion_([DLPack(1), DLPack(0)], [Tensor(1), DLPack(0)], [Tensor(1), Tensor(0)])
    assert sorted(launches()) == sorted([(1, S1), (0, S0)])
    assert given == [S1, S0, S0]
    given.clear()
    quern.lion_(*three(DLPack, 0), stream=T0)
    assert given == [T0, T0, T0]
    assert launches() == [(0, T0)]
    """)


def test_workspace(play):
    """From the framework's allocator, or the library's own, which is given back behind a wait."""
    play("""
    warm()
    arrays = three(Interface, 1, S1)
    quern.lion_(*arrays, cautious=True)   # compiles
    live = api.live()
    launches(), calls()
    quern.lion_(*arrays, cautious=True)
    assert api.live() == live
    assert calls()[-1] == "cuStreamSynchronize"
    assert set(launches()) == {(1, S1)}
    torch()
    quern.lion_(*three(Tensor, 1))   # the first call finds out how PyTorch counts writes
    tensors, live = three(Tensor, 1), api.live()
    made = []
    empty = sys.modules["torch"].empty
    sys.modules["torch"].empty = lambda n, dtype, device: made.append((n, dtype, device)) or empty(n, dtype, device)
    calls()
    quern.lion_(*([tensor] for tensor in tensors), cautious=True)
    assert made == [(16, "uint8", 1)]
    assert "cuStreamSynchronize" not in calls()
    made.clear()
    quern.lion_(*tensors, cautious=True, stream=S1)   # memory that PyTorch may reuse is ordered on another stream
    assert made == []
    assert calls()[-1] == "cuStreamSynchronize"
    cupy()
    CURRENT[1] = S1
    launches()
    quern.lion_(*three(Ndarray, 1), cautious=True)
    assert set(launches()) == {(1, S1)}
    assert "cuStreamSynchronize" not in calls()
    """)


def test_pointers_of_the_params(play):
    """grad_scale and found_inf must lie on the device of the list."""
    play("""
    warm()
    scale = Interface(0, n=1)
    quern.lion_(*three(Interface, 0), grad_scale=scale, found_inf=Interface(0, n=1))
    launches()
    for call in (lambda: quern.lion_(*three(Interface, 1), grad_scale=scale),
                 lambda: quern.lion_(*([Interface(0), Interface(1)] for _ in range(3)), grad_scale=scale)):
        refuses(ValueError, "lion: grad_scale is on cuda:0 and arrays are on cuda:1", call)
    """)


def test_devices(play):
    play("""
    assert [device.name for device in quern.devices()] == ["cpu", "cuda:0", "cuda:1"]
    assert quern.devices()[2].model == "Mock GPU 1"
    assert quern.devices()[2].arch == 90
    """)


def test_no_driver():
    """Arrays on a GPU that the library cannot reach: a RuntimeError that says why."""
    program = """
    import quern

    class Interface:
        __cuda_array_interface__ = {"shape": (8,), "typestr": "<f4", "data": (4096, False), "version": 3}
        def __init__(self, at): self.__cuda_array_interface__ = {**self.__cuda_array_interface__, "data": (at, False)}
        def __dlpack_device__(self): return (2, 0)

    quern.lion_(*(Interface(4096 * k) for k in (1, 2, 3)))
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "QUERN_LIBCUDA": "/nowhere/libcuda.so.1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "RuntimeError: no CUDA driver: /nowhere/libcuda.so.1" in done.stderr


def test_memory_of_nobody_known(tmp_path):
    """An interface that does not say which device it is on: the driver does."""
    source, library = tmp_path / "driver.c", tmp_path / "driver.so"
    source.write_text(
        "int cuInit(unsigned flags) { return flags; }\n"
        "int cuPointerGetAttribute(void *out, int attribute, unsigned long long address)\n"
        "{ *(int *)out = attribute == 9 ? (int)(address >> 40) : -1; return address & 1 ? 1 : 0; }\n",
        encoding="utf-8",
    )
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", source, "-o", library], check=True)
    program = """
    from quern import _streams
    assert _streams.device_of_pointer(3 << 40) == 3
    try:
        _streams.device_of_pointer((3 << 40) + 1)
    except RuntimeError as error:
        assert "the CUDA driver does not say whose memory 0x30000000001 is: error 1" == str(error)
    else:
        raise AssertionError
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "QUERN_LIBCUDA": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
