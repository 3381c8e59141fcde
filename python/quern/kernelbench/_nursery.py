# SPDX-License-Identifier: Apache-2.0
"""The process from which models' processes are forked: _nursery.py DESCRIPTOR [MODULE]. It imports PyTorch and the
module once, which takes seconds, and then forks an isolated process for each message on the socket: a JSON object with
the descriptors that belong to it. It runs no candidate itself, initialises no GPU and starts no thread."""

import contextlib
import importlib
import json
import os
import pathlib
import signal
import socket
import sys
import tempfile
import traceback

import torch.utils.benchmark
import torch.utils.flop_counter  # what takes long is imported here

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _child  # type: ignore[import-not-found]
import _sandbox  # type: ignore[import-not-found]

sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))  # the judge's quern, where none is installed
MESSAGE_BYTES = 1 << 20
FAILED = 70  # the exit status of a process that could not serve; what it prints is in the verdict


def _count_without_compiler():
    """At its first call PyTorch's counter of operations imports the compiler, to keep it off the counter. That takes
    seconds in each process, and no model is compiled whose operations are counted."""
    counter = getattr(torch.utils.flop_counter, "_FlopCounterMode", None)
    counts = getattr(getattr(counter, "__torch_dispatch__", None), "__wrapped__", None)
    if counts:
        counter.__torch_dispatch__ = counts


def _be(config, fds):
    """The forked process: takes its place, and serves a model's requests until the judge closes the pipe."""
    names = ("inputs", "outputs", "requests", "answers", "report", "said")
    for fd in fds:
        os.set_inheritable(fd, False)
    places = dict(zip(names, fds))
    config |= places
    config["fds"] = [fd for name, fd in places.items() if name not in ("report", "said")]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream in (1, 2):
        os.dup2(places["said"], stream)
    os.close(places["said"])
    os.environ.clear()
    os.environ.update(config["environment"])
    tempfile.tempdir = None  # what was imported before may have asked for the caller's
    _sandbox.enter(config)
    _child.serve(config)


def main():
    port = socket.socket(fileno=int(sys.argv[1]))
    _count_without_compiler()
    if len(sys.argv) > 2:  # for models that will be compiled
        importlib.import_module(sys.argv[2])
    sys.argv[:] = [""]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects the forked
    _sandbox.libc.prctl(_sandbox.PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    while True:
        text, fds, _, _ = socket.recv_fds(port, MESSAGE_BYTES, 6)
        if not text:
            return
        config = json.loads(text)
        for module in config.pop("imports"):
            with contextlib.suppress(ImportError):  # of another version of PyTorch
                importlib.import_module(module)
        pid = os.fork()
        if pid == 0:
            try:
                port.close()
                _be(config, fds)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(FAILED)
        for fd in fds:
            os.close(fd)
        port.send(str(pid).encode())


if __name__ == "__main__":
    main()
