# SPDX-License-Identifier: Apache-2.0
"""A model's process as the judge sees it: requests and answers, values through files of memory, limits of time, memory,
processes and files that hold from outside, and an end that leaves nothing running."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

from . import _tree

GIB = 1 << 30
ANSWER_BYTES = 16 << 20
_HERE = pathlib.Path(__file__).parent
_PLACES = ("TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR", "XDG_CACHE_HOME")
_COMPILERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_COMPILING = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # read at the import of what compiles
# Threads of OpenMP look for work for a while, of libomp for 200 ms: then a model's would take the processors of the
# next one. These are short, and still more than lies between two ops of a call.
_RESTING = {"KMP_BLOCKTIME": "1", "GOMP_SPINCOUNT": "10000"}
_WATCH_SECONDS = 0.05
# The variables that compilers and drivers need. The rest of the caller's environment stays with the caller.
_KEPT = (
    *("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TZ"),
    *("CC", "CXX", "CUDAHOSTCXX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "TORCH_CUDA_ARCH_LIST", "MAX_JOBS"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRITON_PTXAS_PATH"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "QUERN_LIBRARY", "QUERN_COMMAND"),
)


@dataclass(frozen=True)
class Limits:
    """Of one process and its children."""

    seconds: float  # of one request
    memory_bytes: int
    processes: int
    file_bytes: int = 4 * GIB
    folder_bytes: int = 4 * GIB


class Broken(Exception):
    """The process ended, hung or passed a limit; the sentence says which."""


class Failure(Exception):
    """The process answered with a failure of the model: `kind` and its text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _children(pid: int) -> list[int]:
    """Of all threads of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        found += _children(parent)
    return found


def _kill(pid: int, ancestor: int) -> None:
    """Ends a process, if it still is the ancestor or below it: its number may be another's by now."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            if pid == ancestor or pid in _descendants(ancestor):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def _resident_bytes(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
            resident, shared = map(int, file.read().split()[1:3])
            total += (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    return total


def _cpu_ticks(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat") as file:
            total += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return total


def _waited_ns(thread: str) -> int:
    """How long a thread could have run and no processor was free (sched-stats.rst of the kernel); 0: not known."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{thread}/schedstat") as file:
        return int(file.read().split()[1])
    return 0


def _threads(pids: list[int]) -> list[str]:
    found: list[str] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += [f"{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return found


def _folder_bytes(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


def _ended(status: dict) -> str:
    if "signal" in status:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(status['signal']).name}"
    return f"ended with exit status {status.get('exit', '?')} in the middle of a call"


def _memory(name: str, pin: bool) -> _tree.Memory:
    """Shared with a process that cannot take bytes away while they are read."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return _tree.Memory(fd, pin)


def _kept() -> dict[str, str]:
    """The kept variables. A relative path is made absolute, because a model's process runs in another folder; a name
    without a slash is searched for by the loader and the shell, and stays."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    for name in ("QUERN_LIBRARY", "QUERN_COMMAND"):
        if os.sep in kept.get(name, ""):
            kept[name] = os.path.abspath(kept[name])
    if kept.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, kept["PYTHONPATH"].split(os.pathsep)))
    return kept


def _environment(caches: str) -> dict[str, str]:
    """Of the nursery. Its imports ask whether there is a GPU, and must not ask the driver: a process that is forked
    behind that can use no GPU."""
    own = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", **({"TMPDIR": caches} if caches else {})}
    return {**_kept(), **_COMPILING, **_compilers(caches), **own}


class Nursery:
    """The process from which models' processes are forked; one of this process's, ended with it. `caches`: those of
    torch.compile, which is imported too."""

    def __init__(self, caches: str) -> None:
        if caches:
            os.makedirs(caches, exist_ok=True)
        self._lock = threading.Lock()
        self._port, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-B", str(_HERE / "_nursery.py"), str(theirs.fileno())]
                + (["torch._inductor.compile_fx"] if caches else []),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=_environment(caches),
            )
        atexit.register(self.close)

    def fork(self, config: dict, fds: list[int]) -> int:
        """A new isolated process with these descriptors; returns its number."""
        with self._lock:
            answer = b""
            with contextlib.suppress(ConnectionError):  # it has ended
                socket.send_fds(self._port, [json.dumps(config).encode()], fds)
                answer = self._port.recv(32)
        if not answer:
            raise Broken("PyTorch could not be imported in a process of its own")
        return int(answer)

    def close(self) -> None:
        self._port.close()
        self._process.kill()  # it may still import, for seconds
        self._process.wait()


nursery = functools.cache(Nursery)
# What the first gradient imports, which takes seconds.
_GRADIENTS = ["torch.nested._internal.nested_tensor", "torch.fx.experimental.symbolic_shapes"]


class Process:
    """Starts at once. `folder` is the only one that it may write, and keeps compiled extensions from one process of a
    candidate to the next. `caches`: a folder of what torch.compile keeps, for a reference that is compiled; it may
    write there too. `gradients`: it will be asked for them."""

    def __init__(
        self,
        folder: str,
        device: str,
        threads: int,
        limits: Limits,
        isolated: bool = True,
        caches: str = "",
        gradients: bool = False,
    ) -> None:
        self.limits, self.isolation, self._folder = limits, {}, folder
        self._memory = [_memory(name, device != "cpu") for name in ("inputs", "outputs")]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._report, report = os.pipe()
        config = {
            "device": device,
            "threads": threads,
            "environment": self._environment(folder, caches),
            "folder": folder,
            "caches": caches,
            "limits": {"DATA": limits.memory_bytes, "FSIZE": max(limits.file_bytes, limits.memory_bytes), "CORE": 0},
            "namespaces": isolated,
            "imports": _GRADIENTS if gradients else [],
        }
        self._pid = nursery(caches).fork(
            config, [*(m.fd for m in self._memory), requests, answers, report, self._said.fileno()]
        )
        for fd in (requests, answers, report):
            os.close(fd)
        line = self._report_line(30)
        self.isolation = {"namespaces": line.get("namespaces", []), "denied": line.get("denied", [])}
        self._program = _descendants(self._pid)[-1]  # the last of a row of processes; it has started none yet
        self._priority = self._now_priority()

    @staticmethod
    def _environment(folder: str, caches: str) -> dict[str, str]:
        kept = _kept()
        places = {name: os.path.join(folder, name.lower()) for name in _PLACES}
        places |= _compilers(caches)
        for place in places.values():
            os.makedirs(place, exist_ok=True)
        # Ninja and the interpreter's tools are found beside the interpreter; compile workers are of no use in one call.
        path = os.pathsep.join([os.path.dirname(sys.executable), kept.pop("PATH", os.defpath)])
        return {**kept, **places, "PATH": path, "HOME": folder, **_COMPILING, **_RESTING}

    def _report_line(self, seconds: float) -> dict:
        text, until = b"", time.monotonic() + seconds
        while not text.endswith(b"\n"):
            ready = select.select([self._report], [], [], max(0.0, until - time.monotonic()))[0]
            part = os.read(self._report, 4096) if ready else b""
            if not part:
                break
            text += part
        with contextlib.suppress(ValueError):
            return json.loads(text.splitlines()[-1]) if text else {}
        return {}

    def said(self, most: int = 2000) -> str:
        """The end of the process's own output."""
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - most))
        return self._said.read().decode(errors="replace").strip()

    def _broken(self, why: str) -> Broken:
        self.close()
        said = self.said(400)
        return Broken(why + (f"; it wrote: {said}" if said else ""))

    def _check_limits(self) -> None:
        pids = _descendants(self._pid)
        if len(pids) > self.limits.processes + 2:  # the sandbox itself is two
            raise self._broken(f"it started more than {self.limits.processes} processes")
        if _resident_bytes(pids) > self.limits.memory_bytes:
            raise self._broken(f"it used more than {self.limits.memory_bytes / GIB:g} GiB of memory")
        if _folder_bytes(self._folder) > self.limits.folder_bytes:
            raise self._broken(f"it wrote more than {self.limits.folder_bytes / GIB:g} GiB of files")

    def _receive(self, n: int, until: float) -> bytes:
        parts = bytearray()
        while len(parts) < n:
            ready = select.select([self._answers], [], [], _WATCH_SECONDS)[0]
            if ready:
                part = os.read(self._answers, min(n - len(parts), 1 << 20))
                if not part:
                    raise self._broken(_ended(self._report_line(5)))
                parts += part
            else:
                self._check_limits()
            if time.monotonic() > until:
                raise self._broken(f"it took more than {self.limits.seconds:g} s")
        return bytes(parts)

    def ask(self, do: str, **request) -> dict:
        """Sends a request and returns its answer. Broken, and the process is gone; Failure, and it goes on."""
        nonce = int.from_bytes(os.urandom(6), "little")
        text = json.dumps({"nonce": nonce, "do": do, **request}).encode()
        try:
            os.write(self._requests, struct.pack("=I", len(text)) + text)
        except BrokenPipeError:
            raise self._broken(_ended(self._report_line(5))) from None
        until = time.monotonic() + self.limits.seconds
        size = struct.unpack("=I", self._receive(4, until))[0]
        if size > ANSWER_BYTES:
            raise self._broken("it answered without end")
        try:
            answer = json.loads(self._receive(size, until))
            fresh = isinstance(answer, dict) and answer.pop("nonce") == nonce
        except (ValueError, KeyError):
            fresh = False
        if not fresh:
            raise self._broken("it wrote on the judge's descriptors")
        if "failure" in answer:
            raise Failure(str(answer["failure"]), str(answer.get("text", "")))
        return answer

    def ask_with(self, value, do: str, **request) -> dict:
        """The same, with a value for the process to read."""
        return self.ask(do, tree=_tree.write(value, self._memory[0]), **request)

    def _read(self, answer: dict, memory: _tree.Memory):
        try:
            return _tree.read(answer["tree"], memory)
        except (_tree.Unfit, KeyError, OSError, ValueError):
            raise self._broken("its answer is not well formed") from None

    def given(self, answer: dict):
        """The value of an answer to `inputs`."""
        return _tree.copied(self._read(answer, self._memory[0]))

    def outputs(self, answer: dict):
        """The value of an answer to `collect`: of the shared memory, until the next."""
        return self._read(answer, self._memory[1])

    def _now_priority(self) -> tuple[int, int]:
        with contextlib.suppress(OSError):  # it has ended
            return os.getpriority(os.PRIO_PROCESS, self._program), os.sched_getscheduler(self._program)
        return self._priority

    def same_priority(self) -> bool:
        return self._now_priority() == self._priority

    def cpu_seconds(self) -> float:
        """Processor time of the process and its children so far."""
        return _cpu_ticks(_descendants(self._pid)) / os.sysconf("SC_CLK_TCK")

    def waiting_seconds(self) -> float:
        """For how long threads of the process and its children could have run and no processor was free."""
        return 1e-9 * sum(map(_waited_ns, _threads(_descendants(self._pid))))

    def waited_ns(self) -> int:
        """The same of the two threads that a request and its answer go between: its first, and the caller's."""
        return _waited_ns(str(self._program)) + _waited_ns("thread-self")

    @property
    def running(self) -> bool:
        return self._pid != 0

    def close(self) -> None:
        """Ends the process and all that it started."""
        if not self._pid:
            return
        with contextlib.suppress(OSError):
            os.close(self._requests)
        for pid in reversed(_descendants(self._pid)):  # the first process of the namespace takes all with it
            _kill(pid, self._pid)
        self._pid = 0
        for memory in self._memory:
            memory.forget()
        for fd in (*(m.fd for m in self._memory), self._answers, self._report):
            os.close(fd)
        # self._said stays readable for the verdict's text.

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _compilers(caches: str) -> dict[str, str]:
    return {name: os.path.join(caches, name.lower()) for name in _COMPILERS if caches}


def caches() -> str:
    """The folder of what torch.compile keeps of references from one run to the next."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "quern", "kernelbench")


@contextlib.contextmanager
def folder():
    """A new folder for a candidate's files."""
    path = tempfile.mkdtemp(prefix="quern-judge-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
