"""The numbers of tensors: finite, not nothing, of the size of their neighbours, and not copied."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from math import prod

import numpy as np

from pumice.check.findings import Finding, Subject
from pumice.gguf.compare import decoded_rows
from pumice.gguf.tensors import ModelTensor
from pumice.wording import counted_as

OF_LAYER = re.compile(r"(?P<prefix>(?:\w+\.)*blk)\.(?P<layer>\d+)\.(?P<part>.+)")
MOST_ZERO_ROWS = 0.05
LARGEST_RATIO = 6.0  # of a matrix's size to the median of the same matrix in other layers
FEWEST_LAYERS = 4  # for a comparison


def check_weights(subject: Subject) -> Iterator[Finding]:
    """Find numbers that are not finite, matrices of zeros, outliers among layers, and copies."""
    sizes: dict[str, dict[int, float]] = defaultdict(dict)
    digests: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    tensors = subject.file.tensors.values()
    done, total = 0, sum(tensor.nbytes for tensor in tensors)
    for tensor in tensors:
        found, size = _numbers_of(tensor)
        yield from found
        layer = OF_LAYER.fullmatch(tensor.name)
        if layer and len(tensor.shape) > 1 and size > 0:
            sizes[f"{layer['prefix']}.*.{layer['part']}"][int(layer["layer"])] = size
            digest = hashlib.sha256(tensor.data.reshape(-1).data).digest()
            digests[layer["part"], digest].append(tensor.name)
        tensor.release()
        done += tensor.nbytes
        subject.progress(done, total)
    yield from _outliers(sizes)
    yield from _copies([names for names in digests.values() if len(names) > 1])


def _numbers_of(tensor: ModelTensor) -> tuple[list[Finding], float]:
    """Return the findings of one tensor, and the root mean square of its numbers."""
    n_zero, squares = 0, 0.0
    for row, numbers in decoded_rows(tensor):
        finite = np.isfinite(numbers)
        if not finite.all():
            offset, column = np.argwhere(~finite)[0]
            where = f"row {row + offset}, column {column} is {numbers[offset, column]}"
            return [Finding("error", tensor.name, f"{where}: every result is lost")], 0.0
        n_zero += int((~numbers.any(axis=1)).sum())
        squares += float(np.einsum("ij,ij->", numbers, numbers, dtype=np.float64))
    n_rows = prod(tensor.shape[:-1])
    if tensor.name.endswith(".weight") and OF_LAYER.fullmatch(tensor.name):
        if n_zero == n_rows:
            return [Finding("error", tensor.name, "all numbers are zero: the layer has lost this part")], 0.0
        if n_zero > MOST_ZERO_ROWS * n_rows:
            share = f"{100 * n_zero / n_rows:.0f} % of its rows are zero"
            return [Finding("error", tensor.name, f"{share}: scales of blocks are missing")], 0.0
    return [], (squares / prod(tensor.shape)) ** 0.5


def _outliers(sizes: dict[str, dict[int, float]]) -> Iterator[Finding]:
    for part, by_layer in sizes.items():
        if len(by_layer) < FEWEST_LAYERS:
            continue
        typical = float(np.median(list(by_layer.values())))
        for layer, size in by_layer.items():
            if not 1 / LARGEST_RATIO < size / typical < LARGEST_RATIO:
                message = f"its numbers are of size {size:.3g}; in the other layers they are of {typical:.3g}"
                yield Finding("error", part.replace("*", str(layer)), message)


def _copies(groups: list[list[str]]) -> Iterator[Finding]:
    """Report layers whose matrices are the same, each pair once."""
    pairs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for first, *others in groups:
        one, part = _split(first)
        for other in others:
            pairs[one, _split(other)[0]].append(part)
    for (one, other), parts in pairs.items():
        what = f"{counted_as(len(parts), 'tensor')} ({', '.join(parts[:3])}{', ...' if parts[3:] else ''})"
        yield Finding("warning", other, f"is a copy of {one}: {what} of the same bytes")


def _split(name: str) -> tuple[str, str]:
    """Return ``blk.3`` and ``attn_q.weight`` for ``blk.3.attn_q.weight``."""
    match = OF_LAYER.fullmatch(name)
    return (f"{match['prefix']}.{match['layer']}", match["part"]) if match else (name, "")
