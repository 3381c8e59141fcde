# SPDX-License-Identifier: Apache-2.0
"""The threads that calls on the CPU use: for PyTorch's tensors those of OpenMP's, which PyTorch's own ops use; for all
others pools of the library's, made when they are first needed, one for each number of threads that is asked for. It
does not decide how work is cut; that never depends on the number of threads."""

from __future__ import annotations

import operator
import os
import sys
from ctypes import byref, c_void_p

from ._library import lib

_MOST_POOLS = 4  # numbers of threads in use at one time: the package's, a framework's, and some to spare


class Pool:
    """A pool of n threads. Whoever calls with its handle holds the object meanwhile; it ends with its last holder."""

    __slots__ = ("address", "handle", "n")

    def __init__(self, n: int, openmp: bool = False) -> None:
        self.handle = c_void_p()
        self.n = n
        (lib.qn_pool_create_openmp if openmp else lib.qn_pool_create)(byref(self.handle), n)
        self.address = self.handle.value

    def __del__(self) -> None:
        # When the interpreter ends, the process does: joining threads then could only hang it.
        if self.handle and not sys.is_finalizing():
            lib.qn_pool_destroy(byref(self.handle))


_pools: dict[int, Pool] = {}
_of_openmp: dict[int, Pool | None] = {}  # these have no threads of their own; None: there is no OpenMP
_forked = False
_chosen: int | None = None


def _forget() -> None:
    """In a forked child the parent's threads are not there; new ones are started when they are needed. OpenMP's runtime
    does not start its own anew."""
    global _forked
    _forked = True
    _pools.clear()
    _of_openmp.clear()


os.register_at_fork(after_in_child=_forget)


def parent_was_idle() -> None:
    """Said in a forked child whose parent ran nothing in OpenMP's threads: the runtime starts in the child then. Beside
    PyTorch's ops, whose threads wait for work by spinning, threads of our own come late."""
    global _forked
    _forked = False


def get_num_threads() -> int:
    """How many threads a call on the CPU uses, the caller's own among them: what set_num_threads said, else the number
    of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if _chosen is None else _chosen


def set_num_threads(n: int | None) -> None:
    """From now on calls on the CPU use n threads, the caller's own among them; None: as many as the process may use
    processors. Results do not depend on it. Calls on PyTorch tensors go by torch.set_num_threads instead. Raises
    ValueError, and MemoryError where the system does not start so many; then the number stays as it was."""
    global _chosen
    if n is not None:
        n = _integer(n)
        pool(n)  # started now, so that what fails, fails here
    _chosen = n


def _integer(n: object) -> int:
    """As C takes it: ctypes would take the low 32 bits of a longer one."""
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(f"the number of threads is {n!r}, it must be an int or None")
    number = operator.index(n)
    if abs(number) >= 1 << 31:
        raise ValueError(f"the number of threads is {number}, which no processor has")
    return number  # what else is wrong with it, the library says


def pool(n: int | None = None) -> Pool | None:
    """The pool of n threads (None: get_num_threads()), or None for one thread, which needs no pool. Hold it during the
    call that it serves."""
    if n is None:
        n = get_num_threads()
    if n == 1:
        return None
    made = _pools.get(n)
    if made is None:
        while len(_pools) >= _MOST_POOLS:
            _pools.pop(next(iter(_pools)), None)
        # Two threads may come here at once: one pool is kept, the other ends at once.
        made = _pools.setdefault(n, Pool(n))
    return made


def pool_for(framework: str | None) -> Pool | None:
    """The pool for arrays of a framework, by its name; as many threads as PyTorch uses for its own ops, or as many as
    set_num_threads said."""
    if framework != "torch":
        return pool()
    n = sys.modules["torch"].get_num_threads()
    if n == 1:
        return None
    if n not in _of_openmp:
        try:
            _of_openmp[n] = None if _forked else Pool(n, openmp=True)
        except RuntimeError:
            _of_openmp[n] = None
    return _of_openmp[n] or pool(n)
