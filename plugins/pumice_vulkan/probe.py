"""Probes of a device: small products on matrix units, in a separate process, since drivers may crash, and in float16.

``python -m pumice_vulkan.probe DRIVER INDEX MxNxK`` computes a product with each kernel, in fragments of that shape,
and prints the names of those that are right. The result is cached in a file, since starting a process and Vulkan takes
most of a second.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import write_file
from pumice_vulkan.device import Buffer, ComputePipeline, Device, DeviceDescription, MatrixShape, open_device
from pumice_vulkan.flags import FIXED, ProductFlag
from pumice_vulkan.folders import folders
from pumice_vulkan.shaders import interface, shader
from pumice_vulkan.tuning import X_UNIT, lanes_width

KERNEL = "matmul_cooperative.f16"
LANES_KERNEL = "matmul_lanes.q4_0"
SUMS_KERNEL = "fragments"
BY_ROWS, BY_COLUMNS = f"{SUMS_KERNEL}.rows", f"{SUMS_KERNEL}.columns"  # orders of a lane's sums
HALF_KERNEL = "matmul_half.q4_0"
SHAPES = tuple(
    MatrixShape(m, n, k, "float16", "float32")
    for m, n, k in ((16, 16, 16), (8, 16, 16), (16, 8, 16), (16, 16, 8), (8, 8, 16), (16, 8, 8), (8, 8, 8))
)
"""Shapes of products that kernels can use, the best first: of NVIDIA and AMD, of Intel, and of lavapipe last."""
SHAPE = SHAPES[0]  # of shaders/matmul_lanes.comp, too
N_ROWS, N_TOKENS = 72, 40  # of the products, with incomplete tiles
TIMEOUT_SECONDS = 60
TILES = (64, 64, 2, 2, 64)  # of KERNEL
HALF_TILES = (16, 8, 4, 8, 1, 32, 16)  # of HALF_KERNEL
SMALL_X = 2.0**-8  # with it products in float16 are below its normal numbers, which some devices take for zero
LANES = 32  # subgroup size of shaders/matmul_lanes.comp
LANES_THREADS, LANES_SHARED_BYTES = 512, 36 * 1024  # its largest workgroup

logger = logging.getLogger("pumice")


def matrix_shape(description: DeviceDescription) -> MatrixShape | None:
    """Return the shape of matrix units that kernels use on a device; None if it has none of SHAPES."""
    if not {"float16", "cooperative_matrix"} <= description.features:
        return None
    return next((shape for shape in SHAPES if shape in description.cooperative_matrices), None)


def working_shape(device: Device) -> MatrixShape | None:
    """Return the shape of matrix units if products with it are right; computed once per device."""
    shape = matrix_shape(device.description)
    return shape if shape and KERNEL in _probe(device.description, shape) else None


def lanes_are_known(device: Device) -> bool:
    """Return True if lanes have the parts of fragments that shaders/matmul_lanes.comp expects; once per device."""
    return has_lanes(device.description) and LANES_KERNEL in _probe(device.description, SHAPE)


def sums_by_rows(device: Device) -> bool | None:
    """Return the order of a lane's sums (shaders/fragments.glsl); None if it is unknown. Computed once per device."""
    orders = _probe(device.description, SHAPE) & {BY_ROWS, BY_COLUMNS}
    return BY_ROWS in orders if orders else None


def has_lanes(description: DeviceDescription) -> bool:
    """Return True if the kernel may be right on a device, and fits."""
    fits = description.max_threads_per_threadgroup >= LANES_THREADS
    fits = fits and description.threadgroup_memory_bytes >= LANES_SHARED_BYTES
    fits = fits and matrix_shape(description) == SHAPE
    return fits and description.vendor == "NVIDIA" and description.subgroup_size == LANES


@functools.cache
def _probe(description: DeviceDescription, shape: MatrixShape) -> frozenset[str]:
    """Return the names of the kernels that are right."""
    files = _files(description, shape)
    for file in files:
        with contextlib.suppress(OSError):
            return frozenset(file.read_text().split())
    size = f"{shape.m}x{shape.n}x{shape.k}"
    command = [sys.executable, "-m", "pumice_vulkan.probe", description.driver, str(description.index), size]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.info("matrix units of %s are not used: %s", description.name, error)
        return frozenset()
    right = frozenset((done.stdout or "").split())
    if done.returncode != 0:
        reason = (done.stderr or "").strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        logger.info("matrix units of %s are not used, since their probe failed: %s", description.name, reason)
        return frozenset()
    if files:
        with contextlib.suppress(OSError):
            write_file(files[-1], " ".join(sorted(right)).encode())
    return right


def _files(description: DeviceDescription, shape: MatrixShape) -> list[Path]:
    """Return the paths of marker files; one exists if this device, driver and kernels passed before."""
    about = (shape, description.name, description.driver, description.vulkan_driver, description.api_version)
    kernels = shader(KERNEL) + shader(LANES_KERNEL) + shader(SUMS_KERNEL)
    name = hashlib.sha256(repr(about).encode() + kernels).hexdigest()[:32]
    return [folder / name for folder in folders()]


def right_kernels(device: Device, shape: MatrixShape = SHAPE) -> list[str]:
    """Return the names of the kernels whose product of random matrices is that of NumPy."""
    right = []
    of_tiles = [4 * device.subgroup_size, 12, ProductFlag.RAGGED_X, *TILES, X_UNIT, 1, 0, shape.m, shape.n, shape.k]
    if _is_right(device, KERNEL, *_float16_matrix(96), of_tiles):
        right.append(KERNEL)
        tiles = -(-N_TOKENS // SHAPE.n)
        lanes = [4 * LANES, 4, 0, 4, 1, 1, tiles, 1, tiles, 1, lanes_width(device)]
        if (
            shape == SHAPE
            and has_lanes(device.description)
            and _is_right(device, LANES_KERNEL, *_q4_0_matrix(128), lanes)
        ):
            right.append(LANES_KERNEL)
            right += _order_of_sums(device)
    return right


def _order_of_sums(device: Device) -> list[str]:
    """Return the name of the order in which lanes have sums; empty if shaders/fragments.glsl does not know it."""
    x, y = device.new_buffer(4 * 256, host=True), device.new_buffer(4 * 256, host=True)
    x.contents[:] = np.arange(256, dtype=np.float32).view(np.uint8)
    y.contents[:] = 255
    push = interface(SUMS_KERNEL).pack(x_at=0, y_at=0)
    run(device, device.new_pipeline(shader(SUMS_KERNEL), 2, len(push), (), full_subgroups=True), [x, y], push, (1, 1))
    lane, slot = np.arange(LANES)[:, None], np.arange(4)
    columns = slot // 2 * 8 + lane % 4 * 2 + slot % 2
    rows = np.stack([lane // 4 * 16 + columns, (lane // 4 + 8) * 16 + columns], 1)  # lane, row, slot
    elements = y.contents.view(np.float32).reshape(LANES, 8)
    for name, order in ((BY_ROWS, rows), (BY_COLUMNS, rows.reshape(LANES, 2, 2, 2).transpose(0, 2, 1, 3))):
        if np.array_equal(elements, order.reshape(LANES, 8)):
            return [name]
    return []


def halves_are_right(device: Device) -> bool:
    """Return True if a product in float16 (shaders/matmul.comp) is that of NumPy, also of small numbers."""
    planes, numbers = _q4_0_matrix(128)
    x = np.random.default_rng(1).uniform(-1, 1, (N_TOKENS, numbers.shape[1])).astype(np.float32)
    x[::2] *= SMALL_X
    operands = [x.reshape(-1).view(np.uint8), planes]
    result = _product(device, HALF_KERNEL, operands, numbers.shape[1], (4, 0, *HALF_TILES))
    expected = x @ numbers.T
    return bool(np.all(np.abs(result - expected) <= 2e-3 * np.abs(expected).max(axis=1, keepdims=True)))


def _float16_matrix(n_columns: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return a random matrix as stored and its numbers."""
    w = np.random.default_rng(0).standard_normal((N_ROWS, n_columns)).astype(np.float16)
    return w.reshape(-1).view(np.uint8), w.astype(np.float32)


def _q4_0_matrix(n_columns: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return a random matrix in planes (shaders/formats.glsl) and its numbers."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (N_ROWS, n_columns // 32, 16), np.uint8)
    scales = rng.uniform(0.1, 0.2, (N_ROWS, n_columns // 32)).astype(np.float16)
    planes = np.concatenate([codes.reshape(-1), scales.reshape(-1).view(np.uint8)])
    numbers = np.stack([codes & 15, codes >> 4], 2).astype(np.float32) - 8  # both halves of each block
    return planes, (numbers * scales.astype(np.float32)[..., None, None]).reshape(N_ROWS, n_columns)


def _is_right(
    device: Device, kernel: str, w: NDArray[np.uint8], numbers: NDArray[np.float32], constants: Sequence[int]
) -> bool:
    """Compare ``x @ numbers.T`` of a kernel, with incomplete tiles of 64 at the edges, with NumPy."""
    x = np.random.default_rng(1).standard_normal((N_TOKENS, numbers.shape[1])).astype(np.float16)
    ordered = np.ascontiguousarray(x.reshape(N_TOKENS, -1, 4)[..., [0, 2, 1, 3]])  # in the order of shaders/half.comp
    ordered = _in_lanes(ordered) if kernel == LANES_KERNEL else ordered
    result = _product(device, kernel, [ordered.reshape(-1).view(np.uint8), w], numbers.shape[1], constants)
    return np.allclose(result, x.astype(np.float32) @ numbers.T, rtol=1e-3, atol=2e-2)


def _in_lanes(x: NDArray[np.float16]) -> NDArray[np.float16]:
    """Return rows of 128 columns in the order of lanes (shaders/halves.glsl)."""
    padded = np.zeros((-(-len(x) // 16), 2, 8, 4, 4, 8), np.float16)  # tile, half of it, row; block, piece, column
    padded.reshape(-1, 128)[: len(x)] = x.reshape(len(x), -1)
    return np.ascontiguousarray(padded.transpose(0, 1, 4, 2, 3, 5))


def _product(
    device: Device, kernel: str, operands: Sequence[NDArray[np.uint8]], n_columns: int, constants: Sequence[int]
) -> NDArray[np.float32]:
    """Compute a product of x and a matrix; all other places of the kernel are those of the result."""
    step = device.new_buffer(64, host=True)
    buffers = [device.new_buffer(array.nbytes, host=True) for array in operands]
    for buffer, array in zip(buffers, operands, strict=True):
        buffer.contents[:] = array
    y = device.new_buffer(4 * N_ROWS * N_TOKENS, host=True)
    declared = interface(kernel)
    sizes = {"n_rows": N_ROWS, "n_columns": n_columns, "n_matrix_rows": N_ROWS, "n_used": 1}
    names = {parameter.name for parameter in declared.parameters}
    (weights,) = (parameter for parameter in declared.parameters if parameter.name == "weights_at")
    push = declared.pack(
        **{f"{name}_at": 0 for name in declared.places if name != "weights"},
        weights_at=[0] * weights.count if weights.count else 0,
        rows=FIXED | N_TOKENS,
        **{name: size for name, size in sizes.items() if name in names},
    )
    n_buffers = 1 + len(declared.places) - 1 + (weights.count or 1)  # with the step block
    whole = kernel != HALF_KERNEL
    pipeline = device.new_pipeline(shader(declared.kernel), n_buffers, len(push), constants, full_subgroups=whole)
    n_tiles = -(-max(N_ROWS, N_TOKENS) // 64)
    run(device, pipeline, [step, *buffers, *[y] * (n_buffers - 3)], push, (n_tiles, n_tiles))
    return y.contents.view(np.float32).reshape(N_TOKENS, N_ROWS)


def run(
    device: Device, pipeline: ComputePipeline, buffers: Sequence[Buffer], push: bytes, n_workgroups: tuple[int, int]
) -> None:
    command = device.new_command_buffer()
    encoder = command.encoder()
    encoder.set_pipeline(pipeline)
    for i, buffer in enumerate(buffers):
        encoder.set_buffer(i, buffer)
    encoder.set_bytes(push)
    encoder.dispatch_threadgroups(*n_workgroups)
    encoder.end()
    command.commit_and_wait()


if __name__ == "__main__":
    with open_device(sys.argv[1], int(sys.argv[2])) as device:
        m, n, k = map(int, sys.argv[3].split("x"))
        names = right_kernels(device, MatrixShape(m, n, k, SHAPE.a, SHAPE.c))
        print(*names)
        sys.exit(0 if names else 1)
