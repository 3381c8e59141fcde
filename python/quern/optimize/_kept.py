# SPDX-License-Identifier: Apache-2.0
"""Choices that were made before: which alternative was the fastest for a graph on a device, in a file per graph beside
the cache of compiled kernels. A file that cannot be read counts as none, and what it names is verified again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import platform
import tempfile

import torch

from .. import _about, _library
from ._graph import Graph
from .runtime import state


def folder() -> pathlib.Path | None:
    """None: the cache is off."""
    if _about.get_option("cache") == "off":
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path((_about.get_option("cache_dir") or os.path.join(home, "quern")) + "-optimize")


def key(graph: Graph, model: torch.nn.Module, device: torch.device) -> str:
    """Of all that a choice depends on: the graph with its shapes, the device, versions and switches."""
    cuda = device.type == "cuda"
    words = [
        graph.text(),
        str(graph.updates),
        torch.cuda.get_device_name(device) if cuda else f"{platform.processor()} {torch.get_num_threads()}",
        torch.__version__,
        _library.version,
        str([module.training for module in model.modules()]),
        str(state(cuda)),
    ]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def look(name: str) -> tuple[str | None, list[str]]:
    """The alternative that was chosen for this key, and the nodes that are PyTorch's in it though kernels could compute
    them."""
    where = folder()
    if where is None:
        return None, []
    try:
        kept = json.loads((where / f"{name}.json").read_text(encoding="utf-8"))
        chosen, nodes = kept["chosen"], kept["nodes"]
        right = kept["key"] == name and isinstance(chosen, str) and all(isinstance(node, str) for node in nodes)
        return (chosen, list(nodes)) if right else (None, [])
    except (OSError, ValueError, KeyError, TypeError):
        return None, []


def keep(name: str, chosen: str, nodes: list[str]) -> None:
    where = folder()
    if where is None:
        return
    with contextlib.suppress(OSError):  # a choice that is not kept is made again
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=where, delete=False, encoding="utf-8") as file:
            json.dump({"key": name, "chosen": chosen, "nodes": nodes}, file)
        os.replace(file.name, where / f"{name}.json")
