# SPDX-License-Identifier: Apache-2.0
"""What the judge's processes are forked from."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

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
