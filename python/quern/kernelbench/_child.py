# SPDX-License-Identifier: Apache-2.0
"""The process of a model under judgement: `serve` reads requests from one descriptor and answers on another, each a
length and a JSON object. It runs in isolation (_sandbox.py) and is trusted with nothing: the judge times it from
outside too, compares every output itself, and takes numbers alone from here.

The functions that measure and copy are taken before a candidate's text runs, and looked at again after each call."""

import contextlib
import copy
import ctypes
import hashlib
import json
import os
import random
import struct
import sys
import time
import traceback
import types

import _tree  # type: ignore[import-not-found] # it stands beside this file; the process runs without the package
import torch

now = time.perf_counter_ns
TEXT = 4000  # characters of an error that the judge is told
POISON_BLOCKS, POISON_BYTES = 4, 1 << 28  # of each size; fewer blocks where these bytes are exceeded
# Other distributions of normal data with the root mean square s.
DISTRIBUTIONS = {
    "heavy tail": lambda x, s: (x * (x / s).square()).clamp(-50 * s, 50 * s),
    "uniform": lambda x, s: torch.erf(x / s * 0.7) * s,
    "sparse": lambda x, s: torch.where(x.abs() > 1.6 * s, x, 0.0),
    "equal": lambda x, s: x.sign() * s,
    "mixed magnitudes": lambda x, s: x * torch.exp2((x.abs() / s * 7).frac() * 16 - 14),
    "denormal": lambda x, s: x / s * torch.finfo(x.dtype).tiny,
}
ROUNDED = 2.0**-18  # of an input: about what a deep network's rounding in float32 is
SPIKE = 50.0  # times as great
WAKE_NS = 300_000
GUARD, GUARD_BYTES = 0x5A, 256  # behind each input
HEAP_BYTES = 32 << 20  # a processor's larger blocks are new pages each time


def _watched():
    """What a candidate must leave alone: functions that measure, wait, copy and compare."""
    found = {}
    for owner, names in (
        (time, ("perf_counter", "perf_counter_ns", "time", "monotonic")),
        (torch, ("empty", "equal", "allclose", "frombuffer", "_foreach_mul_")),
        (torch.Tensor, ("copy_", "clone", "contiguous", "view", "data_ptr", "cpu", "to", "detach", "zero_")),
        (torch.cuda, ("synchronize", "Event", "current_stream")),
        (torch.cuda.Event, ("record", "elapsed_time", "synchronize")),
        (os, ("write", "read", "ftruncate")),
        (json, ("dumps", "loads")),
        (_tree, ("write", "read", "bits", "tensors", "torch", "Memory")),
        (sys.modules[__name__], ("now", "_replaced", "_watched", "_flags", "Answer", "torch", "time", "os", "_tree")),
        (Session, [name for name in vars(Session) if name.startswith(("do_", "_call"))]),
    ):
        for name in names:
            found[f"{owner.__name__}.{name}"] = (owner, name, getattr(owner, name))
    return found


WATCHED: dict = {}  # filled before a candidate's text runs


def _replaced():
    return [path for path, (owner, name, was) in WATCHED.items() if getattr(owner, name, None) is not was]


def _flags():
    """torch's global switches, as text."""
    return {
        "matmul tf32": str(torch.backends.cuda.matmul.allow_tf32),
        "cudnn tf32": str(torch.backends.cudnn.allow_tf32),
        "default dtype": str(torch.get_default_dtype()),
        "gradients": str(torch.is_grad_enabled()),
        "threads": str(torch.get_num_threads()),
        "float32 precision": torch.get_float32_matmul_precision(),
    }


def _bytes(tensors):
    """Of memory that is read or written once; elements that share a place count once."""
    return sum(min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in tensors)


class Answer(Exception):
    """An answer in the place of a result: a kind of failure and its text."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


def _last_line(error):
    return traceback.format_exception_only(type(error), error)[-1].strip()


def _place(error, path):
    """The line of the file in which the error arose."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{path}:{lines[-1]}: " if lines else ""


class _State:
    """A module's plain attributes that are tensors, as its constructor made them. Each call begins with them, as does
    that of another module on the same data, on the device where a call has put them."""

    def __init__(self, model):
        held = [(vars(m), k, t) for m in model.modules() for k, t in vars(m).items() if isinstance(t, torch.Tensor)]
        self.made = [(where, key, t, t._version, t.detach().clone()) for where, key, t in held]

    def restore(self):
        kept = []
        for where, key, tensor, version, value in self.made:
            now = where.get(key)
            if now is not tensor or now._version != version:
                device = now.device if isinstance(now, torch.Tensor) else value.device
                where[key] = tensor = value.to(device, copy=True)
            kept.append((where, key, tensor, tensor._version, value))
        self.made = kept


class Session:
    def __init__(self, config):
        self.device = torch.device(config["device"])
        self.cuda = self.device.type == "cuda"
        if self.device.index is not None and self.cuda:
            torch.cuda.set_device(self.device)  # events, streams and Triton go by the current one
        self.given, self.answered = (_tree.Memory(config[name], self.cuda) for name in ("inputs", "outputs"))
        self.init: list = []
        self.model = self.module = self.staged = self.kept = self.outputs = None
        self.state = _State(torch.nn.Module())
        self.spiked: list = []
        self.sets, self.sizes, self.path, self.gradients = [], [], "", False
        self.guards: list = []
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device=self.device) if self.cuda else None
        self.wake = torch.zeros(1 << 16).add_  # enough for all threads
        self.reset_cache = None
        with contextlib.suppress(OSError, AttributeError):
            self.reset_cache = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache if self.cuda else None

    def synchronize(self):
        if self.cuda:
            WATCHED["torch.cuda.synchronize"][2](self.device)

    def to_device(self, value):
        """A new value with its tensors on the device and in the sender's strides."""
        if isinstance(value, torch.Tensor):
            stride = getattr(value, "told_stride", value.stride())
            if 0 in stride:  # elements that share a place cannot be written one by one
                return value.to(self.device, copy=True)
            return self._guarded(value, stride).copy_(value.detach())
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_device(item) for item in value)
        return {k: self.to_device(v) for k, v in value.items()} if isinstance(value, dict) else value

    def _guarded(self, like, stride):
        """A new tensor of this shape and type. The bytes behind its last element are known."""
        span = 1 + sum((n - 1) * s for n, s in zip(like.shape, stride)) if like.numel() else 0
        room = torch.empty(span * like.element_size() + GUARD_BYTES, dtype=torch.uint8, device=self.device)
        self.guards.append(room[-GUARD_BYTES:].fill_(GUARD))
        return torch.empty(0, dtype=like.dtype, device=self.device).set_(room.untyped_storage(), 0, like.shape, stride)

    def do_load(self, path, name):
        self.path = path
        try:
            with open(path, "rb") as file:  # compile() reads the encoding
                code = compile(file.read(), path, "exec")
        except SyntaxError as error:
            raise Answer("syntax error", f"{path}:{error.lineno}: {error.msg}") from None
        except (OSError, ValueError) as error:
            raise Answer("import error", f"{path}: {error}") from None
        module = types.ModuleType("problem" if name == "Model" else "candidate")
        module.__file__ = path
        sys.modules[module.__name__] = module  # as dataclasses and torch.compile expect
        try:
            exec(code, module.__dict__)
        except BaseException as error:
            raise Answer("import error", _place(error, path) + _last_line(error)) from None
        self.module, self.maker = module, module.__dict__.get(name)
        if not isinstance(self.maker, type) or not issubclass(self.maker, torch.nn.Module):
            raise Answer(f"no {name}", f"{path} defines no class {name} that is a torch.nn.Module")
        return {"flags": _flags(), "replaced": _replaced()}

    def _seed(self, seed):
        random.seed(seed)
        torch.manual_seed(seed)  # of CUDA too

    def do_inputs(self, seed, own=False, domain=False):
        """The reference's inputs and its constructor's, both under the seed. `own`: they stay here. `domain`: with
        inputs of other shapes, where the problem says which it is made for."""
        self._seed(seed)
        try:
            both = {"inputs": list(self.module.get_inputs())}
            both["init"] = list(getattr(self.module, "get_init_inputs", list)())
            more = getattr(self.module, "get_domain_inputs", list)
            both["domain"] = [list(inputs) for inputs in more()] if domain else []
            if own:
                self.sets, self.init = [self.to_device(both["inputs"])], both["init"]
                return {}
            return {"tree": _tree.write(both, self.given)}
        except _tree.Unfit as error:
            raise Answer("unfit inputs", f"the inputs have {error}") from None
        except BaseException as error:
            raise Answer("inputs fail", _place(error, self.path) + _last_line(error)) from None

    def do_keep(self, tree):
        """A set of inputs, from which later calls' data is made."""
        self.sets.append(self.to_device(_tree.read(tree, self.given)))
        return {}

    def do_construct(self, seed, tree=None, compile_mode=None, gradients=False):
        init, self.gradients = self.to_device(_tree.read(tree, self.given) if tree else self.init), gradients
        self._seed(seed)
        try:
            self.model = self.maker(*init).to(self.device)
        except BaseException as error:
            raise Answer("constructor fails", _place(error, self.path) + _last_line(error)) from None
        self.state, weights = _State(self.model), []
        for parameter in self.model.parameters() if tree else ():
            if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
                weights.append("made by the first call")
                continue
            digest = hashlib.sha256(_tree.bits(parameter.cpu()).numpy().tobytes()).hexdigest()
            weights.append([list(parameter.shape), str(parameter.dtype), digest])
        if compile_mode:
            self.model = torch.compile(self.model, mode=None if compile_mode == "default" else compile_mode)
        return {"weights": weights, "training": self.model.training, "replaced": _replaced()}

    def do_double(self, on):
        """The model and its inputs continue in float64, or as they were."""
        if on:
            try:
                self.state.restore()
                self.single, self.model = (self.model, self.state), copy.deepcopy(self.model).double()
                for module in self.model.modules():
                    for key, value in vars(module).items():
                        if isinstance(value, torch.Tensor) and value.is_floating_point():
                            vars(module)[key] = value.double()
                self.state = _State(self.model)
            except Exception as error:
                raise Answer("no float64", _last_line(error)) from None
        elif self.as_double:
            (self.model, self.state), self.single = self.single, None
        self.as_double = on
        return {}

    as_double, single = False, None

    def do_work(self):
        """What one call of the model has to do: operations by PyTorch's counter, and bytes. `nonzero`: of the inputs'
        other elements than zero, and `sparse`, whether many are zero."""
        from torch.utils.flop_counter import FlopCounterMode

        self.staged = self.to_device(self.sets[0])
        counter = FlopCounterMode(display=False)
        try:
            with counter:
                outputs = self._call()
        except Exception as error:
            raise Answer("cannot be counted", _last_line(error)) from None
        counts = counter.get_flop_counts().get("Global", {})
        inputs = _tree.tensors(self.staged)
        shares = [
            float(torch.count_nonzero(t)) / t.numel() if t.is_floating_point() and t.numel() else 1 for t in inputs
        ]
        tables = [m.weight for m in self.model.modules() if isinstance(m, torch.nn.Embedding)]
        self.staged = None
        return {
            "operations": sum(counts.values()),
            "convolutions": sum(n for op, n in counts.items() if "convolution" in str(op)),
            "inputs": _bytes(inputs),
            "nonzero": sum(share * _bytes([t]) for share, t in zip(shares, inputs)),
            "sparse": min(shares, default=1) < 0.9,
            "parameters": _bytes(self.model.parameters()),
            "embeddings": _bytes(tables),
            "outputs": _bytes(_tree.tensors(outputs)),
        }

    def do_benchmark(self, seconds):
        """PyTorch's own: times of calls in a row on the same inputs."""
        from torch.utils import benchmark

        self.staged = self.to_device(self.sets[0])
        try:
            timer = benchmark.Timer("call()", globals={"call": self._call}, num_threads=torch.get_num_threads())
            measured = timer.blocked_autorange(min_run_time=seconds)
        except Exception as error:
            raise Answer("forward fails", _place(error, self.path) + _last_line(error)) from None
        self.staged = None
        return {"ns": [round(t * 1e9) for t in measured.times]}

    def _vary(self, tensor, scale, kind, rounded):
        """Every element changed by its own value alone, so that structure (zeros, signs, triangles, symmetry) stays."""
        if tensor.is_floating_point() and tensor.numel():
            tensor.mul_(scale)
            if kind:
                tensor.copy_(DISTRIBUTIONS[kind](tensor, tensor.double().square().mean().sqrt().to(tensor)))
            if rounded:
                tensor.mul_(1 + ROUNDED * torch.cos(tensor * 1e4))

    def _element(self, tensor, n):
        """The element of that number, counted from the end below 0, as a tensor of one in the same memory."""
        place, rest = [], n % tensor.numel()
        for extent in reversed(tensor.shape):
            place.insert(0, rest % extent)
            rest //= extent
        return tensor.detach()[tuple(place)]

    def do_stage(self, which, scale, spike, kind, rounded, pad, warm, check):
        """Fresh inputs at fresh addresses, and a poisoned allocator where the outputs will be looked at. `spike`: one
        element of each input grows, behind all else that is queued before the call, so that work which does
        not wait for the call's stream reads other data; None: none grows. `warm`: the model is called first on data of
        its own, because who calls a model in a loop does not see how long code takes that no cache has."""
        self.outputs = self.staged = None
        self.guards = []
        self.state.restore()
        if warm:
            self.staged = self.to_device(self.sets[0])
            self._call()
            self.staged = None
            self.guards = []
        self.state.restore()
        padding = torch.empty(pad, dtype=torch.uint8, device=self.device)
        self.staged = self.to_device(self.sets[which])
        for tensor in _tree.tensors(self.staged):
            self._vary(tensor, scale, kind, rounded)
        if self.as_double:
            self.staged = [
                x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in self.staged
            ]
        self.kept = [tensor.clone() for tensor in _tree.tensors(self.staged)] if check else []
        grown = [t for t in _tree.tensors(self.staged) if t.is_floating_point() and t.numel() and spike is not None]
        self.spiked = [self._element(t, spike) for t in grown]
        for tensor in self.kept:
            if spike is not None and tensor.is_floating_point() and tensor.numel():
                self._element(tensor, spike).mul_(SPIKE)
        if self.gradients:
            for tensor in _tree.tensors(self.staged):
                tensor.requires_grad_(tensor.is_floating_point())
        if check:
            self._poison()
        del padding
        self.synchronize()
        if not self.cuda:
            self._wake()  # here, where no clock of the judge's counts it
        return {"threads": len(os.listdir("/proc/self/task"))}

    def _wake(self):
        """A processor that had nothing to do takes up to a millisecond to come back, and with it OpenMP's threads. Who
        calls a model in a loop does not see that."""
        until = now() + WAKE_NS
        while now() < until:
            self.wake(1)

    def _poison(self):
        """Fills the allocator's free blocks of the outputs' sizes with NaN: memory that nobody wrote is no answer."""
        sizes = [n for n in self.sizes if self.cuda or n <= HEAP_BYTES]
        counts = {n: max(1, min(POISON_BLOCKS, POISON_BYTES // n)) for n in sizes if n}
        poison = [
            torch.full((n,), 0xFF, dtype=torch.uint8, device=self.device) for n in counts for _ in range(counts[n])
        ]
        del poison

    def _call(self):
        if not self.gradients:
            with torch.inference_mode():
                return self.model(*self.staged)
        return self.model(*self.staged)

    def do_go(self, wait, flush):
        """One call between two readings of the clock; on a GPU between two events as well, and a third after the whole
        device has finished. Without `wait` the outputs are read behind the current stream alone. `flush`: of a GPU's
        caches, which the call is queued behind, as KernelBench has it; the time that it takes hides as much of the
        host's. Otherwise the call finds the device idle."""
        if self.cuda:
            begin, end, last = (torch.cuda.Event(enable_timing=True) for _ in range(3))
            if flush:
                if self.reset_cache:  # lines that a candidate keeps in the L2 would outlive the flush
                    self.reset_cache()
                self.flush.zero_()
        if self.spiked:
            torch._foreach_mul_(self.spiked, SPIKE)
        if self.cuda:
            if not flush:
                self.synchronize()
            begin.record()
        start = now()
        try:
            self.outputs = self._call()
        except BaseException as error:
            raise Answer("forward fails", _place(error, self.path) + _last_line(error)) from None
        if self.cuda:
            end.record()
        if not wait:
            return {"ns": now() - start, "event_ns": None, "device_ns": None}
        self.synchronize()
        took = now() - start
        if not self.cuda:
            return {"ns": took, "event_ns": None, "device_ns": None}
        last.record()
        last.synchronize()
        event, device = (round(begin.elapsed_time(to) * 1e6) for to in (end, last))
        return {"ns": took, "event_ns": event, "device_ns": device}

    def do_backward(self, seed):
        """Gradients by a cotangent of this seed; they take the outputs' place."""
        outputs = [t for t in _tree.tensors(self.outputs) if t.is_floating_point()]
        generator = torch.Generator().manual_seed(seed)
        cotangents = [torch.randn(t.shape, generator=generator).to(t) for t in outputs]
        inputs = [t for t in _tree.tensors(self.staged) if t.requires_grad]
        parameters = list(self.model.parameters())
        wanted = [t for t in (*inputs, *parameters) if t.requires_grad]  # a frozen one's is zero
        try:
            made = iter(torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True))
        except BaseException as error:
            raise Answer("backward fails", _place(error, self.path) + _last_line(error)) from None
        given = [(next(made) if x.requires_grad else None, x) for x in (*inputs, *parameters)]
        given = [torch.zeros_like(x) if g is None else g for g, x in given]
        self.outputs = {"inputs": given[: len(inputs)], "parameters": given[len(inputs) :]}
        return {}

    def _overlaps(self):
        """Whether an output shares memory with an input."""

        def spans(of):
            return [(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t in of]

        inputs = spans(_tree.tensors(self.staged))
        return any(a < b + m and b < a + n for a, n in spans(_tree.tensors(self.outputs)) if n for b, m in inputs if m)

    def do_collect(self):
        """The outputs' bytes, and what the call did besides."""
        try:
            tree = _tree.write(self.outputs, self.answered)
        except _tree.Unfit as error:
            raise Answer("wrong type", f"the output has {error}") from None
        changed = [k for k, (t, was) in enumerate(zip(_tree.tensors(self.staged), self.kept))
                   if not torch.equal(_tree.bits(t), _tree.bits(was))]  # fmt: skip
        self.sizes = sorted({t.numel() * t.element_size() for t in _tree.tensors(self.outputs)})[:8]
        overlap = self._overlaps()
        self.outputs = None
        behind = any(bool((guard != GUARD).any()) for guard in self.guards)
        return {"tree": tree, "changed": changed, "overlap": overlap, "behind": behind, "replaced": _replaced(),
                "flags": _flags(), "threads": len(os.listdir("/proc/self/task"))}  # fmt: skip

    def do_flags(self):
        return {"flags": _flags()}


def _exactly(fd, n):
    parts = b""
    while len(parts) < n:
        part = os.read(fd, n - len(parts))
        if not part:
            os._exit(0)  # the judge has gone
        parts += part
    return parts


def serve(config):
    """Until the judge closes its end."""
    requests, answers = config["requests"], config["answers"]
    if config["threads"]:
        torch.set_num_threads(config["threads"])
    loads, dumps, write = json.loads, json.dumps, os.write
    session = Session(config)
    WATCHED.update(_watched())
    watched = list(WATCHED.items())  # a list that no module has
    while True:
        request = loads(_exactly(requests, struct.unpack("=I", _exactly(requests, 4))[0]))
        nonce, do = request.pop("nonce"), request.pop("do")
        try:
            answer = getattr(session, f"do_{do}")(**request)
        except Answer as failure:
            answer = {"failure": failure.kind, "text": failure.text[:TEXT]}
        except torch.cuda.OutOfMemoryError as error:
            answer = {"failure": "out of memory", "text": _last_line(error)[:TEXT]}
        if "replaced" in answer:
            answer["replaced"] = [path for path, (of, name, was) in watched if getattr(of, name, None) is not was]
        text = dumps({"nonce": nonce, **answer}).encode()
        text = struct.pack("=I", len(text)) + text
        while text:
            text = text[write(answers, text) :]
