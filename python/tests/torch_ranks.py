# SPDX-License-Identifier: Apache-2.0
"""Runs a function in several processes that form a torch.distributed group, and fails with what failed in any of
them. The function is called as fn(rank, world) and must be importable by its module's name."""

import datetime
import os
import pathlib
import sys
import traceback

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing


def _rank(rank, fn, world, backend, store, failures):
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


def run(fn, tmp_path, world=2, backend="gloo"):
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    store = pathlib.Path(tmp_path) / "store"
    ranks = [context.Process(target=_rank, args=(rank, fn, world, backend, store, failures)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(240)
    late = [process for process in ranks if process.is_alive()]
    for process in late:
        process.kill()
    said = []
    while not failures.empty():
        said.append(failures.get())
    ended = [process.exitcode for process in ranks]
    assert not late and not any(ended), "\n".join(said) or f"{len(late)} ranks hang; the statuses of all are {ended}"
