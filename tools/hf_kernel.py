# SPDX-License-Identifier: Apache-2.0
"""Makes a kernel repository of Hugging Face's layout from the package and the library: hf_kernel.py LIBRARY FOLDER
[--repo-id NAME/KERNEL]. `kernels.get_local_kernel(FOLDER)` loads it, `kernels benchmark FOLDER` times it.

build/torch-cpu, build/torch-cuda, build/torch-universal   the same files; metadata.json says what each is for
build.toml                                                 name, version, license, repository, backends
benchmarks/                                                benchmark_lion.py
README.md

Nothing is compiled against PyTorch, so one build serves every version of it: the folders hold quern's Python and the
one library, which is for this machine's processor and operating system. Names, text and backends come from the op's
description. Every build's torch ops have a namespace of their own, made of what the build holds."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import platform
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = ROOT / "python/hf_kernel"
PACKAGE = ROOT / "python/quern"
LEFT_OUT = {"bench", "jax", "__pycache__"}  # of the package: what a kernel has no use for
OP = "lion"
INTERFACE = 1  # the repository's version: counted up when a name or a meaning changes
LICENSE = "Apache-2.0"
MINIMUM = "0.17.0"  # of `kernels`: the first that is tested

# All that `kernels` knows. Which of them are built follows from the op's variants.
BACKENDS = ("cpu", "cuda", "cann", "metal", "neuron", "rocm", "tpu", "xpu")
VARIANTS = {"torch-cpu": "cpu", "torch-cuda": "cuda", "torch-universal": "cpu"}  # folder: the backend that it names

BUILD_TOML = """\
# SPDX-License-Identifier: Apache-2.0
# Written by {maker} from the description of the op {name}: {brief}.
#
# Built: {built}.
# The library inside is for {system}.
{missing}
[general]
name = "{name}"
version = {version}
edition = 5
license = "{license}"
backends = [{backends}]

[general.hub]
repo-id = "{repo_id}"

[torch-noarch]
"""

README = """\
---
license: {license_lower}
tags:
- kernels
---
<!-- SPDX-License-Identifier: Apache-2.0 -->
# {name}

{doc}

    from kernels import get_kernel
    lion = get_kernel("{repo_id}", version={version})
    lion.lion_foreach(params, exp_avgs, grads, lr, beta1, beta2, weight_decay, eps)
    optimizer = lion.Lion(model.parameters(), lr=1e-4, weight_decay=0.1)

It runs on {built}, from one library of version {library}, for {system}; nothing in it is compiled against PyTorch.
"""


def variants_by_backend(op) -> dict[str, list[str]]:
    """The names of the op's variants."""
    made: dict[str, list[str]] = {}
    for variant in op.variants():
        made.setdefault(variant.backend.decode(), []).append(variant.name.decode())
    return made


def lowest_capability(names: list[str]) -> str:
    """ "7.5", of "sm_75" and later ones: device code is compiled where it runs, for whatever GPU is there."""
    lowest = min(int(name.removeprefix("sm_")) for name in names)
    return f"{lowest // 10}.{lowest % 10}"


def copy_package(to: pathlib.Path, library: pathlib.Path, library_name: str) -> None:
    """The files of one variant, but for metadata.json and the namespace."""
    to.mkdir(parents=True)
    for name in ("__init__.py", "_ops.py", "layers.py"):
        shutil.copyfile(SOURCES / name, to / name)
    shutil.copytree(PACKAGE, to / "quern", ignore=lambda _, names: [n for n in names if n in LEFT_OUT or ".so" in n])
    shutil.copyfile(library, to / "quern" / library_name)


def digest(folder: pathlib.Path) -> str:
    """Seven digits that differ where any file does."""
    whole = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        whole.update(str(path.relative_to(folder)).encode() + b"\0")
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:7]


def write_variant(folder: pathlib.Path, backend: str, archs: list[str] | None, build: str) -> None:
    identity = f"_{OP}_{folder.name.removeprefix('torch-')}_{build}"
    namespace = folder / "quern/torch/_namespace.py"
    text = namespace.read_text(encoding="utf-8")
    named = text.replace('NAMESPACE = "quern"', f'NAMESPACE = "{identity}"')
    if named == text:
        raise SystemExit(f"hf_kernel: {namespace} does not set NAMESPACE")
    namespace.write_text(named, encoding="utf-8")
    metadata = {
        "id": identity,
        "name": OP,
        "version": INTERFACE,
        "license": LICENSE,
        "python-depends": [],
        "kernels-minver": MINIMUM,
        "backend": {"type": backend, **({"archs": archs} if archs else {})},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")


def write_pages(folder: pathlib.Path, op, variants: dict[str, list[str]], repo_id: str, library_version: str) -> None:
    built = [backend for backend in BACKENDS if backend in variants]
    said = f"{', '.join(built)} (NVIDIA GPUs of compute capability {lowest_capability(variants['cuda'])} and later)"
    reason = f"the library has kernels for {', '.join(variants)} only"
    facts = dict(
        maker=pathlib.Path(__file__).name,
        name=OP,
        brief=op.brief,
        doc=op.doc,
        built=said,
        missing="".join(f"# Not built: {backend}; {reason}.\n" for backend in BACKENDS if backend not in built),
        system=f"{platform.machine()} {platform.system()}",
        version=INTERFACE,
        license=LICENSE,
        license_lower=LICENSE.lower(),
        backends=", ".join(f'"{backend}"' for backend in built),
        repo_id=repo_id,
        library=library_version,
    )
    (folder / "build.toml").write_text(BUILD_TOML.format(**facts), encoding="utf-8")
    (folder / "README.md").write_text(README.format(**facts), encoding="utf-8")
    (folder / "benchmarks").mkdir()
    shutil.copyfile(SOURCES / "benchmark_lion.py", folder / "benchmarks/benchmark_lion.py")


def make(library: pathlib.Path, folder: pathlib.Path, repo_id: str) -> list[str]:
    """Writes the repository anew, and returns the variants' identities."""
    os.environ["QUERN_LIBRARY"] = str(library)
    sys.path.insert(0, str(ROOT / "python"))
    from quern import _library, _ops

    op = _ops.op(OP)
    variants = variants_by_backend(op)
    archs = [lowest_capability(variants["cuda"]) + "+PTX"]  # as `kernels` writes "and every later one"
    if folder.exists():
        if not (folder / "build.toml").is_file():
            raise SystemExit(f"hf_kernel: {folder} is there and was not made by this; it is left alone")
        shutil.rmtree(folder)
    identities = []
    for name, backend in VARIANTS.items():
        variant = folder / "build" / name
        copy_package(variant, library, _library.NAME)
        write_variant(variant, backend, archs if backend == "cuda" else None, digest(variant))
        identities.append(json.loads((variant / "metadata.json").read_text(encoding="utf-8"))["id"])
    write_pages(folder, op, variants, repo_id, _library.version)
    return identities


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("library", type=pathlib.Path, metavar="LIBRARY")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--repo-id", default="quern/lion", metavar="NAME/KERNEL", help="where it is to be published")
    args = parser.parse_args()
    if not args.library.is_file():
        raise SystemExit(f"hf_kernel: there is no library {args.library}")
    for identity in make(args.library.resolve(), args.folder, args.repo_id):
        print(identity)


if __name__ == "__main__":
    main()
