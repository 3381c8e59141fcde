# SPDX-License-Identifier: Apache-2.0
"""What the judge's processes are forked from."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

from judging import ADD_RELU, files
from quern.kernelbench import _process

IMPORTS = """
import sys, torch
sys.path.insert(0, sys.argv[1])
asked = []
torch._C._cuda_getDeviceCount = lambda: asked.append(1) or 1
torch.cuda._device_count_nvml = lambda: 1
import _nursery
print(len(asked))
"""


@pytest.mark.parametrize("changed, asks", [({}, False), ({"PYTORCH_NVML_BASED_CUDA_CHECK": "0"}, True)])
def test_its_imports_ask_no_driver_for_gpus(changed, asks):
    """A process that was forked behind such a question can use no GPU. The second case shows that they do ask."""
    folder = str(pathlib.Path(_process.__file__).parent)
    environment = {**_process._environment(""), **changed}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, folder], env=environment, capture_output=True, text=True, check=True
    )
    assert (int(done.stdout.split()[-1]) > 0) == asks


def test_a_judge_that_is_terminated_leaves_nothing(tmp_path):
    problem, new = files(tmp_path, reference=ADD_RELU, candidate=ADD_RELU.replace("Model(", "ModelNew("))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    package = str(pathlib.Path(_process.__file__).parents[2])
    words = [sys.executable, "-m", "quern.kernelbench", "--ref-problem", problem, "--tgt-problem", new]
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": package}
    with subprocess.Popen([*words, "--device", "cpu"], env=environment, stderr=subprocess.PIPE, text=True) as judge:
        until = time.monotonic() + 120
        while not list(temporary.glob("quern-judge-*")) and time.monotonic() < until:
            time.sleep(0.05)
        assert list(temporary.glob("quern-judge-*"))
        judge.send_signal(signal.SIGTERM)
        said = judge.communicate(timeout=60)[1]
    assert judge.returncode == 128 + signal.SIGTERM and "Traceback" not in said
    assert not list(temporary.glob("quern-judge-*"))
