"""Decide on the type of each tensor: by the rules of a mix, the user's options, and the required weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError
from pumice.gguf import EncodedValue, GGMLType, GGUFFile, ModelTensor, TensorInfo, block_size
from pumice.gguf.file_types import FileType
from pumice.gguf.tensors import without_ones
from pumice.quantize.imatrix import ImportanceMatrix
from pumice.quantize.mix import Mix, ModelFacts, fallback, kind_of
from pumice.quantize.protected import is_protected

FLOATS = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)
CANNOT_WITHOUT_WEIGHTS = (GGMLType.IQ1_S, GGMLType.IQ2_XXS, GGMLType.IQ2_XS)
NEED_WEIGHTS = (*CANNOT_WITHOUT_WEIGHTS, GGMLType.IQ1_M, GGMLType.IQ2_S, GGMLType.IQ3_XXS)  # for usable quality


@dataclass(frozen=True)
class QuantizeOptions:
    """Options of quantization.

    Attributes:
        pure: use the mix's default type for all unprotected tensors.
        leave_output: keep the type of ``output.weight``.
        output_type: type of ``output.weight``.
        embedding_type: type of ``token_embd.weight``.
        tensor_types: pairs of regular expression and type; the first expression found in a tensor's name counts.
        prune_layers: numbers of layers to leave out.
        overrides: metadata to set.
    """

    pure: bool = False
    leave_output: bool = False
    output_type: GGMLType | None = None
    embedding_type: GGMLType | None = None
    tensor_types: Sequence[tuple[str, GGMLType]] = ()
    allow_requantize: bool = False
    keep_split: bool = False
    prune_layers: Sequence[int] = ()
    overrides: Mapping[str, EncodedValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """The decision on one tensor.

    Attributes:
        weights: [matrices, columns] of the importance matrix; None without one, or if the tensor is copied.
        needs_weights: True if the new type requires weights.
        replaced: the originally chosen type, if its blocks do not divide the rows.
    """

    source: ModelTensor
    info: TensorInfo
    weights: NDArray[np.float32] | None = None
    replaced: GGMLType | None = None
    needs_weights: bool = False

    @property
    def is_copy(self) -> bool:
        return self.info.type is self.source.type


class Chooser:
    """Decides on the type of each tensor, in the file's order.

    Args:
        file: the model.
        values: its metadata with overrides.
        to: the type or mix; None: copy.
        imatrix: the importance matrix.
        options: options of quantization.
        names: names of all tensors, for the rules of the mix.
    """

    def __init__(
        self,
        file: GGUFFile,
        values: Mapping[str, Any],
        to: FileType | None,
        imatrix: ImportanceMatrix | None,
        options: QuantizeOptions,
        names: Sequence[str],
    ) -> None:
        self.file, self.to, self.imatrix, self.options = file, to, imatrix, options
        self.architecture = file.architecture
        self.mix = None if to is None else Mix(to, model_facts(file, values), names, imatrix is not None)
        self.patterns = [(_compiled(pattern), type) for pattern, type in options.tensor_types]
        self.fitting: set[int] = set()

    def decide(self, source: ModelTensor, name: str) -> Decision:
        """Return the decision on a tensor.

        Args:
            source: the tensor of the source file.
            name: its name in the new file.

        Raises:
            QuantizeError: the tensor cannot be quantized to its type.
        """
        shape = without_ones(source.shape)
        chosen = self._type(source.type, name, shape)
        columns = shape[-1]
        type = chosen if chosen in FLOATS or chosen is source.type else self._fitting_type(chosen, name, columns)
        info = TensorInfo(name, type, shape)
        if type is source.type:
            return Decision(source, info)
        self._check_source(source)
        needs = self._needs_weights(name, type)
        weights = None if type in FLOATS else self._weights(source.name, shape, needs)
        return Decision(source, info, weights, chosen if chosen is not type else None, needs)

    def check_patterns(self) -> None:
        """Raise QuantizeError if a pattern matches no tensor, and so is probably misspelled, or has no effect."""
        if self.patterns and self.to is not None and self.to.default in FLOATS:
            raise QuantizeError(
                f"{self.to.name} sets one type for all tensors, so patterns of tensor names have no effect"
            )
        for i, (pattern, _) in enumerate(self.patterns):
            if i not in self.fitting:
                raise QuantizeError(f"the pattern {pattern.pattern!r} matches no tensor that can be quantized")

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
        matches = [(i, type) for i, (pattern, type) in enumerate(self.patterns) if pattern.search(name)]
        self.fitting.update(i for i, _ in matches)
        return matches[0][1] if matches else None

    def _fitting_type(self, chosen: GGMLType, name: str, columns: int) -> GGMLType:
        try:
            return fallback(chosen, columns)
        except QuantizeError as error:
            raise QuantizeError(f"{self.file.path}: tensor {name!r}: {error}") from None

    def _check_source(self, source: ModelTensor) -> None:
        if len(without_ones(source.shape)) > 3:
            raise QuantizeError(f"{self.file.path}: tensor {source.name!r} has four dimensions and cannot be quantized")
        if block_size(source.type) > 1 and not self.options.allow_requantize:
            raise QuantizeError(
                f"{self.file.path}: tensor {source.name!r} is already {source.type.name}; quantize from F32, F16 or "
                "BF16, or give --allow-requantize"
            )

    def _needs_weights(self, name: str, type: GGMLType) -> bool:
        if kind_of(name) in ("embedding", "output"):
            return type in CANNOT_WITHOUT_WEIGHTS
        q2_k_s = self.to is not None and self.to.name == "Q2_K_S" and type is GGMLType.Q2_K
        return type in NEED_WEIGHTS or q2_k_s

    def _weights(self, name: str, shape: tuple[int, ...], needed: bool) -> NDArray[np.float32] | None:
        """Return the weights of the tensor, ``name`` in the source, as [matrices, columns]."""
        if self.imatrix is None:
            return None
        values = self.imatrix.weights.get(name)
        n_matrices, columns = shape[-3] if len(shape) > 2 else 1, shape[-1]
        if values is None:
            if needed:
                raise QuantizeError(
                    f"{self.imatrix.path}: no weights for tensor {name!r}, whose new type needs them; measure on "
                    "more text, or choose another type for it with --tensor-type"
                )
            return None
        if values.size == n_matrices * columns:
            return values.reshape(n_matrices, columns)
        if kind_of(name) == "embedding":
            return None
        raise QuantizeError(
            f"{self.imatrix.path}: {values.size} weights for tensor {name!r}, which has {n_matrices} x {columns} "
            "columns; is the importance matrix from another model?"
        )


def missing_weights(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the tensors that lack weights required by their new type."""
    return [decision for decision in decisions if decision.needs_weights and decision.weights is None]


def model_facts(file: GGUFFile, values: Mapping[str, Any]) -> ModelFacts:
    """Return the model facts that the rules of mixes use, from the metadata with its overrides."""
    architecture = file.architecture

    def number(key: str, default: int = 0) -> int:
        """Return a number, or that of the first layer if layers differ."""
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


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise QuantizeError(f"invalid regular expression {pattern!r}: {error}") from None
