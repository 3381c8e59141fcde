# SPDX-License-Identifier: Apache-2.0
"""Settings of a GPU that change what a kernel takes and that a privileged process may change: read, never written."""

from __future__ import annotations

import contextlib
import ctypes

import torch

_CLOCKS = {"graphics clock": 0, "memory clock": 2}  # nvmlClockType_t
_VALUES = {
    "power limit": "nvmlDeviceGetPowerManagementLimit",
    "persistence mode": "nvmlDeviceGetPersistenceMode",
    "compute mode": "nvmlDeviceGetComputeMode",
}


def read(device: str) -> dict[str, int]:
    """By name. What the driver does not tell is left out; a processor has none."""
    found: dict[str, int] = {}
    if not device.startswith("cuda"):
        return found
    with contextlib.suppress(OSError, AttributeError):
        nvml, handle, value = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_uint()
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.device(device)).uuid}".encode()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)):
            return found
        for name, function in _VALUES.items():
            if not getattr(nvml, function)(handle, ctypes.byref(value)):
                found[name] = value.value
        for name, clock in _CLOCKS.items():
            if not nvml.nvmlDeviceGetApplicationsClock(handle, clock, ctypes.byref(value)):
                found[name] = value.value
        nvml.nvmlShutdown()
    return found
