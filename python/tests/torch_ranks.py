# SPDX-License-Identifier: Apache-2.0
"""Runs a function in several processes that form a torch.distributed group, and fails with what failed in any of
them. The function is called as fn(rank, world) and must be importable by its module's name."""

import datetime
import faulthandler
import os
import pathlib
import sys
import tempfile
import traceback
import warnings

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing


def _rank(rank, fn, world, backend, store, failures):
    faulthandler.enable()
    try:
        torch.set_num_threads(1)
        if backend == "nccl":
            torch.cuda.set_device(rank)
        distributed.init_process_group(
            backend,
            init_method=f"file://{store}",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=120),
        )
        fn(rank, world)
        distributed.barrier()
        distributed.destroy_process_group()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # PyTorch 2.2's threads abort now and then while the interpreter ends
    except BaseException:
        failures.put(f"rank {rank} of {world}:\n{traceback.format_exc()}")
        failures.close()
        failures.join_thread()
        sys.exit(1)


def _started(fn, tmp_path, world, backend):
    """(what failed, the statuses of the ranks; 0 of one that hung)."""
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        of_all = (fn, world, backend, pathlib.Path(folder) / "store", failures)
        ranks = [context.Process(target=_rank, args=(rank, *of_all)) for rank in range(world)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(240)
        late = [process for process in ranks if process.is_alive()]
        statuses = [process.exitcode or 0 for process in ranks]
        for process in late:
            process.kill()
            process.join()
    said = [f"{len(late)} ranks hang"] if late else []
    while not failures.empty():
        said.append(failures.get())
    return said, statuses


def run(fn, tmp_path, world=2, backend="gloo"):
    """Where a rank dies of a signal, all of it is done once more, with a warning. Under gloo one in some hundred runs
    has died so, of a spoilt heap or as the interpreter ended, and none where it was looked for: AddressSanitizer finds
    nothing of the library's in these tests."""
    said, statuses = _started(fn, tmp_path, world, backend)
    if any(status < 0 for status in statuses):
        warnings.warn(f"ranks died, statuses {statuses}, and are started again: {said}", stacklevel=2)
        said, statuses = _started(fn, tmp_path, world, backend)
    assert not said and not any(statuses), "\n".join([*said, f"statuses {statuses}"])
