"""Rates of devices: measured once by small programs, and kept in a file until the device or its driver changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pumice.backend import Backend, DeviceInfo
from pumice.backend.step import Batch, Limits
from pumice.cache_files import read_file, write_file
from pumice.config import Config
from pumice.engine.placement.costs import NodeCost, StepPart
from pumice.engine.placement.overrides import DeviceName
from pumice.engine.placement.placed import PlacedGraph
from pumice.engine.placement.sizing import BLOCK_SIZE
from pumice.gguf import GGMLType, quantize, row_bytes
from pumice.graph import N_TOKENS, BlocksSource, GraphBuilder, Segment, Tensor
from pumice.machine import available_memory_bytes, cores, last_cache_bytes
from pumice.sandbox import cache_homes

logger = logging.getLogger("pumice")

WIDTH = 4096  # columns of the measured matrices
_MATRICES = 16  # matrices that are read one after the other, together larger than any cache
_TINY, _TINY_WIDTH = 32, 256  # tiny products whose overhead is measured, and their columns
_READ_MATRICES = 4  # matrices in host memory that a GPU reads
_ROWS = 512  # rows of a product that is limited by arithmetic
_SLOW_SECONDS = 0.02  # a product that takes longer is measured alone, and with fewer rows
_LEAST_SECONDS, _MOST_RUNS = 0.2, 10  # of repeated runs, the fastest of which counts
_GPU_SECONDS, _GPU_RUNS = 0.4, 1000  # of runs on a GPU, whose clock rises meanwhile
_LARGEST_FILE = 4096  # bytes
_MOST_BYTES = 2**29  # of measured matrices
_TYPE = GGMLType.Q4_0
_RESTING = 4.0  # factor of a GPU's measured time in tokens where it waits for the processor: its clock is low


_measured: dict[str, Rates] = {}  # by this process, whether kept in a file or not


@dataclass(frozen=True)
class Rates:
    """Measured rates of a device.

    Attributes:
        memory: bytes of weights per second that a product with one row reads; of Q4_0.
        compute: floating-point operations per second of products with many rows; of Q4_0.
        link: bytes per second of values that enter and leave a program.
        node_seconds: overhead of an operation.
        run_seconds: overhead of a run of a program.
        products: ``memory`` and ``compute`` of other types, by their names, as far as they were measured.
        read: bytes of weights per second that a GPU reads in host memory; 0 if it cannot.
        cold_seconds: overhead of a run after other programs have filled the processor's caches; 0 for a GPU.
    """

    memory: float
    compute: float
    link: float
    node_seconds: float
    run_seconds: float
    products: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    read: float = 0.0
    cold_seconds: float = 0.0

    def __post_init__(self) -> None:
        of_types = [rate for memory, compute in self.products.values() for rate in (memory, compute)]
        positive = (self.memory, self.compute, self.link, *of_types)
        times = self.node_seconds, self.run_seconds, self.cold_seconds, self.read
        values = (*positive, *times)
        finite = all(isinstance(value, (int, float)) and math.isfinite(value) for value in values)
        if not finite or min(positive) <= 0 or min(times) < 0:
            raise ValueError(f"invalid rates: {self}")

    def of(self, type: str) -> tuple[float, float]:
        """Return ``memory`` and ``compute`` of products with weights of a type, or of Q4_0 if it was not measured."""
        return self.products.get(type, (self.memory, self.compute))


def step_seconds(
    parts: Sequence[StepPart], rates: Mapping[DeviceName, Rates], n_tokens: int, n_outputs: int, depth: int
) -> float:
    """Return the predicted time of a step: the roofline of each operation (Williams et al. 2009), and overheads.

    Between two devices, the host starts each program without its caches, which the processor's weights have filled.

    Args:
        parts: segments of the step, which run one after the other.
        rates: rates of each device.
        n_tokens: rows of the step.
        n_outputs: rows of its output.
        depth: positions in the cache before the step.
    """
    seconds = 0.0
    colder = max((rates[part.device].cold_seconds - rates[part.device].run_seconds for part in parts), default=0.0)
    between = max(colder, 0.0) if len(parts) > 1 else 0.0
    rests = n_tokens == 1 and not all(part.offload for part in parts)
    for part in parts:
        rate = rates[part.device]
        crossing = part.crossing_bytes * n_tokens + part.output_bytes * n_outputs
        seconds += crossing / rate.link
        if part.joined and n_tokens == 1:
            seconds += sum(_joined_seconds(group, rate, depth) for group in part.joined)
        else:
            groups = part.groups or [(node,) for node in part.nodes]
            busy = sum(_node_seconds(node, rate, n_tokens, n_outputs, depth) for group in groups for node in group)
            busy *= _RESTING if rests and part.offload else 1
            seconds += rate.run_seconds + between + busy + rate.node_seconds * len(groups)
    return seconds


def _node_seconds(node: NodeCost, rate: Rates, n_tokens: int, n_outputs: int, depth: int) -> float:
    """Return the time of an operation by its bytes or its arithmetic."""
    memory, compute = rate.of(node.type)
    if node.in_place:
        memory = min(memory, rate.read)
    if not memory:
        return math.inf
    return max(node.n_bytes(n_tokens, n_outputs, depth) / memory, node.flops(n_tokens, n_outputs, depth) / compute)


def _joined_seconds(group: Sequence[NodeCost], rate: Rates, depth: int) -> float:
    """Return the time of a group in a launch of a whole token, and of the exchange of its results.

    An exchange takes as long as the overhead of an operation. Weights are read meanwhile, but not those of experts,
    which the values before choose, nor the cache. The launch belongs to a row of steps, so it has no further overhead.
    """
    ahead = sum(_node_seconds(replace(node, position_bytes=0.0), rate, 1, 1, 0) for node in group if node.share >= 1)
    later = sum(node.position_bytes and _node_seconds(node, rate, 1, 1, depth) for node in group)
    later += sum(_node_seconds(node, rate, 1, 1, depth) for node in group if node.share < 1)
    return max(ahead, rate.node_seconds) if not later else ahead + later + rate.node_seconds


def known_device_rates(backends: Sequence[tuple[str, Backend]], config: Config) -> dict[DeviceName, Rates]:
    """Return the rates of devices as far as they have been measured; those of a backend's devices are equal."""
    rates: dict[DeviceName, Rates] = {}
    for name, backend in backends:
        devices = backend.devices()
        if devices and (device_rates := known_rates(name, devices[0], config.backend_options(name))):
            rates |= {DeviceName(name, number): device_rates for number in range(len(devices))}
    return rates


def known_rates(backend: str, device: DeviceInfo, options: Mapping[str, object]) -> Rates | None:
    """Return the rates of a device as far as they were measured, from its file.

    A file belongs to a device's name and details, which include its driver or instruction set, the backend's options,
    and the version of Pumice.
    """
    name = _file_name(backend, device, options)
    if name in _measured:
        return _measured[name]
    for folder in _folders():
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            content = json.loads(read_file(folder / f"{name}.json", _LARGEST_FILE))
            if set(content) != {item.name for item in fields(Rates)}:
                continue  # another build measured other rates
            pairs = content.pop("products").items()
            return Rates(**content, products={type: (memory, compute) for type, (memory, compute) in pairs})
    return None


def _file_name(backend: str, device: DeviceInfo, options: Mapping[str, object]) -> str:
    about = [backend, device.name, device.kind, dict(device.details), dict(options), version("pumice")]
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:32]


def rates_folder() -> Path | None:
    """Return the folder in which this process keeps measured rates; None without a home directory."""
    return next(reversed(_folders()), None)


def _folders() -> list[Path]:
    with contextlib.suppress(RuntimeError):  # no home directory
        return [folder / "pumice" / "rates" for folder in cache_homes()]
    return []


def rates_of(
    backend: str,
    device: DeviceInfo,
    options: Mapping[str, object],
    types: Collection[GGMLType],
    measure: Callable[[Rates | None, Sequence[GGMLType]], Rates],
) -> Rates:
    """Return the rates of a device with those of ``types``, like ``known_rates``, or measure them and write the file.

    ``measure`` gets the rates in the file, if there are any, and the types that these lack.
    """
    kept = known_rates(backend, device, options)
    missing = [type for type in types if type != _TYPE and (kept is None or type.name not in kept.products)]
    if kept and not missing:
        return kept
    name = _file_name(backend, device, options)
    folder = rates_folder()
    is_busy = _is_busy()
    logger.info("measuring %s on %s", device.name, backend)
    rates = _measured[name] = measure(kept, missing)
    if is_busy:
        logger.warning("%s: other programs run, so its measured rates are too low; they are not kept", device.name)
    elif folder:
        with contextlib.suppress(OSError):
            write_file(folder / f"{name}.json", json.dumps(asdict(rates)).encode())
    return rates


def _is_busy() -> bool:
    """Return True if other programs kept at least half of the cores busy in the last minute."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > cores() / 2


def measure_types(name: str, backend: Backend, rates: Rates, types: Sequence[GGMLType], width: int = WIDTH) -> Rates:
    """Return rates of a backend's first device with those of further types. Raises BackendError."""
    products = {type.name: _product_rates(name, backend, rates, type, width) for type in types}
    return replace(rates, products={**rates.products, **products})


def measure_rates(name: str, backend: Backend, width: int = WIDTH) -> Rates:
    """Measure the first device of a backend with products of random weights. Raises BackendError."""
    with _Chain(name, backend, _TINY, _TINY_WIDTH) as tiny, _Chain(name, backend, 1, _TINY_WIDTH) as one:
        short, long = one.seconds(1), tiny.seconds(1)
        cold = 0.0 if backend.offload else one.seconds(1, from_memory=True)
    node_seconds = max(long - short, 0.0) / (_TINY - 1)
    run_seconds, cold_seconds = max(short - node_seconds, 0.0), max(cold - node_seconds, 0.0)
    with _Chain(name, backend, 0, width) as copied:
        link = copied.value_bytes * _ROWS / copied.seconds(_ROWS)
    overheads = Rates(1.0, 1.0, link, node_seconds, run_seconds, cold_seconds=cold_seconds)
    memory, compute = _product_rates(name, backend, overheads, _TYPE, width)
    read = _read_rate(name, backend, overheads, width) if backend.reads_in_place else 0.0
    return replace(overheads, memory=memory, compute=compute, read=read)


def _read_rate(name: str, backend: Backend, overheads: Rates, width: int) -> float:
    """Return the bytes per second of matrices in host memory that products with one row read there."""
    with _Chain(name, backend, _READ_MATRICES, width, in_place=True) as chain:
        read = chain.seconds(1)
        moving = max(read - overheads.run_seconds - overheads.node_seconds * chain.n_matrices, read / 2)
        return chain.weight_bytes / moving


def _product_rates(name: str, backend: Backend, overheads: Rates, type: GGMLType, width: int) -> tuple[float, float]:
    """Return ``memory`` and ``compute`` of products with weights of a type."""
    with _Chain(name, backend, 1, width, type) as single:
        is_slow = single.seconds(1) > _SLOW_SECONDS
        n_matrices = max(min(_MOST_BYTES // single.weight_bytes, _MATRICES), 1)
    with _Chain(name, backend, 1 if is_slow else n_matrices, width, type) as chain:
        read = chain.seconds(1, from_memory=True)
        rows = 16 if is_slow else 64
        computed = chain.seconds(rows)
        if computed < _SLOW_SECONDS:
            rows, computed = _ROWS, chain.seconds(_ROWS)
        run_seconds = max(overheads.run_seconds, overheads.cold_seconds)
        moving = max(read - run_seconds - overheads.node_seconds * chain.n_matrices, read / 2)
        return chain.weight_bytes / moving, chain.row_flops * rows / computed


def product_seconds(
    name: str, backend: Backend, type: GGMLType, rows: Sequence[int], width: int = WIDTH
) -> dict[int, float]:
    """Return the shortest time of a product, in seconds, by its number of rows. Raises BackendError.

    It is the mean of two products, whose matrices are ``2 width x width`` and ``width x 2 width``.
    """
    with _Chain(name, backend, 2, width, type) as chain:
        return {n: chain.seconds(n) / chain.n_matrices for n in rows}


class _Chain:
    """A compiled chain of products, each with a matrix of its own; without matrices, a scaled copy.

    With ``in_place``, a GPU reads the matrices in host memory.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        n_matrices: int,
        width: int,
        type: GGMLType = _TYPE,
        *,
        in_place: bool = False,
    ) -> None:
        blocks = _blocks(width, type)
        shapes = [((2 * width, width), (width, 2 * width))[i % 2] for i in range(n_matrices)]
        prefix = f"{n_matrices}x{width} {type.name}{' in place' if in_place else ''}"  # backends keep weights by name
        sources = {
            f"{prefix}.{i}.weight": BlocksSource(blocks.copy().reshape(shape[0], -1), type)  # nothing is cached
            for i, shape in enumerate(shapes)
        }
        g = GraphBuilder(sources, 1, _ROWS)
        x = g.input("x", (N_TOKENS, width))
        y: Tensor = x
        for key in sources:
            y = g.linear(y, g.weight(key))
        g.output("y", y if sources else y * 0.5)
        graph = g.finish()
        read_in_place = re.escape(prefix) if in_place else ""
        n_blocks = {0: _ROWS // BLOCK_SIZE}
        limits = Limits(_ROWS, _ROWS, _ROWS, 1, BLOCK_SIZE, n_blocks, "f16", graph.sizes, in_place=read_in_place)
        segment = Segment(name, graph.nodes, [x], list(graph.outputs.values()))
        self._width = width
        self._is_gpu = backend.offload
        self._placed = PlacedGraph(graph, [segment], {name: backend}, limits)
        self._placed.compile()
        self.n_matrices = n_matrices
        self.row_flops = 2.0 * n_matrices * 2 * width * width
        self.weight_bytes = n_matrices * blocks.nbytes
        self.value_bytes = 4 * (width + int(y.shape[-1]))

    def seconds(self, n_rows: int, *, from_memory: bool = False) -> float:
        """Return the shortest time of a step with ``n_rows`` rows, after one that warms up.

        With ``from_memory``, caches of the processor are filled with other values before each step.
        """
        rows = np.arange(n_rows, dtype=np.int32)
        tables = {0: np.arange(_ROWS // BLOCK_SIZE, dtype=np.int32)[None]}
        starts = np.array([0, n_rows], np.int32)
        values = np.random.default_rng(0).standard_normal((n_rows, self._width), np.float32)
        batch = Batch(rows, rows, rows, starts, np.zeros(1, np.int32), tables, {"x": values})
        times: list[float] = []
        self._placed.submit(batch).outputs()
        n_bytes = 2 * last_cache_bytes() if from_memory and not self._is_gpu else 0
        others = np.empty(min(n_bytes, available_memory_bytes() // 8), np.uint8)
        most, least_seconds = (_GPU_RUNS, _GPU_SECONDS) if self._is_gpu else (_MOST_RUNS, _LEAST_SECONDS)
        while len(times) < most and sum(times) < least_seconds:
            others.fill(len(times) % 2)
            begun = time.perf_counter()
            self._placed.submit(batch).outputs()
            times.append(time.perf_counter() - begun)
        return max(min(times), 1e-9)

    def __enter__(self) -> _Chain:
        return self

    def __exit__(self, *_: object) -> None:
        self._placed.close()


def _blocks(width: int, type: GGMLType) -> NDArray[np.uint8]:
    """Return blocks of ``2 width * width`` random values; zeros in types that cannot be quantized here."""
    n_rows = min(width, 64)
    try:
        values = np.random.default_rng(0).standard_normal((n_rows, width), np.float32) * np.float32(0.02)
        rows = quantize(values, type)
    except ValueError:
        rows = np.zeros((n_rows, row_bytes(type, width)), np.uint8)
    return np.tile(rows, (2 * width // n_rows, 1))
