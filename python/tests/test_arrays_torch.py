# SPDX-License-Identifier: Apache-2.0
"""The function on PyTorch's tensors as plain arrays: on the CPU what differs from NumPy, and on real GPUs that work
goes to each tensor's own device and that device's current stream. A slow producer on a side stream makes a launch on
any other stream read what is not there yet. Results on a GPU are held against the same call on the CPU, bit for bit."""

import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402

HYPER = dict(lr=1e-2, betas=(0.9, 0.98), weight_decay=0.1)
SHAPES = [(64, 33), (7,), (), (3, 5, 2), (0, 4), (40_001,)]


def draw(seed=3, dtype=torch.float32, shapes=SHAPES):
    """params, grads, exp_avgs on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randn(shape, generator=generator).to(dtype) for shape in shapes] for _ in range(3)]


def on(device, lists):
    return [[tensor.to(device, copy=True) for tensor in part] for part in lists]


def same(lists, others):
    for part, other in zip(lists, others):
        for one, two in zip(part, other):
            assert torch.equal(one.cpu(), two.cpu())


# ---- on the CPU ----
def test_as_numpy():
    """The same bits as on the same memory as NumPy's arrays."""
    np = pytest.importorskip("numpy")
    lists = draw()
    arrays = [[tensor.numpy().copy() for tensor in part] for part in lists]
    quern.lion_(*lists, **HYPER)
    quern.lion_(*arrays, **HYPER)
    for part, other in zip(lists, arrays):
        for tensor, array in zip(part, other):
            assert np.array_equal(tensor.numpy(), array)


def test_parameters_and_version_counters():
    p = torch.nn.Parameter(torch.ones(5))
    g, m = torch.ones(5), torch.zeros(5)
    quern.lion_(p, g, m, lr=0.25)
    assert p.tolist() == [0.75] * 5
    assert (p._version, g._version, m._version) == (1, 0, 1)
    assert p.requires_grad


def test_autograd_sees_the_change():
    """Without the version counter, backward would use the new weights in silence."""
    p = torch.nn.Parameter(torch.ones(5))
    loss = (p * p).sum()
    quern.lion_(p, torch.ones(5), torch.zeros(5))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inference_tensors():
    with torch.inference_mode():
        p, g, m = torch.ones(5), torch.ones(5), torch.zeros(5)
    quern.lion_(p, g, m, lr=0.25)
    assert p.tolist() == [0.75] * 5


def test_mixed_with_numpy():
    np = pytest.importorskip("numpy")
    p, m = torch.ones(5), torch.zeros(5)
    quern.lion_(p, np.ones(5, np.float32), m, lr=0.25)
    assert p.tolist() == [0.75] * 5


def test_channels_last():
    lists = draw(shapes=[(2, 3, 4, 5)])
    want = on("cpu", lists)
    quern.lion_(*want, **HYPER)
    turned = [[tensor.contiguous(memory_format=torch.channels_last) for tensor in part] for part in lists]
    quern.lion_(*turned, **HYPER)
    same(turned, want)


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda t: t.to_sparse(), TypeError, "lion: grads[1] has the layout torch.sparse_coo"),
        (lambda t: t.to("meta"), ValueError, "lion: grads[1] is on meta, where quern has no kernels"),
        (lambda t: t.to(torch.int32), TypeError, "lion: grads[1] is int32; grads may be float32, bfloat16 or float16"),
        (lambda t: t.double(), TypeError, "there is no kernel for param f32, grad f64"),
        (lambda t: t.to(torch.complex64), TypeError, "lion: grads[1] is complex64"),
        (lambda t: torch._neg_view(t), TypeError, "lion: grads[1] has a pending negation"),
        (lambda t: t.repeat(2)[::2], ValueError, "lion: grad[1] (7) is laid out in another order"),
        (lambda t: None, TypeError, "lion: grads[1] is None"),
    ],
    ids=["sparse", "meta", "int", "double", "complex", "negated", "strided", "None"],
)
def test_refused(make, error, sentence):
    lists = draw()
    before = on("cpu", lists)
    lists[1][1] = make(lists[1][1])
    with pytest.raises(error) as caught:
        quern.lion_(*lists)
    assert sentence in str(caught.value)
    same([lists[0], lists[2]], [before[0], before[2]])
    assert lists[0][0]._version == 0


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_fake_tensors_have_no_memory():
    mode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode()
    with mode:
        fake = torch.empty(4)
    with pytest.raises(ValueError, match=r"lion: the data of param\[0\] \(4\) is NULL"):
        quern.lion_(fake, torch.ones(4), torch.zeros(4))


def test_threads_are_torchs(monkeypatch):
    from quern import _threads

    asked, real = [], _threads.pool_for
    monkeypatch.setattr(_threads, "pool_for", lambda framework: asked.append(framework) or real(framework))
    n = 1 << 16  # a small call has no work to share
    quern.lion_(torch.ones(n), torch.ones(n), torch.zeros(n))
    assert asked == ["torch"]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert _threads.pool_for("torch").n == 3 and _threads.pool_for("numpy") is _threads.pool()
        torch.set_num_threads(1)
        assert _threads.pool_for("torch") is None
    finally:
        torch.set_num_threads(before)


OPENMP = """
import os, torch, quern
torch.set_num_threads(2)
def step():
    p = torch.ones(1 << 20)
    quern.lion_(p, torch.ones(1 << 20), torch.zeros(1 << 20), lr=0.5)
    assert (p == 0.5).all()
def threads():
    return len(os.listdir("/proc/self/task"))
torch.ones(1 << 20).exp()
before = threads()
step()
"""


def test_pytorchs_threads_do_the_work():
    """No thread is started: those of PyTorch's own ops run the call."""
    parallel = torch.__config__.parallel_info()
    if "libgomp" not in pathlib.Path("/proc/self/maps").read_text() or "OpenMP" not in parallel:
        pytest.skip("PyTorch's threads are not libgomp's here")
    assert run(OPENMP + "print(threads() - before)") == "0\n"


def test_fork_after_openmp():
    """OpenMP's runtime does not run in a child, nor do PyTorch's own ops there; the library's own threads do."""
    program = """
p, grad, momentum = torch.ones(1 << 20), torch.ones(1 << 20), torch.zeros(1 << 20)
if (child := os.fork()) == 0:
    quern.lion_(p, grad, momentum, lr=0.5)
    os._exit(0 if p[0] == p[-1] == 0.5 and threads() == 2 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
step()
"""
    assert run(OPENMP + program) == "0\n"


def run(program):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_the_optimizer_is_there_when_it_is_named():
    """`import quern` alone brings no PyTorch, and quern.torch then does."""
    program = "import sys, quern; assert 'torch' not in sys.modules; print(quern.torch.Lion.__name__)"
    assert run(program) == "Lion\n"


# ---- on GPUs ----
@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("words", [{}, {"cautious": True}, {"rounding": "stochastic", "seed": 5}], ids=str)
def test_gpu_as_cpu(dtype, words):
    lists = draw(dtype=dtype)
    lists[2] = [tensor.float() for tensor in lists[2]]
    gpu = on("cuda:0", lists)
    for step in range(3):
        quern.lion_(*lists, step=step, **HYPER, **words)
        quern.lion_(*gpu, step=step, **HYPER, **words)
    same(gpu, lists)


@pytest.mark.cuda
def test_scale_and_flag_on_the_gpu():
    lists = draw()
    gpu = on("cuda:0", lists)
    before = on("cpu", lists)
    scale, flag = torch.full((1,), 64.0, device="cuda:0"), torch.ones((), device="cuda:0")
    quern.lion_(*gpu, grad_scale=scale, found_inf=flag, **HYPER)
    same(gpu, before)
    flag.zero_()
    quern.lion_(*gpu, grad_scale=scale, found_inf=flag, **HYPER)
    quern.lion_(*lists, grad_scale=torch.full((1,), 64.0), **HYPER)
    same(gpu, lists)
    with pytest.raises(ValueError, match="grad_scale is on cpu:0 and arrays are on cuda:0"):
        quern.lion_(*gpu, grad_scale=torch.ones(1))


class Interface:
    """A tensor that is seen through its interface only, ordered on a stream that it names."""

    def __init__(self, tensor, stream):
        self.tensor = tensor
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "version": 3, "stream": stream}


class DLPack:
    """A tensor that is seen through DLPack only."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **words):
        return self.tensor.__dlpack__(**words)


def slowly(stream, tensors, value):
    """On the stream, after a good while: these tensors hold the value."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # a tenth of a second and more
        for tensor in tensors:
            tensor.fill_(value)


@pytest.fixture
def late():
    """param, gradient, momentum on the first GPU and a side stream on which the gradient becomes 1 late. Until then it
    is -1, so a step that does not wait for it moves the other way. Everything is compiled before."""
    p, g, m = (torch.full((4096,), value, device="cuda:0") for value in (0.0, -1.0, 0.0))
    quern.lion_(p, g, m, lr=0.0)
    m.zero_()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream("cuda:0")
    slowly(stream, [g], 1.0)
    return p, g, m, stream


def moved(p, by):
    torch.cuda.synchronize()
    assert p.cpu().unique().tolist() == [by]


@pytest.mark.cuda
def test_the_producer_is_slow_enough(late):
    """The premise of the tests below: without order between the streams the old gradient is read."""
    p, g, m, stream = late
    quern.lion_(p, g, m, lr=0.5, stream=torch.cuda.Stream("cuda:0"))
    moved(p, 0.5)


@pytest.mark.cuda
def test_current_stream(late):
    p, g, m, stream = late
    with torch.cuda.stream(stream):
        quern.lion_(p, g, m, lr=0.5)
    moved(p, -0.5)


@pytest.mark.cuda
@pytest.mark.parametrize("of", [lambda stream: stream, lambda stream: stream.cuda_stream], ids=["object", "int"])
def test_explicit_stream(late, of):
    p, g, m, stream = late
    quern.lion_(p, g, m, lr=0.5, stream=of(stream))
    moved(p, -0.5)


@pytest.mark.cuda
def test_stream_of_the_interface(late):
    p, g, m, stream = late
    quern.lion_(*(Interface(tensor, stream.cuda_stream) for tensor in (p, g, m)), lr=0.5)
    moved(p, -0.5)


@pytest.mark.cuda
def test_gradient_of_another_stream(late):
    """Ours is PyTorch's current one; what is ordered elsewhere is waited for."""
    p, g, m, stream = late
    quern.lion_(p, Interface(g, stream.cuda_stream), m, lr=0.5)
    moved(p, -0.5)


@pytest.mark.cuda
def test_dlpack_producer_waits(late):
    p, g, m, stream = late
    with torch.cuda.stream(stream):  # the producer's current stream, which it makes the consumer's wait for
        quern.lion_(DLPack(p), DLPack(g), DLPack(m), lr=0.5)
    moved(p, -0.5)


@pytest.mark.cuda
def test_nothing_waits_on_the_host(late):
    import time

    p, g, m, stream = late
    start = time.perf_counter()
    with torch.cuda.stream(stream):
        quern.lion_(p, g, m, lr=0.5)
    took = time.perf_counter() - start
    assert not stream.query(), "the stream was waited for"
    moved(p, -0.5)
    assert took < 0.05


@pytest.mark.two_gpus
@pytest.mark.cuda
def test_each_on_its_own_device_and_stream():
    """With a slow producer on a side stream of each, the other device being the current one."""
    lists = [[torch.full((4096,), value, device=f"cuda:{k}") for k in (0, 1, 1, 0)] for value in (0.0, -1.0, 0.0)]
    cpu = [torch.zeros(8), torch.ones(8), torch.zeros(8)]
    quern.lion_(*lists, lr=0.0)
    for m in lists[2]:
        m.zero_()
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    streams = [torch.cuda.Stream("cuda:0"), torch.cuda.Stream("cuda:1")]
    for k, stream in enumerate(streams):
        slowly(stream, [g for g in lists[1] if g.device.index == k], 1.0)
    with torch.cuda.stream(streams[1]), torch.cuda.stream(streams[0]):
        assert torch.cuda.current_device() == 0
        quern.lion_(*([one, *part] for one, part in zip(cpu, lists)), lr=0.5)
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    for p in [cpu[0], *lists[0]]:
        assert p.cpu().unique().tolist() == [-0.5]
    assert torch.cuda.current_device() == 0


@pytest.mark.two_gpus
@pytest.mark.cuda
def test_interface_on_the_device_that_is_not_current():
    tensors = [torch.full((64,), value, device="cuda:1") for value in (0.0, 1.0, 0.0)]
    with torch.cuda.device(0):
        quern.lion_(*(Interface(tensor, None) for tensor in tensors), lr=0.5)
    torch.cuda.synchronize(1)
    assert tensors[0].cpu().unique().tolist() == [-0.5]
