"""A probe of a device's matrix units: a small product in a separate process, since drivers may crash.

``python -m pumice_vulkan.probe DRIVER INDEX`` computes the product and exits with 0 if it is right. The result is
cached in a file, since starting a process and Vulkan takes most of a second.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np

from pumice.plugin import write_file
from pumice_vulkan.device import Device, DeviceDescription, MatrixShape, open_device
from pumice_vulkan.flags import FIXED, ProductFlag
from pumice_vulkan.folders import folders
from pumice_vulkan.shaders import interface, shader

KERNEL = "matmul_cooperative.f16"
SHAPE = MatrixShape(16, 16, 16, "float16", "float32")
TIMEOUT_SECONDS = 60

logger = logging.getLogger("pumice")


def cooperative_matrices_work(device: Device) -> bool:
    """Return True if products on matrix units are right; computed once per device."""
    if SHAPE not in device.cooperative_matrices or "float16" not in device.features:
        return False
    return _probe(device.description)


@functools.cache
def _probe(description: DeviceDescription) -> bool:
    files = _files(description)
    if any(file.exists() for file in files):
        return True
    command = [sys.executable, "-m", "pumice_vulkan.probe", description.driver, str(description.index)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.info("matrix units of %s are not used: %s", description.name, error)
        return False
    works = done.returncode == 0
    if not works:
        reason = (done.stderr or "").strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        logger.info("matrix units of %s are not used, since their probe failed: %s", description.name, reason)
    if works and files:
        with contextlib.suppress(OSError):
            write_file(files[-1], b"")
    return works


def _files(description: DeviceDescription) -> list[Path]:
    """Return the paths of marker files; one exists if this device, driver and kernel passed before."""
    about = (description.name, description.driver, description.vulkan_driver, description.api_version)
    name = hashlib.sha256(repr(about).encode() + shader(KERNEL)).hexdigest()[:32]
    return [folder / name for folder in folders()]


def product_is_right(device: Device) -> bool:
    """Compare ``x @ w.T`` of random float16 matrices, with incomplete tiles at the edges, with NumPy."""
    rng = np.random.default_rng(0)
    n_rows, n_tokens, n_columns = 72, 40, 96
    w = rng.standard_normal((n_rows, n_columns)).astype(np.float16)
    x = rng.standard_normal((n_tokens, n_columns)).astype(np.float16)
    step = device.new_buffer(64, host=True)
    ordered = np.ascontiguousarray(x.reshape(n_tokens, -1, 4)[..., [0, 2, 1, 3]])  # in the order of shaders/half.comp
    buffers = [device.new_buffer(array.nbytes, host=True) for array in (ordered, w)]
    for buffer, array in zip(buffers, (ordered, w), strict=True):
        buffer.contents[:] = array.reshape(-1).view(np.uint8)
    y = device.new_buffer(4 * n_rows * n_tokens, host=True)
    constants = [4 * device.subgroup_size, n_columns // 8, ProductFlag.RAGGED_X, 64, 64, 2, 2, 64, SHAPE.m]
    declared = interface(KERNEL)
    push = declared.pack(
        **{f"{name}_at": 0 for name in declared.places if name != "weights"},
        weights_at=[0, 0],
        rows=FIXED | n_tokens,
        n_rows=n_rows,
        n_columns=n_columns,
        n_matrix_rows=n_rows,
        n_used=1,
    )
    pipeline = device.new_pipeline(shader(declared.kernel), 12, len(push), constants, full_subgroups=True)
    command = device.new_command_buffer()
    encoder = command.encoder()
    encoder.set_pipeline(pipeline)
    for i, buffer in enumerate([step, *buffers, *[y] * 9]):
        encoder.set_buffer(i, buffer)
    encoder.set_bytes(push)
    encoder.dispatch_threadgroups(-(-n_rows // 64), -(-n_tokens // 64))
    encoder.end()
    command.commit_and_wait()
    actual = y.contents.view(np.float32).reshape(n_tokens, n_rows)
    return np.allclose(actual, x.astype(np.float32) @ w.astype(np.float32).T, rtol=1e-3, atol=1e-2)


if __name__ == "__main__":
    with open_device(sys.argv[1], int(sys.argv[2])) as device:
        sys.exit(0 if product_is_right(device) else 1)
