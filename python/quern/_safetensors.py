# SPDX-License-Identifier: Apache-2.0
"""Reads a safetensors file's words about itself, and writes float32 tensors to one, as the library reads them: 8 bytes
of length, a JSON object of names, shapes and places, and the elements, little-endian and row-major. The tensors of
files that others wrote are read in C."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

_MOST_HEADER = 100_000_000


def metadata(path: str | bytes | os.PathLike) -> dict[str, str]:
    """The strings that whoever wrote the file put beside its tensors; none of a file that is not understood, which is
    for its tensors' reader to refuse."""
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, "rb") as file:
            n = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(n)) if n <= _MOST_HEADER else {}
    except (OSError, ValueError):
        return {}
    words = header.get("__metadata__") if isinstance(header, dict) else None
    return {name: word for name, word in words.items() if isinstance(word, str)} if isinstance(words, dict) else {}


_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_CONVERT = "convert it by python -m quern.convert_learned_optimizer, whose --help says how"


def foreign(path: str | bytes | os.PathLike) -> str:
    """What a file is that is no safetensors file, and what to do with it, by what it begins with; "" for one that is,
    and for what is not known. "msgpack" is for its own reader."""
    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError:
        return ""
    if head[4:9] == b"\0\0\0\0{":
        return ""
    text = head.lstrip().lower()
    if head.startswith(_ZIP):
        whose = "a .npz file of NumPy's" if b".npy" in head else "a zip archive, as torch.save writes"
        return f"it is {whose}: {_CONVERT}"
    if head.startswith(_PICKLE) and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "it is a pickle, which is not read because reading one runs what it says: save it as safetensors or .npz"
    if text.startswith((b"<!doctype", b"<html")):
        return "it is a web page: download the file itself, not the page about it"
    if text.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS: fetch the file that it stands for by git lfs pull"
    if head.startswith(b"\x93NUMPY"):
        return f"it is a .npy file of one array: {_CONVERT}"
    return "msgpack" if head[:1] and (0x80 <= head[0] <= 0x8F or head[0] in (0xDE, 0xDF)) else ""


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
