"""Carry out a plan: read tensors, quantize them on all cores and write them, some rows at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from math import prod

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError
from pumice.gguf import GGMLType, Writer, dequantize, row_bytes
from pumice.gguf.copy import PIECE, ByteProgress
from pumice.gguf.quants import Numbers
from pumice.guard import guarded
from pumice.machine import bounded_threads
from pumice.quantize.decide import FLOATS, Decision
from pumice.quantize.plan import QuantizationPlan
from pumice.quantizer import Quantizer

MAX_FLOAT16 = 65504.0  # limit of a block's scale
SLAB = 1 << 20  # values per task of a thread, in whole rows


def run(
    plan: QuantizationPlan,
    out: str | os.PathLike[str],
    quantizers: Mapping[str, Quantizer],
    *,
    threads: int | None = None,
    force: bool = False,
    progress: ByteProgress | None = None,
) -> None:
    """Write the planned file. Raises QuantizeError, leaving no file, if a tensor has non-finite values."""
    n_threads = bounded_threads(threads or 0, "threads")
    encoders = {type: _encoder(type, quantizers) for type in {d.info.type for d in plan.decisions if not d.is_copy}}
    infos = [decision.info for decision in plan.decisions]
    done = 0
    writer = Writer(out, plan.metadata, infos, parts=plan.parts, force=force)
    with writer, _threads(n_threads) as pool:
        for decision in plan.decisions:
            for n_bytes, blocks in _pieces(decision, encoders.get(decision.info.type), pool, n_threads):
                writer.write(blocks)
                done += n_bytes
                if progress is not None:
                    progress(done, plan.source_bytes)


@contextmanager
def _threads(n_threads: int) -> Iterator[ThreadPoolExecutor]:
    """Provide threads, which on an error or Ctrl-C finish the pieces that they have begun, and begin no others."""
    pool = ThreadPoolExecutor(n_threads, "pumice-quantize")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


BlockEncoder = Callable[[Numbers, Numbers | None], NDArray[np.uint8]]


def _pieces(
    decision: Decision, encode: BlockEncoder | None, pool: ThreadPoolExecutor, n_threads: int
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield the number of bytes read and the bytes to write; some pieces are computed ahead."""
    source = decision.source
    if decision.is_copy or encode is None:
        data = source.data.reshape(-1)
        for start in range(0, source.nbytes, PIECE):
            piece = data[start : start + PIECE]
            yield len(piece), piece
            source.release(start, start + len(piece))
        return
    rows = source.data.reshape(prod(source.shape[:-1]), -1)
    waiting: deque[tuple[int, int, Future[NDArray[np.uint8]]]] = deque()
    for start, end, matrix in _slabs(decision):
        weights = None if decision.weights is None else decision.weights[matrix]
        waiting.append((start, end, pool.submit(_quantize, decision, encode, rows[start:end], start, weights)))
        if len(waiting) > 2 * n_threads:
            yield _finished(decision, waiting)
    while waiting:
        yield _finished(decision, waiting)


def _finished(
    decision: Decision, waiting: deque[tuple[int, int, Future[NDArray[np.uint8]]]]
) -> tuple[int, NDArray[np.uint8]]:
    start, end, future = waiting.popleft()
    blocks = future.result()
    row_bytes = decision.source.nbytes // prod(decision.source.shape[:-1])
    decision.source.release(start * row_bytes, end * row_bytes)
    return (end - start) * row_bytes, blocks


def _slabs(decision: Decision) -> Iterator[tuple[int, int, int]]:
    """Yield first and last row, counted over all matrices, and the number of the matrix."""
    columns = decision.info.shape[-1]
    n_rows = decision.info.shape[-2] if len(decision.info.shape) > 1 else 1
    step = max(1, SLAB // columns)
    for matrix in range(prod(decision.info.shape[:-2])):
        for row in range(0, n_rows, step):
            yield matrix * n_rows + row, matrix * n_rows + min(row + step, n_rows), matrix


def _quantize(
    decision: Decision, encode: BlockEncoder, rows: NDArray[np.uint8], first: int, weights: Numbers | None
) -> NDArray[np.uint8]:
    values = dequantize(rows, decision.source.type)
    largest = max(values.max(initial=0.0), -values.min(initial=0.0))
    if not np.isfinite(largest):
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise QuantizeError(
            f"tensor {decision.source.name!r}: row {first + row}, column {column} is {values[row, column]}; "
            "it cannot be quantized"
        )
    blocks = encode(values, weights)
    if largest > MAX_FLOAT16 and not np.isfinite(dequantize(blocks, decision.info.type)).all():
        raise QuantizeError(
            f"tensor {decision.source.name!r}: rows {first} to {first + len(values) - 1}: values are as large as "
            f"{largest:g}, too large for {decision.info.type.name}; choose another type for this tensor"
        )
    return blocks


def _encoder(type: GGMLType, quantizers: Mapping[str, Quantizer]) -> BlockEncoder:
    if type in FLOATS:
        return lambda values, weights: _to_float(values, type)
    if type.name not in quantizers:
        raise QuantizeError(f"quantizing to {type.name} is not supported")
    quantizer = quantizers[type.name]

    def encode(values: Numbers, weights: Numbers | None) -> NDArray[np.uint8]:
        blocks: object = quantizer.quantize(values, weights)
        shape = (*values.shape[:-1], row_bytes(type, values.shape[-1]))
        if not isinstance(blocks, np.ndarray) or blocks.dtype != np.uint8 or blocks.shape != shape:
            got = f"{blocks.dtype} {list(blocks.shape)}" if isinstance(blocks, np.ndarray) else repr(blocks)
            raise TypeError(f"expected uint8 {list(shape)}, not {got:.100}")
        return blocks

    return guarded(encode, f"quantizer {type.name!r}: quantize")


def _to_float(values: Numbers, type: GGMLType) -> NDArray[np.uint8]:
    """Convert to a float type, rounding to nearest, ties to even."""
    if type is GGMLType.F32:
        return np.ascontiguousarray(values).view(np.uint8)
    if type is GGMLType.F16:
        with np.errstate(over="ignore"):  # values that are too large become infinite
            return values.astype("<f2").view(np.uint8)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").view(np.uint8)
