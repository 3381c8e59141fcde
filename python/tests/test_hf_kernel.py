# SPDX-License-Identifier: Apache-2.0
"""The repository that tools/hf_kernel.py makes, in the hands of the real package `kernels`, without a network: which
variant it takes, what it loads, that it lives beside quern in one process, and that its benchmark finds kernels that
are wrong."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when kernels is imported
torch = pytest.importorskip("torch")
pytest.importorskip("kernels._rust")  # where the package is missing, the tree's folder of its name is imported
kernels = pytest.importorskip("kernels")

import quern  # noqa: E402
import torch_oracle as oracle  # noqa: E402
from kernels._rust import Backend, Build, Metadata  # noqa: E402
from kernels.cli import benchmark as runner  # noqa: E402
from kernels.variants import _resolve_variant_for_system, get_variants_local  # noqa: E402
from packaging.version import Version  # noqa: E402
from quern.torch import ops  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIANTS = {"torch-cpu": Backend.CPU, "torch-cuda": Backend.CUDA, "torch-universal": Backend.CPU}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def make(folder):
    tool = [sys.executable, str(ROOT / "tools/hf_kernel.py"), os.environ["QUERN_LIBRARY"], str(folder)]
    return subprocess.run(tool, check=False, capture_output=True, text=True, timeout=100)


@contextlib.contextmanager
def without_our_library():
    """A kernel brings its own; QUERN_LIBRARY would name another."""
    ours = os.environ.pop("QUERN_LIBRARY")
    try:
        yield
    finally:
        os.environ["QUERN_LIBRARY"] = ours


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf") / "lion"
    made = make(folder)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def lion(repository):
    with without_our_library():
        return kernels.get_local_kernel(repository)


def tensors(device="cpu", shapes=((5, 7), (33,), ())):
    random = torch.Generator().manual_seed(0)
    return [[torch.randn(shape, generator=random).to(device) for shape in shapes] for _ in range(3)]


def same(one, other):
    return all(oracle.same_bits(a, b) for r, s in zip(one, other) for a, b in zip(r, s))


# ---- what is there ----
def test_the_build_file_is_one_that_kernels_reads(repository):
    text = (repository / "build.toml").read_text()
    assert Build.open(repository).general.backends == [Backend.CPU, Backend.CUDA]
    assert 'name = "lion"' in text
    assert 'repo-id = "quern/lion"' in text
    known = {str(backend).lower() for backend in map(Backend.from_str, re.findall(r"Not built: (\w+); .*only", text))}
    assert len(known) == 6  # each of the others, with its reason
    assert "tpu" in known


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_says_what_it_is(repository, name):
    metadata = Metadata.read_from_file(repository / "build" / name / "metadata.json")
    assert (str(metadata.name), metadata.version, metadata.license) == ("lion", 1, "Apache-2.0")
    assert metadata.backend.backend_type == VARIANTS[name]
    assert metadata.backend.archs == (["7.5+PTX"] if name == "torch-cuda" else None)
    assert re.fullmatch(r"_lion_(cpu|cuda|universal)_[0-9a-f]{7}", metadata.id)
    assert not list((repository / "build" / name).rglob("*.pyc"))


@pytest.mark.parametrize(
    ("backend", "expected"), [("cpu", "torch-cpu"), ("cu128", "torch-cuda"), ("rocm64", "torch-universal")]
)
@pytest.mark.parametrize("version", ["2.5", "2.15"])
def test_any_version_of_torch_gets_a_variant(repository, backend, expected, version):
    found, _ = _resolve_variant_for_system(
        variants=get_variants_local(repository / "build"),
        selected_backend=kernels.backends.parse_backend(backend),
        cpu="x86_64",
        os="linux",
        torch_version=Version(version),
        torch_cxx11_abi=True,
        tvm_ffi_version=None,
    )
    assert found[0].variant_str == expected


def test_a_folder_that_was_not_made_by_it_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    made = make(tmp_path)
    assert made.returncode != 0
    assert "left alone" in made.stderr
    assert (tmp_path / "mine").read_text() == "precious"


# ---- what it does ----
def test_it_brings_its_own_library_and_its_own_ops(lion, repository):
    assert pathlib.Path(lion.quern._library.path).is_relative_to(repository)
    assert lion.quern is not quern
    namespace = lion.__name__
    assert lion._ops.add_op_namespace_prefix("lion_step") == f"{namespace}::lion_step"
    assert lion._ops.ops.lion_step.default._schema.name == f"{namespace}::lion_step"
    assert ops.lion_.packet.default._schema.name == "quern::lion_"


@pytest.mark.parametrize("device", DEVICES)
def test_every_name_steps_as_quern_does(lion, device):
    ours, by_step, by_foreach, by_layer = (tensors(device) for _ in range(4))
    numbers = (0.1, 0.8, 0.95, 0.5, 1e-8)
    for _ in range(3):
        ops.lion_(*ours, lr=0.1, beta1=0.8, beta2=0.95, weight_decay=0.5)
        for p, g, m in zip(*by_step):
            lion.lion_step(p, m, g, *numbers)
        lion.lion_foreach(by_foreach[0], by_foreach[2], by_foreach[1], *numbers)
        for p, g, m in zip(*by_layer):
            lion.layers.LionOptimizerStep()(p, m, g, *numbers)
    assert all(same(ours, other) for other in (by_step, by_foreach, by_layer))
    assert lion.LionOptimizerStep is lion.layers.LionOptimizerStep


def test_torch_compile_traces_it(lion):
    ours, theirs = tensors(), tensors()
    call = torch.compile(
        lambda p, g, m: lion.lion_foreach(p, m, g, 0.1, 0.9, 0.99, 0.1, 0.0), fullgraph=True, backend="aot_eager"
    )
    call(*ours)
    ops.lion_(*theirs, lr=0.1, weight_decay=0.1)
    assert same(ours, theirs)


def test_its_optimizer_trains(lion):
    ours, theirs = (torch.nn.Parameter(torch.ones(5)) for _ in range(2))
    for made, param in ((lion.Lion, ours), (quern.torch.Lion, theirs)):
        optimizer = made([param], lr=0.1, weight_decay=0.1)
        for _ in range(3):
            param.grad = torch.arange(5.0) - 2
            optimizer.step()
    assert oracle.same_bits(ours, theirs)
    assert not torch.equal(ours, torch.ones(5))


def test_the_layer_takes_anothers_place(repository, lion):
    @kernels.use_kernel_forward_from_hub("LionOptimizerStep")
    class Slow(torch.nn.Module):
        def forward(self, p, exp_avg, grad, lr, beta1, beta2, weight_decay, eps):
            raise AssertionError("the slow form was called")

    layer = kernels.LocalLayerRepository(repository, layer_name="LionOptimizerStep")
    with without_our_library(), kernels.use_kernel_mapping({"LionOptimizerStep": {"cpu": layer, "cuda": layer}}):
        model = kernels.kernelize(Slow(), mode=kernels.Mode.INFERENCE, device="cpu")
    ours, theirs = tensors(), tensors()
    for p, g, m in zip(*ours):
        model(p, m, g, 0.1, 0.9, 0.99, 0.0, 0.0)
    ops.lion_(*theirs, lr=0.1)
    assert same(ours, theirs)


def test_two_builds_and_quern_live_in_one_process(repository, lion, tmp_path):
    """Another build has other files, so another name; what is the same in both must not clash."""
    other = tmp_path / "lion"
    shutil.copytree(repository, other)
    variant = other / "build" / "torch-cpu"
    for name in ("metadata.json", "quern/torch/_namespace.py"):
        text = (variant / name).read_text()
        (variant / name).write_text(re.sub(r"_lion_cpu_\w{7}", "_lion_cpu_0000000", text))
    with without_our_library():
        second = kernels.get_local_kernel(other, backend="cpu")
    assert second.__name__ == "_lion_cpu_0000000"
    results = []
    for step in (ops.lion_, lion.lion_, second.lion_):
        many = tensors()
        step(*many, lr=0.1)
        results.append(many)
    assert same(results[0], results[1])
    assert same(results[0], results[2])


# ---- its benchmark ----
def test_kernels_benchmark_runs_it(repository, tmp_path):
    pytest.importorskip("tabulate")
    command = [str(pathlib.Path(sys.executable).with_name("kernels")), "benchmark", str(repository)]
    numbers = ["--iterations", "2", "--warmup", "1", "--output", str(tmp_path / "out.json")]
    with without_our_library():
        done = subprocess.run([*command, *numbers], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [result["workload"] for result in results] == ["LionForeach.step", "LionLayer.step", "LionStep.step"]
    assert all(result["verified"] for result in results)


def no_op(whole, op, lists, given):
    pass


def momentum_kept(whole, op, lists, given):
    before = [momentum.clone() for momentum in lists[2]]
    whole(op, lists, given)
    for momentum, old in zip(lists[2], before):
        momentum.copy_(old)


def parameters_kept(whole, op, lists, given):
    whole(op, [[param.clone() for param in lists[0]], *lists[1:]], given)


def momentum_first(whole, op, lists, given):
    """The direction is taken from the new momentum."""
    params = [param.clone() for param in lists[0]]
    whole(op, [params, *lists[1:]], given)
    whole(op, [lists[0], lists[1], [momentum.clone() for momentum in lists[2]], []], given)


def sign_of_zero_is_one(whole, op, lists, given):
    still = [(g == 0) & (m == 0) for g, m in zip(lists[1], lists[2])]
    whole(op, lists, given)
    for param, mask in zip(lists[0], still):
        param.sub_(given["lr"] * mask)


def decay_without_lr(whole, op, lists, given):
    for param in lists[0]:
        param.mul_(1 - given["weight_decay"])
    whole(op, lists, {**given, "weight_decay": 0.0})


def only_the_first_tensor(whole, op, lists, given):
    whole(op, [of_role[:1] for of_role in lists], given)


PLANTED = [no_op, momentum_kept, parameters_kept, momentum_first, sign_of_zero_is_one, decay_without_lr]


@pytest.mark.parametrize(("which", "bug"), [*[("LionStep", bug) for bug in PLANTED], ("LionForeach", no_op)])
def test_its_verification_finds(repository, lion, monkeypatch, which, bug):
    assert_caught(repository, lion, monkeypatch, which, bug)


def test_its_verification_looks_at_the_whole_list(repository, lion, monkeypatch):
    assert_caught(repository, lion, monkeypatch, "LionForeach", only_the_first_tensor)


def assert_caught(repository, lion, monkeypatch, which, bug):
    """The runner of `kernels` itself, over a kernel with a bug; without it the same run is content."""
    script = repository / "benchmarks" / "benchmark_lion.py"
    found = {made.__name__: made for made in runner.discover_benchmark_classes(script, repository)}
    assert sorted(found) == ["LionForeach", "LionLayer", "LionStep"]
    monkeypatch.setattr(found[which], "shapes", [(50, 20), (33,)])
    arguments = dict(iterations=1, warmup=0, repo_id=str(repository), is_local=True, revision="local")
    results, _ = runner.run_benchmark_class(found[which], **arguments)
    assert results["step"].verified
    launch = lion.quern.torch._launch
    whole = launch.step
    monkeypatch.setattr(launch, "step", lambda op, lists, given: bug(whole, op, lists, given))
    with pytest.raises(RuntimeError, match="Verification failed for step"):
        runner.run_benchmark_class(found[which], **arguments)
