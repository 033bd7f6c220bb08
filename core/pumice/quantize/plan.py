"""What a model will become: every decision, and all that can be wrong, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError
from pumice.gguf import Encoded, GGMLType, GGUFFile, ModelTensor, TensorInfo, block_size, encode
from pumice.gguf.copy import SPLIT_KEYS, encoded_metadata
from pumice.gguf.tensors import without_ones
from pumice.quantize.file_types import GUESSED, FileType
from pumice.quantize.imatrix import ImportanceMatrix
from pumice.quantize.mix import Mix, ModelFacts, fallback, kind_of
from pumice.quantize.protected import is_protected

FLOATS = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)
CANNOT_WITHOUT_WEIGHTS = (GGMLType.IQ1_S, GGMLType.IQ2_XXS, GGMLType.IQ2_XS)
NEED_WEIGHTS = (*CANNOT_WITHOUT_WEIGHTS, GGMLType.IQ1_M, GGMLType.IQ2_S, GGMLType.IQ3_XXS)  # to be worth anything
FILE_TYPE, VERSION = "general.file_type", "general.quantization_version"
QUANTIZATION_VERSION = 2  # of ggml's formats
MAX_TEXT_BYTES = 127  # of the names that llama-quantize notes

_BLOCK = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True)
class Options:
    """How a model is quantized.

    pure: the mix's default type for every tensor that is not protected. leave_output: ``output.weight`` keeps its type.
    output_type, embedding_type: of ``output.weight`` and of ``token_embd.weight``.
    tensor_types: (pattern, type); the first whose regular expression is found in a tensor's name decides.
    prune_layers: numbers of layers to leave out. overrides: metadata that is set.
    """

    pure: bool = False
    leave_output: bool = False
    output_type: GGMLType | None = None
    embedding_type: GGMLType | None = None
    tensor_types: Sequence[tuple[str, GGMLType]] = ()
    allow_requantize: bool = False
    keep_split: bool = False
    prune_layers: Sequence[int] = ()
    overrides: Mapping[str, Encoded] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """One tensor: where it comes from, and what is written of it.

    weights: [matrices, columns] of an importance matrix; None: there are none, or it is copied.
    wanted: the type that was chosen, where its blocks do not divide the rows.
    """

    source: ModelTensor
    info: TensorInfo
    weights: NDArray[np.float32] | None = None
    wanted: GGMLType | None = None
    needs_weights: bool = False

    @property
    def is_copy(self) -> bool:
        return self.info.type is self.source.type


@dataclass(frozen=True)
class Plan:
    """Metadata and tensors of the new file in order. parts: number of tensors of each file; None: one file."""

    metadata: dict[str, Encoded]
    decisions: list[Decision]
    parts: list[int] | None
    source_bytes: int

    @property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(decision.info.nbytes for decision in self.decisions)

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.n_bytes / max(sum(prod(decision.info.shape) for decision in self.decisions), 1)


def make_plan(file: GGUFFile, to: FileType | None, imatrix: ImportanceMatrix | None, options: Options) -> Plan:
    """Decide on every tensor. to: None copies all of them.

    Raises QuantizeError for what cannot be done: a type whose blocks do not divide a row, a quantized source without
    ``allow_requantize``, weights that a type needs and the importance matrix does not have, a pattern that no tensor
    fits.
    """
    values = {**file.metadata, **{key: decode_scalar(value) for key, value in options.overrides.items()}}
    names = _new_names(file, options.prune_layers)
    chooser = _Chooser(file, values, to, imatrix, options, list(names.values()))
    order = list(names) if options.keep_split else sorted(names, key=lambda name: _place(names[name]))
    decisions = [chooser.decide(file.tensors[name], names[name]) for name in order]
    chooser.check_patterns()
    if not decisions:
        raise QuantizeError(f"{file.path}: has no tensors to quantize")
    parts = _parts(file, names) if options.keep_split else None
    metadata = _metadata(file, to, imatrix, options, values, names)
    return Plan(metadata, decisions, parts, sum(decision.source.nbytes for decision in decisions))


class _Chooser:
    """Decides on one tensor after another, in the file's order."""

    def __init__(
        self,
        file: GGUFFile,
        values: Mapping[str, Any],
        to: FileType | None,
        imatrix: ImportanceMatrix | None,
        options: Options,
        names: Sequence[str],
    ) -> None:
        self.file, self.to, self.imatrix, self.options = file, to, imatrix, options
        self.architecture = file.architecture
        self.mix = None if to is None else Mix(to, model_facts(file, values), names, imatrix is not None)
        self.patterns = [(_compiled(pattern), type) for pattern, type in options.tensor_types]
        self.fitting: set[int] = set()

    def decide(self, source: ModelTensor, name: str) -> Decision:
        shape = without_ones(source.shape)
        wanted = self._type(source.type, name, shape)
        columns = shape[-1]
        type = wanted if wanted in FLOATS or wanted is source.type else self._fitting_type(wanted, name, columns)
        info = TensorInfo(name, type, shape)
        if type is source.type:
            return Decision(source, info)
        self._check_source(source)
        needs = self._needs_weights(name, type)
        weights = None if type in FLOATS else self._weights(source.name, shape, needs)
        return Decision(source, info, weights, wanted if wanted is not type else None, needs)

    def check_patterns(self) -> None:
        """QuantizeError for a pattern that no tensor fits: it is most likely misspelt."""
        for i, (pattern, _) in enumerate(self.patterns):
            if i not in self.fitting:
                raise QuantizeError(f"no tensor that may be quantized fits the pattern {pattern.pattern!r}")

    def _type(self, old: GGMLType, name: str, shape: tuple[int, ...]) -> GGMLType:
        if self.mix is None or is_protected(self.architecture, name, shape):
            return old
        if self.options.leave_output and name == "output.weight":
            return old
        kind, pattern = kind_of(name), self._pattern(name)
        by_pattern = name == "per_layer_token_embd.weight" and pattern is not None
        if self.options.embedding_type is not None and kind == "embedding" and not by_pattern:
            return self.options.embedding_type
        if self.options.output_type is not None and kind == "output":
            return self.options.output_type
        if self.mix.default in FLOATS:
            return self.mix.default
        if pattern is not None:
            return pattern
        if self.options.pure:
            return self.mix.default
        if self.options.output_type is not None and kind == "embedding" and self.mix.is_tied:
            return self.options.output_type
        return self.mix.choose(name, shape[-1], shape[-3] if len(shape) > 2 else 1)

    def _pattern(self, name: str) -> GGMLType | None:
        found = [(i, type) for i, (pattern, type) in enumerate(self.patterns) if pattern.search(name)]
        self.fitting.update(i for i, _ in found)
        return found[0][1] if found else None

    def _fitting_type(self, wanted: GGMLType, name: str, columns: int) -> GGMLType:
        try:
            return fallback(wanted, columns)
        except QuantizeError as error:
            raise QuantizeError(f"{self.file.path}: tensor {name!r}: {error}") from None

    def _check_source(self, source: ModelTensor) -> None:
        if len(without_ones(source.shape)) > 3:
            raise QuantizeError(
                f"{self.file.path}: tensor {source.name!r} has four dimensions, which none can quantize"
            )
        if block_size(source.type) > 1 and not self.options.allow_requantize:
            raise QuantizeError(
                f"{self.file.path}: tensor {source.name!r} is {source.type.name} already: quantize from F32, F16 or "
                "BF16, or give --allow-requantize"
            )

    def _needs_weights(self, name: str, type: GGMLType) -> bool:
        if kind_of(name) in ("embedding", "output"):
            return type in CANNOT_WITHOUT_WEIGHTS
        q2_k_s = self.to is not None and self.to.name == "Q2_K_S" and type is GGMLType.Q2_K
        return type in NEED_WEIGHTS or q2_k_s

    def _weights(self, name: str, shape: tuple[int, ...], needed: bool) -> NDArray[np.float32] | None:
        """Of the tensor that ``name`` is in the source: [matrices, columns]."""
        if self.imatrix is None:
            return None
        values = self.imatrix.weights.get(name)
        n_matrices, columns = shape[-3] if len(shape) > 2 else 1, shape[-1]
        if values is None:
            if needed:
                raise QuantizeError(
                    f"{self.imatrix.path}: has no weights for tensor {name!r}, whose new type needs them"
                )
            return None
        if values.size == n_matrices * columns:
            return values.reshape(n_matrices, columns)
        if kind_of(name) == "embedding":
            return None
        raise QuantizeError(
            f"{self.imatrix.path}: has {values.size} weights for tensor {name!r}, which has {n_matrices} x {columns} "
            "columns; is it of another model?"
        )


def model_facts(file: GGUFFile, values: Mapping[str, Any]) -> ModelFacts:
    """What the rules of mixes ask, from a file's metadata as they are overridden."""
    architecture = file.architecture

    def number(key: str, default: int = 0) -> int:
        """Of the first layer, where each has its own."""
        value = values.get(f"{architecture}.{key}", default)
        if isinstance(value, np.ndarray):
            value = value[0] if value.size else default
        return int(value)

    n_layer = number("block_count")
    n_head = number("attention.head_count")
    n_head_kv = number("attention.head_count_kv", n_head)
    has_80 = n_layer == 80 and (architecture != "llama" or n_head != n_head_kv)
    is_70b = (architecture in ("llama", "deci", "olmo", "qwen2") and has_80) or (architecture, n_layer) == ("jais2", 68)
    gqa = n_head // n_head_kv if n_head_kv else 0
    return ModelFacts(architecture, n_layer, gqa, number("expert_count"), is_70b)


def missing_weights(decisions: Sequence[Decision]) -> list[Decision]:
    """The tensors whose new type needs weights that there are not."""
    return [decision for decision in decisions if decision.needs_weights and decision.weights is None]


def decode_scalar(value: Encoded) -> Any:
    """A metadata value that is no array, as Python has it."""
    from pumice.gguf.values import LAYOUTS, ValueType

    if value.type is ValueType.STR:
        return value.data[8:].decode()
    return LAYOUTS[value.type].unpack(value.data)[0]


def _metadata(
    file: GGUFFile,
    to: FileType | None,
    imatrix: ImportanceMatrix | None,
    options: Options,
    values: Mapping[str, Any],
    names: Mapping[str, str],
) -> dict[str, Encoded]:
    """The source's, and after them what says how the new file came to be, in llama-quantize's order."""
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
    """The tensors that are kept, and their new names: layers are numbered without gaps."""
    numbers = sorted({int(match[1]) for name in file.tensors if (match := _BLOCK.match(name))})
    for number in pruned:
        if number not in numbers:
            raise QuantizeError(f"{file.path}: there is no layer {number} to leave out")
    kept = {old: new for new, old in enumerate(number for number in numbers if number not in pruned)}
    names = {}
    for name in file.tensors:
        match = _BLOCK.match(name)
        if match is None:
            names[name] = name
        elif int(match[1]) in kept:
            new = kept[int(match[1])] if pruned else int(match[1])
            names[name] = f"blk.{new}.{name[match.end() :]}"
    return names


def _parts(file: GGUFFile, names: Container[str]) -> list[int]:
    """How many tensors of each file of a split model are kept."""
    from pumice.gguf.split import parse_parts

    return [sum(name in names for name in part.tensors) for part in parse_parts(file.path)]


def _place(name: str) -> tuple[int, bytes]:
    """llama.cpp's order: what is of no layer first, then by layer, each by name."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else -1, name.encode()


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise QuantizeError(f"{pattern!r} is not a regular expression: {error}") from None


def _cut(text: str) -> str:
    return text.encode()[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
