"""Plan a quantized file: its metadata, the order of its tensors, and a decision on each."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from pumice.errors import QuantizeError
from pumice.gguf import EncodedValue, GGUFFile, encode
from pumice.gguf.copy import SPLIT_KEYS, encoded_metadata
from pumice.gguf.file_types import GUESSED, FileType
from pumice.quantize.decide import FLOATS, Chooser, Decision, QuantizeOptions
from pumice.quantize.imatrix import ImportanceMatrix
from pumice.quantize.mix import kind_of

FILE_TYPE, VERSION = "general.file_type", "general.quantization_version"
QUANTIZATION_VERSION = 2  # version of ggml's block formats
MAX_TEXT_BYTES = 127  # of the names that llama-quantize records

_BLOCK = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True)
class QuantizationPlan:
    """Metadata and tensors of the new file, in order. ``parts``: number of tensors per file; None: one file."""

    metadata: dict[str, EncodedValue]
    decisions: list[Decision]
    parts: list[int] | None
    source_bytes: int

    @property
    def n_bytes(self) -> int:
        """Total size of all tensors in bytes."""
        return sum(decision.info.nbytes for decision in self.decisions)

    @property
    def unweighted(self) -> list[str]:
        """Names of the tensors quantized without weights, except embeddings and output."""
        quantized = (item for item in self.decisions if not item.is_copy and item.info.type not in FLOATS)
        names = (item.info.name for item in quantized if item.weights is None)
        return [name for name in names if kind_of(name) not in ("embedding", "output")]

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.n_bytes / max(sum(prod(decision.info.shape) for decision in self.decisions), 1)


def make_plan(
    file: GGUFFile, to: FileType | None, imatrix: ImportanceMatrix | None, options: QuantizeOptions
) -> QuantizationPlan:
    """Decide on every tensor. ``to`` None copies all of them.

    Raises:
        QuantizeError: no type has blocks that divide a row, the source is quantized and ``allow_requantize`` is False,
            the importance matrix lacks required weights, or a pattern matches no tensor.
    """
    values = {**file.metadata, **{key: decode_scalar(value) for key, value in options.overrides.items()}}
    names = _new_names(file, options.prune_layers)
    chooser = Chooser(file, values, to, imatrix, options, list(names.values()))
    order = list(names) if options.keep_split else sorted(names, key=lambda name: _sort_key(names[name]))
    decisions = [chooser.decide(file.tensors[name], names[name]) for name in order]
    chooser.check_patterns()
    if not decisions:
        raise QuantizeError(f"{file.path}: the file has no tensors to quantize")
    parts = _parts(file, names) if options.keep_split else None
    metadata = _metadata(file, to, imatrix, options, values, names)
    return QuantizationPlan(metadata, decisions, parts, sum(decision.source.nbytes for decision in decisions))


def decode_scalar(value: EncodedValue) -> Any:
    """Return a scalar metadata value as a Python object."""
    from pumice.gguf.values import LAYOUTS, ValueType

    if value.type is ValueType.STR:
        return value.data[8:].decode()
    return LAYOUTS[value.type].unpack(value.data)[0]


def _metadata(
    file: GGUFFile,
    to: FileType | None,
    imatrix: ImportanceMatrix | None,
    options: QuantizeOptions,
    values: Mapping[str, Any],
    names: Mapping[str, str],
) -> dict[str, EncodedValue]:
    """Return the source's metadata, followed by records of the quantization in llama-quantize's order."""
    number = to.number if to is not None else int(values.get(FILE_TYPE, GUESSED))
    new = {
        VERSION: encode(QUANTIZATION_VERSION, "u32"),
        FILE_TYPE: encode(number, "u32"),
    }
    for key, value in options.overrides.items():
        new.pop(key, None)
        new[key] = value
    if imatrix is not None:
        new["quantize.imatrix.file"] = encode(_cut(str(imatrix.path)))
        if imatrix.datasets:
            new["quantize.imatrix.dataset"] = encode(_cut(imatrix.datasets[0]))
        new["quantize.imatrix.entries_count"] = encode(len(imatrix.weights), "u32")
        if imatrix.n_chunks > 0:
            new["quantize.imatrix.chunks_count"] = encode(imatrix.n_chunks, "u32")
    if options.prune_layers:
        blocks = {match[1] for name in names.values() if (match := _BLOCK.match(name))}
        key = f"{file.architecture}.block_count"
        new.pop(key, None)
        new[key] = encode(len(blocks), "u32")
    return {**encoded_metadata(file.metadata, without={*SPLIT_KEYS, *new}), **new}


def _new_names(file: GGUFFile, pruned: Sequence[int]) -> dict[str, str]:
    """Return the remaining tensors with their new names, in which layers are numbered without gaps."""
    numbers = sorted({int(match[1]) for name in file.tensors if (match := _BLOCK.match(name))})
    for number in pruned:
        if number not in numbers:
            raise QuantizeError(f"{file.path}: no layer {number} to leave out")
    numbering = {old: new for new, old in enumerate(number for number in numbers if number not in pruned)}
    names = {}
    for name in file.tensors:
        match = _BLOCK.match(name)
        if match is None:
            names[name] = name
        elif int(match[1]) in numbering:
            new = numbering[int(match[1])] if pruned else int(match[1])
            names[name] = f"blk.{new}.{name[match.end() :]}"
    return names


def _parts(file: GGUFFile, names: Container[str]) -> list[int]:
    """Return the number of remaining tensors in each file of a split model."""
    from pumice.gguf.split import parse_parts

    return [sum(name in names for name in part.tensors) for part in parse_parts(file.path)]


def _sort_key(name: str) -> tuple[int, bytes]:
    """Return the sort key of llama.cpp's order: tensors without a layer first, then by layer and name."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else -1, name.encode()


def _cut(text: str) -> str:
    return text.encode()[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
