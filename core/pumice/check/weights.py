"""The numbers of tensors: finite, not nothing, of the size of their neighbours, not copied, and not swapped."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

import numpy as np

from pumice.check.findings import Finding, Subject
from pumice.gguf.compare import decoded_rows
from pumice.gguf.tensors import ModelTensor
from pumice.wording import counted_as

OF_LAYER = re.compile(r"(?P<prefix>(?:\w+\.)*blk)\.(?P<layer>\d+)\.(?P<part>.+)")
MOST_ZERO_ROWS = 0.05
LARGEST_RATIO = 6.0  # of a matrix's size to the median of the same matrix in other layers
FEWEST_LAYERS = 4  # for a comparison
LARGEST_BIAS = 3.0  # ratio of the common part of the rows of ffn_up to that of ffn_gate


def check_weights(subject: Subject) -> Iterator[Finding]:
    """Find numbers that are not finite, matrices of zeros, outliers among layers, copies, and swapped matrices."""
    sizes: dict[str, dict[int, float]] = defaultdict(dict)
    biases: dict[str, float] = {}
    digests: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    tensors = subject.file.tensors.values()
    done, total = 0, sum(tensor.nbytes for tensor in tensors)
    for tensor in tensors:
        found, numbers = _numbers_of(tensor)
        yield from found
        layer = OF_LAYER.fullmatch(tensor.name)
        if layer and len(tensor.shape) > 1 and numbers.size > 0:
            sizes[f"{layer['prefix']}.*.{layer['part']}"][int(layer["layer"])] = numbers.size
            biases[tensor.name] = numbers.bias
            digest = hashlib.sha256(tensor.data.reshape(-1).data).digest()
            digests[layer["part"], digest].append(tensor.name)
        tensor.release()
        done += tensor.nbytes
        subject.progress(done, total)
    yield from _outliers(sizes)
    yield from _copies([names for names in digests.values() if len(names) > 1])
    yield from _swapped(biases)


class Numbers(NamedTuple):
    """Properties of a tensor's numbers.

    Attributes:
        size: root mean square.
        bias: squared length of the sum of all rows, relative to that of rows with random signs, which have about 1.
    """

    size: float
    bias: float


def _numbers_of(tensor: ModelTensor) -> tuple[list[Finding], Numbers]:
    """Return the findings of one tensor, and the properties of its numbers, zeros where it is damaged."""
    n_zero, squares, total = 0, 0.0, np.zeros(tensor.shape[-1:])
    for row, numbers in decoded_rows(tensor):
        finite = np.isfinite(numbers)
        if not finite.all():
            offset, column = np.argwhere(~finite)[0]
            where = f"row {row + offset}, column {column} is {numbers[offset, column]}"
            return [Finding("error", tensor.name, f"{where}: every result is lost")], Numbers(0, 0)
        n_zero += int((~numbers.any(axis=1)).sum())
        squares += float(np.einsum("ij,ij->", numbers, numbers, dtype=np.float64))
        total += numbers.sum(axis=0, dtype=np.float64)
    n_rows = prod(tensor.shape[:-1])
    if tensor.name.endswith(".weight") and OF_LAYER.fullmatch(tensor.name):
        if n_zero == n_rows:
            return [Finding("error", tensor.name, "all numbers are zero: the layer has lost this part")], Numbers(0, 0)
        if n_zero > MOST_ZERO_ROWS * n_rows:
            share = f"{100 * n_zero / n_rows:.0f} % of its rows are zero"
            return [Finding("error", tensor.name, f"{share}: scales of blocks are missing")], Numbers(0, 0)
    return [], Numbers((squares / prod(tensor.shape)) ** 0.5, float(total @ total) / squares if squares else 0.0)


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


def _swapped(biases: Mapping[str, float]) -> Iterator[Finding]:
    """Report layers whose ffn_gate has the numbers of ffn_up, and the other way round.

    A neuron is the same if the signs of its row of ffn_up and its column of ffn_down change, so rows of ffn_up have
    random signs. Those of ffn_gate, to which the activation is applied, have more in common: 7 to 270 times as much in
    trained models (SmolLM2, Gemma 3, Qwen 2.5).
    """
    for name, gate in biases.items():
        other = name.replace(".ffn_gate", ".ffn_up")
        if other != name and biases.get(other, 0.0) > LARGEST_BIAS * max(gate, 1.0):
            message = f"the signs of its rows are random, and those of {other} are not: the two are swapped"
            yield Finding("error", name, message)


def _split(name: str) -> tuple[str, str]:
    """Return ``blk.3`` and ``attn_q.weight`` for ``blk.3.attn_q.weight``."""
    match = OF_LAYER.fullmatch(name)
    return (f"{match['prefix']}.{match['layer']}", match["part"]) if match else (name, "")
