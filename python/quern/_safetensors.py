# SPDX-License-Identifier: Apache-2.0
"""Writes float32 tensors to a safetensors file, as the library reads them: 8 bytes of length, a JSON object of names,
shapes and places, and the elements, little-endian and row-major. Files that others wrote are read in C."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence


def write(path: str | os.PathLike, tensors: Mapping[str, tuple[Sequence[int], bytes]], metadata=None) -> None:
    """`tensors`: by name, the shape and the elements. The file is there whole, or not at all."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = f"{os.fspath(path)}.part"
    with open(part, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, data in tensors.values():
            file.write(data)
    os.replace(part, path)
